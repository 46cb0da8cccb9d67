"""Sub-tables that hold no more than a given memory: where one is full, the rows changed longest ago leave it.

In: how many rows each sub-table must take; the tick up to which rows are kept elsewhere too. Out: room.
This file must never drop a row that changed after that tick.

Below the bound the sub-tables grow as they do without one. The last generation is laid out evenly; from then on a
full sub-table is rebuilt in place, without a quarter of its rows. Where too few may leave, it grows alone, beyond the
bound: exactness comes before memory. The owner keeps that from happening by bounding the rows that may not leave.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_i64, store_i64
from stream_learner.core.model.table.kernels import (
    ADDRESS,
    ALLOWED,
    CAPACITY,
    NEVER,
    SLOTS,
    SUB_TABLES,
    USED,
    insert_again,
)
from stream_learner.core.model.table.regions import (
    MAX_LOAD,
    SMALLEST_CAPACITY,
    SPARE_SLOTS,
    Generation,
    SubTables,
    growth_of,
)

KEPT: Final = 0.75
"""Share of a full sub-table's rows that stay in it."""


@kernel
def ticks_of_clean(source: int, slots: int, ncols: int, clean_tick: int, out: int) -> int:
    """`touched` of the rows of a sub-table that may leave it, to int64[...] at `out`; returns how many."""
    row_bytes = 8 * (2 + ncols)
    count = 0
    for s in range(slots):
        row = source + s * row_bytes
        touched = load_i64(row + row_bytes - 8)
        if load_i64(row) != 0 and touched <= clean_tick:
            store_i64(out + 8 * count, touched)
            count += 1
    return count


@kernel
def drop(source: int, slots: int, capacity: int, ncols: int, before: int, ties: int, scratch: int) -> int:
    """Rebuild a sub-table without the rows touched before tick `before`, and without `ties` of those touched in it.

    `scratch` has place for the rows that stay; returns how many they are. They lie at or before where they lay, so the
    spare slots suffice.
    """
    row_bytes = 8 * (2 + ncols)
    kept = 0
    for s in range(slots):
        row = source + s * row_bytes
        touched = load_i64(row + row_bytes - 8)
        if load_i64(row) == 0:
            continue
        leaves = touched < before
        if touched == before and ties > 0:
            leaves = True
            ties -= 1
        if not leaves:
            for c in range(2 + ncols):
                store_i64(scratch + kept * row_bytes + 8 * c, load_i64(row + 8 * c))
            kept += 1
        for c in range(2 + ncols):
            store_i64(row + 8 * c, 0)
    for k in range(kept):
        insert_again(scratch + k * row_bytes, source, capacity, row_bytes)
    return kept


class BoundedSubTables(SubTables):
    """Sub-tables of at most `limit_bytes`, as long as rows may leave. `clean_tick` says which may."""

    def __init__(self, ncols: int, limit_bytes: int) -> None:
        """Raises ValueError for a bound below the memory of an empty table."""
        self.limit_bytes = limit_bytes
        self.clean_tick = NEVER
        self.evicted = 0
        """How many rows have left."""
        self._scratch = np.empty(0, np.int64)
        self._last = False
        super().__init__(ncols)
        if self.most_rows < SUB_TABLES:
            raise ValueError(f"a table cannot be bounded by {limit_bytes} bytes: empty it has {self.held_bytes}")

    @property
    def most_rows(self) -> int:
        """Rows that fit below the bound."""
        return rows_within(self.limit_bytes, self._ncols)

    def reserve(self, incoming: NDArray[np.int64]) -> None:
        """Make room for int64[256] more rows; rows may move, or leave."""
        needed = self.used + incoming
        for sub in map(int, np.flatnonzero(needed > self.places[ALLOWED])):
            fits_next = self._waiting[sub] and needed[sub] <= self._next.places[ALLOWED, sub]
            if not fits_next and not self._last:
                self._begin_generation(needed * growth_of(needed))
            if self._waiting[sub]:
                self._move(sub)
            if needed[sub] > self.places[ALLOWED, sub]:
                self._make_room(sub, int(incoming[sub]))

    def _lay_out(self, needed: NDArray[Any]) -> Generation:
        rows = self._rows_of_next(needed)
        even = self.most_rows // SUB_TABLES
        if rows.sum() >= even * SUB_TABLES:
            self._last = True
            rows = np.full(SUB_TABLES, even, np.int64)
        return Generation(rows, self._spare, self._row_bytes)

    def _make_room(self, sub: int, incoming: int) -> None:
        allowed = int(self.places[ALLOWED, sub])
        self._evict(sub, max(0, min(allowed - incoming, int(allowed * KEPT))))
        needed = int(self.used[sub]) + incoming
        if needed > allowed:
            self._move_alone(sub, int(np.ceil(needed * growth_of(self.used) / MAX_LOAD)))

    def _evict(self, sub: int, keep: int) -> None:
        """Let rows leave until `keep` are left, or all that are left must stay."""
        address, capacity, slots, used = (int(self.places[i, sub]) for i in (ADDRESS, CAPACITY, SLOTS, USED))
        ticks = np.empty(used, np.int64)
        ticks = ticks[: ticks_of_clean(address, slots, self._ncols, self.clean_tick, address_of(ticks))]
        leave = min(used - keep, len(ticks))
        if leave <= 0:
            return
        ticks.partition(leave - 1)
        before = int(ticks[leave - 1])
        ties = leave - int(np.count_nonzero(ticks < before))
        if len(self._scratch) * 8 < used * self._row_bytes:
            self._scratch = np.empty(used * self._row_bytes // 8, np.int64)
        kept = drop(address, slots, capacity, self._ncols, before, ties, address_of(self._scratch))
        self.places[USED, sub] = kept
        self.evicted += used - kept


def rows_within(limit_bytes: int, ncols: int) -> int:
    """How many rows a table of so many bytes holds, spread evenly over its sub-tables."""
    slots = limit_bytes // (8 * (2 + ncols)) // SUB_TABLES - SPARE_SLOTS
    return int(max(0, slots - 1) * MAX_LOAD) * SUB_TABLES if slots > SMALLEST_CAPACITY else 0
