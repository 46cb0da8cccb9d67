"""The hot loops of the join: log times, duplicates, clicks remembered and forgotten, labels, rows gathered.

In: columns of decoded events, the addresses of an `IdTable` and of the blocks in which remembered clicks lie.
Out: the same, changed; columns of examples.
This file must never decide which records a tick takes: `join` does. It allocates nothing.

A remembered click is 40 bytes: offset, time, log time, value (float64 bits), and one word with its code in the low
8 bits and above them how many clicks back the one before with the same id lies (0: none). Clicks are numbered from 0
in the order they are taken; number `n` lies in block `n // BLOCK` modulo the number of blocks. The id table holds the
newest number of each id, and numbers below `first` are forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic
from numpy.typing import NDArray

from stream_learner.core.hashing import mix
from stream_learner.core.id_table import IdTable, find_entry, first_entry, put_entry
from stream_learner.core.kernels import kernel
from stream_learner.core.memory import (
    bits_of_float,
    float_of_bits,
    load_i64,
    prefetch_for_write,
    store_i64,
)

BLOCK = 4096
CLICK_BYTES = 40
UNMATCHED, LATE, MATCHED, DUPLICATE, DEAD = range(5)
OUT_OF_ORDER, NEGATIVE_TIME = -1, -2

_BLOCK_BITS = 12
_TIME, _LOG_TIME, _VALUE, _CODE = 8, 16, 24, 32
_AHEAD = 16
_SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15)  # keeps the choice apart from other uses of the id's hash

EXAMPLES, POSITIVES, DUPLICATES, SAMPLED_OUT, DEAD_IMPRESSIONS, FEATURES = range(6)
"""Places in the tally of `label_rows`."""


@kernel
def log_times(
    offsets: NDArray[np.int64],
    status: NDArray[np.uint8],
    times: NDArray[np.int64],
    position: int,
    log_time: int,
    out: NDArray[np.int64],
) -> int:
    """Running maximum of the good records' times, from `log_time` on, into `out`; the last one is returned.

    `OUT_OF_ORDER` if offsets do not rise from `position` on, `NEGATIVE_TIME` if a good record has one.
    """
    for i in range(len(offsets)):
        if offsets[i] < position:
            return OUT_OF_ORDER
        position = offsets[i] + 1
        if status[i] == 0:
            if times[i] < 0:
                return NEGATIVE_TIME
            log_time = max(log_time, times[i])
        out[i] = log_time
    return 0


@kernel
def find_duplicates(
    table: int,
    ids: NDArray[np.int64],
    status: NDArray[np.uint8],
    log_time: NDArray[np.int64],
    start: int,
    dedupe_ms: int,
    duplicate: NDArray[np.uint8],
) -> int:
    """Which rows from `start` on repeat an id seen within `dedupe_ms`; remembers every good row as seen.

    Returns the row it stopped at: the table must grow for that row's id, or all rows are done.
    """
    n = len(ids)
    for i in range(start, n):
        if i + _AHEAD < n:
            prefetch_for_write(first_entry(table, ids[i + _AHEAD]))
        if status[i] != 0:
            duplicate[i] = 0
            continue
        entry = find_entry(table, ids[i])
        seen = load_i64(entry + 8)
        if not put_entry(table, entry, ids[i], log_time[i]):
            return i
        duplicate[i] = seen != 0 and seen - 1 >= log_time[i] - dedupe_ms
    return n


@kernel
def _click_address(blocks: int, block_mask: int, number: int) -> int:
    block = load_i64(blocks + 8 * ((number >> _BLOCK_BITS) & block_mask))
    return block + CLICK_BYTES * (number & (BLOCK - 1))


@kernel
def take_clicks(
    table: int,
    blocks: int,
    block_mask: int,
    first: int,
    number: int,
    offsets: NDArray[np.int64],
    ids: NDArray[np.int64],
    status: NDArray[np.uint8],
    times: NDArray[np.int64],
    values: NDArray[np.float64],
    log_time: NDArray[np.int64],
    codes: NDArray[np.uint8],
    start: int,
    memory_ms: int,
    first_tick: int,
    last_tick: int,
    tick_ms: int,
) -> int:
    """Remember rows from `start` on as clicks `number`, `number + 1`, ... .

    Their codes are `codes` if that is not empty, else by the rule: duplicate if the id's newest click that is not
    forgotten has its log time within `memory_ms` (window + skew), late if the time is behind the tick it is read for.
    Returns the row it stopped at: the table must grow for that row's id, or all rows are done.
    """
    given = len(codes) > 0
    for i in range(start, len(offsets)):
        code, back = DEAD, 0
        if status[i] == 0:
            entry = find_entry(table, ids[i])
            newest = load_i64(entry + 8) - 1
            if not put_entry(table, entry, ids[i], number):
                return i
            if newest >= first:
                back = number - newest
            if given:
                code = np.int64(codes[i])
            else:
                tick = max(first_tick, min(log_time[i] // tick_ms, last_tick))
                code = LATE if times[i] < tick * tick_ms else UNMATCHED
                if back != 0:
                    older = load_i64(_click_address(blocks, block_mask, newest) + _LOG_TIME)
                    code = DUPLICATE if older >= log_time[i] - memory_ms else code
        click = _click_address(blocks, block_mask, number)
        store_i64(click, offsets[i])
        store_i64(click + _TIME, times[i])
        store_i64(click + _LOG_TIME, log_time[i])
        store_i64(click + _VALUE, bits_of_float(values[i]))
        store_i64(click + _CODE, (back << 8) | code)
        number += 1
    return len(offsets)


@kernel
def expire_clicks(
    blocks: int, block_mask: int, first: int, end: int, before_ms: int, outcomes: NDArray[np.int64]
) -> int:
    """Forget clicks from `first` on while their log time is below `before_ms`; counts each by its code.

    Returns the number of the first one still remembered, `end` if none.
    """
    while first < end:
        click = _click_address(blocks, block_mask, first)
        if load_i64(click + _LOG_TIME) >= before_ms:
            break
        outcomes[load_i64(click + _CODE) & 255] += 1
        first += 1
    return first


@kernel
def click_offset(blocks: int, block_mask: int, number: int) -> int:
    """Offset of a remembered click."""
    return load_i64(_click_address(blocks, block_mask, number))


@kernel
def click_log_time(blocks: int, block_mask: int, number: int) -> int:
    """Log time at a remembered click, ms."""
    return load_i64(_click_address(blocks, block_mask, number) + _LOG_TIME)


@kernel
def click_codes(blocks: int, block_mask: int, first: int, out: NDArray[np.uint8]) -> None:
    """The codes of remembered clicks from `first` on, as many as `out` takes; that of a dead one is unmatched."""
    for i in range(len(out)):
        code = load_i64(_click_address(blocks, block_mask, first + i) + _CODE) & 255
        out[i] = UNMATCHED if code == DEAD else code


@kernel
def _match(table: int, blocks: int, block_mask: int, first: int, key: int, earliest: int, latest: int) -> float:
    """Label of an impression: the greatest value of its clicks in `earliest..latest`, 0 if none; they are matched."""
    label = 0.0
    number = load_i64(find_entry(table, key) + 8) - 1
    while number >= first:
        click = _click_address(blocks, block_mask, number)
        if load_i64(click + _LOG_TIME) < earliest:
            break
        word = load_i64(click + _CODE)
        time = load_i64(click + _TIME)
        if earliest <= time <= latest:
            label = max(label, float_of_bits(load_i64(click + _VALUE)))
            if word & 255 <= LATE:
                store_i64(click + _CODE, (word & -256) | MATCHED)
        if word >> 8 == 0:
            break
        number -= word >> 8
    return label


@kernel
def _is_sampled_out(key: int, keep_below: np.uint64) -> bool:
    return bool(mix(np.uint64(key) ^ _SAMPLE_SALT) >= keep_below)


@kernel
def label_rows(
    table: int,
    blocks: int,
    block_mask: int,
    first: int,
    ids: NDArray[np.int64],
    status: NDArray[np.uint8],
    times: NDArray[np.int64],
    weights: NDArray[np.float64],
    row_start: NDArray[np.int64],
    duplicate: NDArray[np.uint8],
    start: int,
    stop: int,
    skew_ms: int,
    window_ms: int,
    keep_negatives: float,
    keep_below: np.uint64,
    kept: NDArray[np.int64],
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    tally: NDArray[np.int64],
) -> int:
    """Label rows `start..stop-1`: which of them are examples into `kept`, with `label` and `weight`; their number.

    `keep_below` is ceil(keep_negatives * 2^64); not used where `keep_negatives` is 1. `tally` is added to.
    """
    k = 0
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch_for_write(first_entry(table, ids[i + _AHEAD]))
        if duplicate[i] != 0:
            tally[DUPLICATES] += 1
            continue
        if status[i] != 0:
            tally[DEAD_IMPRESSIONS] += 1
            continue
        y = _match(table, blocks, block_mask, first, ids[i], times[i] - skew_ms, times[i] + window_ms)
        h = weights[i]
        if y > 0.0:
            tally[POSITIVES] += 1
        elif keep_negatives < 1.0:
            if _is_sampled_out(ids[i], keep_below):
                tally[SAMPLED_OUT] += 1
                continue
            h = h / keep_negatives
        kept[k], label[k], weight[k] = i, y, h
        k += 1
        tally[FEATURES] += row_start[i + 1] - row_start[i]
    tally[EXAMPLES] += k
    return k


@intrinsic
def copy_words(typingctx: Any, target: Any, source: Any, words: Any) -> Any:
    """Copy 8-byte words between addresses that do not overlap: several times faster than a loop over arrays."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64).as_pointer()
        target, source = (builder.inttoptr(address, word) for address in args[:2])
        raw_memcpy(builder, target, source, args[2], ir.IntType(64)(8))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@kernel
def _address(array: NDArray[np.generic]) -> int:
    return np.int64(array.ctypes.data)


@kernel
def copy_rows(
    kept: NDArray[np.int64],
    log_time: NDArray[np.int64],
    ids: NDArray[np.int64],
    row_start: NDArray[np.int64],
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    at: int,
    out_log_time: NDArray[np.int64],
    out_ids: NDArray[np.int64],
    out_row_start: NDArray[np.int64],
    out_keys: NDArray[np.uint64],
    out_values: NDArray[np.float64],
) -> None:
    """Copy the kept rows behind the first `at` of the output, whose `out_row_start[at]` is set already."""
    i = 0
    while i < len(kept):
        run = i + 1
        while run < len(kept) and kept[run] == kept[run - 1] + 1:
            run += 1
        source = row_start[kept[i]]
        shift = out_row_start[at + i] - source
        for j in range(i, run):
            row = kept[j]
            out_log_time[at + j] = log_time[row]
            out_ids[at + j] = ids[row]
            out_row_start[at + j + 1] = row_start[row + 1] + shift
        size = row_start[kept[run - 1] + 1] - source
        copy_words(_address(out_keys) + 8 * (source + shift), _address(keys) + 8 * source, size)
        copy_words(_address(out_values) + 8 * (source + shift), _address(values) + 8 * source, size)
        i = run


def warm() -> None:
    """Compile every kernel of this module, for the types with which the join calls them."""
    table, seen = IdTable(), IdTable()
    block = np.zeros(BLOCK * CLICK_BYTES // 8, np.int64)
    blocks = np.array([block.ctypes.data], np.int64)
    one, two, real = np.zeros(1, np.int64), np.arange(2, dtype=np.int64), np.zeros(1, np.float64)
    byte, key, tally = np.zeros(1, np.uint8), np.zeros(1, np.uint64), np.zeros(6, np.int64)
    log_times(one, byte, one, 0, 0, one.copy())
    find_duplicates(seen.header, one, byte, one, 0, 0, byte.copy())
    places = (table.header, blocks.ctypes.data, 0, 0)
    take_clicks(*places, 0, one, one, byte, one, real, one, byte[:0], 0, 0, 0, 0, 1)
    label_rows(
        *places,
        one,
        byte,
        one,
        real,
        two,
        byte,
        0,
        1,
        0,
        0,
        0.5,
        np.uint64(0),
        one.copy(),
        real.copy(),
        real,
        tally,
    )
    copy_rows(one, one, one, two, key, real, 0, one.copy(), one.copy(), np.zeros(2, np.int64), key, real.copy())
    click_offset(blocks.ctypes.data, 0, 0)
    click_log_time(blocks.ctypes.data, 0, 0)
    click_codes(blocks.ctypes.data, 0, 0, byte.copy())
    expire_clicks(blocks.ctypes.data, 0, 0, 1, 1, tally)
