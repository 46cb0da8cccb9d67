"""Kernels of the weight table: where a key lies, finding, inserting, moving, reading and writing rows.

In: addresses of rows, keys and buffers as int64. Out: rows changed in place, counts, places.
This file must never allocate, and never read a row outside the sub-table it belongs to.

Layout of a row, little-endian, 8 (2 + ncols) bytes; a key of 0 is an empty slot:

    0               key      u64
    8               columns  f64[ncols]
    8 + 8 ncols     touched  i64, the tick of the last change; -1: never changed, all columns 0

A key belongs to the sub-table of its top 8 bits; its home slot there is the next 32 bits scaled to the capacity,
so slots rise with keys. Collisions go to the next slot; the spare slots after the capacity take what runs past it.
`places` is int64[5, 256]: address, capacity, slots (capacity and spare), how many rows are allowed, how many there
are, per sub-table.
Keys are carried as int64 bits here, except where their order counts.

The kernels of the fold take `shape`, a tuple as long as there are columns, where the others take `ncols`: its length
is known to the compiler, which unrolls the loops over columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_i64, load_u64, prefetch_for_write, store_i64, store_u64
from stream_learner.core.model.digest import row_digest, row_digest_change

SUB_TABLES: Final = 256
ADDRESS: Final = 0
CAPACITY: Final = 1
SLOTS: Final = 2
ALLOWED: Final = 3
USED: Final = 4
NEVER: Final = -1
"""`touched` of a row that was inserted but never changed."""

_AHEAD = 24
_HASH_BITS = 0xFFFFFFFF


@kernel
def _home(places: int, key: int, row_bytes: int) -> int:
    """Address of the slot where the key would like to be."""
    at = places + 8 * ((key >> 56) & 255)
    capacity = load_i64(at + 8 * SUB_TABLES)
    slot = (((key >> 24) & _HASH_BITS) * capacity) >> 32
    return load_i64(at) + slot * row_bytes


@kernel
def _end(places: int, key: int, row_bytes: int) -> int:
    """Address just past the sub-table of the key."""
    at = places + 8 * ((key >> 56) & 255)
    return load_i64(at) + load_i64(at + 16 * SUB_TABLES) * row_bytes


@kernel
def sub_table_of(key: int) -> int:
    """Which sub-table the key at this address belongs to."""
    return (load_i64(key) >> 56) & 255


@kernel
def count_incoming(places: int, keys: int, count: int, incoming: int) -> bool:
    """Set int64[256] at `incoming` to how many of the keys each sub-table would take; False if one may get too full."""
    for sub in range(SUB_TABLES):
        store_i64(incoming + 8 * sub, 0)
    for i in range(count):
        at = incoming + 8 * ((load_i64(keys + 8 * i) >> 56) & 255)
        store_i64(at, load_i64(at) + 1)
    fits = True
    for sub in range(SUB_TABLES):
        used = load_i64(places + 8 * (USED * SUB_TABLES + sub)) + load_i64(incoming + 8 * sub)
        fits &= used <= load_i64(places + 8 * (ALLOWED * SUB_TABLES + sub))
    return fits


@kernel
def _insert(places: int, key: int, row: int, row_bytes: int) -> int:
    """Find the key from `row` on, or make it a row at the first empty slot; 0 if there is neither."""
    end = _end(places, key, row_bytes)
    found = load_i64(row)
    while found != key and found != 0:
        row += row_bytes
        if row == end:
            return 0
        found = load_i64(row)
    if found == 0:
        store_i64(row, key)
        store_i64(row + row_bytes - 8, NEVER)
        used = places + 8 * (USED * SUB_TABLES + ((key >> 56) & 255))
        store_i64(used, load_i64(used) + 1)
    return row


@kernel
def resolve(places: int, keys: int, count: int, shape: tuple[int, ...], rows: int, local: int, local_bytes: int) -> int:
    """Find or insert every key; its row's address goes to int64[count] at `rows`, its columns to its local row.

    A local row, `local_bytes` long, starts with its weight, then the columns; local = 0 copies nothing.
    Returns how many keys were done: fewer than `count` when a sub-table has run out of spare slots at that key.
    The caller has made sure that rows used stay below the capacity.
    """
    row_bytes = 8 * (2 + len(shape))
    for i in range(count + _AHEAD):
        if i < count:
            home = _home(places, load_i64(keys + 8 * i), row_bytes)
            prefetch_for_write(home)
            store_i64(rows + 8 * i, home)
        done = i - _AHEAD
        if done < 0:
            continue
        key = load_i64(keys + 8 * done)
        row = load_i64(rows + 8 * done)
        if load_i64(row) != key:
            row = _insert(places, key, row, row_bytes)
            if row == 0:
                return done
            store_i64(rows + 8 * done, row)
        if local != 0:
            target = local + done * local_bytes + 8
            for c in range(len(shape)):
                store_i64(target + 8 * c, load_i64(row + 8 + 8 * c))
    return count


@kernel
def find(places: int, keys: int, count: int, ncols: int, rows: int) -> int:
    """Look every key up; int64[count] at `rows` gets the row's address, or 0 if absent. Returns how many are there."""
    row_bytes = 8 * (2 + ncols)
    present = 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_for_write(_home(places, load_i64(keys + 8 * (i + _AHEAD)), row_bytes))
        key = load_i64(keys + 8 * i)
        row = _home(places, key, row_bytes)
        end = _end(places, key, row_bytes)
        while row != end and load_i64(row) != key and load_i64(row) != 0:
            row += row_bytes
        there = row != end and load_i64(row) == key and key != 0
        present += there
        store_i64(rows + 8 * i, row if there else 0)
    return present


@kernel
def move(source: int, source_slots: int, target: int, capacity: int, slots: int, ncols: int) -> bool:
    """Copy a sub-table into an empty one of another size. False if its spare slots do not suffice."""
    row_bytes = 8 * (2 + ncols)
    for s in range(source_slots):
        old = source + s * row_bytes
        key = load_i64(old)
        if key == 0:
            continue
        row = target + ((((key >> 24) & _HASH_BITS) * capacity) >> 32) * row_bytes
        end = target + slots * row_bytes
        while row != end and load_i64(row) != 0:
            row += row_bytes
        if row == end:
            return False
        for c in range(2 + ncols):
            store_i64(row + 8 * c, load_i64(old + 8 * c))
    return True


@kernel
def insert_again(source: int, target: int, capacity: int, row_bytes: int) -> None:
    """Copy the row at `source` to the first empty slot from its home on, in a sub-table that has one."""
    row = target + ((((load_i64(source) >> 24) & _HASH_BITS) * capacity) >> 32) * row_bytes
    while load_i64(row) != 0:
        row += row_bytes
    for at in range(0, row_bytes, 8):
        store_i64(row + at, load_i64(source + at))


@kernel
def absent(keys: int, rows: int, count: int, out: int) -> int:
    """Keys (uint64, at `out`) whose row, as `find` left it in int64[count] at `rows`, is 0; returns how many."""
    missing = 0
    for i in range(count):
        if load_i64(rows + 8 * i) == 0:
            store_i64(out + 8 * missing, load_i64(keys + 8 * i))
            missing += 1
    return missing


@kernel
def sum_digests(keys: int, columns: int, count: int, ncols: int) -> int:
    """The sum of the digests of rows given as uint64[count] keys and f64[count, ncols] columns, modulo 2^64."""
    total = np.uint64(0)
    for i in range(count):
        total += row_digest(load_u64(keys + 8 * i), columns + 8 * i * ncols, ncols)
    return total


@kernel
def copy_out(rows: int, count: int, ncols: int, keys: int, columns: int, touched: int) -> None:
    """Copy rows, whose addresses are at `rows`, into separate arrays; columns are f64[count, ncols]. 0 is skipped."""
    for i in range(count):
        row = load_i64(rows + 8 * i)
        if row == 0:
            continue
        store_i64(keys + 8 * i, load_i64(row))
        for c in range(ncols):
            store_i64(columns + 8 * (i * ncols + c), load_i64(row + 8 + 8 * c))
        store_i64(touched + 8 * i, load_i64(row + 8 + 8 * ncols))


@kernel
def count_slots(places: int, low: int, high: int, ncols: int) -> int:
    """Slots in which the keys low <= key <= high (uint64, of one sub-table) can lie."""
    row_bytes = 8 * (2 + ncols)
    row = _home(places, np.int64(high), row_bytes)
    end = _end(places, np.int64(high), row_bytes)
    while row != end and load_i64(row) != 0:
        row += row_bytes
    return (row - _home(places, np.int64(low), row_bytes)) // row_bytes


@kernel
def rows_between(places: int, low: int, high: int, slots: int, ncols: int, out: int) -> int:
    """Addresses of the changed rows with low <= key <= high (uint64, of one sub-table), rising by key.

    Reads `slots` slots from the home of `low` on; slots rise with keys but for collisions, so that inserting each
    row into its place among the last few is enough. Returns how many there are.
    """
    row_bytes = 8 * (2 + ncols)
    first = _home(places, np.int64(low), row_bytes)
    count = 0
    for s in range(slots):
        row = first + s * row_bytes
        key = load_u64(row)
        if key < low or key > high or key == np.uint64(0) or load_i64(row + row_bytes - 8) < 0:
            continue
        at = count
        while at > 0 and load_u64(load_i64(out + 8 * (at - 1))) > key:
            store_i64(out + 8 * at, load_i64(out + 8 * (at - 1)))
            at -= 1
        store_i64(out + 8 * at, row)
        count += 1
    return count


@kernel
def write_back(
    rows: int, count: int, shape: tuple[int, ...], local: int, local_bytes: int, tick: int, since: int, lists: int
) -> int:
    """Carry changed columns from local rows to the table's, and note who changed.

    `since` is int64[2]: the last checkpoint's and the last
    publication's tick; a key whose row was not yet touched after it is appended to the list (uint64[...]) whose
    end address is in int64[2] at `lists`, and the end moves on. int64[2] after these gain the rows changed for the
    first time, and the local rows whose weight is not 0. Returns by how much the sum of row digests grew, mod 2^64.
    """
    grown = np.uint64(0)
    nonzero = 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_for_write(load_i64(rows + 8 * (i + _AHEAD)))
        row = load_i64(rows + 8 * i)
        source = local + i * local_bytes + 8
        nonzero += (load_i64(source - 8) << 1) != 0
        change = 0
        for c in range(len(shape)):
            change |= load_i64(row + 8 + 8 * c) ^ load_i64(source + 8 * c)
        if change == 0:
            continue
        key = load_u64(row)
        grown += row_digest_change(key, row + 8, source, shape)
        for c in range(len(shape)):
            store_i64(row + 8 + 8 * c, load_i64(source + 8 * c))
        touched = load_i64(row + 8 + 8 * len(shape))
        for which in range(2):
            if touched <= load_i64(since + 8 * which) < tick:
                end = load_i64(lists + 8 * which)
                store_u64(end, key)
                store_i64(lists + 8 * which, end + 8)
        if touched < 0:
            store_i64(lists + 16, load_i64(lists + 16) + 1)
        store_i64(row + 8 + 8 * len(shape), tick)
    store_i64(lists + 24, load_i64(lists + 24) + nonzero)
    return grown


@kernel
def fill_rows(rows: int, count: int, shape: tuple[int, ...], columns: int, touched: int, fresh: int) -> int:
    """Set columns and touched of rows from f64[count, ncols] and i64[count]; returns the growth of the digests' sum.

    int64[1] at `fresh` counts the rows that had never been changed.
    """
    grown = np.uint64(0)
    for i in range(count):
        row = load_i64(rows + 8 * i)
        source = columns + 8 * i * len(shape)
        key = load_u64(row)
        grown += row_digest_change(key, row + 8, source, shape)
        for c in range(len(shape)):
            store_i64(row + 8 + 8 * c, load_i64(source + 8 * c))
        if load_i64(row + 8 + 8 * len(shape)) < 0:
            store_i64(fresh, load_i64(fresh) + 1)
        store_i64(row + 8 + 8 * len(shape), load_i64(touched + 8 * i))
    return grown


@kernel
def scan_touched(places: int, ncols: int, since: int, out: int) -> int:
    """Keys (uint64, at `out`) of all rows touched after tick `since`, in the order of slots; out = 0 only counts."""
    row_bytes = 8 * (2 + ncols)
    count = 0
    for sub in range(SUB_TABLES):
        row = load_i64(places + 8 * sub)
        for _ in range(load_i64(places + 8 * (SLOTS * SUB_TABLES + sub))):
            if load_i64(row) != 0 and load_i64(row + row_bytes - 8) > since:
                if out != 0:
                    store_i64(out + 8 * count, load_i64(row))
                count += 1
            row += row_bytes
    return count


@kernel
def scan_digest(places: int, ncols: int) -> int:
    """The sum of the digests of all rows, modulo 2^64."""
    row_bytes = 8 * (2 + ncols)
    total = np.uint64(0)
    for sub in range(SUB_TABLES):
        row = load_i64(places + 8 * sub)
        for _ in range(load_i64(places + 8 * (SLOTS * SUB_TABLES + sub))):
            if load_i64(row) != 0:
                total += row_digest(load_u64(row), row + 8, ncols)
            row += row_bytes
    return total
