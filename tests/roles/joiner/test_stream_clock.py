"""The stream's own clock and the ticks of the log beside it, where random histories are too seldom."""

from __future__ import annotations

import numpy as np
import pytest

from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.roles.joiner.stream_clock import ClockRule, Guesses, Remembered, StreamClock, TopicArrivals
from stream_learner.roles.joiner.ticks import HALF_PACE, Stream, Ticks

SPEC = JoinSpec(window_ms=30, skew_ms=0, tick_ms=10, dedupe_ms=0)


def test_ticks_of_a_new_attempt_go_on_at_half_pace_where_the_brokers_clock_was_set_back() -> None:
    """The joiner has closed nothing in this attempt, and the clock is 900 ms behind what is closed already."""
    join, ticks = JoinState(SPEC, impression_start=0, click_start=0), Ticks(10, 0, coupled=False)
    begun, base, closed_tick = 1000, -900, 99
    found = [ticks.next(join, closed_tick + 1, Stream(begun + m, at_end=True), base, alone=True) for m in (0, 19, 20)]
    assert HALF_PACE * SPEC.tick_ms == 20
    assert [None if one is None else one.last_tick for one in found] == [None, None, 100]


def test_what_is_not_known_of_clicks_is_not_remembered_as_no_delay() -> None:
    """Three impressions tell the lag, no click has come: until `idle_after` is over nothing closes, for nobody."""
    rule = ClockRule(grace_ms=2, lateness_ms=50, idle_after_ms=100, window_ms=30)
    clock, base = StreamClock(rule, TopicArrivals.none_yet(rule), began=0), 1000
    for m in (1, 2, 3):
        clock.note_impressions(np.array([1000 + m]), -1, m, base, arrived=True)
    assert clock.stream_ms(10, base) is None
    assert clock.to_remember(rule.idle_after_ms - 1, base) is None
    remembered = clock.to_remember(rule.idle_after_ms, base)
    assert remembered is not None
    assert (remembered.lag, remembered.extra) == (0, 0)


RULE, BASE = ClockRule(grace_ms=2, lateness_ms=50, idle_after_ms=100, window_ms=30), 1000


def without_clicks(clock: StreamClock, span: range, *, waits_since: int | None = None) -> list[int | None]:
    """S at each m of a span in which an impression comes every ms, and no click."""
    found = []
    for m in span:
        clock.note_impressions(np.array([BASE + m]), -1, m, BASE, arrived=True)
        found.append(clock.stream_ms(m, BASE, waits_since=waits_since))
    return found


def silent_clock() -> StreamClock:
    """At m = 40: a click came every ms up to m = 10, impressions up to now."""
    clock = StreamClock(RULE, TopicArrivals.none_yet(RULE), began=0)
    for m in range(1, 11):
        without_clicks(clock, range(m, m + 1))
        clock.note_clicks(np.array([BASE + m]), m, BASE, arrived=True)
    without_clicks(clock, range(11, 41))
    return clock


def next_owner(clock: StreamClock, m: int) -> StreamClock:
    remembered = clock.to_remember(m, BASE)
    assert remembered is not None
    text = Remembered.from_text(remembered.to_text())
    return StreamClock(RULE, TopicArrivals.none_yet(RULE), began=m, remembered=text)


def test_a_restart_in_a_silence_of_clicks_waits_as_if_there_had_been_none() -> None:
    """Though impressions go on; by `idle_after`, and without an end where clicks are waited for. Twice in a row."""
    for waits_since in (None, 41):
        clock = silent_clock()
        again = next_owner(next_owner(clock, 40), 40)
        told = without_clicks(again, range(41, 160), waits_since=waits_since)
        if waits_since is None:
            assert told == without_clicks(clock, range(41, 160))
        assert told[60] == told[0]
    assert told[-1] == told[0]


def test_clicks_that_came_meanwhile_end_the_silence_that_is_remembered() -> None:
    """Those of a backlog, too; but not the ones that were known before."""
    again = next_owner(silent_clock(), 40)
    again.note_clicks(np.array([BASE + 9, BASE + 10]), 41, BASE, arrived=False)
    before = without_clicks(again, range(41, 43))
    again.note_clicks(np.array([BASE + 38]), 43, BASE, arrived=False)
    after = without_clicks(again, range(43, 45))
    assert before[0] == before[1] and after[0] is not None and before[0] is not None and after[0] > before[0] + 10


def test_late_clicks_that_came_meanwhile_vouch_as_far_as_their_times_say() -> None:
    """The silence ended while nobody read, and clicks come 45 ms late since then."""
    again = next_owner(silent_clock(), 40)
    stood = without_clicks(again, range(41, 75))[-1]
    again.note_clicks(np.array([BASE + 30]), 75, BASE, arrived=False)
    found = without_clicks(again, range(75, 80))
    assert stood is not None and stood < BASE + 30 - RULE.grace_ms
    assert found == [BASE + 30 - RULE.grace_ms] * 5


def test_impressions_that_came_meanwhile_vouch_as_far_as_log_time_says() -> None:
    """Both inputs were silent, and came back late while nobody read."""
    clock = silent_clock()
    clock.note_clicks(np.array([BASE + 40]), 40, BASE, arrived=True)
    again = next_owner(clock, 60)
    assert again.remembered is not None
    again.note_impressions(np.array([BASE + 70]), BASE + 65, 100, BASE, arrived=False)
    assert again.remembered.vouched == BASE + 65


def test_a_restart_in_a_silence_of_one_partitions_clicks_waits_though_those_of_others_go_on() -> None:
    """The partition has had no click in this process, and is waited for; the topic has some all the time."""
    clock = silent_clock()
    stood = clock.stream_ms(40, BASE, waits_since=25)
    again = next_owner(clock, 40)
    others = StreamClock(RULE, again.topics, began=40)
    found = []
    for m in range(41, 160):
        others.note_impressions(np.array([BASE + m]), -1, m, BASE, arrived=True)
        others.note_clicks(np.array([BASE + m]), m, BASE, arrived=True)
        found += without_clicks(again, range(m, m + 1), waits_since=40)
    assert again.topics.clicks.known and len(set(found)) == 1
    assert found[0] is not None and stood is not None and found[0] <= stood
    again.note_clicks(np.array([BASE + 160] * 3), 160, BASE, arrived=True)
    assert without_clicks(again, range(160, 163))[-1] == BASE + 162 - RULE.grace_ms


@pytest.mark.parametrize("silent", ["impressions", "clicks", "both"])
def test_a_restart_when_one_partition_has_just_become_silent_changes_nothing(silent: str) -> None:
    """Too short a silence to be waited for yet; the other partition goes on. Twice in a row."""
    clock = StreamClock(RULE, TopicArrivals.none_yet(RULE), began=0)
    other = StreamClock(RULE, clock.topics, began=0)

    def go_on(clock: StreamClock, other: StreamClock, span: range, parts: tuple[str, ...]) -> list[int | None]:
        told = []
        for m in span:
            for one in (clock, other):
                if one is other or "impressions" in parts:
                    one.note_impressions(np.array([BASE + m]), BASE + m, m, BASE, arrived=True)
                if one is other or "clicks" in parts:
                    one.note_clicks(np.array([BASE + m]), m, BASE, arrived=True)
            told.append(clock.stream_ms(m, BASE))
        return told

    left = tuple(part for part in ("impressions", "clicks") if silent not in (part, "both"))
    go_on(clock, other, range(1, 40), ("impressions", "clicks"))
    again = next_owner(next_owner(clock, 40), 40)
    assert again.remembered == clock.to_remember(40, BASE)
    expected = go_on(clock, other, range(41, 160), left)
    found = go_on(again, StreamClock(RULE, again.topics, began=40), range(41, 160), left)
    assert found[5:] == expected[5:]  # once the process itself has arrivals of the topic
    assert len({*expected[-10:]}) > 1 and expected[20] == expected[90]  # it waits, for `idle_after`
    if not left:
        again.note_impressions(np.array([BASE + 160]), BASE + 160, 160, BASE, arrived=True)
        again.note_clicks(np.array([BASE + 160]), 160, BASE, arrived=True)
        assert again.stream_ms(162, BASE) == BASE + 162 - RULE.grace_ms


def test_what_was_kept_back_has_time_to_come_in_any_order() -> None:
    """The newest click of a silence comes first: the silence is over `grace` later, when all of them have come."""
    clock = silent_clock()
    stood = clock.stream_ms(40, BASE)
    clock.note_clicks(np.array([BASE + 41] * 3), 41, BASE, arrived=True)
    assert without_clicks(clock, range(41, 43)) == [stood] * 2
    clock.note_clicks(np.array([BASE + 20] * 16), 43, BASE, arrived=True)
    assert without_clicks(clock, range(43, 44)) == [BASE + 43 - 23 - RULE.grace_ms]


def test_a_restart_leaves_a_partition_that_lags_behind() -> None:
    """The others are live, and nothing of it has come yet; then too little to know more than was remembered."""
    clock = StreamClock(RULE, TopicArrivals.none_yet(RULE), began=0)
    for m in range(1, 40):
        clock.note_impressions(np.array([BASE + m - 90]), BASE, m, BASE, arrived=True)
        clock.note_clicks(np.array([BASE + m - 90]), m, BASE, arrived=True)
    again = next_owner(clock, 40)
    others = StreamClock(RULE, again.topics, began=40)
    for m in range(41, 60):
        without_clicks(others, range(m, m + 1))
        others.note_clicks(np.array([BASE + m]), m, BASE, arrived=True)
        if m in (45, 50):
            again.note_impressions(np.array([BASE + m - 60]), BASE, m, BASE, arrived=True)
        found = again.stream_ms(m, BASE)
        assert found is not None and found <= BASE + m - 90 - RULE.grace_ms


def test_what_an_earlier_version_remembered_says_nothing_of_clicks() -> None:
    assert Remembered.from_text("5,-3,900") == Remembered(5, -3, 900)
    assert Remembered.from_text("5,-3,900,7") == Remembered(5, -3, 900, clicks=7)
    clock = StreamClock(RULE, TopicArrivals.none_yet(RULE), began=40, remembered=Remembered.from_text("0,0,1018"))
    assert without_clicks(clock, range(41, 50))[-1] == BASE + 49 - RULE.grace_ms


def test_clicks_that_may_be_on_old_impressions_end_no_silence() -> None:
    """Live clicks are away, a replay goes on beside live impressions: its clicks count once no other has come for long.

    Where all impressions are old, the stream itself is behind: then they are arrivals.
    """
    clock, closed_ms = silent_clock(), BASE + 40
    stood = clock.stream_ms(40, BASE)
    for m in range(41, 60):
        without_clicks(clock, range(m, m + 1))
        clock.note_impressions(np.array([closed_ms - RULE.old_ms - 1]), -1, m, BASE, arrived=True, closed_ms=closed_ms)
        clock.note_clicks(np.array([closed_ms - 1]), m, BASE, arrived=True, closed_ms=closed_ms)
        assert clock.stream_ms(m, BASE) == stood
    assert clock.impressions.slow == BASE
    clock.note_clicks(np.array([closed_ms - 1] * 3), 120, BASE, arrived=True, closed_ms=closed_ms)
    assert clock.clicks.last_at == 120
    clock.note_impressions(
        np.array([closed_ms - RULE.old_ms - 1] * 16), -1, 120, BASE, arrived=True, closed_ms=closed_ms
    )
    assert clock.impressions.slow < BASE - 100


def test_one_old_click_in_a_silence_makes_nobody_guess() -> None:
    """It seems that clicks are far behind, until live ones come: nothing was closed ahead of those."""
    clock = silent_clock()
    guesses, closed_ms = Guesses(clock), BASE + 40
    guesses.note(closed_ms, 1_000)
    clock.note_clicks(np.array([BASE - 100_000]), 150, BASE, arrived=True, closed_ms=closed_ms)
    for m in range(150, 70_000, 1_000):
        without_clicks(clock, range(m, m + 1))
        guesses.look(m, BASE, closed_ms)
    m = 70_000
    clock.note_clicks(np.array([BASE + m] * 3), m, BASE, arrived=True, closed_ms=closed_ms)
    guesses.look(m, BASE, closed_ms)
    assert guesses.total == 0


def test_a_partition_whose_clicks_stop_in_a_lag_is_held_for_idle_after() -> None:
    """Both inputs are 500 ms behind and catch up; other partitions have clicks, this one has none since."""
    topics = TopicArrivals.none_yet(RULE)
    clock = StreamClock(RULE, topics, began=0)
    for m in range(1, 31):
        clock.note_impressions(np.array([BASE + m - 500]), -1, m, BASE, arrived=True)
        clock.note_clicks(np.array([BASE + m - 500]), m, BASE, arrived=True)
    behind = []
    for m in range(31, 200):
        clock.note_impressions(np.array([BASE + m]), -1, m, BASE, arrived=True)
        for of_topic in (topics.clicks, topics.click_times):
            of_topic.add([0 if of_topic is topics.clicks else BASE], m)
        now = clock.now_ms(m, BASE)
        assert now is not None
        behind.append(BASE + m - now)
    assert behind[RULE.idle_after_ms - 10] >= 500 and behind[-1] <= RULE.idle_after_ms + RULE.grace_ms
