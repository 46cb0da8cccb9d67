"""What the wall clock may say of a partition, against the rule said slowly, and in worlds with a clock of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.roles.joiner.partition_clock import VOTES, ClockRule, PartitionClock, Votes

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NOW = 1_700_000_000_000
RULE = ClockRule(grace_ms=2 * SECOND, lateness_ms=10 * MINUTE, idle_after_ms=MINUTE)


@dataclass
class Seen:
    """Keeps everything that a clock was told."""

    began_ms: int
    read: list[tuple[int, int]] = field(default_factory=list)
    """(when, time of the record)"""
    log: list[tuple[int, int]] = field(default_factory=list)
    """(when, log time)"""
    held_until: int | None = None


def slow(seen: Seen, others: list[bool], now: int, closed: int) -> int | None:
    """The rule in words: see the module's first lines."""
    latest = now - RULE.grace_ms
    since = seen.began_ms if seen.held_until is None else seen.held_until
    recent = [(when, at) for when, at in seen.read if when >= since]
    votes = [when - at <= RULE.lateness_ms for when, at in recent[-VOTES:]] or others[-VOTES:]
    caught_up = latest - closed <= RULE.lateness_ms
    live = len([v for v in votes if v]) > len([v for v in votes if not v])
    quiet = now - max([since, *(when for when, _ in recent)]) >= RULE.idle_after_ms
    waits = seen.held_until is not None and now < seen.held_until + RULE.idle_after_ms
    if not waits and (caught_up or live or quiet):
        return latest
    top = max((log for _, log in seen.log), default=-1)
    if top < 0:
        return None
    reached = min(when for when, log in seen.log if log == top)
    passed = now - max(reached, since)
    return min(top + max(passed - RULE.grace_ms, 0), latest)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 200, 20 * SECOND, MINUTE, 20 * MINUTE]),
        st.one_of(
            st.just("let go"),
            st.lists(st.sampled_from([0, SECOND, 10 * MINUTE, 10 * MINUTE + 1, DAY, 30 * DAY]), max_size=20),
        ),
        st.sampled_from([None, 0, 10 * MINUTE, 11 * MINUTE, DAY]),
    ),
    max_size=40,
)


@given(STEPS, st.lists(st.booleans(), max_size=20))
def test_a_clock_says_what_the_rule_says(steps: list[tuple], others: list[bool]) -> None:
    """Whatever is read and whenever it is asked; the votes of other partitions count until it has its own."""
    of_topic = Votes()
    of_topic.add(others)
    others, now = list(others), NOW
    clock, seen = PartitionClock(RULE, now, of_topic), Seen(now)
    for passed, what, behind in steps:
        now += passed
        if what == "let go":
            now += 1  # what is read in the same millisecond as the end of a hold is not told apart by `slow`
            clock.let_go(now)
            seen.held_until = now
        else:
            times = [now - age for age in what]
            seen.read += [(now, at) for at in times]
            others += [now - at <= RULE.lateness_ms for at in times]
            log = max([at for _, at in seen.read], default=-1)
            seen.log.append((now, log))
            clock.note(np.array(times, np.int64), log, now)
        closed = 0 if behind is None else now - behind
        progress = clock.progress(now, closed)
        assert progress == slow(seen, others, now, closed)
        assert progress is None or progress <= now - RULE.grace_ms


class World:
    """One partition, read at its end every step; a joiner that closes as far as time has come."""

    def __init__(self, now: int = NOW, closed: int = 0) -> None:
        self.now, self.closed, self.log, self.lost = now, closed, -1, 0
        self.of_topic = Votes()
        self.restart()

    def restart(self) -> None:
        """Only what the marks say is left: how far ticks have closed."""
        self.clock = PartitionClock(RULE, self.now, self.of_topic)
        self.log = -1

    def come(self, *times: int) -> None:
        """Records come; those of a time that has been closed are lost."""
        self.lost += sum(at < self.closed for at in times)
        self.log = max(self.log, *times)
        self.clock.note(np.array(times, np.int64), self.log, self.now)

    def progress(self) -> int | None:
        """Ask for progress, and close ticks up to it."""
        progress = self.clock.progress(self.now, self.closed)
        self.closed = max(self.closed, progress or 0)
        return progress

    def step(self, ms: int) -> int | None:
        """Let time pass."""
        self.now += ms
        return self.progress()

    @property
    def fresh(self) -> bool:
        """Whether ticks have closed as far as the clock lets them."""
        return self.closed == self.now - RULE.grace_ms


@pytest.mark.parametrize("every", [20, SECOND, 10 * SECOND, 50 * SECOND, 10 * MINUTE, 5 * HOUR])
def test_what_flows_is_closed_by_the_clock_from_its_first_record_on(every: int) -> None:
    """However slow, and however late its records are within `lateness`."""
    world = World()
    for n in range(100):
        world.now += every
        world.come(world.now - (n * 7919) % (9 * MINUTE))
        world.progress()
        assert world.fresh
        world.step(every // 2)
        assert world.fresh


@pytest.mark.parametrize("speed", [2, 60, 3600])
def test_old_events_fed_into_a_running_joiner_are_not_lost(speed: int) -> None:
    """A month old, a minute apart, with pauses shorter than `idle_after`: all come before their time is closed."""
    world = World()
    at = NOW - 30 * DAY
    world.step(200)
    for n in range(2_000):
        passed = MINUTE // speed if n % 50 else 59 * SECOND
        for _ in range(4):
            world.step(passed // 4)
        at += max(MINUTE, passed)
        world.come(at)
    assert world.lost == 0
    assert world.step(MINUTE) == world.now - RULE.grace_ms


def test_after_old_events_most_of_the_last_must_be_live() -> None:
    """The ninth live record of the last sixteen decides, wherever log time is."""
    clock, old = PartitionClock(RULE, NOW, Votes()), NOW - DAY
    clock.note(np.full(100, old), old, NOW)
    followed = []
    for n in range(VOTES):
        clock.note(np.array([NOW + n]), old, NOW + n)
        followed.append(clock.progress(NOW + n, old) == NOW + n - RULE.grace_ms)
    assert followed == [n > VOTES // 2 for n in range(1, VOTES + 1)]


def test_a_burst_of_old_records_does_not_slow_what_is_fresh() -> None:
    """Ticks that have closed stay closed: nothing would be won by waiting."""
    world = World()
    world.come(world.now)
    world.step(SECOND)
    world.come(*(world.now - 30 * MINUTE for _ in range(100)))
    world.step(SECOND)
    assert world.fresh


def test_a_restart_goes_on_where_the_mark_ends() -> None:
    """A quiet partition, ended for a few minutes: the mark says that the clock had closed it."""
    world = World()
    world.step(MINUTE)
    assert world.fresh
    world.now += 9 * MINUTE
    world.restart()
    world.progress()
    assert world.fresh


def test_a_restart_after_a_long_time_waits_until_it_knows() -> None:
    """Live records tell it at once, also slow ones that were read late; without any it waits `idle_after`."""
    for gap, known in ((60 * SECOND, True), (HOUR, False)):
        world = World(closed=NOW - 3 * HOUR)
        world.come(*(NOW - n * gap for n in range(VOTES, 0, -1)))
        world.progress()
        assert world.fresh == known
        world.step(MINUTE)
        assert world.fresh


def test_a_restart_while_old_events_are_fed_loses_none() -> None:
    """A mark far behind the clock says nothing of how live the partition is."""
    world = World()
    for n in range(200):
        world.come(NOW - 30 * DAY + n * MINUTE)
        world.step(SECOND)
        if n % 20 == 10:
            world.now += 30 * SECOND
            world.restart()
            world.progress()
    assert world.lost == 0 and world.closed < NOW - 29 * DAY


def test_a_mirror_that_is_behind_keeps_its_own_time() -> None:
    """An hour behind and steady: time is an hour behind; ten seconds behind: the clock."""
    for behind, fresh in ((HOUR, False), (10 * SECOND, True)):
        world = World()
        for _ in range(1_000):
            world.now += SECOND
            world.come(world.now - behind)
            world.progress()
        assert world.fresh == fresh
        assert world.lost == (0 if behind == HOUR else 999)
        assert world.closed >= world.now - behind - RULE.grace_ms


def test_a_partition_without_a_record_goes_by_its_topic_or_waits() -> None:
    """It follows the others when they are live, never when they are old; then `idle_after` decides."""
    world = World()
    assert world.step(SECOND) is None
    world.of_topic.add([False] * VOTES)
    assert world.step(58 * SECOND) is None
    assert world.step(SECOND) == world.now - RULE.grace_ms
    world = World()
    world.of_topic.add([True])
    assert world.step(SECOND) == world.now - RULE.grace_ms


def test_after_a_hold_what_was_held_back_has_time_to_come() -> None:
    """The clicks of five minutes come in order within half a minute of the first; none is closed out."""
    world = World()
    world.come(*(world.now - n for n in range(100, 0, -1)))
    world.step(SECOND)
    began = world.closed
    world.now += 5 * MINUTE
    world.clock.let_go(world.now)
    for n in range(300):
        world.come(began + n * SECOND)
        world.step(100)
    assert world.lost == 0
    world.step(MINUTE)
    assert world.fresh


def test_a_record_from_the_future_does_not_pass_the_clock() -> None:
    """Log time may; progress by the clock never does."""
    world = World()
    world.come(world.now + HOUR)
    assert world.progress() == world.now - RULE.grace_ms
