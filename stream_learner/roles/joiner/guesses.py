"""Counts the examples of a partition that were made before it was known that all their clicks were there."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MARKS = 4096
"""So many of the last marks can still turn out to have been made too early."""


class _Closed(NamedTuple):
    stream_ms: int
    examples: int


class Guesses:
    """total: the number of examples counted so far."""

    def __init__(self) -> None:
        self.total = 0
        self._last: deque[_Closed] = deque(maxlen=MARKS)

    def note(self, stream_ms: int, examples: int) -> None:
        """Windows were closed up to `stream_ms`, with so many examples."""
        if examples:
            self._last.append(_Closed(stream_ms, examples))

    def was_ahead(self, stream_ms: int) -> None:
        """The stream was no further than `stream_ms`: what was closed past it was closed too early."""
        while self._last and self._last[-1].stream_ms > stream_ms:
            self.total += self._last.pop().examples
