"""Where the rows of the weight table lie: one region of memory per generation, sub-tables one after the other.

In: how many rows each sub-table must hold. Out: addresses.
This file must never know what a row holds.

A generation is one anonymous mapping, in huge pages where the system has them, with a place for every sub-table.
When one sub-table is full, the next generation is laid out a quarter larger, and sub-tables move to it one at a time,
each when it is full itself; the pages it leaves are given back. Growth so costs the move of one sub-table at a time,
and no second copy of the whole.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.weight_kernels import ADDRESS, CAPACITY, SLOTS, SUB_TABLES, USED, move

MAX_LOAD: Final = 0.8
GROWTH: Final = 1.25
SMALLEST_CAPACITY: Final = 16
SPARE_SLOTS: Final = 64


class Region:
    """Zeroed memory from the system, given back when the object goes."""

    def __init__(self, size_bytes: int) -> None:
        self.held_bytes = size_bytes
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
        if _advise(self._mapping, mmap.MADV_DONTNEED, first, last - first):
            self.held_bytes -= last - first


_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def _advise(mapping: mmap.mmap, advice: int, start: int, size_bytes: int) -> bool:
    """Advice is only advice: a system built without it says so, and nothing else changes."""
    try:
        mapping.madvise(advice, start, size_bytes)
    except OSError:
        return False
    return True


class Generation:
    """One layout of all sub-tables in one region. `places` is int64[3, 256]: address, capacity, slots."""

    def __init__(self, rows: NDArray[np.int64], spare: NDArray[np.int64], row_bytes: int) -> None:
        """`rows`: int64[256], how many rows each sub-table can take before it is full."""
        capacity = np.maximum(np.ceil(rows / MAX_LOAD).astype(np.int64), SMALLEST_CAPACITY)
        slots = capacity + spare
        ends = np.cumsum(slots * row_bytes)
        self.region = Region(int(ends[-1]))
        self.places = np.stack([self.region.address + ends - slots * row_bytes, capacity, slots])


class SubTables:
    """The 256 sub-tables. `places` is int64[4, 256] as the kernels take it: the fourth row counts rows used."""

    def __init__(self, ncols: int, rows_expected: int = 0) -> None:
        self._ncols = ncols
        self._row_bytes = 8 * (2 + ncols)
        self._spare = np.full(SUB_TABLES, SPARE_SLOTS, np.int64)
        self._next = self._lay_out(np.full(SUB_TABLES, rows_expected / SUB_TABLES))
        self._waiting = np.zeros(SUB_TABLES, np.bool_)
        self._regions = [self._next.region] * SUB_TABLES
        self.places = np.concatenate([self._next.places, np.zeros((1, SUB_TABLES), np.int64)])

    @property
    def used(self) -> NDArray[np.int64]:
        """int64[256]: rows in each sub-table, a live view."""
        return self.places[USED]

    @property
    def held_bytes(self) -> int:
        """Memory mapped and not given back."""
        return sum(region.held_bytes for region in {id(r): r for r in self._regions}.values())

    def reserve(self, incoming: NDArray[np.int64]) -> None:
        """Make room for int64[256] more rows; rows may move."""
        needed = self.used + incoming
        for sub in np.flatnonzero(needed > self.places[CAPACITY] * MAX_LOAD):
            if not self._waiting[sub] or needed[sub] > self._next.places[CAPACITY, sub] * MAX_LOAD:
                self._begin_generation(needed)
            if self._waiting[sub]:
                self._move(int(sub))

    def widen(self, sub: int) -> None:
        """Give a sub-table that ran out of spare slots more of them: many keys share their first 40 bits."""
        self._waiting[sub] = False
        moved = False
        while not moved:
            self._spare[sub] *= 2
            capacity = int(self.places[CAPACITY, sub])
            slots = capacity + int(self._spare[sub])
            region = Region(slots * self._row_bytes)
            moved = self._copy(sub, region, (region.address, capacity, slots))

    def _lay_out(self, needed: NDArray[np.float64]) -> Generation:
        """Room for a quarter more than needed; hashes spread evenly, so nobody gets less than the average."""
        rows = np.ceil(np.maximum(needed, needed.mean()) * GROWTH).astype(np.int64)
        return Generation(rows, self._spare, self._row_bytes)

    def _begin_generation(self, needed: NDArray[np.int64]) -> None:
        for sub in np.flatnonzero(self._waiting):
            self._move(int(sub))
        self._next = self._lay_out(needed.astype(np.float64))
        self._waiting[:] = True

    def _move(self, sub: int) -> None:
        """Move a sub-table to its place in the newest generation, or to one of its own where it does not fit."""
        address, capacity, slots = (int(x) for x in self._next.places[:, sub])
        self._waiting[sub] = False
        if not self._copy(sub, self._next.region, (address, capacity, slots)):
            self._next.region.release(address, slots * self._row_bytes)
            self.widen(sub)

    def _copy(self, sub: int, region: Region, place: tuple[int, int, int]) -> bool:
        source, slots = int(self.places[ADDRESS, sub]), int(self.places[SLOTS, sub])
        if not move(source, slots, *place, self._ncols):
            return False
        self._regions[sub].release(source, slots * self._row_bytes)
        self._regions[sub] = region
        self.places[: SLOTS + 1, sub] = place
        return True
