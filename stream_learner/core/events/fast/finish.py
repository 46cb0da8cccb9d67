"""The end of a row inside kernels: missing indicators, crosses, bias, repeats summed, zeros left out.

A finished row has no two equal keys, no zero, and no value that is not finite.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.layout import (
    CTX_ABSENT,
    CTX_ABSENT_COUNT,
    CTX_BIAS,
    CTX_COUNT,
    CTX_COUNTED,
    CTX_COUNTED_STEP,
    CTX_CROSS_COUNT,
    CTX_CROSSES,
    CTX_FILLED,
    CTX_GENERATION,
    CTX_KEYS,
    CTX_LINKS,
    CTX_MAX_FEATURES,
    CTX_NOT_ONE,
    CTX_RECENT,
    CTX_ROW_COUNTED,
    CTX_ROW_KEYS,
    CTX_ROW_VALUES,
    CTX_STACK,
    CTX_STAMP,
    CTX_TABLE,
    CTX_TABLE_MASK,
    CTX_TEXT,
    CTX_VALUES,
    CTX_VALUES_STEP,
    CTX_WATCH_COUNT,
    CTX_WATCHES,
    CTX_ZEROS,
    NOT_WATCHED,
    RECENT_BYTES,
)
from stream_learner.core.events.field_numbers import NOT_COUNTED
from stream_learner.core.machine.hashing import BIAS_KEY, not_zero, xxh64_at
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    load_byte,
    load_f64,
    load_i64,
    load_u64,
    store_byte,
    store_f64,
    store_i64,
    store_u64,
)

_BIAS = np.uint64(BIAS_KEY)
_ENTRY_BITS = np.uint64(51)


@inlined
def start_row(context: int) -> None:
    """Begin a row after the rows that are finished."""
    filled = load_i64(context + CTX_FILLED)
    store_i64(context + CTX_COUNT, 0)
    store_i64(context + CTX_ZEROS, 0)
    store_i64(context + CTX_NOT_ONE, 0)
    store_i64(context + CTX_ROW_KEYS, load_i64(context + CTX_KEYS) + 8 * filled)
    step = load_i64(context + CTX_VALUES_STEP)
    store_i64(context + CTX_ROW_VALUES, load_i64(context + CTX_VALUES) + 8 * step * filled)
    step = load_i64(context + CTX_COUNTED_STEP)
    store_i64(context + CTX_ROW_COUNTED, load_i64(context + CTX_COUNTED) + step * filled)
    watches = load_i64(context + CTX_WATCHES)
    for watch in range(load_i64(context + CTX_WATCH_COUNT)):
        store_i64(watches + 16 * watch, -1)


@inlined
def append(context: int, key: np.uint64, value: float) -> None:
    """Append a feature. The caller has made sure that there is room."""
    count = load_i64(context + CTX_COUNT)
    store_u64(load_i64(context + CTX_ROW_KEYS) + 8 * count, key)
    store_f64(load_i64(context + CTX_ROW_VALUES) + 8 * count, value)
    if value != 1.0:
        store_i64(context + CTX_NOT_ONE, 1)
    store_i64(context + CTX_COUNT, count + 1)


@inlined
def emit(context: int, watch: int, counted: int, key: np.uint64, value: float) -> bool:
    """Append a feature of a field. False if there are too many.

    watch: the number of the field if crosses or indicators ask for it. A watch holds the first and the last place of
    the features of its field; the link of a place is the next place. counted: the number under which it counts.
    """
    count = load_i64(context + CTX_COUNT)
    if count >= load_i64(context + CTX_MAX_FEATURES):
        return False
    append(context, key, value)
    store_byte(load_i64(context + CTX_ROW_COUNTED) + count, counted)
    if watch != NOT_WATCHED:
        at = load_i64(context + CTX_WATCHES) + 16 * watch
        links = load_i64(context + CTX_LINKS)
        store_i64(links + 8 * count, -1)
        if load_i64(at) < 0:
            store_i64(at, count)
        else:
            store_i64(links + 8 * load_i64(at + 8), count)
        store_i64(at + 8, count)
    return True


@kernel
def _add_indicators(context: int) -> bool:
    """Add the missing indicator of each field without a feature. False if there are too many features."""
    watches = load_i64(context + CTX_WATCHES)
    absent = load_i64(context + CTX_ABSENT)
    for i in range(load_i64(context + CTX_ABSENT_COUNT)):
        at = absent + 24 * i
        if load_i64(watches + 16 * load_i64(at)) < 0:
            if not emit(context, NOT_WATCHED, load_i64(at + 16), load_u64(at + 8), 1.0):
                return False
    return True


@kernel
def _next_combination(context: int, cross: int, size: int, places: int) -> bool:
    """Advance `places` to the next combination, the last field first. False after the last combination."""
    watches = load_i64(context + CTX_WATCHES)
    links = load_i64(context + CTX_LINKS)
    for i in range(size - 1, -1, -1):
        following = load_i64(links + 8 * load_i64(places + 8 * i))
        if following >= 0:
            store_i64(places + 8 * i, following)
            return True
        store_i64(places + 8 * i, load_i64(watches + 16 * load_i64(cross + 8 * i)))
    return False


@kernel
def _add_cross(context: int, cross: int, size: int, counted: int) -> bool:
    """Add all combinations of a cross, whose watches are at `cross`. False if there are too many features.

    counted: as of `emit`.
    """
    watches = load_i64(context + CTX_WATCHES)
    keys = load_i64(context + CTX_ROW_KEYS)
    values = load_i64(context + CTX_ROW_VALUES)
    places = load_i64(context + CTX_STACK)
    text = load_i64(context + CTX_TEXT)
    for i in range(size):
        first = load_i64(watches + 16 * load_i64(cross + 8 * i))
        if first < 0:
            return True
        store_i64(places + 8 * i, first)
    while True:
        value = 1.0
        for i in range(size):
            place = load_i64(places + 8 * i)
            store_u64(text + 8 * i, load_u64(keys + 8 * place))
            value *= load_f64(values + 8 * place)
        if not emit(context, NOT_WATCHED, counted, not_zero(xxh64_at(text, 8 * size)), value):
            return False
        if not _next_combination(context, cross, size, places):
            return True


@kernel
def _may_repeat(context: int) -> bool:
    """Whether two keys of the row agree in 13 bits: each key marks its byte of a table with the row's generation."""
    recent = load_i64(context + CTX_RECENT)
    generation = load_i64(context + CTX_GENERATION) + 1
    if generation > 255:
        for i in range(0, RECENT_BYTES, 8):
            store_i64(recent + i, 0)
        generation = 1
    store_i64(context + CTX_GENERATION, generation)
    keys = load_i64(context + CTX_ROW_KEYS)
    repeated = False
    for i in range(load_i64(context + CTX_COUNT)):
        at = recent + np.int64(load_u64(keys + 8 * i) >> _ENTRY_BITS)
        repeated |= load_byte(at) == generation
        store_byte(at, generation)
    return repeated


@kernel
def _find(context: int, keys: int, key: np.uint64, stamp: int) -> int:
    """Place of a key in the row; if it is new, -1 - e, where e is its entry in the table."""
    mask = load_i64(context + CTX_TABLE_MASK)
    table = load_i64(context + CTX_TABLE)
    entry = np.int64(key >> np.uint64(40)) & mask
    while True:
        at = table + 16 * entry
        if load_i64(at) != stamp:
            return -1 - entry
        place = load_i64(at + 8)
        if load_u64(keys + 8 * place) == key:
            return place
        entry = (entry + 1) & mask


@kernel
def _sum_repeats(context: int) -> None:
    """Sum the values of equal keys at the place of the first. A table entry without this row's stamp is empty."""
    stamp = load_i64(context + CTX_STAMP) + 1
    store_i64(context + CTX_STAMP, stamp)
    keys = load_i64(context + CTX_ROW_KEYS)
    values = load_i64(context + CTX_ROW_VALUES)
    table = load_i64(context + CTX_TABLE)
    counted = load_i64(context + CTX_ROW_COUNTED)
    kept = 0
    for i in range(load_i64(context + CTX_COUNT)):
        key = load_u64(keys + 8 * i)
        value = load_f64(values + 8 * i)
        place = _find(context, keys, key, stamp)
        if place >= 0:
            store_f64(values + 8 * place, load_f64(values + 8 * place) + value)
            store_i64(context + CTX_NOT_ONE, 1)
            continue
        store_i64(table + 16 * (-1 - place), stamp)
        store_i64(table + 16 * (-1 - place) + 8, kept)
        store_u64(keys + 8 * kept, key)
        store_f64(values + 8 * kept, value)
        store_byte(counted + kept, load_byte(counted + i))
        kept += 1
    store_i64(context + CTX_COUNT, kept)


@kernel
def _drop_zeros(context: int) -> bool:
    """Take zeros out of the row. False if a value is not finite."""
    keys = load_i64(context + CTX_ROW_KEYS)
    values = load_i64(context + CTX_ROW_VALUES)
    counted = load_i64(context + CTX_ROW_COUNTED)
    kept = 0
    for i in range(load_i64(context + CTX_COUNT)):
        value = load_f64(values + 8 * i)
        if not np.isfinite(value):
            return False
        store_u64(keys + 8 * kept, load_u64(keys + 8 * i))
        store_f64(values + 8 * kept, value)
        store_byte(counted + kept, load_byte(counted + i))
        if value != 0.0:
            kept += 1
    store_i64(context + CTX_COUNT, kept)
    return True


@kernel
def finish_row(context: int) -> bool:
    """Complete the row after the last field. False if there are too many features, or one is not finite."""
    crosses = load_i64(context + CTX_CROSS_COUNT)
    if load_i64(context + CTX_ABSENT_COUNT) > 0 and not _add_indicators(context):
        return False
    cross = load_i64(context + CTX_CROSSES)
    for _ in range(crosses):
        size = load_i64(cross)
        if not _add_cross(context, cross + 16, size, load_i64(cross + 8)):
            return False
        cross += 16 + 8 * size
    if load_i64(context + CTX_BIAS) != 0:
        store_byte(load_i64(context + CTX_ROW_COUNTED) + load_i64(context + CTX_COUNT), NOT_COUNTED)
        append(context, _BIAS, 1.0)
    repeated = _may_repeat(context)
    if repeated:
        _sum_repeats(context)
    if repeated or crosses > 0 or load_i64(context + CTX_ZEROS) != 0:
        return _drop_zeros(context)
    return True
