"""The clicks of one partition: those read ahead of the tick that will take them, and those taken and remembered.

In: columns of decoded clicks in offset order; times before which to forget. Out: positions, outcomes, codes.
This file must never look at a click's code to decide when it is forgotten: log time alone does, in offset order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events import Clicks
from stream_learner.core.id_table import IdTable
from stream_learner.core.join_columns import DeadRecord, column, dead_records, running_log_time
from stream_learner.core.join_kernel import (
    BLOCK,
    CLICK_BYTES,
    click_codes,
    click_log_time,
    click_offset,
    expire_clicks,
    take_clicks,
)

_NO_CODES = np.zeros(0, np.uint8)


@dataclass(slots=True)
class ClickRows:
    """A batch of clicks as kernels want it; rows before `start` have been taken."""

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    log_time: NDArray[np.int64]
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of the columns, bytes."""
        return 41 * len(self.offsets)

    def dead(self, stop: int) -> list[DeadRecord]:
        """The rows from `start` to before `stop` that could not be used."""
        return dead_records(self.offsets, self.status, self.start, stop)


class ClickMemory:
    """The clicks taken and not yet forgotten, in offset order, found by id."""

    def __init__(self, memory_ms: int, tick_ms: int, log_time: int) -> None:
        self._memory_ms = memory_ms
        self._tick_ms = tick_ms
        self.table = IdTable()
        self.first = 0
        self.end = 0
        self.forgotten_log_time = log_time
        self._held: deque[NDArray[np.int64]] = deque()
        self._first_block = 0
        self._blocks = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def nbytes(self) -> int:
        """Memory held for clicks and for finding them, bytes."""
        return self.table.nbytes + len(self._held) * BLOCK * CLICK_BYTES

    @property
    def blocks(self) -> int:
        """Address of the table of block addresses."""
        return self._blocks.ctypes.data

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

    def take(
        self,
        rows: ClickRows,
        stop: int,
        first_tick: int,
        last_tick: int,
        codes: NDArray[np.uint8] = _NO_CODES,
    ) -> None:
        """Remember rows from `rows.start` to before `stop`, read for one of `first_tick..last_tick`.

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
                rows.log_time,
                codes,
                rows.start,
                self._memory_ms,
                first_tick,
                last_tick,
                self._tick_ms,
            )
            self.end = base + rows.start
            if rows.start < stop:
                self.table.grow(int(rows.ids[rows.start]), self.first)

    def forget(self, before_ms: int, outcomes: NDArray[np.int64]) -> None:
        """Forget clicks in offset order while their log time + skew + window is below `before_ms`.

        Each is counted by its code in `outcomes` (i64[5], the last for dead ones).
        """
        first = expire_clicks(self.blocks, self.block_mask, self.first, self.end, before_ms - self._memory_ms, outcomes)
        if first > self.first:
            self.forgotten_log_time = int(click_log_time(self.blocks, self.block_mask, first - 1))
            self.first = int(first)
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
            self._blocks = np.zeros(1 << (wanted - 1).bit_length(), np.int64)
            for i, held in enumerate(self._held):
                self._place(self._first_block + i, held)
        while len(self._held) < wanted:
            self._held.append(np.empty(BLOCK * CLICK_BYTES // 8, np.int64))
            self._place(self._first_block + len(self._held) - 1, self._held[-1])

    def _place(self, block: int, held: NDArray[np.int64]) -> None:
        self._blocks[block & self.block_mask] = held.ctypes.data


class ClickAhead:
    """Clicks that have been read and not taken by a tick yet."""

    def __init__(self, position: int, log_time: int) -> None:
        self.position = position
        self.log_time = log_time
        self.nbytes = 0
        self._rows: deque[ClickRows] = deque()

    def __len__(self) -> int:
        return sum(len(rows.offsets) - rows.start for rows in self._rows)

    def add(self, offsets: NDArray[np.int64], batch: Clicks) -> None:
        """Append a batch. Raises ValueError as `running_log_time` does."""
        if len(offsets) == 0:
            return
        offsets = column(offsets, np.int64)
        status, times = column(batch.status, np.uint8), column(batch.time_ms, np.int64)
        log_time = running_log_time(offsets, status, times, self.position, self.log_time)
        ids = column(batch.id_hash, np.uint64).view(np.int64)
        rows = ClickRows(offsets, ids, status, times, column(batch.value, np.float64), log_time)
        self._rows.append(rows)
        self.nbytes += rows.nbytes
        self.position = int(offsets[-1]) + 1
        self.log_time = int(log_time[-1])

    def offset_reaching(self, time_ms: int) -> int | None:
        """Offset of the first click not taken at which log time has reached `time_ms`, None if there is none."""
        for rows in self._rows:
            if rows.log_time[-1] >= time_ms:
                i = max(int(np.searchsorted(rows.log_time, time_ms)), rows.start)
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
