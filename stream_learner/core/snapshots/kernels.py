"""The loops over a replica's rows: searching, predicting, writing.

A reader's loop must never write anything but its count of readers. `core.snapshots` explains the two banks.

There are 1,024 open-addressing sub-tables, chosen by the top 10 bits of the key. The slot comes from its low 32 bits,
so that rows written in the order of their keys spread evenly. A row is `ROW_BYTES` long:

    0    key       u64; 0: an empty slot
    8    weights   f32[2], of bank 0 and of bank 1

Four rows are a cache line. A search begins with the first row of the line in which the slot is, and a new key takes the
first empty row from there on. No row is ever emptied, so lines fill from their beginning, and a line is looked at as a
whole.

The directory has one word for each sub-table: address of its rows times 4,096 plus the code of its capacity, so that a
reader gets both in one load. A block of rows begins and ends with a line. After the last slot there are some spare
rows, for searches that run beyond it; the very last row is always empty.

The control block has a cache line each for: the current bank; the readers in bank 0; the readers in bank 1; what the
two banks hold: versions, losses, and the number of the exchange that made each of them current, never one twice.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.arithmetic import sum_lanes
from stream_learner.core.machine.atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    load_f32,
    store_f32,
)
from stream_learner.core.machine.entries import F32, F64, I64, U64, Matrix, entry
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import (
    load_f64,
    load_i64,
    load_u64,
    places_of_word,
    prefetch_for_read,
    store_f64,
    store_i64,
    store_u64,
    trailing_zeros,
)
from stream_learner.core.model.losses import prediction

ROW_BYTES = 16
SUB_BITS = 10
SUB_TABLES = 1 << SUB_BITS
CODE_BITS = 12
CODE_MASK = (1 << CODE_BITS) - 1
BOTH_BANKS = 2
"""In place of a bank: write to both."""
NO_VERSION = -1
BAD_ROWS = -2
"""In place of a version: the arrays of events do not fit together."""

_AHEAD = 16
"""So many features ahead of the one it works on, a prediction asks for the memory of the row."""
_RING = 63

LINE = 64
READERS = 64
VERSIONS = 192
LOSSES = 208
EXCHANGES = 224
CONTROL_BYTES = 256

_SUB_SHIFT = np.uint64(64 - SUB_BITS)
_U32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_NO_KEY = np.uint64(0)
_KEYS, _LAST_KEY = np.uint64(0b01010101), np.uint64(0b01000000)
"""Where in a line of four rows there are keys, by words."""
_ZERO = np.float32(0.0)
_BIAS = np.uint64(BIAS_KEY)


@kernel
def _weight_at(row: int, bank: int) -> int:
    """Address of the weight of a row in a bank."""
    return row + 8 + 4 * bank


@entry
def capacity_of(code: int) -> int:
    """The capacity with a code: 16 to 31, times a power of two; rising with the code."""
    return (16 + (code & 15)) << (code >> 4)


@kernel
def first_row(directory: int, key: np.uint64) -> int:
    """Address of the row where the search for a key begins."""
    return _row_in(load_i64(directory + (np.int64(key >> _SUB_SHIFT) << 3)), key)


@kernel
def _row_in(word: int, key: np.uint64) -> int:
    """Address of the row where the search for a key begins in a block, the first of its line."""
    slot = ((key & _LOW) * np.uint64(capacity_of(word & CODE_MASK))) >> _U32
    return (word >> CODE_BITS) + (np.int64(slot) * ROW_BYTES & -LINE)


@kernel
def weight_from(line: int, key: np.uint64, bank: int) -> float:
    """The weight of a key whose search begins at the address `line`, 0 if it is not in the table.

    A search ends at a line that has the key or whose last row is empty. Four keys are compared at once: in which row
    the key is, no processor can guess, so a branch for each row would cost more than all of this.
    """
    while True:
        at = places_of_word(line, key) & _KEYS
        if at | (places_of_word(line, _NO_KEY) & _LAST_KEY):
            row = line + 8 * trailing_zeros(at | _LAST_KEY)
            weight = load_f32(_weight_at(row, bank))
            return weight if at else _ZERO
        line += LINE


@entry
def enter(control: int) -> int:
    """Count a reader into the current bank; returns the bank (steps a to c of a reader)."""
    while True:
        bank = atomic_load(control)
        atomic_add(control + READERS + LINE * bank, np.int64(1))
        if atomic_load(control) == bank:
            return bank
        atomic_add(control + READERS + LINE * bank, np.int64(-1))


@entry
def leave(control: int, bank: int) -> None:
    """Count a reader out of the bank that `enter` returned."""
    atomic_add(control + READERS + LINE * bank, np.int64(-1))


@kernel
def _longest_event(row_start: I64, keys: int, values: int) -> int:
    """Features of the longest event, -1 if the events do not follow each other within the keys and values."""
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
def _begin_search(searches: int, feature: int, key: np.uint64, directory: int) -> None:
    """Note in a ring where the search for the key of a feature begins, and ask for that memory."""
    row = first_row(directory, key)
    store_i64(searches + 8 * (feature & _RING), row)
    prefetch_for_read(row)


@entry
def predict_rows(keys: U64, values: F64, row_start: I64, p_click: F64, known: I64, directory: int, control: int) -> int:
    """Predict hashed events; returns the version that all predictions are of.

    keys u64[m], values f64[m], row_start i64[n+1], as `Replica.predict` takes them; fills p_click f64[n] by the link of
    the bank's loss, and known i64[n] with the number of known features. Returns NO_VERSION before the first version,
    BAD_ROWS if the arrays do not fit together; both mean nothing then.
    """
    longest = _longest_event(row_start, len(keys), len(values))
    if longest < 0 or len(p_click) != len(row_start) - 1 or len(known) != len(p_click):
        return np.int64(BAD_ROWS)
    scratch = np.empty(_RING + 1 + longest + 8)
    searches = np.int64(scratch.ctypes.data)
    products = searches + 8 * (_RING + 1)
    key_at, value_at = np.int64(keys.ctypes.data), np.int64(values.ctypes.data)
    feature, end = row_start[0], row_start[len(p_click)]
    bank = enter(control)
    loss = load_i64(control + LOSSES + 8 * bank)
    for ahead in range(feature, min(end, feature + _AHEAD)):
        _begin_search(searches, ahead, load_u64(key_at + 8 * ahead), directory)
    for r in range(len(p_click)):
        count = row_start[r + 1] - row_start[r]
        known[r] = 0
        for i in range(count):
            if feature + _AHEAD < end:
                ahead = feature + _AHEAD
                _begin_search(searches, ahead, load_u64(key_at + 8 * ahead), directory)
            key = load_u64(key_at + 8 * feature)
            weight = weight_from(load_i64(searches + 8 * (feature & _RING)), key, bank)
            known[r] += weight != _ZERO and key != _BIAS
            store_f64(products + 8 * i, np.float64(weight) * load_f64(value_at + 8 * feature))
            feature += 1
        p_click[r] = prediction(loss, sum_products(products, count))
    version = load_i64(control + VERSIONS + 8 * bank)
    leave(control, bank)
    scratch[0] = 0.0  # compiled code frees an array after the last use of its name, whoever has its address
    return version


@kernel
def sum_products(products: int, count: int) -> float:
    """Sum of float64[count] at an address by eight lanes, in one fixed order. There must be room for eight more."""
    for i in range(count, count + 8):
        store_f64(products + 8 * i, 0.0)
    l0 = l1 = l2 = l3 = l4 = l5 = l6 = l7 = 0.0
    for i in range(0, count, 8):
        at = products + 8 * i
        l0 += load_f64(at)
        l1 += load_f64(at + 8)
        l2 += load_f64(at + 16)
        l3 += load_f64(at + 24)
        l4 += load_f64(at + 32)
        l5 += load_f64(at + 40)
        l6 += load_f64(at + 48)
        l7 += load_f64(at + 56)
    return sum_lanes(l0, l1, l2, l3, l4, l5, l6, l7)


@entry
def current_weight(directory: int, control: int, key: np.uint64) -> float:
    """The weight of a key in the current bank, 0 if it has none."""
    bank = enter(control)
    weight = weight_from(first_row(directory, key), key, bank)
    leave(control, bank)
    return weight


@entry
def weights_in(directory: int, sub: int, bank: int, keys: U64, weights: F32) -> int:
    """Copy the rows of a sub-table whose weight is not 0, as many as there is room for; returns how many there are.

    Only between `enter` and `leave`. Rows are in the slots of the capacity, and without a gap in the spare ones after
    it.
    """
    word = load_i64(directory + (sub << 3))
    row = word >> CODE_BITS
    spare = row + capacity_of(word & CODE_MASK) * ROW_BYTES
    found = np.int64(0)
    while True:
        key = load_u64(row)
        if key == _NO_KEY and row >= spare:
            return found
        weight = load_f32(_weight_at(row, bank))
        if key != _NO_KEY and weight != _ZERO:
            if found < len(keys):
                keys[found] = key
                weights[found] = weight
            found += 1
        row += ROW_BYTES


@kernel
def _put(row: int, weight: float, bank: int) -> None:
    """Write the weight of a row in a bank, or in both (BOTH_BANKS)."""
    if bank != 1:
        store_f32(_weight_at(row, 0), weight)
    if bank != 0:
        store_f32(_weight_at(row, 1), weight)


@entry
def write_weights(
    directory: int, used: Matrix[np.int64], keys: int, weights: int, start: int, stop: int, bank: int
) -> int:
    """Write rows start to stop - 1; returns the first that does not fit before its sub-table grows, or `stop`.

    keys, weights: addresses of u64 and f32. used i64[2, 1024]: keys in each sub-table, and address of its last row.
    A key that is not there is not inserted with weight 0.
    """
    for i in range(start, stop):
        key, weight = load_u64(keys + 8 * i), load_f32(weights + 4 * i)
        row = first_row(directory, key)
        found = load_u64(row)
        while found != key and found != _NO_KEY:
            row += ROW_BYTES
            found = load_u64(row)
        if found == _NO_KEY:
            if weight == _ZERO or key == _NO_KEY:
                continue
            sub = np.int64(key >> _SUB_SHIFT)
            capacity = capacity_of(load_i64(directory + (sub << 3)) & CODE_MASK)
            if 4 * used[0, sub] >= 3 * capacity or row >= used[1, sub]:
                return i
            used[0, sub] += 1
            _put(row, weight, bank)
            store_u64(row, key)
        else:
            _put(row, weight, bank)
    return np.int64(stop)


@entry
def clear_range(directory: int, used: Matrix[np.int64], first: np.uint64, last: np.uint64, bank: int) -> None:
    """Set the weights of all keys in [first, last] to 0."""
    for sub in range(np.int64(first >> _SUB_SHIFT), np.int64(last >> _SUB_SHIFT) + 1):
        if used[0, sub] == 0:
            continue
        for row in range(load_i64(directory + (sub << 3)) >> CODE_BITS, used[1, sub], ROW_BYTES):
            key = load_u64(row)
            if first <= key and key <= last:
                _put(row, _ZERO, bank)


@entry
def copy_rows(old: int, old_last: int, new_word: int, new_last: int) -> int:
    """Copy rows with a weight in either bank into an empty block; returns how many, -1 if the block is too small."""
    copied = np.int64(0)
    for source in range(old, old_last, ROW_BYTES):
        key = load_u64(source)
        if key == _NO_KEY or (load_f32(_weight_at(source, 0)) == _ZERO and load_f32(_weight_at(source, 1)) == _ZERO):
            continue
        row = _row_in(new_word, key)
        while load_u64(row) != _NO_KEY:
            row += ROW_BYTES
        if row >= new_last:
            return np.int64(-1)
        store_u64(_weight_at(row, 0), load_u64(_weight_at(source, 0)))  # both weights at once
        store_u64(row, key)
        copied += 1
    return copied


@entry
def point(directory: int, sub: int, word: int) -> None:
    """Lead readers of a sub-table to another block from now on."""
    atomic_store(directory + 8 * sub, word)


@entry
def readers_in(control: int, bank: int) -> int:
    """How many readers are in a bank."""
    return atomic_load(control + READERS + LINE * bank)


@entry
def serve(control: int, bank: int, version: int, loss: int) -> None:
    """Make a bank the current one, with the version that it holds and the code of its loss."""
    atomic_store(control + VERSIONS + 8 * bank, version)
    atomic_store(control + LOSSES + 8 * bank, loss)
    atomic_store(control + EXCHANGES + 8 * bank, atomic_load(control + EXCHANGES + 8 * (1 - bank)) + 1)
    atomic_store(control, bank)
