"""Kernels of the weight table: where a key lies, finding, inserting, moving, reading and writing rows.

Rows, keys and buffers are given by their addresses. This file must never allocate, and never read a row outside the
sub-table it belongs to. `core.model.table` explains sub-tables, slots and probing.

Layout of a row, little-endian, `row_bytes` long; a key of 0 is an empty slot:

    0               key      u64
    8               columns  f64[ncols]
    8 + 8 ncols     touched  i64, the tick of the last change; -1: never changed, all columns 0

A local row, in which the fold works, has the weight (f64) where the key is here, then the columns, then whatever the
optimizer keeps beside them.

The directory is int64[5, 256]: address, capacity, slots (capacity and spare), how many rows are allowed, and how many
there are, of each sub-table.

Keys are carried as int64 bits here, except where their order counts. The kernels of the fold take `shape`, a tuple as
long as there are columns, where the others take `ncols`: its length is known to the compiler, which unrolls the loops
over columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numba.extending import register_jitable

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import (
    load_i64,
    load_u64,
    prefetch_for_write,
    store_byte,
    store_i64,
    store_u64,
)
from stream_learner.core.model.digest import row_digest, row_digest_change

SUB_TABLES: Final = 256
ADDRESS: Final = 0
CAPACITY: Final = 1
SLOTS: Final = 2
ALLOWED: Final = 3
USED: Final = 4
NEVER: Final = -1
"""`touched` of a row that was inserted but never changed."""

AHEAD = 32
"""So many keys ahead of the one that it works on, a loop asks for the memory of its row."""
_CACHE_LINE = 64

Resolver = Callable[[int, int, int, tuple[int, ...], int, int], tuple[int, int]]
"""Does what `resolve` does for local rows of a length that it knows, and completes them. Returns beside the number of
keys done how many of the rows done have a weight that is not 0."""
_HASH_BITS = 0xFFFFFFFF


# A kernel compiles these three into itself; Python calls them as they are.


@register_jitable
def row_bytes(ncols: int) -> int:
    """Length of a row: its key, its columns, and the tick in which it changed last."""
    return 8 + 8 * ncols + 8


@register_jitable
def columns_at(row: int) -> int:
    """Address of the columns of a row, or of a local row."""
    return row + 8


@register_jitable
def touched_at(row: int, ncols: int) -> int:
    """Address of the tick in which a row changed last."""
    return row + 8 + 8 * ncols


@kernel
def _sub_table(key: int) -> int:
    """The sub-table of a key: its top 8 bits."""
    return (key >> 56) & 255


@entry
def sub_table_at(key: int) -> int:
    """The sub-table of the key at this address."""
    return _sub_table(load_i64(key))


@kernel
def _entry(directory: int, field: int, sub: int) -> int:
    """Address of a field of the directory, of one sub-table."""
    return directory + 8 * (field * SUB_TABLES + sub)


@kernel
def _slot(key: int, capacity: int) -> int:
    """The home slot of a key in a sub-table of this capacity: its next 32 bits, scaled."""
    return (((key >> 24) & _HASH_BITS) * capacity) >> 32


@kernel
def _home(directory: int, key: int, size: int) -> int:
    """Address of the home slot of a key, in a table whose rows are `size` bytes long."""
    sub = _sub_table(key)
    return load_i64(_entry(directory, ADDRESS, sub)) + _slot(key, load_i64(_entry(directory, CAPACITY, sub))) * size


@kernel
def _end(directory: int, key: int, size: int) -> int:
    """Address just past the sub-table of a key."""
    sub = _sub_table(key)
    return load_i64(_entry(directory, ADDRESS, sub)) + load_i64(_entry(directory, SLOTS, sub)) * size


@kernel
def _copy_row(source: int, target: int, size: int) -> None:
    for at in range(0, size, 8):
        store_i64(target + at, load_i64(source + at))


@kernel
def copy_columns(source: int, target: int, shape: tuple[int, ...]) -> None:
    for c in range(len(shape)):
        store_i64(target + 8 * c, load_i64(source + 8 * c))


@entry
def count_incoming(directory: int, keys: int, count: int, incoming: int) -> bool:
    """Set int64[256] at `incoming` to how many of the keys each sub-table would take; False if one may get too full."""
    for sub in range(SUB_TABLES):
        store_i64(incoming + 8 * sub, 0)
    for i in range(count):
        at = incoming + 8 * _sub_table(load_i64(keys + 8 * i))
        store_i64(at, load_i64(at) + 1)
    fits = True
    for sub in range(SUB_TABLES):
        used = load_i64(_entry(directory, USED, sub)) + load_i64(incoming + 8 * sub)
        fits &= used <= load_i64(_entry(directory, ALLOWED, sub))
    return fits


@kernel
def _insert(directory: int, key: int, row: int, shape: tuple[int, ...], within: bool) -> int:
    """Find the key from `row` on, or make it a row at the first empty slot; 0 if there is neither.

    within: make no row beyond those that the sub-table is allowed.
    """
    size = row_bytes(len(shape))
    end = _end(directory, key, size)
    found = load_i64(row)
    while found != key and found != 0:
        row += size
        if row == end:
            return 0
        found = load_i64(row)
    if found == 0:
        sub = _sub_table(key)
        used = load_i64(_entry(directory, USED, sub))
        if within and used >= load_i64(_entry(directory, ALLOWED, sub)):
            return 0
        store_i64(row, key)
        store_i64(touched_at(row, len(shape)), NEVER)
        store_i64(_entry(directory, USED, sub), used + 1)
    return row


@kernel
def _ask_for_row(directory: int, key: int, size: int) -> int:
    """Ask for the memory of a key's home slot and of the slots after it; returns the address of the home slot.

    A row that lies beyond these three lines is rare, and costs as much as many that do not.
    """
    home = _home(directory, key, size)
    prefetch_for_write(home)
    prefetch_for_write(home + _CACHE_LINE)
    prefetch_for_write(home + 2 * _CACHE_LINE)
    return home


@kernel
def _find_or_insert(directory: int, key: int, home: int, shape: tuple[int, ...]) -> int:
    """The row of a key, made if there is none; 0 if it cannot be.

    Most rows lie in one of the first three slots, which are looked at without a branch: the processor cannot foresee
    which it is. There are always so many spare slots that all three can be read.
    """
    size = row_bytes(len(shape))
    beyond_first = load_i64(home) != key
    beyond_second = beyond_first & (load_i64(home + size) != key)
    row = home + size * beyond_first + size * beyond_second
    return row if load_i64(row) == key else _insert(directory, key, home, shape, False)


@kernel
def ask_for_first(directory: int, keys: int, count: int, shape: tuple[int, ...], rows: int) -> None:
    """Ask for the memory of the first rows that `resolve_some` will look at."""
    for i in range(min(count, AHEAD)):
        store_i64(rows + 8 * i, _ask_for_row(directory, load_i64(keys + 8 * i), row_bytes(len(shape))))


@kernel
def resolve_some(
    directory: int,
    keys: int,
    first: int,
    last: int,
    count: int,
    shape: tuple[int, ...],
    rows: int,
    local: int,
    local_bytes: int,
) -> int:
    """`resolve` for the keys first .. last - 1 of `count`, once those before are done; returns the key it ended at.

    The memory of the first rows has been asked for (`ask_for_first`).
    """
    size = row_bytes(len(shape))
    for i in range(first, last):
        if i + AHEAD < count:
            store_i64(rows + 8 * (i + AHEAD), _ask_for_row(directory, load_i64(keys + 8 * (i + AHEAD)), size))
        row = _find_or_insert(directory, load_i64(keys + 8 * i), load_i64(rows + 8 * i), shape)
        if row == 0:
            return i
        store_i64(rows + 8 * i, row)
        if local != 0:
            copy_columns(columns_at(row), columns_at(local + i * local_bytes), shape)
    return last


@entry
def resolve(
    directory: int, keys: int, count: int, shape: tuple[int, ...], rows: int, local: int, local_bytes: int
) -> int:
    """Find or insert every key; its row's address goes to int64[count] at `rows`, its columns to its local row.

    Local rows are `local_bytes` apart; local = 0 copies nothing. Returns how many keys were done: fewer than `count`
    when a sub-table has run out of spare slots at that key. The caller has made sure that rows used stay below the
    capacity.
    """
    ask_for_first(directory, keys, count, shape, rows)
    return resolve_some(directory, keys, 0, count, count, shape, rows, local, local_bytes)


@entry
def find(directory: int, keys: int, count: int, ncols: int, rows: int) -> int:
    """Look every key up; int64[count] at `rows` gets the row's address, or 0 if absent. Returns how many are there."""
    size = row_bytes(ncols)
    present = 0
    for i in range(count):
        if i + AHEAD < count:
            prefetch_for_write(_home(directory, load_i64(keys + 8 * (i + AHEAD)), size))
        key = load_i64(keys + 8 * i)
        row = _home(directory, key, size)
        end = _end(directory, key, size)
        while row != end and load_i64(row) != key and load_i64(row) != 0:
            row += size
        there = row != end and load_i64(row) == key and key != 0
        present += there
        store_i64(rows + 8 * i, row if there else 0)
    return present


@entry
def move(source: int, source_slots: int, target: int, capacity: int, slots: int, ncols: int) -> bool:
    """Copy a sub-table into an empty one of another size. False if its spare slots do not suffice."""
    size = row_bytes(ncols)
    end = target + slots * size
    for s in range(source_slots):
        old = source + s * size
        key = load_i64(old)
        if key == 0:
            continue
        row = target + _slot(key, capacity) * size
        while row != end and load_i64(row) != 0:
            row += size
        if row == end:
            return False
        _copy_row(old, row, size)
    return True


@entry
def ticks_of_clean(source: int, slots: int, ncols: int, clean_tick: int, out: int) -> int:
    """`touched` of the rows of a sub-table that may leave it, to int64[...] at `out`; returns how many."""
    size = row_bytes(ncols)
    count = 0
    for row in range(source, source + slots * size, size):
        touched = load_i64(touched_at(row, ncols))
        if load_i64(row) != 0 and touched <= clean_tick:
            store_i64(out + 8 * count, touched)
            count += 1
    return count


@entry
def drop(source: int, slots: int, capacity: int, ncols: int, before: int, ties: int, scratch: int) -> int:
    """Rebuild a sub-table without the rows touched before tick `before`, and without `ties` of those touched in it.

    `scratch` has room for the rows that stay; returns how many they are. No row ends up behind where it lay before, so
    the spare slots suffice.
    """
    size = row_bytes(ncols)
    kept = 0
    for row in range(source, source + slots * size, size):
        touched = load_i64(touched_at(row, ncols))
        if load_i64(row) == 0:
            continue
        leaves = touched < before
        if touched == before and ties > 0:
            leaves = True
            ties -= 1
        if not leaves:
            _copy_row(row, scratch + kept * size, size)
            kept += 1
        for at in range(0, size, 8):
            store_i64(row + at, 0)
    for one in range(scratch, scratch + kept * size, size):
        row = source + _slot(load_i64(one), capacity) * size
        while load_i64(row) != 0:
            row += size
        _copy_row(one, row, size)
    return kept


@entry
def absent(keys: int, rows: int, count: int, out: int) -> int:
    """Keys (uint64, at `out`) whose row, as `find` left it in int64[count] at `rows`, is 0; returns how many."""
    missing = 0
    for i in range(count):
        if load_i64(rows + 8 * i) == 0:
            store_i64(out + 8 * missing, load_i64(keys + 8 * i))
            missing += 1
    return missing


@entry
def sum_digests(keys: int, columns: int, count: int, ncols: int) -> int:
    """The sum of the digests of rows given as uint64[count] keys and f64[count, ncols] columns, modulo 2^64."""
    total = np.uint64(0)
    for i in range(count):
        total += row_digest(load_u64(keys + 8 * i), columns + 8 * i * ncols, ncols)
    return total


@entry
def copy_out(rows: int, count: int, ncols: int, keys: int, columns: int, touched: int) -> None:
    """Copy rows, whose addresses are at `rows`, into separate arrays; columns are f64[count, ncols]. 0 is skipped."""
    for i in range(count):
        row = load_i64(rows + 8 * i)
        if row == 0:
            continue
        store_i64(keys + 8 * i, load_i64(row))
        for c in range(ncols):
            store_i64(columns + 8 * (i * ncols + c), load_i64(columns_at(row) + 8 * c))
        store_i64(touched + 8 * i, load_i64(touched_at(row, ncols)))


@kernel
def _first_key(sub: int, low: np.uint64) -> np.uint64:
    """The smallest key of a sub-table from `low` on."""
    return max(low, np.uint64(sub) << np.uint64(56))


@kernel
def _last_key(sub: int, high: np.uint64) -> np.uint64:
    """The largest key of a sub-table up to `high`."""
    return min(high, (np.uint64(sub) << np.uint64(56)) | np.uint64((1 << 56) - 1))


@kernel
def _slots_of(directory: int, low: np.uint64, high: np.uint64, size: int) -> int:
    """Slots in which the keys low <= key <= high, of one sub-table, can lie."""
    row = _home(directory, np.int64(high), size)
    end = _end(directory, np.int64(high), size)
    while row != end and load_i64(row) != 0:
        row += size
    return (row - _home(directory, np.int64(low), size)) // size


@entry
def count_slots(directory: int, low: np.uint64, high: np.uint64, ncols: int) -> int:
    """Slots in which the keys low <= key <= high can lie, in all their sub-tables."""
    slots = 0
    for sub in range(_sub_table(np.int64(low)), _sub_table(np.int64(high)) + 1):
        slots += _slots_of(directory, _first_key(sub, low), _last_key(sub, high), row_bytes(ncols))
    return slots


@entry
def rows_between(directory: int, low: np.uint64, high: np.uint64, ncols: int, out: int) -> int:
    """Addresses of the changed rows with low <= key <= high, rising by key; returns how many there are.

    There is room for as many as `count_slots` says.
    """
    count = 0
    for sub in range(_sub_table(np.int64(low)), _sub_table(np.int64(high)) + 1):
        count += _rows_of_one(directory, _first_key(sub, low), _last_key(sub, high), ncols, out + 8 * count)
    return count


@kernel
def _rows_of_one(directory: int, low: np.uint64, high: np.uint64, ncols: int, out: int) -> int:
    """`rows_between` for keys of one sub-table.

    Slots rise with keys but for collisions, so that inserting each row into its position among the last few is enough.
    """
    size = row_bytes(ncols)
    first = _home(directory, np.int64(low), size)
    count = 0
    for s in range(_slots_of(directory, low, high, size)):
        row = first + s * size
        key = load_u64(row)
        if key < low or key > high or key == np.uint64(0) or load_i64(touched_at(row, ncols)) < 0:
            continue
        at = count
        while at > 0 and load_u64(load_i64(out + 8 * (at - 1))) > key:
            store_i64(out + 8 * at, load_i64(out + 8 * (at - 1)))
            at -= 1
        store_i64(out + 8 * at, row)
        count += 1
    return count


@entry
def known(directory: int, keys: int, count: int, ncols: int, out: int) -> None:
    """Set u8[count] at `out` to 1 for each key whose row is here and was touched, else to 0."""
    size = row_bytes(ncols)
    for i in range(count):
        if i + AHEAD < count:
            prefetch_for_write(_home(directory, load_i64(keys + 8 * (i + AHEAD)), size))
        key = load_i64(keys + 8 * i)
        row = _home(directory, key, size)
        end = _end(directory, key, size)
        while row != end and load_i64(row) != key and load_i64(row) != 0:
            row += size
        there = row != end and load_i64(row) == key and key != 0
        store_byte(out + i, 1 if there and load_i64(touched_at(row, ncols)) >= 0 else 0)


@entry
def load(directory: int, keys: int, count: int, shape: tuple[int, ...], columns: int, touched: int, grown: int) -> int:
    """Find or insert every key, and set its columns and touched from f64[count, ncols] and i64[count].

    int64[2] at `grown` grows by the number of rows that had never been changed, and by what the digests' sum grew
    (modulo 2^64). Returns how many keys were done: fewer than `count` at a key that needs a row, where its sub-table
    has as many as it may have, or is out of spare slots.
    """
    ncols = len(shape)
    size = row_bytes(ncols)
    digest = np.uint64(0)
    fresh = done = 0
    while done < count:
        if done + AHEAD < count:
            prefetch_for_write(_home(directory, load_i64(keys + 8 * (done + AHEAD)), size))
        key = load_i64(keys + 8 * done)
        row = _insert(directory, key, _home(directory, key, size), shape, True)
        if row == 0:
            break
        source = columns + 8 * done * ncols
        if load_i64(touched_at(row, ncols)) < 0:
            fresh += 1
            digest += row_digest(load_u64(row), source, ncols)
        else:
            digest += row_digest_change(load_u64(row), columns_at(row), source, shape)
        copy_columns(source, columns_at(row), shape)
        store_i64(touched_at(row, ncols), load_i64(touched + 8 * done))
        done += 1
    store_i64(grown, load_i64(grown) + fresh)
    store_u64(grown + 8, load_u64(grown + 8) + digest)
    return done


@entry
def scan_touched(directory: int, ncols: int, since: int, out: int) -> int:
    """Keys (uint64, at `out`) of all rows touched after tick `since`, in the order of slots; out = 0 only counts."""
    size = row_bytes(ncols)
    count = 0
    for sub in range(SUB_TABLES):
        row = load_i64(_entry(directory, ADDRESS, sub))
        for _ in range(load_i64(_entry(directory, SLOTS, sub))):
            if load_i64(row) != 0 and load_i64(touched_at(row, ncols)) > since:
                if out != 0:
                    store_i64(out + 8 * count, load_i64(row))
                count += 1
            row += size
    return count


@entry
def scan_digest(directory: int, ncols: int) -> int:
    """The sum of the digests of all rows, modulo 2^64. An empty slot is all zero, and so is its digest."""
    size = row_bytes(ncols)
    total = np.uint64(0)
    for sub in range(SUB_TABLES):
        row = load_i64(_entry(directory, ADDRESS, sub))
        for _ in range(load_i64(_entry(directory, SLOTS, sub))):
            total += row_digest(load_u64(row), columns_at(row), ncols)
            row += size
    return total
