"""With the clock closing ticks at the end of partitions: the marks say what was closed, and the oracle follows
them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import accumulate

import pytest

from stream_learner.core.log.marks import Mark
from stream_learner.roles.joiner.role import JoinerRole
from tests.e2e.checks import assert_model_equals, balance_of, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.e2e.training_log import plain_examples
from tests.oracles import loop
from tests.scenarios import Message, Scenario, records, scenario
from tests.suite.share import cases

pytestmark = pytest.mark.usefixtures("moved_clock")

GRACE_MS = 1_000
STEPS = 12
CLOSING = {"close_idle": True, "grace": f"{GRACE_MS}ms", "idle_after": "0"}
"""The end of a topic counts as complete as soon as it is read: the clock of these tests moves in long steps."""


class Stepped:
    """A site whose clock stands still until a step is made: then what has arrived by the new time is sent."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.now_ms = 0
        self._sent = [[0] * site.partitions, [0] * site.partitions]
        self._arrivals = [[_arrivals(part) for part in topic] for topic in self._topics()]

    def _topics(self) -> list[list[list[Message]]]:
        return [self.site.scenario.impressions, self.site.scenario.clicks]

    def joiner(self) -> JoinerRole:
        """A joiner that goes by this clock."""
        return self.site.joiner(clock_ms=lambda: self.now_ms)

    def step_to(self, now_ms: int, *, clock_first: bool = False) -> None:
        """Send what arrives until then, and turn the clock to it; with `clock_first` some comes too late."""
        self.now_ms = now_ms if clock_first else self.now_ms
        for topic, (name, parts) in enumerate(
            zip((self.site.impressions, self.site.clicks), self._topics(), strict=True)
        ):
            for partition, part in enumerate(parts):
                start = self._sent[topic][partition]
                stop = sum(at <= now_ms for at in self._arrivals[topic][partition])
                self.site.send(name, partition, part[start:stop])
                self._sent[topic][partition] = stop
        self.now_ms = now_ms

    def wait_closed(self) -> None:
        """Wait until every tick is closed that the clock closes in a quiet partition."""
        tick_ms = self.site.scenario.settings["tick_ms"]
        wait_until(lambda: self.site.last_tick() >= (self.now_ms - GRACE_MS) // tick_ms - 1, f"closed at {self.now_ms}")

    def times(self, steps: int) -> list[int]:
        """Times of steps: a step for an equal share of the messages each, and one with which the last click goes."""
        arrivals = sorted(at for topic in self._arrivals for part in topic for at in part)
        s = self.site.scenario.settings
        shares = [arrivals[len(arrivals) * n // steps] for n in range(1, steps)]
        memory_ms = s["window_ms"] + s["skew_ms"] + s["lateness_ms"]
        return [*shares, arrivals[-1], arrivals[-1] + 3 * (memory_ms + s["tick_ms"]) + GRACE_MS]


def _arrivals(part: list[Message]) -> list[int]:
    return list(accumulate((m.timestamp_ms for m in part), max))


def assert_equal_to_replay(site: Site) -> list[loop.Joined]:
    """Examples and counts of every mark are what the oracle makes of its positions; every record is accounted for."""
    s, scenario = site.scenario.settings, site.scenario
    marks = site.marks()
    given = [[_positions(mark) for mark in part] for part in marks]
    replayed = loop.replay_topics(records(scenario.impressions), records(scenario.clicks), given, s)
    for log, of_partition in zip(site.logs(), replayed, strict=True):
        assert log.examples() == plain_examples([e for joined in of_partition for e in joined.examples])
        for mark, joined in zip(log.marks, of_partition, strict=True):
            assert _without_zeros(mark.counts.impressions._asdict()) == _without_zeros(joined.impressions), mark
            assert _without_zeros(mark.counts.clicks._asdict()) == _without_zeros(joined.clicks), mark
    balance = balance_of(site)
    assert balance.problems == []
    assert balance.impressions.read == sum(map(len, scenario.impressions))
    assert (balance.clicks.read, balance.clicks.waiting) == (sum(map(len, scenario.clicks)), 0)
    return [joined for of_partition in replayed for joined in of_partition]


def _positions(mark: Mark) -> loop.Mark:
    places = mark.first_tick, mark.last_tick, mark.next_impression, mark.click_cursor
    return loop.Mark(*places, mark.stream_tick, mark.labels_from_ms)


def _without_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("name", cases(["everything", "late_and_orphans", "disorder"], ["everything"]))
def test_ticks_closed_by_the_clock_equal_the_replay_of_their_marks(name: str, make_site: MakeSite) -> None:
    """Events later than the grace, clicks among them, go where the marks say; the joiner is replaced half-way."""
    site = make_site(scenario(name), join=CLOSING)
    stepped = Stepped(site)
    times = stepped.times(STEPS)
    for half in (times[: STEPS // 2], times[STEPS // 2 :]):
        with running(stepped.joiner()):
            for step, now_ms in enumerate(half):
                stepped.step_to(now_ms, clock_first=step % 3 == 1)
                stepped.wait_closed()
    joined = assert_equal_to_replay(site)
    assert sum(j.clicks["late"] for j in joined) > 0
    learner = site.learner()
    with running(learner):
        wait_until(lambda: learner.tick == site.last_tick(), "every tick folded")
    assert_model_equals(learner.learner, expected_fold(joined, site.scenario.settings))


def test_partitions_without_clicks_or_impressions_close_by_the_clock(make_site: MakeSite) -> None:
    """One partition has no click at all, one no impression, one nothing: all close, and each example is there."""
    made = scenario("plain")
    site = make_site(_emptied(made, impressions=(1, 2), clicks=(0, 2)), join=CLOSING)
    stepped = Stepped(site)
    with running(stepped.joiner()):
        for now_ms in stepped.times(4):
            stepped.step_to(now_ms)
            stepped.wait_closed()
    joined = assert_equal_to_replay(site)
    assert sum(j.impressions["examples"] for j in joined) == sum(map(len, site.scenario.impressions))
    quiet = site.log(0).marks
    assert sum(mark.counts.impressions.examples for mark in quiet) == len(site.scenario.impressions[0])
    assert sum(mark.counts.impressions.positives for mark in quiet) == 0
    assert sum(mark.counts.clicks.orphans for mark in site.log(1).marks) == len(site.scenario.clicks[1])


def test_a_click_that_comes_after_its_tick_has_closed_is_late(make_site: MakeSite) -> None:
    """The clock closes the tick without it: the example stays negative, and the click is counted as late."""
    made = scenario("plain", partitions=1)
    s = made.settings
    at = 1_700_000_000_000
    impression = Message(at, b"x", b'{"id":"x"}')
    click = Message(at + 10, b"x", b'{"id":"x"}')
    site = make_site(replace(made, impressions=[[impression]], clicks=[[click]]), join=CLOSING)
    now = [at]
    with running(site.joiner(clock_ms=lambda: now[0])):
        site.send(site.impressions, 0, [impression])
        now[0] = at + s["window_ms"] + s["tick_ms"] + GRACE_MS
        wait_until(lambda: site.last_tick() >= (at + s["window_ms"]) // s["tick_ms"], "the example's tick closed")
        site.send(site.clicks, 0, [click])
        now[0] += 2 * s["window_ms"] + s["lateness_ms"] + s["tick_ms"]
        wait_until(lambda: site.last_tick() >= (now[0] - GRACE_MS) // s["tick_ms"] - 1, "the click has expired")
    assert [label for _, _, _, label, _, _ in site.log(0).examples()] == [0.0]
    assert sum(mark.counts.clicks.late for mark in site.log(0).marks) == 1
    assert_equal_to_replay(site)


@pytest.mark.parametrize("tick_ms", cases([200, 1_000, 1_500], [1_500]))
def test_a_quiet_topic_closes_by_the_clock_of_this_machine(make_site: MakeSite, tick_ms: int) -> None:
    """Nothing comes after one impression and its click: a while later the example is there, and the click has gone. So
    it is with ticks as long as `lateness`, too, and longer ones."""
    made = scenario("plain", partitions=1).with_settings(
        window_ms=1_500, tick_ms=tick_ms, lateness_ms=1_000, max_skew_ms=1_000
    )
    now_ms = time.time_ns() // 1_000_000
    one = Message(now_ms, b"x", b'{"id":"x"}')
    closing = {"close_idle": True, "grace": "200ms", "idle_after": "1s"}
    site = make_site(replace(made, impressions=[[one]], clicks=[[one]]), join=closing)
    site.produce()
    with running(site.joiner()):
        wait_until(lambda: bool(site.log(0).examples()), "the example")
        wait_until(lambda: site.log(0).marks[-1].counts.clicks.waiting == 0, "the click has expired")
    assert [label for _, _, _, label, _, _ in site.log(0).examples()] == [1.0]
    assert_equal_to_replay(site)


def _emptied(made: Scenario, impressions: tuple[int, ...], clicks: tuple[int, ...]) -> Scenario:
    """The scenario with some partitions left without a record, and no sentinels."""
    return replace(
        made,
        impressions=[
            [] if p in impressions else made.before_sentinels(part) for p, part in enumerate(made.impressions)
        ],
        clicks=[[] if p in clicks else made.before_sentinels(part) for p, part in enumerate(made.clicks)],
    )
