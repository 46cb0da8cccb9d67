"""The memory of the weight table: regions from the system, and how sub-tables grow in them.

A generation is one region, in huge pages where the system has them, with room for every sub-table. When a sub-table is
full, the next generation is laid out, larger by a quarter. Sub-tables move to it one by one, each when it is full
itself, and the memory that they leave is given back:

    generation 1    | 0 | 1 | 2  | 3  | ...  |  255  |      0 and 1 have moved: their memory here is given back
                                                            2 to 255 are still here
    generation 2    | 0 | 1 |  2  |  3  | ...  |   255   |  has no memory yet for sub-tables that have not moved

Hashed keys fill all sub-tables alike, so all would be full at the same moment. Therefore their sizes rise from the
first to the last within a generation, by the same quarter: they get full one after the other, evenly over the life of
the generation. So growth costs the move of one sub-table at a time. Small tables grow by more than a quarter.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.model.table.kernels import (
    ADDRESS,
    ALLOWED,
    CAPACITY,
    SLOTS,
    SUB_TABLES,
    USED,
    move,
    row_bytes,
)

MAX_LOAD: Final = 0.8
GROWTH: Final = 1.25
SMALL_GROWTH: Final = 1.5
SMALL_ROWS: Final = 1 << 20
"""Below so many rows a table grows by a half instead: moving rows costs more there than memory does."""
YOUNG_GROWTH: Final = 3.0
YOUNG_ROWS: Final = 1 << 17
"""Below so many rows a generation has room for three times as many: a new model learns its first features fast."""
EXPECTED_SLACK: Final = 1.02
SMALLEST_CAPACITY: Final = 16
SPARE_SLOTS: Final = 64
LEAST_RELEASED_BYTES: Final = 64 * 1024
HUGE_PAGE_BYTES: Final = 2 << 20


class Region:
    """Zeroed memory from the system: one anonymous mapping, given back when the object is collected."""

    def __init__(self, size_bytes: int) -> None:
        """A region that has room for huge pages begins with one; what is mapped before it is never touched."""
        huge_bytes = size_bytes // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        self._mapping = mmap.mmap(-1, size_bytes + (HUGE_PAGE_BYTES if huge_bytes else 0), **_PRIVATE)
        self._begin = int(np.frombuffer(self._mapping, np.uint8).__array_interface__["data"][0])
        start = -self._begin % HUGE_PAGE_BYTES if huge_bytes else 0
        if huge_bytes and hasattr(mmap, "MADV_HUGEPAGE"):
            _advise(self._mapping, mmap.MADV_HUGEPAGE, start, huge_bytes)
        self.address = self._begin + start

    def release(self, address: int, size_bytes: int) -> None:
        """Give the pages that lie within a part back to the system, where it can take them. Their content is lost.

        A small part stays until the whole region goes.
        """
        if size_bytes < LEAST_RELEASED_BYTES:
            return
        start = address - self._begin
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last <= first or not hasattr(mmap, "MADV_DONTNEED"):
            return
        _advise(self._mapping, mmap.MADV_DONTNEED, first, last - first)


_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def _advise(mapping: mmap.mmap, advice: int, start: int, size_bytes: int) -> None:
    """`madvise`, where the system was built with it; without it only speed or memory differ."""
    with contextlib.suppress(OSError):
        mapping.madvise(advice, start, size_bytes)


class Extent(NamedTuple):
    """The room of one sub-table, in the order of the directory."""

    address: int
    capacity: int
    slots: int
    allowed: int


class Generation:
    """Room for all sub-tables in one region."""

    def __init__(self, rows: NDArray[np.int64], spare: NDArray[np.int64], slot_bytes: int) -> None:
        """rows: int64[256], how many rows each sub-table can take before it is full. spare: int64[256], spare slots."""
        capacity = np.maximum(np.ceil(rows / MAX_LOAD).astype(np.int64), SMALLEST_CAPACITY)
        slots = capacity + spare
        ends = np.cumsum(slots * slot_bytes)
        self.region = Region(int(ends[-1]))
        starts = self.region.address + ends - slots * slot_bytes
        self.directory = np.stack([starts, capacity, slots, (capacity * MAX_LOAD).astype(np.int64)])
        """int64[4, 256]: what the directory of `SubTables` says of each sub-table once it has moved here."""
        self.extents = [Extent(*extent) for extent in self.directory.T.tolist()]
        """The same by sub-table."""


def growth_of(rows: NDArray[Any]) -> float:
    """The factor between the smallest and the largest sub-table of a generation for int64[256] rows."""
    return SMALL_GROWTH if float(rows.sum()) < SMALL_ROWS else GROWTH


def next_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """How many rows the next generation has room for, of a table that must have room for int64[256] rows."""
    return rows * (YOUNG_GROWTH if float(rows.sum()) < YOUNG_ROWS else growth_of(rows))


class SubTables:
    """The 256 sub-tables. `directory` is int64[5, 256], as `kernels` takes it; its own address never changes."""

    def __init__(self, ncols: int) -> None:
        """Empty sub-tables of rows with `ncols` columns."""
        self._ncols = ncols
        self._slot_bytes = row_bytes(ncols)
        self._spare = np.full(SUB_TABLES, SPARE_SLOTS, np.int64)
        self._next = self._lay_out(np.zeros(SUB_TABLES))
        self._waiting = np.zeros(SUB_TABLES, np.bool_)
        self._regions = [self._next.region] * SUB_TABLES
        self.directory = np.concatenate([self._next.directory, np.zeros((1, SUB_TABLES), np.int64)])

    @property
    def used(self) -> NDArray[np.int64]:
        """int64[256]: rows in each sub-table, a live view."""
        return self.directory[USED]

    @property
    def held_bytes(self) -> int:
        """Memory in use. What no sub-table has moved to yet is mapped, but takes no memory."""
        return int(self.directory[SLOTS].sum()) * self._slot_bytes

    def is_full(self, sub: int) -> bool:
        """Whether a sub-table has as many rows as it may have."""
        return bool(self.directory[USED, sub] >= self.directory[ALLOWED, sub])

    def reserve(self, incoming: NDArray[np.int64]) -> None:
        """Make room for int64[256] more rows; rows may move."""
        needed = self.used + incoming
        for sub in map(int, np.flatnonzero(needed > self.directory[ALLOWED])):
            if not self._waiting[sub] or needed[sub] > self._next.directory[ALLOWED, sub]:
                self._begin_generation(next_rows(needed))
            if self._waiting[sub]:
                self._move(sub)

    def expect(self, rows: int) -> None:
        """Make room for `rows` more rows, spread evenly, in one step; rows may move."""
        needed = self.used + EXPECTED_SLACK * rows / SUB_TABLES
        if (needed > self.directory[ALLOWED]).any():
            self._begin_generation(needed)
            self._finish_generation()

    def widen(self, sub: int) -> None:
        """Give a sub-table that ran out of spare slots more of them: many of its keys share their first 40 bits."""
        self._waiting[sub] = False
        self._move_alone(sub, int(self.directory[CAPACITY, sub]))

    def _lay_out(self, needed: NDArray[Any]) -> Generation:
        return Generation(self._rows_of_next(needed), self._spare, self._slot_bytes)

    def _rows_of_next(self, needed: NDArray[Any]) -> NDArray[np.int64]:
        """int64[256] rows to make room for: what is needed, no less than the average, and more towards the last."""
        growth = growth_of(needed)
        rows = np.maximum(needed, needed.mean()) * growth ** (np.arange(SUB_TABLES) / SUB_TABLES)
        return np.ceil(rows).astype(np.int64)

    def _begin_generation(self, rows: NDArray[Any]) -> None:
        self._finish_generation()
        self._next = self._lay_out(rows)
        self._waiting[:] = True

    def _finish_generation(self) -> None:
        for sub in map(int, np.flatnonzero(self._waiting)):
            self._move(sub)

    def _move(self, sub: int) -> None:
        """Move a sub-table to the newest generation, or to a region of its own if its room there is too small."""
        extent = self._next.extents[sub]
        self._waiting[sub] = False
        if not self._copy(sub, self._next.region, extent):
            self._next.region.release(extent.address, extent.slots * self._slot_bytes)
            self._move_alone(sub, extent.capacity)

    def _move_alone(self, sub: int, capacity: int) -> None:
        """Move a sub-table to a region of its own, with twice as many spare slots as before, or more."""
        moved = False
        while not moved:
            self._spare[sub] *= 2
            slots = capacity + int(self._spare[sub])
            region = Region(slots * self._slot_bytes)
            moved = self._copy(sub, region, Extent(region.address, capacity, slots, int(capacity * MAX_LOAD)))

    def _copy(self, sub: int, region: Region, extent: Extent) -> bool:
        """Copy a sub-table to other room and use that from now on; False, and nothing changed, if it does not fit."""
        source, slots = int(self.directory[ADDRESS, sub]), int(self.directory[SLOTS, sub])
        if not move(source, slots, extent.address, extent.capacity, extent.slots, self._ncols):
            return False
        self._regions[sub].release(source, slots * self._slot_bytes)
        self._regions[sub] = region
        self.directory[:USED, sub] = extent
        return True
