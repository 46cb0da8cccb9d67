"""The hot loops of the join: log times, duplicates, clicks remembered and forgotten, labels, rows gathered.

In: columns of decoded events, the addresses of an `IdTable` and of the blocks in which remembered clicks lie.
Out: the same, changed; columns of examples.
This file must never decide which records a tick takes: `join` does. It allocates nothing.

A remembered click is 32 bytes: offset, time, value (float64 bits), and one word with its code in the low 8 bits, above
them in 8 bits how many clicks of its id there are up to it (at most `CROWDED`), and above those how many clicks back
the one before with the same id lies (0: none). Clicks are numbered from 0 in the order
they are taken; number `n` lies in block `n // BLOCK` modulo the number of blocks. The id table holds the newest number
of each id, and numbers below `first` are forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic
from numpy.typing import NDArray

from stream_learner.core.machine.hashing import mix
from stream_learner.core.machine.id_table import IdTable, find_entry, first_entry, put_entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import (
    bits_of_float,
    float_of_bits,
    load_i64,
    prefetch_for_write,
    store_i64,
)

BLOCK = 4096
CLICK_BYTES = 32
UNMATCHED, LATE, MATCHED, DUPLICATE, DEAD = range(5)
OUT_OF_ORDER, NEGATIVE_TIME = -1, -2

TIME, VALUE, WORD = 8, 16, 24
"""Where a remembered click keeps its time, its value and its word."""
CROWDED = 255
"""So many clicks of an id, or more, are remembered, as far as its newest one knows."""
_BLOCK_BITS = 12
_BACK = 16
_AHEAD = 16
_SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15)  # keeps the choice apart from other uses of the id's hash

EXAMPLES, POSITIVES, DUPLICATES, SAMPLED_OUT, DEAD_IMPRESSIONS, LATE_IMPRESSIONS, FEATURES = range(7)
"""Places in the tally of `label_rows`."""

_PLACE, _READ, _LEAST, _TOP, _TIMES = range(5)
"""Words of the state of `log_times`: place in the block, events so far, least of the block, log time, the block."""
STATE_WORDS = _TIMES
_NO_TIME = np.iinfo(np.int64).max


@kernel
def log_times(
    offsets: NDArray[np.int64],
    status: NDArray[np.uint8],
    times: NDArray[np.int64],
    position: int,
    agree: int,
    state: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """How far log time has come with each record, into `out`: the largest least time of the rows complete by then.

    state: i64[STATE_WORDS + agree], carried on from batch to batch; see `new_state`. `OUT_OF_ORDER` if offsets do not
    rise from `position` on, `NEGATIVE_TIME` if a good record has one; the state must not be used any more then.

    Times are kept in blocks of `agree`. At the end of a block each is replaced by the least from it to the block's end,
    so that two numbers tell the least of what reaches over into the next block.
    """
    place, read, least, top = state[_PLACE], state[_READ], state[_LEAST], state[_TOP]
    for i in range(len(offsets)):
        if offsets[i] < position:
            return OUT_OF_ORDER
        position = offsets[i] + 1
        if status[i] == 0:
            time = times[i]
            if time < 0:
                return NEGATIVE_TIME
            if place == agree:
                for k in range(_TIMES + agree - 2, _TIMES - 1, -1):
                    state[k] = min(state[k], state[k + 1])
                place = 0
                least = time
            least = min(least, time)
            state[_TIMES + place] = time
            place += 1
            read += 1
            if read >= agree:
                row = min(least, state[_TIMES + place]) if place < agree else least
                top = max(top, row)
        out[i] = top
    state[_PLACE], state[_READ], state[_LEAST], state[_TOP] = place, read, least, top
    return 0


def new_state(agree: int, log_time: int) -> NDArray[np.int64]:
    """The state of `log_times` before the first record, where log time has come to `log_time`."""
    state = np.zeros(STATE_WORDS + agree, np.int64)
    state[_TOP], state[_LEAST] = log_time, _NO_TIME
    return state


def log_time_of(state: NDArray[np.int64]) -> int:
    """How far log time has come."""
    return int(state[_TOP])


@kernel
def written_log_times(
    status: NDArray[np.uint8], times: NDArray[np.int64], agree: int, log_time: int, out: NDArray[np.int64]
) -> int:
    """Log time of each record where the last one ends all rows, never below `log_time` or going back; the last one.

    From the last row to the first: the least time of a row stays that of the row behind it, unless this one is less, or
    it has left the row; then the row is looked through. Where events are in order it never is.
    """
    least, left = _NO_TIME, 0
    for i in range(len(times) - 1, -1, -1):
        if status[i] != 0:
            out[i] = log_time
            continue
        left -= 1
        if times[i] <= least:
            least, left = times[i], agree
        elif left == 0:
            least, left = _least_from(status, times, i, agree)
        out[i] = least
    for i in range(len(times)):
        log_time = max(log_time, out[i])
        out[i] = log_time
    return log_time


@kernel
def _least_from(status: NDArray[np.uint8], times: NDArray[np.int64], start: int, agree: int) -> tuple[int, int]:
    """The least time of the row of a good record, and in how many good records further back it leaves the row."""
    least, left, seen = times[start], agree, 0
    for i in range(start, len(times)):
        if status[i] == 0:
            if times[i] < least:
                least, left = times[i], agree - seen
            seen += 1
            if seen == agree:
                break
    return least, left


@kernel
def run_start(
    status: NDArray[np.uint8], times: NDArray[np.int64], start: int, stop: int, time_ms: int, most: int
) -> tuple[int, int]:
    """Go back from row `stop`, not below `start`, over at most `most` good records at or past `time_ms`.

    Returns the first row of that run, `stop` if it is empty, and how many more it may have in front of it: 0 where
    `most` are found or an earlier record ends it.
    """
    first = stop
    for i in range(stop - 1, start - 1, -1):
        if most == 0:
            break
        if status[i] == 0:
            if times[i] < time_ms:
                return first, 0
            first = i
            most -= 1
    return first, most


@kernel
def least_of_row(
    status: NDArray[np.uint8], times: NDArray[np.int64], start: int, most: int, least: int
) -> tuple[int, int]:
    """The least of `least` and the first `most` good times from row `start` on; how many are still to be found."""
    for i in range(start, len(times)):
        if most == 0:
            break
        if status[i] == 0:
            least = min(least, times[i])
            most -= 1
    return least, most


@kernel
def find_duplicates(
    table: int,
    offsets: NDArray[np.int64],
    ids: NDArray[np.int64],
    status: NDArray[np.uint8],
    start: int,
    stop: int,
    first: int,
    duplicate: NDArray[np.uint8],
) -> int:
    """Which rows `start..stop-1` repeat an id seen at or after offset `first`; remembers every good row as seen.

    Returns the row it stopped at: the table must grow for that row's id, or all rows are done.
    """
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch_for_write(first_entry(table, ids[i + _AHEAD]))
        if status[i] != 0:
            continue
        entry = find_entry(table, ids[i])
        seen = load_i64(entry + 8) - 1
        if not put_entry(table, entry, ids[i], offsets[i]):
            return i
        duplicate[i] = seen >= first
    return stop


@kernel
def click_address(blocks: int, block_mask: int, number: int) -> int:
    block = load_i64(blocks + 8 * ((number >> _BLOCK_BITS) & block_mask))
    return block + CLICK_BYTES * (number & (BLOCK - 1))


@kernel
def crowd_of(word: int) -> int:
    """How many clicks of its id there are up to the click with this word, at most `CROWDED`."""
    return (word >> 8) & 255


@kernel
def back_of(word: int) -> int:
    """How many clicks back the one before with the same id lies, 0 for none."""
    return word >> _BACK


@kernel
def matched_word(word: int) -> int:
    """The word of a click that has been matched."""
    return (word & -256) | MATCHED


@kernel
def _is_repeated(blocks: int, block_mask: int, first: int, newest: int, time: int, span_ms: int) -> bool:
    """Whether a remembered click of the chain that begins with `newest` has a time within `span_ms` of `time`."""
    number = newest
    while number >= first:
        click = click_address(blocks, block_mask, number)
        if abs(load_i64(click + TIME) - time) <= span_ms:
            return True
        back = back_of(load_i64(click + WORD))
        if back == 0:
            return False
        number -= back
    return False


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
    codes: NDArray[np.uint8],
    start: int,
    span_ms: int,
    late_before_ms: int,
) -> int:
    """Remember rows from `start` on as clicks `number`, `number + 1`, ... .

    Their codes are `codes` if that is not empty, else by the rule: duplicate if a click of the id that is not forgotten
    has a time within `span_ms` (window + skew) of its own, late if its time is before `late_before_ms`.
    Returns the row it stopped at: the table must grow for that row's id, or all rows are done.
    """
    given = len(codes) > 0
    for i in range(start, len(offsets)):
        code, back, crowd = DEAD, 0, 1
        if status[i] == 0:
            entry = find_entry(table, ids[i])
            newest = load_i64(entry + 8) - 1
            if not put_entry(table, entry, ids[i], number):
                return i
            if newest >= first:
                back = number - newest
                crowd = min(crowd_of(load_i64(click_address(blocks, block_mask, newest) + WORD)) + 1, CROWDED)
            if given:
                code = np.int64(codes[i])
            elif back != 0 and _is_repeated(blocks, block_mask, first, newest, times[i], span_ms):
                code = DUPLICATE
            else:
                code = LATE if times[i] < late_before_ms else UNMATCHED
        click = click_address(blocks, block_mask, number)
        store_i64(click, offsets[i])
        store_i64(click + TIME, times[i])
        store_i64(click + VALUE, bits_of_float(values[i]))
        store_i64(click + WORD, (back << _BACK) | (crowd << 8) | code)
        number += 1
    return len(offsets)


@kernel
def _least_of_clicks(blocks: int, block_mask: int, number: int, end: int, agree: int) -> int:
    """The least time of the row of a click that is not dead, where the clicks end at `end`."""
    least = load_i64(click_address(blocks, block_mask, number) + TIME)
    left = agree - 1
    while left > 0 and number + 1 < end:
        number += 1
        click = click_address(blocks, block_mask, number)
        if load_i64(click + WORD) & 255 != DEAD:
            least = min(least, load_i64(click + TIME))
            left -= 1
    return least


@kernel
def expire_clicks(
    blocks: int,
    block_mask: int,
    first: int,
    end: int,
    log_time: int,
    agree: int,
    lateness_ms: int,
    before_ms: int,
    outcomes: NDArray[np.int64],
) -> tuple[int, int]:
    """Forget clicks from `first` on while they are dead, or min(time, log time + lateness) is below `before_ms`.

    Counts each by its code. `log_time`: that of the clicks forgotten before. Returns the number of the first one still
    remembered, `end` if none, and the log time of those forgotten now and before.
    """
    while first < end:
        click = click_address(blocks, block_mask, first)
        code = load_i64(click + WORD) & 255
        if code != DEAD:
            reached = max(log_time, _least_of_clicks(blocks, block_mask, first, end, agree))
            if min(load_i64(click + TIME), reached + lateness_ms) >= before_ms:
                break
            log_time = reached
        outcomes[code] += 1
        first += 1
    return first, log_time


@kernel
def click_offset(blocks: int, block_mask: int, number: int) -> int:
    """Offset of a remembered click."""
    return load_i64(click_address(blocks, block_mask, number))


@kernel
def click_codes(blocks: int, block_mask: int, first: int, out: NDArray[np.uint8]) -> None:
    """The codes of remembered clicks from `first` on, as many as `out` takes; that of a dead one is unmatched."""
    for i in range(len(out)):
        code = load_i64(click_address(blocks, block_mask, first + i) + WORD) & 255
        out[i] = UNMATCHED if code == DEAD else code


@kernel
def _match(blocks: int, block_mask: int, first: int, newest: int, earliest: int, latest: int, dedupe: bool) -> float:
    """Label of an impression whose newest click is `newest`: the greatest value of its clicks in `earliest..latest`, 0
    if none; see `_set_matched`.

    With `dedupe`, -1 and nothing changed where a click of its id has been matched before: the impression is a repeat.
    """
    label, found = 0.0, False
    number = newest
    while number >= first:
        click = click_address(blocks, block_mask, number)
        word = load_i64(click + WORD)
        if dedupe and word & 255 == MATCHED:
            return -1.0
        if earliest <= load_i64(click + TIME) <= latest:
            label = max(label, float_of_bits(load_i64(click + VALUE)))
            found = True
        if back_of(word) == 0:
            break
        number -= back_of(word)
    if found:
        _set_matched(blocks, block_mask, first, newest, earliest, latest, dedupe)
    return label


@kernel
def _set_matched(
    blocks: int, block_mask: int, first: int, number: int, earliest: int, latest: int, dedupe: bool
) -> None:
    """Every click of a chain in `earliest..latest` that was unmatched or late is matched.

    With `dedupe`, where all of them repeat others, the first is: so that one click is matched for each impression.
    """
    oldest, any_is = -1, False
    while number >= first:
        click = click_address(blocks, block_mask, number)
        word = load_i64(click + WORD)
        if earliest <= load_i64(click + TIME) <= latest:
            oldest = number
            if word & 255 <= LATE:
                store_i64(click + WORD, matched_word(word))
                any_is = True
        if back_of(word) == 0:
            break
        number -= back_of(word)
    if dedupe and not any_is and oldest >= 0:
        click = click_address(blocks, block_mask, oldest)
        store_i64(click + WORD, matched_word(load_i64(click + WORD)))


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
    late_before_ms: int,
    skew_ms: int,
    window_ms: int,
    dedupe: bool,
    keep_negatives: float,
    keep_below: np.uint64,
    given: NDArray[np.float64],
    kept: NDArray[np.int64],
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    tally: NDArray[np.int64],
) -> int:
    """Label rows `start..stop-1`: which of them are examples into `kept`, with `label` and `weight`; their number.

    given: labels that are known already, below 0 where not; may be empty. A time before `late_before_ms` makes an
    impression late. With `dedupe` a click counts for one impression only.
    `keep_below` is ceil(keep_negatives * 2^64); not used where `keep_negatives` is 1. `tally` is added to.
    """
    k = 0
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch_for_write(first_entry(table, ids[i + _AHEAD]))
        if status[i] != 0:
            tally[DEAD_IMPRESSIONS] += 1
            continue
        if duplicate[i] != 0:
            tally[DUPLICATES] += 1
            continue
        if times[i] < late_before_ms:
            tally[LATE_IMPRESSIONS] += 1
            continue
        if i < len(given) and given[i] >= 0.0:
            y = given[i]
        else:
            newest, y = load_i64(find_entry(table, ids[i]) + 8) - 1, 0.0
            if newest >= first:  # few have been clicked: no call for the others
                y = _match(blocks, block_mask, first, newest, times[i] - skew_ms, times[i] + window_ms, dedupe)
        if y < 0.0:
            tally[DUPLICATES] += 1
            continue
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
    ids: NDArray[np.int64],
    row_start: NDArray[np.int64],
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    log_time: NDArray[np.int64],
    first_log_time: int,
    at: int,
    out_log_time: NDArray[np.int64],
    out_ids: NDArray[np.int64],
    out_row_start: NDArray[np.int64],
    out_keys: NDArray[np.uint64],
    out_values: NDArray[np.float64],
) -> None:
    """Copy the kept rows behind the first `at` of the output, whose `out_row_start[at]` is set already.

    The log time of row `i` is `log_time[first_log_time + i]`.
    """
    i = 0
    while i < len(kept):
        run = i + 1
        while run < len(kept) and kept[run] == kept[run - 1] + 1:
            run += 1
        source = row_start[kept[i]]
        shift = out_row_start[at + i] - source
        for j in range(i, run):
            row = kept[j]
            out_log_time[at + j] = log_time[first_log_time + row]
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
    byte, key, tally = np.zeros(1, np.uint8), np.zeros(1, np.uint64), np.zeros(7, np.int64)
    log_times(one, byte, one, 0, 1, new_state(1, 0), one.copy())
    written_log_times(byte, one, 1, 0, one.copy())
    run_start(byte, one, 0, 1, 0, 1)
    least_of_row(byte, one, 0, 1, 1)
    find_duplicates(seen.header, one, one, byte, 0, 1, 0, byte.copy())
    places = (table.header, blocks.ctypes.data, 0, 0)
    take_clicks(*places, 0, one, one, byte, one, real, byte[:0], 0, 0, 0)
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
        0,
        True,
        0.5,
        np.uint64(0),
        real,
        one.copy(),
        real.copy(),
        real,
        tally,
    )
    copy_rows(one, one, two, key, real, one, 0, 0, one.copy(), one.copy(), np.zeros(2, np.int64), key, real.copy())
    click_offset(blocks.ctypes.data, 0, 0)
    click_codes(blocks.ctypes.data, 0, 0, byte.copy())
    expire_clicks(blocks.ctypes.data, 0, 0, 1, 0, 1, 0, 1, tally)
