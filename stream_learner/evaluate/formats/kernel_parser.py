"""A block of lines, or of a table's rows, through a kernel: the memory it works in, and what it found, as columns.

In: text or rows, and the kernel of a format. Out: parsed examples and faults.
This file must never know a format, nor hand a kernel text without room around it.

The columns handed out are views into memory that the next block is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stream_learner.core.events.fast import layout as ctx
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.machine.memory import address_of
from stream_learner.evaluate.formats import work_layout as lay
from stream_learner.evaluate.formats.base import Fault, Parsed

FRONT = 64
"""Bytes in front of the text that may be read."""
_BEHIND = 2 * ctx.PADDING

Step = Callable[[int, int], int]
"""A kernel: takes lines from the state's place on until it has to stop, and says why."""


class KernelParser:
    """Runs a format's kernel over blocks of text. Not for several threads at once."""

    def __init__(self, memory: FieldMemory, expected: Mapping[int, str]) -> None:
        """memory: with the context that features are written through. expected: what each fault code wanted."""
        self._memory = memory
        self._expected = expected
        self._most = memory.get(ctx.CTX_MAX_FEATURES) + 1
        self._state = np.zeros(lay.STATE_BYTES // 8, np.int64)
        self.state = address_of(self._state)
        self._text = np.zeros(0, np.uint8)
        self._known = np.zeros((64, 2), np.int64)
        self._faults = np.zeros((64, 3), np.int64)
        self._make_features(self._most)
        self._make_rows(64)

    def set(self, word: int, value: int) -> None:
        """Set a word of the state, by its offset in `work_layout`."""
        self._state[word // 8] = value

    def run(self, step: Step, text: bytes | memoryview, first_line: int) -> Parsed:
        """All lines of a text through a kernel, the first with number `first_line`."""
        self._begin_text(text)
        return self._run(step, first_line)

    def run_rows(self, step: Step, rows: int, first_row: int) -> Parsed:
        """All rows of a table through a kernel, in which places are numbers from 0 and lines are rows."""
        self.set(lay.AT, 0)
        self.set(lay.END, rows)
        return self._run(step, first_row)

    def _run(self, step: Step, first_line: int) -> Parsed:
        line = -1
        self.set(lay.LINE, first_line)
        for count in (lay.ROWS, lay.FAULTS, lay.KNOWN):
            self.set(count, 0)
        self._memory.set(ctx.CTX_FILLED, 0)
        self._point()
        while (answer := step(self._memory.context, self.state)) != lay.DONE:
            if answer == lay.IN_DOUBT:
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
        self._text[behind] = lay.NEWLINE
        self.set(lay.AT, address_of(self._text) + FRONT)
        self.set(lay.END, address_of(self._text) + behind)

    def _get(self, word: int) -> int:
        return int(self._state[word // 8])

    def _settle(self, line: int) -> int:
        """Read the number in doubt exactly; those of an earlier line are no longer asked for."""
        known = 0 if self._get(lay.AT) != line else self._get(lay.KNOWN)
        if known == len(self._known):
            self._known = np.concatenate([self._known, np.zeros_like(self._known)])
            self._point()
        at, behind = self._get(lay.DOUBT), self._get(lay.DOUBT_END)
        start = address_of(self._text)
        number = float(bytes(self._text[at - start : behind - start]))
        self._known[known, 0] = at
        self._known.view(np.float64)[known, 1] = number
        self.set(lay.KNOWN, known + 1)
        return self._get(lay.AT)

    # ------------------------------------------------------------------------------------------- columns

    def _make_features(self, room: int) -> None:
        self._keys, self._values = np.empty(room, np.uint64), np.empty(room)

    def _make_rows(self, room: int) -> None:
        self._label, self._weight = np.empty(room), np.empty(room)
        self._lines, self._labelled = np.empty(room, np.int64), np.empty(room, np.int64)
        self._row_start = np.zeros(room + 1, np.int64)
        self._times = np.zeros(room, np.int64)

    def _point(self) -> None:
        """Tell state and context where everything lies."""
        memory, rows = self._memory, (self._label, self._weight, self._lines, self._labelled)
        for word, column in zip((lay.LABELS, lay.WEIGHTS, lay.LINES, lay.LABELLED), rows, strict=True):
            self.set(word, address_of(column))
        self.set(lay.ROW_ROOM, len(self._label))
        self.set(lay.FAULT_AT, address_of(self._faults))
        self.set(lay.FAULT_ROOM, len(self._faults))
        self.set(lay.KNOWN_AT, address_of(self._known))
        memory.set(ctx.CTX_ROW_STARTS, address_of(self._row_start))
        memory.set(ctx.CTX_KEYS, address_of(self._keys))
        memory.set(ctx.CTX_VALUES, address_of(self._values))
        memory.set(ctx.CTX_CAPACITY, len(self._keys))

    def _grow(self) -> None:
        """Twice the room of whatever is short; what is there stays."""
        rows, filled = self._get(lay.ROWS), self._memory.get(ctx.CTX_FILLED)
        if filled + self._most > len(self._keys):
            keys, values = self._keys, self._values
            self._make_features(2 * len(keys) + self._most)
            self._keys[:filled], self._values[:filled] = keys[:filled], values[:filled]
        if rows == len(self._label):
            before = (self._label, self._weight, self._lines, self._labelled)
            starts = self._row_start
            self._make_rows(2 * rows)
            for old, new in zip(before, (self._label, self._weight, self._lines, self._labelled), strict=True):
                new[:rows] = old
            self._row_start[: rows + 1] = starts
        if self._get(lay.FAULTS) == len(self._faults):
            self._faults = np.concatenate([self._faults, np.zeros_like(self._faults)])
        self._point()

    def _parsed(self) -> Parsed:
        n, m = self._get(lay.ROWS), self._memory.get(ctx.CTX_FILLED)
        lines = self._lines[:n]
        faults = self._faults[: self._get(lay.FAULTS)].tolist()
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
