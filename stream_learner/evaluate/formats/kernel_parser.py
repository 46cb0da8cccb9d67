"""Runs the kernel of a format over a block of lines, or over the rows of a table, and hands out what it found.

The kernel stops where it needs something: more room, which is made here, or the exact value of a number, which Python's
`float` decides. The columns handed out are views into memory that the next block overwrites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stream_learner.core.events.fast import layout as ctx
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.machine.memory import address_of
from stream_learner.evaluate.formats.base import Fault, Parsed
from stream_learner.evaluate.formats.kernel_state import DONE, IN_DOUBT, NEWLINE, State, new_state

FRONT = 64
"""Bytes before the text that a kernel may read."""
_BEHIND = 2 * ctx.PADDING
"""Bytes behind the text that a kernel may read."""

Step = Callable[[int, State], int]
"""A kernel: reads lines from `state.at` on until it has to stop, and returns why."""


class KernelParser:
    """Runs a format's kernel over blocks of text. One thread at a time."""

    def __init__(self, memory: FieldMemory, expected: Mapping[int, str]) -> None:
        """memory: the context that features are written through. expected: by fault code, what should stand there."""
        self._memory = memory
        self._expected = expected
        self._most = memory.get(ctx.CTX_MAX_FEATURES) + 1
        self.state: State = new_state()
        self._text = np.zeros(0, np.uint8)
        self._known = np.zeros((64, 2), np.int64)
        self._faults = np.zeros((64, 3), np.int64)
        self._make_features(self._most)
        self._make_examples(64)

    def run(self, step: Step, text: bytes | memoryview, first_line: int) -> Parsed:
        """Parse all lines of a text, the first of which has number `first_line`."""
        self._begin_text(text)
        return self._run(step, first_line)

    def run_rows(self, step: Step, rows: int, first_row: int) -> Parsed:
        """Parse all rows of a table. `state.at` counts rows from 0, and a row counts as a line."""
        self.state.at = 0
        self.state.end = rows
        return self._run(step, first_row)

    def drop_text(self) -> None:
        """Free the memory of the text: the next text gets memory of exactly the size it needs."""
        self._text = self._text[:0]

    def _run(self, step: Step, first_line: int) -> Parsed:
        line, state = -1, self.state
        state.line = first_line
        state.examples = state.faults = state.known = 0
        self._memory.set(ctx.CTX_FILLED, 0)
        self._point()
        while (answer := step(self._memory.context, state)) != DONE:
            if answer == IN_DOUBT:
                line = self._settle(line)
            else:
                self._grow()
        return self._parsed()

    def _begin_text(self, text: bytes | memoryview) -> None:
        """Copy the text, with room around it, and begin at its start."""
        size = len(text)
        if len(self._text) < size + FRONT + _BEHIND:
            self._text = np.zeros(size + size // 8 + FRONT + _BEHIND, np.uint8)
        behind = FRONT + size
        self._text[FRONT:behind] = np.frombuffer(text, np.uint8)
        self._text[behind : behind + _BEHIND] = 0
        self._text[behind] = NEWLINE
        self.state.at = address_of(self._text) + FRONT
        self.state.end = address_of(self._text) + behind

    def _settle(self, line: int) -> int:
        """Decide the number that the kernel stopped at. Returns the address of its line.

        line: the address of the line of the number before. The values that are kept for another line are dropped.
        """
        state = self.state
        known = 0 if state.at != line else int(state.known)
        if known == len(self._known):
            self._known = np.concatenate([self._known, np.zeros_like(self._known)])
            self._point()
        start = address_of(self._text)
        number = float(bytes(self._text[state.doubt - start : state.doubt_end - start]))
        self._known[known, 0] = state.doubt
        self._known.view(np.float64)[known, 1] = number
        state.known = known + 1
        return int(state.at)

    # ------------------------------------------------------------------------------------------- columns

    def _make_features(self, room: int) -> None:
        self._keys, self._values = np.empty(room, np.uint64), np.empty(room)

    def _make_examples(self, room: int) -> None:
        self._label, self._weight = np.empty(room), np.empty(room)
        self._lines, self._labelled = np.empty(room, np.int64), np.empty(room, np.int64)
        self._row_start = np.zeros(room + 1, np.int64)
        self._times = np.zeros(room, np.int64)

    def _point(self) -> None:
        """Write the addresses and sizes of all arrays into the state and the context."""
        memory, state = self._memory, self.state
        state.labels, state.weights = address_of(self._label), address_of(self._weight)
        state.lines, state.labelled = address_of(self._lines), address_of(self._labelled)
        state.example_room = len(self._label)
        state.fault_list, state.fault_room = address_of(self._faults), len(self._faults)
        state.known_list = address_of(self._known)
        memory.set(ctx.CTX_ROW_STARTS, address_of(self._row_start))
        memory.set(ctx.CTX_KEYS, address_of(self._keys))
        memory.set(ctx.CTX_VALUES, address_of(self._values))
        memory.set(ctx.CTX_CAPACITY, len(self._keys))

    def _grow(self) -> None:
        """Double the room of whatever is full; its content stays."""
        examples, filled = int(self.state.examples), self._memory.get(ctx.CTX_FILLED)
        if filled + self._most > len(self._keys):
            keys, values = self._keys, self._values
            self._make_features(2 * len(keys) + self._most)
            self._keys[:filled], self._values[:filled] = keys[:filled], values[:filled]
        if examples == len(self._label):
            before = (self._label, self._weight, self._lines, self._labelled)
            starts = self._row_start
            self._make_examples(2 * examples)
            for old, new in zip(before, (self._label, self._weight, self._lines, self._labelled), strict=True):
                new[:examples] = old
            self._row_start[: examples + 1] = starts
        if self.state.faults == len(self._faults):
            self._faults = np.concatenate([self._faults, np.zeros_like(self._faults)])
        self._point()

    def _parsed(self) -> Parsed:
        n, m = int(self.state.examples), self._memory.get(ctx.CTX_FILLED)
        lines = self._lines[:n]
        faults: list[Any] = self._faults[: int(self.state.faults)].tolist()
        batch = ExampleBatch(
            log_time_ms=self._times[:n],
            id_hash=lines.view(np.uint64),
            label=self._label[:n],
            weight=self._weight[:n],
            row_start=self._row_start[: n + 1],
            keys=self._keys[:m],
            values=self._values[:m],
        )
        return Parsed(
            batch=batch,
            lines=lines,
            labelled=self._labelled[:n] != 0,
            tags=[],
            faults=[Fault(line, column, self._expected[code]) for line, column, code in faults],
        )
