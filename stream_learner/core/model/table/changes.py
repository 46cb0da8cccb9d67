"""Kernels that change rows of the weight table after a fold, and list the keys of the rows that changed.

Rows are given by addresses that `kernels` has found; `kernels` has the layout of rows and local rows.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import (
    load_byte,
    load_i64,
    prefetch_for_write,
    store_i64,
)
from stream_learner.core.model.digest import CHANGES_AT_ONCE, digest_changes, hold_change
from stream_learner.core.model.table.kernels import NEVER, columns_at, copy_columns, touched_at

_AHEAD = 48
"""So many rows ahead of the one that it works on, a loop asks for memory. The rows have been read a moment ago."""


@kernel
def _last_unlisted(since: int, tick: int) -> int:
    """The last `touched` with which a row that changes in a tick is not on the list of changes after tick `since`."""
    return since if since < tick else NEVER - 1


@entry
def write_back(
    rows: int,
    count: int,
    shape: tuple[int, ...],
    local: int,
    local_bytes: int,
    tick: int,
    since: int,
    lists: int,
    held_changes: int,
) -> int:
    """Carry changed columns from local rows to the table's, and list the keys of the rows that changed.

    `since` is int64[2]: the last checkpoint's and the last publication's tick. A key whose row was not yet touched
    after one of them is appended to that one's list (uint64[...]), which has room for all keys; what lies behind its
    end may change. `lists` is int64[4]: the end addresses of both lists, which move on; then two counts that grow, of
    the rows changed for the first time and of the local rows whose weight is not 0. Returns by how much the sum of row
    digests grew, modulo 2^64.
    """
    ncols = len(shape)
    first_since, second_since = _last_unlisted(load_i64(since), tick), _last_unlisted(load_i64(since + 8), tick)
    first_end, second_end = load_i64(lists), load_i64(lists + 8)
    grown = np.uint64(0)
    fresh = nonzero = held = 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_for_write(load_i64(rows + 8 * (i + _AHEAD)))
        row = load_i64(rows + 8 * i)
        source = columns_at(local + i * local_bytes)
        nonzero += (load_i64(local + i * local_bytes) << 1) != 0
        change = 0
        for c in range(ncols):
            change |= load_i64(columns_at(row) + 8 * c) ^ load_i64(source + 8 * c)
        if change == 0:
            continue
        if held == CHANGES_AT_ONCE:
            grown += digest_changes(held_changes, held, shape)
            held = 0
        key = load_i64(row)
        hold_change(held_changes, held, key, columns_at(row), source, shape)
        held += 1
        copy_columns(source, columns_at(row), shape)
        touched = load_i64(touched_at(row, ncols))
        store_i64(first_end, key)
        first_end += 8 * (touched <= first_since)
        store_i64(second_end, key)
        second_end += 8 * (touched <= second_since)
        fresh += touched < 0
        store_i64(touched_at(row, ncols), tick)
    store_i64(lists, first_end)
    store_i64(lists + 8, second_end)
    store_i64(lists + 16, load_i64(lists + 16) + fresh)
    store_i64(lists + 24, load_i64(lists + 24) + nonzero)
    return grown + digest_changes(held_changes, held, shape)


@entry
def count_untouched(rows: int, count: int, ncols: int) -> int:
    """How many of the rows, whose addresses are at `rows`, were never touched."""
    untouched = 0
    for i in range(count):
        untouched += load_i64(touched_at(load_i64(rows + 8 * i), ncols)) < 0
    return untouched


@entry
def claim(rows: int, count: int, ncols: int, wanted: int, tick: int, since: int, lists: int) -> None:
    """Touch the rows that were never touched, of those that u8[count] at `wanted` marks, though no column changed.

    `since` and `lists` are as of `write_back`: the keys go on the lists, and the first count grows.
    """
    for i in range(count):
        row = load_i64(rows + 8 * i)
        if load_byte(wanted + i) == 0 or load_i64(touched_at(row, ncols)) >= 0:
            continue
        for which in range(2):
            if load_i64(since + 8 * which) < tick:
                end = load_i64(lists + 8 * which)
                store_i64(end, load_i64(row))
                store_i64(lists + 8 * which, end + 8)
        store_i64(lists + 16, load_i64(lists + 16) + 1)
        store_i64(touched_at(row, ncols), tick)
