"""Weights in memory for many readers and one writer: two banks of weights over one set of keys.

In: keys with new weights, a version, feature vectors. Out: predictions, each made from the weights of one version.
This file must never make a reader wait, and never write the bank that readers may be in.

256 open-addressing sub-tables, chosen by the top 8 bits of the key, slot by the next 32, so that a key prefix is a
contiguous range. A row is 16 bytes: key u64 (0: empty), a weight f32 for bank 0, a weight f32 for bank 1.

How the writer changes the weights:
  Step 1. Write the changes into the bank that is not current. New keys go into empty slots with weight 0 in the
          current bank. A sub-table that is full is copied into a larger block, and the directory's pointer swapped.
  Step 2. Put the version beside that bank and make it the current one.
  Step 3. Wait until the readers that entered before have left. Free the blocks that were swapped out before.
  Step 4. Write the changes into the other bank too. Blocks swapped out here wait for the next Step 3.
A reader reads which bank is current, counts itself in, looks whether that bank still is current (else counts itself
out and begins again), predicts, counts itself out. What it sees is the bank of one version from beginning to end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.arithmetic import sigmoid, sum_lanes
from stream_learner.core.atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    load_f32,
    prefetch_for_read,
    store_f32,
)
from stream_learner.core.kernels import kernel
from stream_learner.core.memory import load_i64, load_u64, store_u64

SUB_TABLES = 256
BOTH_BANKS = 2
NO_VERSION = -1
BAD_ROWS = -2

_FIRST_CAPACITY = 48
_PADDING = 16
_ROW_WORDS = 2
_HEADER_WORDS = 2
_PREFETCH = 24

# Control block, one cache line each: current bank; readers in bank 0; readers in bank 1; versions of the banks.
_LINE = 64
_READERS = 64
_VERSIONS = 192
_CONTROL_BYTES = 256

_U8, _U32, _U56 = np.uint64(8), np.uint64(32), np.uint64(56)
_NO_KEY = np.uint64(0)
_ZERO = np.float32(0.0)


@kernel
def _first_row(block: int, key: int) -> int:
    """Address of the row where the search for a key begins in its sub-table's block."""
    slot = (((key << _U8) >> _U32) * load_u64(block)) >> _U32
    return block + np.int64(16) + (np.int64(slot) << 4)


@kernel
def _block_of(directory: int, key: int) -> int:
    return load_i64(directory + (np.int64(key >> _U56) << 3))


@kernel
def _find(directory: int, key: int) -> int:
    """Address of the key's row, 0 if it is not in the table. The last row of a block is always empty."""
    row = _first_row(_block_of(directory, key), key)
    while True:
        found = load_u64(row)
        if found == key:
            return row
        if found == _NO_KEY:
            return np.int64(0)
        row += 16


@kernel
def _enter(control: int) -> int:
    """Count a reader into the current bank, and say which it is."""
    while True:
        bank = atomic_load(control)
        atomic_add(control + _READERS + _LINE * bank, np.int64(1))
        if atomic_load(control) == bank:
            return bank
        atomic_add(control + _READERS + _LINE * bank, np.int64(-1))


@kernel
def _leave(control: int, bank: int) -> None:
    atomic_add(control + _READERS + _LINE * bank, np.int64(-1))


@kernel
def _rows_make_sense(row_start: NDArray[np.int64], keys: int, values: int) -> int:
    """Length of the longest row, -1 if the rows do not lie one after the other within the keys and values."""
    longest = np.int64(0)
    previous = np.int64(0)
    for i in range(len(row_start)):
        if row_start[i] < previous:
            return np.int64(-1)
        if i:
            longest = max(longest, row_start[i] - previous)
        previous = row_start[i]
    return longest if len(row_start) and previous <= min(keys, values) else np.int64(-1)


@kernel
def predict_rows(
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    row_start: NDArray[np.int64],
    p_click: NDArray[np.float64],
    directory: int,
    control: int,
) -> int:
    """Predictions for rows of (key, value); gives the version all of them are of.

    keys u64[m], values f64[m], row_start i64[n+1]; fills p_click f64[n]. NO_VERSION if there is none yet, BAD_ROWS if
    the arrays do not fit together; p_click is then undefined.
    """
    longest = _rows_make_sense(row_start, len(keys), len(values))
    if longest < 0 or len(p_click) != len(row_start) - 1:
        return np.int64(BAD_ROWS)
    products = np.empty(longest + 8)
    key_at = np.int64(keys.ctypes.data)
    end = row_start[len(p_click)]
    bank = _enter(control)
    for ahead in range(row_start[0], min(end, row_start[0] + _PREFETCH)):
        key = load_u64(key_at + 8 * ahead)
        prefetch_for_read(_first_row(_block_of(directory, key), key))
    for r in range(len(p_click)):
        start, count = row_start[r], row_start[r + 1] - row_start[r]
        for i in range(count):
            if start + i + _PREFETCH < end:
                key = load_u64(key_at + 8 * (start + i + _PREFETCH))
                prefetch_for_read(_first_row(_block_of(directory, key), key))
            row = _find(directory, load_u64(key_at + 8 * (start + i)))
            weight = load_f32(row + 8 + 4 * bank) if row else _ZERO
            products[i] = np.float64(weight) * values[start + i]
        p_click[r] = sigmoid(_sum(products, count))
    version = load_i64(control + _VERSIONS + 8 * bank)
    _leave(control, bank)
    return version


@kernel
def _sum(products: NDArray[np.float64], count: int) -> float:
    """The fixed tree of eight lanes; `products` has eight places more than it needs."""
    for i in range(count, count + 8):
        products[i] = 0.0
    l0 = l1 = l2 = l3 = l4 = l5 = l6 = l7 = 0.0
    for i in range(0, count, 8):
        l0 += products[i]
        l1 += products[i + 1]
        l2 += products[i + 2]
        l3 += products[i + 3]
        l4 += products[i + 4]
        l5 += products[i + 5]
        l6 += products[i + 6]
        l7 += products[i + 7]
    return sum_lanes(l0, l1, l2, l3, l4, l5, l6, l7)


@kernel
def _current_weight(directory: int, control: int, key: int) -> float:
    bank = _enter(control)
    row = _find(directory, key)
    weight = load_f32(row + 8 + 4 * bank) if row else _ZERO
    _leave(control, bank)
    return weight


@kernel
def _put(row: int, weight: float, bank: int) -> None:
    if bank != 1:
        store_f32(row + 8, weight)
    if bank != 0:
        store_f32(row + 12, weight)


@kernel
def _write_weights(
    directory: int, held: NDArray[np.int64], keys: int, weights: int, start: int, stop: int, bank: int
) -> int:
    """Write rows start to stop - 1; gives the first that does not fit before its sub-table grows, or `stop`.

    keys, weights: addresses of u64 and f32. held i64[256]: keys in each sub-table. A key that is not there is not
    inserted with weight 0.
    """
    for i in range(start, stop):
        key, weight = load_u64(keys + 8 * i), load_f32(weights + 4 * i)
        if key == _NO_KEY:
            continue
        block = _block_of(directory, key)
        row = _first_row(block, key)
        found = load_u64(row)
        while found != key and found != _NO_KEY:
            row += 16
            found = load_u64(row)
        if found == _NO_KEY:
            if weight == _ZERO:
                continue
            sub = np.int64(key >> _U56)
            last = block + 16 * load_i64(block + 8)
            if 4 * (held[sub] + 1) > 3 * load_i64(block) or row >= last:
                return i
            held[sub] += 1
            _put(row, weight, bank)
            store_u64(row, key)
        else:
            _put(row, weight, bank)
    return np.int64(stop)


@kernel
def _clear_range(directory: int, first: int, last: int, bank: int) -> None:
    """Set the weights of all keys in [first, last] to 0."""
    for sub in range(np.int64(first >> _U56), np.int64(last >> _U56) + 1):
        block = load_i64(directory + (sub << 3))
        row, end = block + 16, block + 16 * load_i64(block + 8)
        beyond = end
        if sub == np.int64(first >> _U56):
            row = _first_row(block, first)
        if sub == np.int64(last >> _U56):
            beyond = _first_row(block, last)
        while row < end:
            key = load_u64(row)
            if key == _NO_KEY and row > beyond:
                break
            if key != _NO_KEY and first <= key and key <= last:
                _put(row, _ZERO, bank)
            row += 16


@kernel
def _copy_rows(old: int, new: int) -> int:
    """Move rows with a weight in either bank into an empty block; gives their number, -1 if its end was reached."""
    held = np.int64(0)
    end = old + 16 * load_i64(old + 8) + 16
    last = new + 16 * load_i64(new + 8)
    for source in range(old + 16, end, 16):
        key, weights = load_u64(source), load_u64(source + 8)
        if key == _NO_KEY or (load_f32(source + 8) == _ZERO and load_f32(source + 12) == _ZERO):
            continue
        row = _first_row(new, key)
        while load_u64(row) != _NO_KEY:
            row += 16
        if row >= last:
            return np.int64(-1)
        store_u64(row + 8, weights)
        store_u64(row, key)
        held += 1
    return held


@kernel
def _point(directory: int, sub: int, block: int) -> None:
    atomic_store(directory + 8 * sub, block)


@kernel
def _readers(control: int, bank: int) -> int:
    return atomic_load(control + _READERS + _LINE * bank)


@kernel
def _serve(control: int, bank: int, version: int) -> None:
    atomic_store(control + _VERSIONS + 8 * bank, version)
    atomic_store(control, bank)


def _new_block(capacity: int, padding: int) -> NDArray[np.int64]:
    """A block with no rows: words 0 capacity, 1 rows; then the rows, the last of which stays empty."""
    rows = capacity + padding
    block = np.zeros(_HEADER_WORDS + _ROW_WORDS * rows, np.int64)
    block[0], block[1] = capacity, rows
    return block


Change = tuple[tuple[int, int] | None, NDArray[np.uint64], NDArray[np.float32]]
"""Rows to write: keys u64[r], weights f32[r]. With a span (first key, last key) they replace all rows in it."""


class ReplicaTable:
    """The weights of one model. One thread writes; any number read."""

    def __init__(self, pause: Callable[[], None]) -> None:
        """`pause` is called again and again while the writer waits for readers to leave."""
        self._pause = pause
        self._control_memory = np.zeros(_CONTROL_BYTES + _LINE, np.uint8)
        address = int(self._control_memory.ctypes.data)
        self.control = address + -address % _LINE
        self._blocks = [_new_block(_FIRST_CAPACITY, _PADDING) for _ in range(SUB_TABLES)]
        self._directory = np.array([block.ctypes.data for block in self._blocks], np.int64)
        self.directory = int(self._directory.ctypes.data)
        self._held = np.zeros(SUB_TABLES, np.int64)
        self._swapped_out: list[NDArray[np.int64]] = []
        _serve(self.control, 0, NO_VERSION)

    @property
    def rows(self) -> int:
        """Keys held, those whose weight became 0 lately among them."""
        return int(self._held.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the rows."""
        return sum(block.nbytes for block in self._blocks)

    @property
    def version(self) -> int:
        """The version served, NO_VERSION before the first."""
        return int(np.int64(self._versions()[self._bank()]))

    def predict(
        self, keys: NDArray[np.uint64], values: NDArray[np.float64], row_start: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], int]:
        """Click probabilities f64[n] and their version, as `predict_rows`; arrays C-contiguous and writeable."""
        p_click = np.empty(len(row_start) - 1)
        return p_click, predict_rows(keys, values, row_start, p_click, self.directory, self.control)

    def weight(self, key: int) -> float:
        """The current weight of a key, 0.0 if it has none."""
        return float(_current_weight(self.directory, self.control, np.uint64(key)))

    def load(self, keys: NDArray[np.uint64], weights: NDArray[np.float32]) -> None:
        """Write rows into both banks at once: only while nobody predicts."""
        self._write(keys, weights, BOTH_BANKS)
        self._swapped_out.clear()

    def load_range(
        self, first: int, last: int, keys: NDArray[np.uint64], weights: NDArray[np.float32]
    ) -> None:
        """Make these the only non-zero rows with keys in [first, last]: only while nobody predicts."""
        _clear_range(self.directory, np.uint64(first), np.uint64(last), BOTH_BANKS)
        self.load(keys, weights)

    def apply(self, changes: list[Change], version: int) -> None:
        """Make the changes, in order, for all readers at once, under a new version (Steps 1 to 4)."""
        current = self._bank()
        self._make(changes, 1 - current)
        _serve(self.control, 1 - current, version)
        while _readers(self.control, current):
            self._pause()
        self._swapped_out.clear()
        self._make(changes, current)

    def _make(self, changes: list[Change], bank: int) -> None:
        for span, keys, weights in changes:
            if span is not None:
                _clear_range(self.directory, np.uint64(span[0]), np.uint64(span[1]), bank)
            self._write(keys, weights, bank)

    def _write(self, keys: NDArray[np.uint64], weights: NDArray[np.float32], bank: int) -> None:
        key_at, weight_at, count = int(keys.ctypes.data), int(weights.ctypes.data), len(keys)
        done = 0
        while (
            done := _write_weights(self.directory, self._held, key_at, weight_at, done, count, bank)
        ) < count:
            self._grow(int(keys[done]) >> 56)

    def _grow(self, sub: int) -> None:
        """Copy a sub-table into a block a quarter larger, drop its rows of weight 0, let readers find it there."""
        old = self._blocks[sub]
        capacity, padding = int(old[0]), int(old[1] - old[0])
        if 4 * (int(self._held[sub]) + 1) > 3 * capacity:
            capacity += max(capacity // 4, _PADDING)
        else:
            padding *= 2
        held = -1
        while held < 0:
            new = _new_block(capacity, padding)
            held = _copy_rows(int(old.ctypes.data), int(new.ctypes.data))
            padding *= 2
        self._blocks[sub] = new
        self._held[sub] = held
        _point(self.directory, sub, int(new.ctypes.data))
        self._swapped_out.append(old)

    def _bank(self) -> int:
        return int(self._control_view()[0])

    def _versions(self) -> NDArray[np.int64]:
        return self._control_view()[_VERSIONS // 8 : _VERSIONS // 8 + 2]

    def _control_view(self) -> NDArray[np.int64]:
        start = self.control - int(self._control_memory.ctypes.data)
        return self._control_memory[start : start + _CONTROL_BYTES].view(np.int64)




def warm() -> None:
    """Compile every kernel of this module."""
    table = ReplicaTable(lambda: None)
    keys, weights = np.arange(1, 200, dtype=np.uint64), np.ones(199, np.float32)
    table.load_range(0, 1 << 56, keys, weights)
    table.apply([((0, 1 << 56), keys, weights), (None, keys, weights)], 1)
    table.predict(keys[:1], np.ones(1), np.array([0, 1]))
    table.weight(1)
