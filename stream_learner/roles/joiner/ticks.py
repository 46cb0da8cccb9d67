"""Which ticks of the training log the next mark closes, and which windows with them: "Closing" in docs/join-rules.md.

Ticks go by the brokers' clock, windows never do.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from stream_learner.core.join.spec import Cut
from stream_learner.core.join.state import JoinState

HALF_PACE = 2
"""Where more is closed than the brokers' clock has passed, a tick closes in the time of so many."""

REPORTS = 15


class BrokersClock:
    """The brokers' clock, as the times tell it at which brokers appended the last records of the training log.

    Brokers may disagree, and one may be set anew: the median of the last reports counts. base: the brokers' clock less
    the monotonic one, ms; None before the first report. Used by one thread.
    """

    def __init__(self) -> None:
        self.base: int | None = None
        self._bases: deque[int] = deque(maxlen=REPORTS)

    def assume(self, now_ms: int, m: int) -> None:
        """Take `now_ms` as the brokers' clock until there is a report."""
        if self.base is None:
            self.base = now_ms - m

    def note(self, appended_ms: int, m: int) -> None:
        """Take the time of a record that a broker appended, as told at `m`."""
        self._bases.append(appended_ms - m)
        self.base = sorted(self._bases)[len(self._bases) // 2]


class Stream(NamedTuple):
    """Where the stream of a partition is, as the inputs tell it.

    m: the monotonic clock, ms, at which the brokers were asked for the ends of both inputs. at_end: whether all that
    was there is read, or as much as the buffer takes. clicks_at_end: whether all clicks are. clicks_ms, impressions_ms:
    S of the clock, up to which each input is there; None where only log time tells. is_full: whether the buffer takes
    no more impressions. waits: whether no window may close, whatever log time says.
    """

    m: int
    at_end: bool = False
    clicks_at_end: bool = False
    clicks_ms: int | None = None
    impressions_ms: int | None = None
    is_full: bool = False
    waits: bool = False


class NextTicks(NamedTuple):
    """A cut of the join, and the last tick of the log that its mark closes."""

    cut: Cut
    last_tick: int


class Ticks:
    """The ticks of one partition's log. coupled: ticks and stream time are always one."""

    def __init__(self, tick_ms: int, grace_ms: int, *, coupled: bool) -> None:
        self._tick_ms = tick_ms
        self._grace_ms = grace_ms
        self._coupled = coupled
        self._closed_at: int | None = None

    def next(
        self, join: JoinState, first_tick: int, stream: Stream, base: int | None, *, alone: bool
    ) -> NextTicks | None:
        """The next ticks of the log from `first_tick` on and their cut, None where none may close yet.

        base: the brokers' clock less the monotonic one, None while it is not known. alone: whether ticks without a
        record may have a mark for themselves.
        """
        if self._coupled or not (stream.at_end or first_tick > join.next_tick):
            if stream.waits:
                return None
            cut = join.next_cut(stream.clicks_ms, stream.impressions_ms, allow_empty=alone)
            return None if cut is None else NextTicks(cut, cut.last_tick)
        brokers_ms = None if base is None else stream.m + base
        cut = join.next_cut(
            stream.clicks_ms, stream.impressions_ms, together=True, stands=stream.waits, brokers_ms=brokers_ms
        )
        if cut is None:
            return None
        emits = cut.next_impression > join.next_impression
        last = max(self._passed(first_tick, stream.m, base), cut.last_tick)
        if stream.is_full and emits:
            last = max(last, first_tick)
        if last < first_tick or not (emits or alone):
            return None
        return NextTicks(cut, last)

    def closed(self, m: int) -> None:
        """Note that ticks were closed at `m`."""
        self._closed_at = m

    def _passed(self, first_tick: int, m: int, base: int | None) -> int:
        """The last tick that the brokers' clock has passed; the next one where it is not known, once."""
        if base is None:
            return first_tick if self._closed_at is None else first_tick - 1
        passed = (m + base - self._grace_ms) // self._tick_ms - 1
        if passed < first_tick:
            self._closed_at = m if self._closed_at is None else self._closed_at
            if m >= self._closed_at + HALF_PACE * self._tick_ms:
                return first_tick
        return passed
