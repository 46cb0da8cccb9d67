"""Where the rows of the weight table lie: one region of memory per generation, sub-tables one after the other.

In: how many rows each sub-table must hold. Out: addresses.
This file must never know what a row holds.

A generation is one anonymous mapping, in huge pages where the system has them, with a place for every sub-table.
When one sub-table is full, the next generation is laid out larger by a quarter, and sub-tables move to it one by one,
each when it is full itself; the pages it leaves are given back. Hashes fill all sub-tables alike, so within a
generation their sizes rise, from the first to the last, by that much too: they get full one after the other, evenly
over a generation's life. Growth so costs the move of one sub-table at a time, and no second copy of the whole.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, Final

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
)

MAX_LOAD: Final = 0.8
GROWTH: Final = 1.25
SMALL_GROWTH: Final = 1.5
SMALL_ROWS: Final = 1 << 20
"""Below so many rows a table grows by a half instead: moving rows costs more there than memory does."""
EXPECTED_SLACK: Final = 1.02
SMALLEST_CAPACITY: Final = 16
SPARE_SLOTS: Final = 64


class Region:
    """Zeroed memory from the system, given back when the object goes."""

    def __init__(self, size_bytes: int) -> None:
        self._mapping = mmap.mmap(-1, size_bytes, **_PRIVATE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            _advise(self._mapping, mmap.MADV_HUGEPAGE, 0, size_bytes)
        self.address = int(np.frombuffer(self._mapping, np.uint8).__array_interface__["data"][0])

    def release(self, address: int, size_bytes: int) -> None:
        """Give the whole pages of a part back, where the system can. Their content is lost."""
        start = address - self.address
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last <= first or not hasattr(mmap, "MADV_DONTNEED"):
            return
        _advise(self._mapping, mmap.MADV_DONTNEED, first, last - first)


_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def _advise(mapping: mmap.mmap, advice: int, start: int, size_bytes: int) -> None:
    """Advice is only advice: where the system was built without it, nothing else changes."""
    with contextlib.suppress(OSError):
        mapping.madvise(advice, start, size_bytes)


class Generation:
    """One layout of all sub-tables in one region. `places` is int64[4, 256]: address, capacity, slots, rows allowed."""

    def __init__(self, rows: NDArray[np.int64], spare: NDArray[np.int64], row_bytes: int) -> None:
        """`rows`: int64[256], how many rows each sub-table can take before it is full."""
        capacity = np.maximum(np.ceil(rows / MAX_LOAD).astype(np.int64), SMALLEST_CAPACITY)
        slots = capacity + spare
        ends = np.cumsum(slots * row_bytes)
        self.region = Region(int(ends[-1]))
        starts = self.region.address + ends - slots * row_bytes
        self.places = np.stack([starts, capacity, slots, (capacity * MAX_LOAD).astype(np.int64)])


def growth_of(rows: NDArray[Any]) -> float:
    """By what factor a table of int64[256] rows grows."""
    return SMALL_GROWTH if float(rows.sum()) < SMALL_ROWS else GROWTH


class SubTables:
    """The 256 sub-tables. `places` is int64[5, 256], as the kernels take it; it never moves."""

    def __init__(self, ncols: int) -> None:
        """`ncols` columns a row."""
        self._ncols = ncols
        self._row_bytes = 8 * (2 + ncols)
        self._spare = np.full(SUB_TABLES, SPARE_SLOTS, np.int64)
        self._next = self._lay_out(np.zeros(SUB_TABLES))
        self._waiting = np.zeros(SUB_TABLES, np.bool_)
        self._regions = [self._next.region] * SUB_TABLES
        self.places = np.concatenate([self._next.places, np.zeros((1, SUB_TABLES), np.int64)])

    @property
    def used(self) -> NDArray[np.int64]:
        """int64[256]: rows in each sub-table, a live view."""
        return self.places[USED]

    @property
    def held_bytes(self) -> int:
        """Memory in use; places that no sub-table has moved to yet are mapped, but have no memory."""
        return int(self.places[SLOTS].sum()) * self._row_bytes

    def reserve(self, incoming: NDArray[np.int64]) -> None:
        """Make room for int64[256] more rows; rows may move."""
        needed = self.used + incoming
        for sub in np.flatnonzero(needed > self.places[ALLOWED]):
            if not self._waiting[sub] or needed[sub] > self._next.places[ALLOWED, sub]:
                self._begin_generation(needed * growth_of(needed))
            if self._waiting[sub]:
                self._move(int(sub))

    def expect(self, rows: int) -> None:
        """Make room for so many more rows, spread evenly, in one step; rows may move."""
        needed = self.used + EXPECTED_SLACK * rows / SUB_TABLES
        if (needed > self.places[ALLOWED]).any():
            self._begin_generation(needed)
            self._finish_generation()

    def widen(self, sub: int) -> None:
        """Give a sub-table that ran out of spare slots more of them: many keys share their first 40 bits."""
        self._waiting[sub] = False
        self._move_alone(sub, int(self.places[CAPACITY, sub]))

    def _lay_out(self, needed: NDArray[Any]) -> Generation:
        return Generation(self._rows_of_next(needed), self._spare, self._row_bytes)

    def _rows_of_next(self, needed: NDArray[Any]) -> NDArray[np.int64]:
        """Room for what is needed, and no less than the average; up to a whole growth more towards the last."""
        growth = growth_of(needed)
        rows = np.maximum(needed, needed.mean()) * growth ** (np.arange(SUB_TABLES) / SUB_TABLES)
        return np.ceil(rows).astype(np.int64)

    def _begin_generation(self, rows: NDArray[Any]) -> None:
        self._finish_generation()
        self._next = self._lay_out(rows)
        self._waiting[:] = True

    def _finish_generation(self) -> None:
        for sub in np.flatnonzero(self._waiting):
            self._move(int(sub))

    def _move(self, sub: int) -> None:
        """Move a sub-table to its place in the newest generation, or to one of its own where it does not fit."""
        address, capacity, slots, allowed = (int(x) for x in self._next.places[:, sub])
        self._waiting[sub] = False
        if not self._copy(sub, self._next.region, (address, capacity, slots, allowed)):
            self._next.region.release(address, slots * self._row_bytes)
            self._move_alone(sub, capacity)

    def _move_alone(self, sub: int, capacity: int) -> None:
        """Move a sub-table to a region of its own, with twice as many spare slots as before, or more."""
        moved = False
        while not moved:
            self._spare[sub] *= 2
            slots = capacity + int(self._spare[sub])
            region = Region(slots * self._row_bytes)
            moved = self._copy(sub, region, (region.address, capacity, slots, int(capacity * MAX_LOAD)))

    def _copy(self, sub: int, region: Region, place: tuple[int, int, int, int]) -> bool:
        """Copy a sub-table to a place (address, capacity, slots, rows allowed) and use that, if it fits there."""
        source, slots = int(self.places[ADDRESS, sub]), int(self.places[SLOTS, sub])
        if not move(source, slots, place[ADDRESS], place[CAPACITY], place[SLOTS], self._ncols):
            return False
        self._regions[sub].release(source, slots * self._row_bytes)
        self._regions[sub] = region
        self.places[:USED, sub] = place
        return True
