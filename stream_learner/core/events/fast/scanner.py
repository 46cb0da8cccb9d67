"""The pass over the bytes of an event: objects, lists, and one value after the other.

This file must never accept an event that orjson refuses, nor read one differently: in doubt it fails, and the event
goes through orjson. It may read PADDING bytes after a record, which must never change a result. The page of the
package explains prediction, numbers of objects, and the bounds of reads.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.categories import begins_run, take_ordinary, take_run
from stream_learner.core.events.fast.finish import emit, finish_row, start_row
from stream_learner.core.events.fast.keys import find_field, is_predicted
from stream_learner.core.events.fast.layout import FAIL
from stream_learner.core.events.fast.strings import QUOTE, category_key, find_special, string_end, unescape
from stream_learner.core.events.fast.values import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COMMA,
    MINUS,
    OPEN_LIST,
    OPEN_OBJECT,
    is_space,
    literal_end,
    read_number,
    skip_inside,
    skip_space,
    take_number,
    take_role_null,
    take_role_number,
    take_role_text,
)
from stream_learner.core.events.reference import MAX_TIME_MS
from stream_learner.core.machine.entries import F64, I64, U64, entry
from stream_learner.core.machine.kernels import copied, inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_i64, load_u64, store_f64, store_i64, store_u64


@kernel
def _unusual_text(context: int, text: int, end: int) -> tuple[int, int, int]:
    """A string with escapes or bytes that are not ASCII: (text, length, address after its quote or FAIL).

    Text with escapes is written out to scratch space.
    """
    close = string_end(text, end)
    if close < 0:
        return text, 0, FAIL
    if load_byte(close) == QUOTE:
        return text, close - text, close + 1
    out = load_i64(context + lay.CTX_TEXT)
    length, close = unescape(text, end, out, load_i64(context + lay.CTX_TEXT_BYTES))
    return out, length, close + 1 if close >= 0 else FAIL


@inlined
def _take_string(context: int, field: int, at: int, end: int) -> int:
    """Take the string whose opening quote is at `at`. Returns the address after it, or FAIL."""
    text = at + 1
    close = find_special(text, end)
    length = close - text
    at = close + 1
    if close >= end:
        return FAIL
    if load_byte(close) != QUOTE:
        text, length, at = _unusual_text(context, text, end)
        if at < 0:
            return FAIL
    take = load_i64(field + lay.FIELD_STRING)
    if take == lay.TAKE_CATEGORY:
        return at if _take_category(context, field, text, length, True) else FAIL
    if take >= lay.TAKE_ROLE:
        return at if take_role_text(context, field, text, length) else FAIL
    return at


@inlined
def _take_category(context: int, field: int, text: int, length: int, even: bool) -> bool:
    """Add the feature `name=text`. False if there are too many features, or the text is too long."""
    if length > load_i64(context + lay.CTX_MAX_VALUE_BYTES):
        return False
    key = category_key(context, field, text, length, even)
    return emit(context, load_i64(field + lay.FIELD_WATCH), load_i64(field + lay.FIELD_COUNTED), key, 1.0)


@inlined
def _take_digits(context: int, field: int, at: int) -> int:
    """Take the number at `at`. Returns the address after it, or FAIL."""
    behind, integer, _, value = read_number(at)
    if behind < 0:
        return FAIL
    take = load_i64(field + lay.FIELD_NUMBER)
    if take == lay.TAKE_CATEGORY and integer:
        return behind if _take_category(context, field, at, behind - at, False) else FAIL
    if take >= lay.TAKE_ROLE:
        return behind if take_role_number(context, field, at, behind - at, integer, value) else FAIL
    return behind if take_number(context, field, value) else FAIL


@inlined
def _take_literal(context: int, field: int, at: int) -> int:
    """Take `true`, `false` or `null` at `at`. Returns the address after it, or FAIL."""
    behind = literal_end(at)
    take = load_i64(field + lay.FIELD_STRING)
    if behind < 0 or take == lay.TAKE_NOTHING:
        return behind
    letter = load_byte(at)
    if letter == 0x6E:
        return behind if take < lay.TAKE_ROLE or take_role_null(context, field) else FAIL
    if take >= lay.TAKE_ROLE:
        return FAIL
    key = load_u64(field + (lay.FIELD_TRUE_KEY if letter == 0x74 else lay.FIELD_FALSE_KEY))
    taken = emit(context, load_i64(field + lay.FIELD_WATCH), load_i64(field + lay.FIELD_COUNTED), key, 1.0)
    return behind if taken else FAIL


@kernel
def _take_value(context: int, field: int, at: int, end: int) -> int:
    """Take a value whose inside is not taken. Returns the address after it, or FAIL."""
    byte = load_byte(at)
    if byte == QUOTE:
        return _take_string(context, field, at, end)
    if byte == MINUS or (byte >= 0x30 and byte <= 0x39):
        return _take_digits(context, field, at)
    if byte == OPEN_OBJECT or byte == OPEN_LIST:
        skip = load_i64(field + lay.FIELD_ENTER) == lay.SKIP_INSIDE
        return skip_inside(context, at, end) if skip else FAIL
    return _take_literal(context, field, at)


@kernel
def _read_event(context: int, at: int, end: int) -> bool:
    """Take the object at `at`, whose closing brace must be the last byte before `end`, into the context.

    field: address of the field at hand. parent, previous: offsets of the field whose value is the innermost open object
    or list, and of the field read last. object_number: the number of that object or list.
    """
    fields = load_i64(context + lay.CTX_FIELDS)
    stack = load_i64(context + lay.CTX_STACK)
    field, parent, previous, in_list, depth = fields, np.int64(0), np.int64(0), False, 1
    object_number = _new_object(context)
    at = skip_space(at + 1)
    empty = load_byte(at) == CLOSE_OBJECT
    while True:
        if not empty:
            if not in_list:
                field = fields + load_i64(fields + previous + lay.FIELD_NEXT)
                if is_predicted(context, field, parent, at):
                    at += load_i64(field + lay.FIELD_PATTERN_LENGTH)
                else:
                    previous, at = find_field(context, parent, previous, at, end)
                    field = fields + previous
                    if previous < 0:
                        return False
                previous = field - fields
                if at >= end or load_i64(field + lay.FIELD_SEEN) == object_number:
                    return False
                store_i64(field + lay.FIELD_SEEN, object_number)
            byte = load_byte(at)
            if byte <= 0x20:
                at = skip_space(at)
                byte = load_byte(at)
            if (byte == OPEN_OBJECT or byte == OPEN_LIST) and load_i64(field + lay.FIELD_ENTER) == lay.TAKE_INSIDE:
                if depth >= lay.MAX_DEPTH:
                    return False
                _push(stack, depth, parent, in_list, object_number)
                parent, in_list, object_number = field - fields, byte == OPEN_LIST, _new_object(context)
                depth += 1
                at = skip_space(at + 1)
                empty = load_byte(at) == (CLOSE_LIST if in_list else CLOSE_OBJECT)
                continue
            behind = take_ordinary(context, field, at, end)
            if behind >= 0:
                at = behind
                if not in_list and begins_run(fields, previous, at):
                    at, previous = take_run(context, at, end, parent, previous, object_number)
            else:
                at = _take_value(context, field, at, end)
                if at < 0:
                    return False
        empty = False
        byte = load_byte(at)
        if byte <= 0x20:
            at = skip_space(at)
            byte = load_byte(at)
        while byte != COMMA:
            at += 1
            depth -= 1
            if byte != (CLOSE_LIST if in_list else CLOSE_OBJECT) or at >= end or depth == 0:
                return byte == CLOSE_OBJECT and at == end and depth == 0
            parent, in_list, object_number = _pop(stack, depth)
            field = fields + parent
            at = skip_space(at)
            byte = load_byte(at)
        at += 1
        if load_byte(at) <= 0x20:
            at = skip_space(at)


@inlined
def _new_object(context: int) -> int:
    """A number that no object had before."""
    stamp = load_i64(context + lay.CTX_STAMP) + 1
    store_i64(context + lay.CTX_STAMP, stamp)
    return stamp


@inlined
def _push(stack: int, depth: int, parent: int, in_list: bool, object_number: int) -> None:
    store_i64(stack + 24 * depth, parent)
    store_i64(stack + 24 * depth + 8, np.int64(in_list))
    store_i64(stack + 24 * depth + 16, object_number)


@inlined
def _pop(stack: int, depth: int) -> tuple[int, bool, int]:
    at = stack + 24 * depth
    return load_i64(at), load_i64(at + 8) != 0, load_i64(at + 16)


@kernel
def _settle_roles(context: int, record_time_ms: int) -> bool:
    """Whether the event has all roles that it needs, and a time that is allowed."""
    needed = load_i64(context + lay.CTX_ROLES_NEEDED)
    if load_i64(context + lay.CTX_ROLES_FOUND) & needed != needed:
        return False
    if needed & lay.TIME_BIT != 0:
        ahead = load_i64(context + lay.CTX_TIME) - record_time_ms
        return record_time_ms < 0 or ahead <= load_i64(context + lay.CTX_MAX_SKEW_MS)
    if needed != 0:
        store_i64(context + lay.CTX_TIME, record_time_ms)
        return 0 <= record_time_ms <= MAX_TIME_MS
    return True


@copied
def _decode_event(context: int, at: int, end: int, record_time_ms: int) -> bool:
    """Decode one event into the context. False if the kernel does not take it; nothing of it is kept then."""
    store_i64(context + lay.CTX_STOPPED_BY, lay.UNUSUAL)
    if end - at > load_i64(context + lay.CTX_MAX_EVENT_BYTES):
        return False
    while end > at and is_space(load_byte(end - 1)):
        end -= 1
    if end - at < 2 or load_byte(end - 1) != CLOSE_OBJECT:
        return False
    at = skip_space(at)
    if load_byte(at) != OPEN_OBJECT:
        return False
    store_i64(context + lay.CTX_ROLES_FOUND, 0)
    store_u64(context + lay.CTX_ID, np.uint64(0))
    store_i64(context + lay.CTX_TIME, 0)
    store_f64(context + lay.CTX_NUMBER, 1.0)
    start_row(context)
    if not _read_event(context, at, end) or not _settle_roles(context, record_time_ms):
        return False
    return finish_row(context)


@copied
def decode_row(context: int, at: int, end: int, keys: int, values: int) -> int:
    """Decode an event of which no time is wanted into a row of its own; the number of its features, or FAIL.

    keys, values: addresses with room for CTX_MAX_FEATURES and one more. After FAIL, CTX_STOPPED_BY has the reason.
    """
    store_i64(context + lay.CTX_KEYS, keys)
    store_i64(context + lay.CTX_VALUES, values)
    store_i64(context + lay.CTX_FILLED, 0)
    return load_i64(context + lay.CTX_COUNT) if _decode_event(context, at, end, np.int64(0)) else FAIL


@entry
def count_inside(bounds: int, n: int, size: int) -> int:
    """How many of n records end at least PADDING bytes before the end of the `size` bytes of a batch.

    FAIL if a record lies outside of them or ends before it begins. bounds: address of i64[n+1].
    """
    before = load_i64(bounds)
    if before < 0 or load_i64(bounds + 8 * n) > size:
        return FAIL
    inside = 0
    for i in range(n):
        bound = load_i64(bounds + 8 * i + 8)
        if bound < before:
            return FAIL
        inside += bound <= size - lay.PADDING
        before = bound
    return inside


@entry
def set_columns(
    context: int, first: int, time_ms: I64, id_hash: U64, number: F64, row_start: I64, keys: U64, values: F64
) -> None:
    """Let `decode_events` write into these arrays, from event `first` on.

    row_start: filled up to `first`. keys, values: as long as there is room; values of one row with a CTX_VALUES_STEP of
    0.
    """
    store_i64(context + lay.CTX_TIMES, time_ms.ctypes.data)
    store_i64(context + lay.CTX_IDS, id_hash.ctypes.data)
    store_i64(context + lay.CTX_NUMBERS, number.ctypes.data)
    store_i64(context + lay.CTX_ROW_STARTS, row_start.ctypes.data)
    store_i64(context + lay.CTX_KEYS, keys.ctypes.data)
    store_i64(context + lay.CTX_VALUES, values.ctypes.data)
    store_i64(context + lay.CTX_FILLED, row_start[first])
    store_i64(context + lay.CTX_CAPACITY, len(keys))


@entry
def decode_events(context: int, data: int, bounds: int, times: int, first: int, last: int) -> int:
    """Decode events first to last - 1 into the columns, until one is unusual or the columns are full.

    data: address that bounds count from; bounds, times: addresses of i64 offsets and timestamps. Returns the number of
    the event it stopped at, for the reason in CTX_STOPPED_BY; or `last`.
    """
    most = load_i64(context + lay.CTX_MAX_FEATURES) + 1
    for i in range(first, last):
        filled = load_i64(context + lay.CTX_FILLED)
        if filled + most > load_i64(context + lay.CTX_CAPACITY):
            store_i64(context + lay.CTX_STOPPED_BY, lay.NO_ROOM)
            return i
        at, end = data + load_i64(bounds + 8 * i), data + load_i64(bounds + 8 * i + 8)
        if not _decode_event(context, at, end, load_i64(times + 8 * i)):
            return i
        if load_i64(context + lay.CTX_NOT_ONE) > load_i64(context + lay.CTX_VALUES_STEP):
            store_i64(context + lay.CTX_STOPPED_BY, lay.NO_VALUES)
            return i
        filled += load_i64(context + lay.CTX_COUNT)
        store_i64(context + lay.CTX_FILLED, filled)
        store_i64(load_i64(context + lay.CTX_ROW_STARTS) + 8 * i + 8, filled)
        store_u64(load_i64(context + lay.CTX_IDS) + 8 * i, load_u64(context + lay.CTX_ID))
        store_i64(load_i64(context + lay.CTX_TIMES) + 8 * i, load_i64(context + lay.CTX_TIME))
        store_u64(load_i64(context + lay.CTX_NUMBERS) + 8 * i, load_u64(context + lay.CTX_NUMBER))
    return last
