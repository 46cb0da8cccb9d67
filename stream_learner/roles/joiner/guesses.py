"""Counts the examples of a partition that were made before it was known that all their clicks were there: "Guesses are
counted" in docs/join.md.

In: the windows that were closed, and the partition's clock. Impressions that came after their window are counted where
they are read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from stream_learner.roles.joiner.stream_clock import FEW, Arrivals, StreamClock

MARKS = 4096
"""So many of the last marks can still turn out to have been made too early."""
SURE_AFTER_MS = 60_000
"""The stream must be behind what is closed for so long before examples count as guessed."""


class _Closed(NamedTuple):
    stream_ms: int
    examples: int


@dataclass
class _Doubt:
    """Since `m` the stream seems to be behind what is closed: at `stream_ms` at the least."""

    by: Arrivals
    count: int
    m: int
    stream_ms: int
    closed_ms: int


class Guesses:
    """total: the number of examples counted so far."""

    def __init__(self, clock: StreamClock) -> None:
        self.total = 0
        self._clock = clock
        self._last: deque[_Closed] = deque(maxlen=MARKS)
        self._doubt: _Doubt | None = None

    def note(self, stream_ms: int, examples: int) -> None:
        """Windows were closed up to `stream_ms`, with so many examples."""
        if examples:
            self._last.append(_Closed(stream_ms, examples))

    def look(self, m: int, base: int, closed_ms: int) -> None:
        """Count what was closed too early, where windows turn out to have been closed ahead of the stream.

        m, base: as for the clock. closed_ms: the stream time up to which windows are closed.
        """
        now = self._clock.now_ms(m, base)
        if now is None:
            return
        grace_ms, doubt = self._clock.rule.grace_ms, self._doubt
        if doubt is None:
            if now < closed_ms - grace_ms:
                clicks = self._clock.clicks
                late = clicks.known and clicks.slow < clicks.fast - grace_ms
                by = clicks if late else self._clock.impressions
                self._doubt = _Doubt(by, by.count, m, now, closed_ms)
            return
        doubt.stream_ms = min(doubt.stream_ms, now - (m - doubt.m))
        is_sure = doubt.by.count >= doubt.count + FEW and m - doubt.m >= min(
            SURE_AFTER_MS, doubt.closed_ms - doubt.stream_ms - grace_ms
        )
        if is_sure:
            while self._last and self._last[-1].stream_ms > doubt.stream_ms:
                self.total += self._last.pop().examples
        if now >= closed_ms - grace_ms:
            self._doubt = None
