"""Walks one partition of a training log, and remembers what its marks say of impressions that became no examples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from stream_learner.core.log.compare import together
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import IMPRESSION_OUTCOMES, Mark
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.operations.diff.matching import Examples

NO_END: Final = 1 << 62
MOST_MARKS: Final = 100_000
"""So many of the last marks at least are remembered that left out something."""
NOT_KNOWN, BEFORE_IT_BEGAN = "not known", "before it began"
_NAMES: Final = {
    field: name.removesuffix("_lettered").replace("_", " ")
    for field, name in IMPRESSION_OUTCOMES.items()
    if field != "examples"
}


class _LeftOut(NamedTuple):
    """A mark that left out some of the impressions at offsets [begin, end), with their outcomes."""

    begin: int
    end: int
    outcomes: tuple[str, ...]


class LogWalk:
    """Walks from one tick with examples to the next.

    head: the tick to be taken next, None after the last. first: the first tick seen. passed: the last one.
    """

    def __init__(self, ticks: Iterator[AcceptedTick]) -> None:
        self._ticks = ticks
        self._before: Mark | None = None
        self._last: Mark | None = None
        self._left_out: list[_LeftOut] = []
        self._began = 0
        self.head: AcceptedTick | None = None
        self.first = NO_END
        self.passed = -1
        self._advance()

    def _advance(self) -> None:
        """Go on to the next tick with examples."""
        self.head = None
        for tick in self._ticks:
            mark = tick.mark
            if self._last is None:
                self.first = mark.first_tick
                self._began = 0 if mark.counts.impressions.read else mark.next_impression
            self._before, self._last, self.passed = self._last, mark, mark.last_tick
            self._note(mark)
            if tick.records:
                self.head = tick
                return

    def _note(self, mark: Mark) -> None:
        found = tuple(name for field, name in _NAMES.items() if getattr(mark.counts.impressions, field))
        if found:
            begin = 0 if self._before is None else self._before.next_impression
            self._left_out.append(_LeftOut(begin, mark.next_impression, found))
        if len(self._left_out) > 2 * MOST_MARKS:
            del self._left_out[:MOST_MARKS]

    @property
    def head_tick(self) -> int:
        """The tick of the head, `NO_END` without one."""
        return NO_END if self.head is None else self.head.mark.last_tick

    def take(self, tick: int) -> Examples:
        """The examples of a tick that is not after the head; if it is the head, go on."""
        if self.head is None or self.head_tick != tick:
            return Examples.of_tick(ExampleBatch.empty(), (tick, 0, 0, 0, 0))
        mark, before = self.head.mark, self._before
        first_click, begin = (0, 0) if before is None else (before.first_click, before.next_impression)
        batch = together(record for _, record in self.head.records)
        found = Examples.of_tick(batch, (tick, first_click, mark.click_cursor, begin, mark.next_impression))
        self._advance()
        return found

    def outcome(self, begin: int, end: int) -> str:
        """What this log says of an impression among the offsets [begin, end) that is no example here: all outcomes that
        it may have, "" if the log has not come so far, `NOT_KNOWN` if no mark tells.
        """
        if self._last is None or end > self._last.next_impression:
            return ""
        if 0 < end <= self._began:
            return BEFORE_IT_BEGAN
        names: dict[str, None] = {}
        for at in range(bisect_right(self._left_out, begin, key=lambda one: one.end), len(self._left_out)):
            if self._left_out[at].begin >= end:
                break
            names |= dict.fromkeys(self._left_out[at].outcomes)
        return " or ".join(names) or NOT_KNOWN
