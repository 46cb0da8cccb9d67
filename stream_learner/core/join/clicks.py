"""The clicks of one partition: those read ahead of the tick that will take them, and those taken and remembered.

In: columns of decoded clicks in offset order; times before which to forget. Out: positions, outcomes, codes.
This file must never look at a click's code to decide when it is forgotten: times alone do, in offset order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Clicks
from stream_learner.core.join.columns import LogTime, column
from stream_learner.core.join.kernels import (
    BLOCK,
    CLICK_BYTES,
    click_codes,
    click_offset,
    expire_clicks,
    take_clicks,
)
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.machine.id_table import IdTable

_NO_CODES = np.zeros(0, np.uint8)


@dataclass(slots=True)
class ClickRows:
    """A batch of clicks as kernels want it; rows before `start` have been taken.

    passed: how far log time has come with each.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    passed: NDArray[np.int64]
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of the columns, bytes."""
        return 41 * len(self.offsets)

    def end_of_those_before(self, time_ms: int, stop: int) -> int:
        """The first row from `start` on with which log time has come to `time_ms`, at most `stop`."""
        return min(max(int(np.searchsorted(self.passed, time_ms)), self.start), stop)


class ClickMemory:
    """The clicks taken and not yet forgotten, in offset order, found by id.

    forgotten_log_time: the log time with which the last ones were forgotten. blocks: address of the table of block
    addresses, asked for once: numpy takes its time to tell it.
    """

    def __init__(self, spec: JoinSpec, log_time: int) -> None:
        self._spec = spec
        self.table = IdTable()
        self.first = 0
        self.end = 0
        self.forgotten_log_time = log_time
        self._held: deque[NDArray[np.int64]] = deque()
        self._first_block = 0
        self._place_blocks(1)

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def nbytes(self) -> int:
        """Memory held for clicks and for finding them, bytes."""
        return self.table.nbytes + len(self._held) * BLOCK * CLICK_BYTES

    @property
    def block_mask(self) -> int:
        """What a block's number is taken modulo, less one."""
        return len(self._blocks) - 1

    @property
    def first_offset(self) -> int | None:
        """Offset of the first click not forgotten, None if there is none."""
        if self.first == self.end:
            return None
        return int(click_offset(self.blocks, self.block_mask, self.first))

    def take(self, rows: ClickRows, stop: int, late_before_ms: int, codes: NDArray[np.uint8] = _NO_CODES) -> None:
        """Remember rows from `rows.start` to before `stop`; one with a time before `late_before_ms` is late.

        With `codes` (one for each row of the batch) these are their codes, else the rule gives them.
        """
        self._make_room(self.end + stop - rows.start)
        base = self.end - rows.start
        while rows.start < stop:
            rows.start = take_clicks(
                self.table.header,
                self.blocks,
                self.block_mask,
                self.first,
                base + rows.start,
                rows.offsets[:stop],
                rows.ids,
                rows.status,
                rows.time_ms,
                rows.value,
                codes,
                rows.start,
                self._spec.span_ms,
                late_before_ms,
            )
            self.end = base + rows.start
            if rows.start < stop:
                self.table.grow(int(rows.ids[rows.start]), self.first)

    def forget(self, end_ms: int, outcomes: NDArray[np.int64]) -> None:
        """Forget clicks in offset order as of the end of a tick at `end_ms`; each is counted by its code in `outcomes`
        (i64[5], the last for dead ones).
        """
        spec = self._spec
        self.first, self.forgotten_log_time = expire_clicks(
            self.blocks,
            self.block_mask,
            self.first,
            self.end,
            self.forgotten_log_time,
            spec.agree,
            spec.lateness_ms,
            end_ms - spec.keep_ms,
            outcomes,
        )
        while self._held and self._first_block < self.first // BLOCK:
            self._held.popleft()
            self._first_block += 1

    def codes(self) -> NDArray[np.uint8]:
        """The codes of all clicks not forgotten, in offset order."""
        out = np.empty(len(self), np.uint8)
        click_codes(self.blocks, self.block_mask, self.first, out)
        return out

    def _make_room(self, end: int) -> None:
        if not self._held:
            self._first_block = self.first // BLOCK
        wanted = (end + BLOCK - 1) // BLOCK - self._first_block
        if wanted > len(self._blocks):
            self._place_blocks(1 << (wanted - 1).bit_length())
        while len(self._held) < wanted:
            self._held.append(np.empty(BLOCK * CLICK_BYTES // 8, np.int64))
            self._place(self._first_block + len(self._held) - 1, self._held[-1])

    def _place_blocks(self, count: int) -> None:
        """Make the table of so many block addresses, and enter those that are held."""
        self._blocks = np.zeros(count, np.int64)
        self.blocks: int = self._blocks.ctypes.data
        for i, held in enumerate(self._held):
            self._place(self._first_block + i, held)

    def _place(self, block: int, held: NDArray[np.int64]) -> None:
        self._blocks[block & self.block_mask] = held.ctypes.data


class ClickAhead:
    """Clicks that have been read and not taken by a tick yet."""

    def __init__(self, position: int, agree: int, log_time: int) -> None:
        self.position = position
        self.nbytes = 0
        self._log_time = LogTime(agree, log_time)
        self._rows: deque[ClickRows] = deque()

    def __len__(self) -> int:
        return sum(len(rows.offsets) - rows.start for rows in self._rows)

    @property
    def log_time(self) -> int:
        """How far log time has come with all clicks read, taken or not."""
        return self._log_time.now

    def add(self, offsets: NDArray[np.int64], batch: Clicks) -> None:
        """Append a batch. Raises ValueError as `LogTime.passed` does."""
        if len(offsets) == 0:
            return
        offsets = column(offsets, np.int64)
        status, times = column(batch.status, np.uint8), column(batch.time_ms, np.int64)
        passed = self._log_time.passed(offsets, status, times, self.position)
        ids = column(batch.id_hash, np.uint64).view(np.int64)
        rows = ClickRows(offsets, ids, status, times, column(batch.value, np.float64), passed)
        self._rows.append(rows)
        self.nbytes += rows.nbytes
        self.position = int(offsets[-1]) + 1

    def offset_reaching(self, time_ms: int) -> int | None:
        """Offset of the first click not taken with which log time has reached `time_ms`, None if there is none."""
        for rows in self._rows:
            if rows.passed[-1] >= time_ms:
                i = max(int(np.searchsorted(rows.passed, time_ms)), rows.start)
                return int(rows.offsets[i])
        return None

    def take_until(self, offset: int) -> list[tuple[ClickRows, int]]:
        """The batches with rows before `offset`, each with the row to stop before; whole ones are let go."""
        parts: list[tuple[ClickRows, int]] = []
        while self._rows:
            rows = self._rows[0]
            stop = int(np.searchsorted(rows.offsets, offset))
            if stop > rows.start:
                parts.append((rows, stop))
            if stop < len(rows.offsets):
                break
            self._rows.popleft()
            self.nbytes -= rows.nbytes
        return parts
