"""Sub-tables that hold no more than a given memory: where one is full, the rows changed longest ago leave it.

Below the bound the sub-tables grow as they do without one. The last generation is laid out evenly; from then on a
full sub-table is rebuilt in place, without a quarter of its rows. Only rows that did not change after `clean_tick` may
leave: those after it are nowhere else. Where too few may leave, the sub-table grows alone, beyond the bound, because no
row may be lost. The owner prevents that by bounding the number of rows that may not leave.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.table.kernels import (
    ADDRESS,
    ALLOWED,
    CAPACITY,
    NEVER,
    SLOTS,
    SUB_TABLES,
    USED,
    drop,
    row_bytes,
    ticks_of_clean,
)
from stream_learner.core.model.table.regions import (
    MAX_LOAD,
    SMALLEST_CAPACITY,
    SPARE_SLOTS,
    Generation,
    SubTables,
    growth_of,
    next_rows,
)

KEPT: Final = 0.75
"""Share of a full sub-table's rows that stay in it."""


class BoundedSubTables(SubTables):
    """Sub-tables of at most `limit_bytes`. Rows touched up to `clean_tick` may leave."""

    def __init__(self, ncols: int, limit_bytes: int) -> None:
        """Raises ValueError for a bound below the memory of an empty table."""
        self.limit_bytes = limit_bytes
        self.clean_tick = NEVER
        self.evicted = 0
        """How many rows have left so far."""
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
        for sub in map(int, np.flatnonzero(needed > self.directory[ALLOWED])):
            fits_next = self._waiting[sub] and needed[sub] <= self._next.directory[ALLOWED, sub]
            if not fits_next and not self._last:
                self._begin_generation(next_rows(needed))
            if self._waiting[sub]:
                self._move(sub)
            if needed[sub] > self.directory[ALLOWED, sub]:
                self._make_room(sub, int(incoming[sub]))

    def _lay_out(self, needed: NDArray[Any]) -> Generation:
        rows = self._rows_of_next(needed)
        even = self.most_rows // SUB_TABLES
        if rows.sum() >= even * SUB_TABLES:
            self._last = True
            rows = np.full(SUB_TABLES, even, np.int64)
        return Generation(rows, self._spare, self._slot_bytes)

    def _make_room(self, sub: int, incoming: int) -> None:
        allowed = int(self.directory[ALLOWED, sub])
        self._evict(sub, max(0, min(allowed - incoming, int(allowed * KEPT))))
        needed = int(self.used[sub]) + incoming
        if needed > allowed:
            self._move_alone(sub, int(np.ceil(needed * growth_of(self.used) / MAX_LOAD)))

    def _evict(self, sub: int, keep: int) -> None:
        """Let rows leave, those touched longest ago first, until `keep` are left or all that are left must stay."""
        address, capacity, slots, used = (int(self.directory[i, sub]) for i in (ADDRESS, CAPACITY, SLOTS, USED))
        ticks = np.empty(used, np.int64)
        ticks = ticks[: ticks_of_clean(address, slots, self._ncols, self.clean_tick, address_of(ticks))]
        leave = min(used - keep, len(ticks))
        if leave <= 0:
            return
        ticks.partition(leave - 1)
        before = int(ticks[leave - 1])
        ties = leave - int(np.count_nonzero(ticks < before))
        if len(self._scratch) * 8 < used * self._slot_bytes:
            self._scratch = np.empty(used * self._slot_bytes // 8, np.int64)
        kept = drop(address, slots, capacity, self._ncols, before, ties, address_of(self._scratch))
        self.directory[USED, sub] = kept
        self.evicted += used - kept


def rows_within(limit_bytes: int, ncols: int) -> int:
    """How many rows fit into a table of `limit_bytes`, spread evenly over its sub-tables."""
    slots = limit_bytes // row_bytes(ncols) // SUB_TABLES - SPARE_SLOTS
    return int(max(0, slots - 1) * MAX_LOAD) * SUB_TABLES if slots > SMALLEST_CAPACITY else 0
