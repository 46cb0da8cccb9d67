"""A hash table from 64-bit ids to numbers >= 0 that only grow. It forgets numbers below a floor that only rises.

The join keeps two: id -> log time at which an impression was last seen, id -> number of its newest click. An entry
below the floor counts as absent, whether or not its memory has been reused: nobody may rely on either.

Layout: 64 sub-tables, chosen by the top bits of the id. Each is open-addressed with linear probing by the low bits of
the id. An entry is `(id, value + 1)`, 16 bytes; the second word of an empty entry is 0. A full sub-table is made again
alone, without the entries below the floor and in the size that the rest needs. So memory follows the number of live
entries, and no pause is long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_i64, store_i64

ENTRY_BYTES = 16
_SUB_TABLES = 64
_SMALLEST = 16
_SMALL = 1024
_MASKS = 8 * _SUB_TABLES
_ROOM = 16 * _SUB_TABLES


@entry
def sub_table_of(key: int) -> int:
    """The number of the sub-table that holds an id (int64, the bits of the u64)."""
    return (key >> 58) & 63


@kernel
def find_entry(header: int, key: int) -> int:
    """Address of the id's entry, or of the empty entry where it would go, whose second word is 0."""
    sub = sub_table_of(key)
    base = load_i64(header + 8 * sub)
    mask = load_i64(header + _MASKS + 8 * sub)
    slot = key & mask
    while True:
        entry = base + ENTRY_BYTES * slot
        if load_i64(entry + 8) == 0 or load_i64(entry) == key:
            return entry
        slot = (slot + 1) & mask


@kernel
def first_entry(header: int, key: int) -> int:
    """Address at which the search for an id begins, for a prefetch."""
    sub = sub_table_of(key)
    mask = load_i64(header + _MASKS + 8 * sub)
    return load_i64(header + 8 * sub) + ENTRY_BYTES * (key & mask)


@kernel
def put_entry(header: int, entry: int, key: int, value: int) -> bool:
    """Set the value of an entry that `find_entry` gave. False, and nothing is set, if its sub-table must grow first."""
    if load_i64(entry + 8) == 0:
        room = header + _ROOM + 8 * sub_table_of(key)
        left = load_i64(room)
        if left == 0:
            return False
        store_i64(room, left - 1)
        store_i64(entry, key)
    store_i64(entry + 8, value + 1)
    return True


@entry
def _count_alive(base: int, capacity: int, floor: int) -> int:
    alive = 0
    for slot in range(capacity):
        alive += load_i64(base + ENTRY_BYTES * slot + 8) > floor
    return alive


@entry
def _move_alive(base: int, capacity: int, floor: int, new_base: int, new_mask: int) -> None:
    for slot in range(capacity):
        entry = base + ENTRY_BYTES * slot
        stored = load_i64(entry + 8)
        if stored > floor:
            key = load_i64(entry)
            place = key & new_mask
            while load_i64(new_base + ENTRY_BYTES * place + 8) != 0:
                place = (place + 1) & new_mask
            store_i64(new_base + ENTRY_BYTES * place, key)
            store_i64(new_base + ENTRY_BYTES * place + 8, stored)


def _room(capacity: int) -> int:
    """How many ids a sub-table of `capacity` slots takes before it must grow."""
    return capacity * 3 // 4


class IdTable:
    """The memory of the table. Kernels take `header`, the address of its directory."""

    __slots__ = ("_directory", "_memory", "_spare", "header")

    def __init__(self) -> None:
        self._directory = np.zeros((3, _SUB_TABLES), np.int64)
        self._spare = np.zeros(0, np.int64)
        self.header: int = self._directory.ctypes.data
        arena = np.zeros((_SUB_TABLES, 2 * _SMALLEST), np.int64)
        self._memory = list(arena)
        self._directory[0] = arena.ctypes.data + arena.strides[0] * np.arange(_SUB_TABLES)
        self._directory[1] = _SMALLEST - 1
        self._directory[2] = _room(_SMALLEST)

    @property
    def nbytes(self) -> int:
        """Memory of all sub-tables, bytes."""
        return int((self._directory[1] + 1).sum()) * ENTRY_BYTES

    def grow(self, key: int, floor: int) -> None:
        """Make the sub-table of an id (int64) again with room to spare, without values below `floor`."""
        sub = sub_table_of(key)
        base, mask = int(self._directory[0, sub]), int(self._directory[1, sub])
        alive = _count_alive(base, mask + 1, floor)
        capacity = _SMALLEST
        while 5 * alive > 2 * capacity:
            capacity *= 2
        if capacity < _SMALL:
            capacity *= 2
        memory = self._empty(2 * capacity)
        _move_alive(base, mask + 1, floor, memory.ctypes.data, capacity - 1)
        self._spare = self._memory[sub]
        self._install(sub, memory, alive)

    def _empty(self, words: int) -> NDArray[np.int64]:
        """Zeros, in the memory that the last growth left over if it fits: touching new memory is slow."""
        if len(self._spare) != words:
            return np.zeros(words, np.int64)
        self._spare.fill(0)
        return self._spare

    def _install(self, sub: int, memory: NDArray[np.int64], alive: int) -> None:
        capacity = len(memory) // 2
        self._memory[sub] = memory
        self._directory[:, sub] = memory.ctypes.data, capacity - 1, _room(capacity) - alive
