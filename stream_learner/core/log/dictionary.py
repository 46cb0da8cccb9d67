"""The dictionary of a record: its distinct feature keys, in order of first occurrence.

Each feature of the record is then a 16-bit index into it, and only the values that are not 1 are kept.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.entries import F64, I64, U16, U32, U64, entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import prefetch_for_write

MAX_KEYS = 65_536
"""The most distinct keys of a record: as many as a 16-bit index can name."""

_INDEX_BITS = np.uint64(16)
_INDEX_MASK = np.uint64(0xFFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FEWEST_SLOTS = 256
_SLOTS_PER_KEY = 4
_MOST_SLOTS = _SLOTS_PER_KEY * MAX_KEYS
_MOST_GROWTHS = (_MOST_SLOTS // _FEWEST_SLOTS).bit_length()
LAST_STAMP = (1 << 16) - 1
_VALUE_BYTES = 12
"""What a value other than 1 takes in the record, its position included."""
_AHEAD = 32
"""The slot of a key is asked for so many features before it is looked at."""


class Scratch:
    """Memory that the encoder uses again from call to call; one thread at a time.

    `table` is a hash table of `stamp << 16 | index`, probed linearly, at most a quarter full; the key of a slot is
    `keys[index]`. A slot whose stamp is not the current one is free, so that nothing is cleared from one dictionary to
    the next. Each dictionary, and each growth of one, takes the next stamp; after the last of 16 bits the table is
    cleared, and stamps begin anew. The table is only as large as the keys need (`slots`), so that small dictionaries
    stay in the nearest cache.
    """

    __slots__ = ("indices", "keys", "positions", "slots", "stamp", "table", "values")

    def __init__(self) -> None:
        self.table = np.zeros(_MOST_SLOTS, np.uint32)
        self.stamp = 1
        self.slots = _FEWEST_SLOTS
        self.keys = np.empty(MAX_KEYS, np.uint64)
        self.reserve(0)

    def next_stamp(self) -> int:
        """The stamp under which the next dictionary begins."""
        if self.stamp > LAST_STAMP - _MOST_GROWTHS:
            self.table.fill(0)
            self.stamp = 1
        return self.stamp

    def reserve(self, features: int) -> None:
        """Make room for a record with so many features; what was written before is lost."""
        self.indices = np.empty(features, np.uint16)
        self.positions = np.empty(features, np.uint32)
        self.values = np.empty(features, np.float64)


@kernel
def _slot_shift(slots: int) -> int:
    """By how many bits to shift a 64-bit hash right, so that its top bits name one of `slots` (a power of two)."""
    shift = 64
    while slots > 1:
        slots >>= 1
        shift -= 1
    return shift


@inlined
def _is_new(entry: np.uint64, tag: np.uint64) -> np.uint64:
    """1 if a slot with this entry is free, else 0."""
    return np.uint64((entry ^ tag) > _INDEX_MASK)


@inlined
def _index(entry: np.uint64, k: np.uint64, is_new: np.uint64) -> np.uint64:
    """k for a free slot, else the index in its entry; without a branch, which would be predicted wrongly too often."""
    index = entry & _INDEX_MASK
    return index ^ ((index ^ k) & (_ZERO - is_new))


@kernel
def _put_again(table: U32, slots: int, stamp: int, keys: U64, n_keys: int) -> None:
    """Enter the first `n_keys` keys into a table that is empty under `stamp`."""
    shift = np.uint64(_slot_shift(slots))
    mask = np.uint64(slots - 1)
    tag = np.uint64(stamp) << _INDEX_BITS
    for i in range(np.uint64(n_keys)):
        slot = (keys[i] * _SPREAD) >> shift
        while (np.uint64(table[slot]) ^ tag) <= _INDEX_MASK:
            slot = (slot + _ONE) & mask
        table[slot] = np.uint32(tag | np.uint64(i))


@kernel
def _surely_fits(
    values: F64, begin: int, end: int, key_bytes: int, room_bytes: int, room_keys: int, room_features: int
) -> bool:
    """Whether an example fits even if all its keys are new."""
    length = end - begin
    need_bytes = (2 + key_bytes) * length
    if len(values) > 0 and need_bytes + _VALUE_BYTES * length > room_bytes:
        for j in range(begin, end):
            if values[j] != 1.0:
                need_bytes += _VALUE_BYTES
    return need_bytes <= room_bytes and length <= room_keys and length <= room_features


@entry
def number_keys(
    table: U32,
    slots: int,
    stamp: int,
    row_start: I64,
    first_row: int,
    end_row: int,
    keys: U64,
    values: F64,
    row_bytes: int,
    key_bytes: int,
    room_bytes: int,
    out_keys: U64,
    out_indices: U16,
    out_positions: U32,
    out_values: F64,
) -> tuple[int, int, int, int, int, int, int]:
    """Take examples (rows) from `first_row` on while they surely fit into the record; the first is always taken.

    `values` may be empty where all are 1. In the record an example takes `row_bytes`, a feature 2 bytes, a new key
    `key_bytes`, a value other than 1 12 bytes; there are `room_bytes`. The first example has at most `MAX_KEYS`
    features, and the `out` arrays hold them. Returns the row after the last one taken, how many keys, features and
    values were written, the bytes they take, and the slots and the stamp of the table as they are now.
    """
    k = np.uint64(0)
    m = np.uint64(0)
    v = 0
    used = 0
    shift = np.uint64(_slot_shift(slots))
    mask = np.uint64(slots - 1)
    tag = np.uint64(stamp) << _INDEX_BITS
    table_at, features = table.ctypes.data, len(keys)
    with_values = len(values) > 0
    row = first_row
    while row < end_row:
        begin = row_start[row]
        end = row_start[row + 1]
        if row > first_row and not _surely_fits(
            values, begin, end, key_bytes, room_bytes - used - row_bytes, MAX_KEYS - int(k), len(out_indices) - int(m)
        ):
            break
        if _SLOTS_PER_KEY * (int(k) + end - begin) > slots:
            while _SLOTS_PER_KEY * (int(k) + end - begin) > slots:
                slots *= 2
            stamp += 1
            _put_again(table, slots, stamp, out_keys, int(k))
            shift = np.uint64(_slot_shift(slots))
            mask = np.uint64(slots - 1)
            tag = np.uint64(stamp) << _INDEX_BITS
        known = k
        for j in range(np.uint64(begin), np.uint64(end)):
            ahead = np.int64(j) + _AHEAD
            if ahead < features:
                prefetch_for_write(table_at + np.int64((keys[ahead] * _SPREAD) >> shift) * 4)
            key = keys[j]
            slot = (key * _SPREAD) >> shift
            entry = np.uint64(table[slot])
            is_new = _is_new(entry, tag)
            index = _index(entry, k, is_new)
            out_keys[k] = key  # so that a new key finds itself; the next new key takes the place if this one is known
            while out_keys[index] != key:
                slot = (slot + _ONE) & mask
                entry = np.uint64(table[slot])
                is_new = _is_new(entry, tag)
                index = _index(entry, k, is_new)
            table[slot] = np.uint32(tag | index)
            out_indices[m] = index
            k += is_new
            if with_values and values[j] != 1.0:
                out_positions[v] = m
                out_values[v] = values[j]
                v += 1
                used += _VALUE_BYTES
            m += _ONE
        used += row_bytes + 2 * (end - begin) + key_bytes * int(k - known)
        row += 1
    return row, int(k), int(m), v, used, slots, stamp
