"""The stream's own clock and the ticks of the log beside it, where random histories are too seldom."""

from __future__ import annotations

import numpy as np

from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.roles.joiner.stream_clock import ClockRule, StreamClock, TopicArrivals
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
    """Three impressions tell the lag, no click has come: until patience is over nothing closes, for nobody."""
    rule = ClockRule(grace_ms=2, lateness_ms=50, idle_after_ms=100)
    clock, base = StreamClock(rule, TopicArrivals.none_yet(rule), began=0), 1000
    for m in (1, 2, 3):
        clock.note_impressions(np.array([1000 + m]), -1, m, base, arrived=True)
    assert clock.stream_ms(10, base) is None
    assert clock.to_remember(10, base) is None
    remembered = clock.to_remember(rule.patience_ms, base)
    assert remembered is not None
    assert (remembered.lag, remembered.extra) == (0, 0)
