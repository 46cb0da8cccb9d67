"""Values of JSON inside kernels: numbers and roles taken into the context, values that do not matter skipped.

This file must never accept a value that orjson refuses, not even one that is skipped.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.finish import emit
from stream_learner.core.events.fast.layout import FAIL
from stream_learner.core.events.fast.numbers import MAX_DIGITS, nearest_float, read_fraction, read_integer
from stream_learner.core.events.fast.strings import QUOTE, category_key, string_end, unescape
from stream_learner.core.events.fast.times import time_of_float, time_of_integer, time_of_text
from stream_learner.core.events.feature_keys import SIZE_SHIFT
from stream_learner.core.events.local_time import CALENDAR_S, REPEATS_FROM_S, THURSDAY_S, WEEK_HOURS
from stream_learner.core.events.plan import Role
from stream_learner.core.machine.arithmetic import log1p
from stream_learner.core.machine.hashing import not_zero, xxh64_at
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    bits_of_float,
    load_byte,
    load_f64,
    load_i64,
    load_u64,
    store_f64,
    store_i64,
    store_u64,
)

COMMA, COLON, MINUS = 0x2C, 0x3A, 0x2D
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D

_NO_ROLE = int(Role.NONE)
_ID, _TIME, _WEIGHT, _VALUE = int(Role.ID), int(Role.TIME), int(Role.WEIGHT), int(Role.VALUE)
_TRUE = np.uint64(int.from_bytes(b"true", "little"))
_ALSE = np.uint64(int.from_bytes(b"alse", "little"))
_NULL = np.uint64(int.from_bytes(b"null", "little"))
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SIZE_SHIFT = np.uint64(SIZE_SHIFT)
_SIZE_0000 = int.from_bytes(b"b0000", "little")
_SIZE_BYTES = 5


@inlined
def is_space(byte: int) -> bool:
    """Whether a byte is white space of JSON."""
    return byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09


@inlined
def skip_space(at: int) -> int:
    """The first address from `at` on whose byte is not white space of JSON."""
    while is_space(load_byte(at)):
        at += 1
    return at


@inlined
def literal_end(at: int) -> int:
    """The address after the `true`, `false` or `null` at `at`, else FAIL."""
    word = load_u64(at) & _LOW_HALF
    if word == _TRUE or word == _NULL:
        return at + 4
    if load_byte(at) == 0x66 and load_u64(at + 1) & _LOW_HALF == _ALSE:
        return at + 5
    return FAIL


@kernel
def read_number(at: int) -> tuple[int, bool, np.uint64, float]:
    """The number at `at`: (address after it or FAIL, whether it is a 64-bit integer, its magnitude if so, its value).

    FAIL also for -0, because as an integer it would lose its sign.
    """
    zero = np.uint64(0)
    negative = load_byte(at) == MINUS
    first = at + 1 if negative else at
    behind, magnitude = read_integer(first)
    if behind < 0:
        return FAIL, False, zero, 0.0
    follows = load_byte(behind)
    if follows != 0x2E and follows | 0x20 != 0x65:
        if behind - first > MAX_DIGITS or (negative and (magnitude == zero or behind - first == MAX_DIGITS)):
            return FAIL, False, zero, 0.0
        value = np.float64(magnitude)
        return behind, True, magnitude, -value if negative else value
    behind, mantissa, exponent = read_fraction(first, behind, magnitude)
    if behind < 0:
        return FAIL, False, zero, 0.0
    value, certain = nearest_float(mantissa, exponent)
    return behind if certain else FAIL, False, zero, -value if negative else value


@inlined
def _size_key(context: int, field: int, value: float) -> np.uint64:
    """The key `XXH64(name=b<size>)` of a number: `feature_keys.size_text`, written into scratch space."""
    size = np.int64(np.uint64(bits_of_float(value + 0.0)) >> _SIZE_SHIFT)
    digits = (size // 1000) << 8 | (size // 100 % 10) << 16 | (size // 10 % 10) << 24 | (size % 10) << 32
    text = load_i64(context + lay.CTX_TEXT)
    store_u64(text, np.uint64(digits + _SIZE_0000))
    return category_key(context, field, text, _SIZE_BYTES, True)


@kernel
def take_number(context: int, field: int, value: float) -> bool:
    """Add the feature of a number, by the kind of its field. False if there are too many features."""
    kind = load_i64(field + lay.FIELD_NUMBER)
    if kind == lay.TAKE_NOTHING:
        return True
    key = load_u64(field + lay.FIELD_NUMBER_KEY)
    if kind == lay.TAKE_SIZE:
        key = _size_key(context, field, value)
        value = 1.0
    elif kind == lay.TAKE_LOG:
        magnitude = log1p(abs(value))
        value = -magnitude if value < 0.0 else magnitude
    elif kind == lay.TAKE_BUCKET:
        edges = load_i64(context + lay.CTX_POOL) + load_i64(field + lay.FIELD_EDGES)
        count = load_i64(field + lay.FIELD_EDGE_COUNT)
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if load_f64(edges + 8 * middle) <= value:
                low = middle + 1
            else:
                high = middle
        key = load_u64(edges + 8 * (count + low))
        value = 1.0
    if value == 0.0:
        store_i64(context + lay.CTX_ZEROS, 1)
    return emit(context, load_i64(field + lay.FIELD_WATCH), load_i64(field + lay.FIELD_COUNTED), key, value)


@inlined
def _found(context: int, role: int) -> bool:
    """Note that a role has been found. False if it had been found before."""
    found = load_i64(context + lay.CTX_ROLES_FOUND)
    store_i64(context + lay.CTX_ROLES_FOUND, found | (1 << role))
    return found & (1 << role) == 0


@kernel
def _take_time(context: int, field: int, time_ms: int) -> bool:
    """Add the feature of a time, by kind and zone of its field. False for FAIL, or if there are too many features."""
    if time_ms < 0:
        return False
    time_s = time_ms // 1000
    if time_s >= REPEATS_FROM_S:
        time_s = REPEATS_FROM_S + (time_s - REPEATS_FROM_S) % CALENDAR_S
    begins = load_i64(context + lay.CTX_POOL) + load_i64(field + lay.FIELD_EDGES)
    count = load_i64(field + lay.FIELD_EDGE_COUNT)
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) >> 1
        if load_i64(begins + 8 * middle) <= time_s:
            low = middle
        else:
            high = middle
    local_s = time_s + load_i64(begins + 8 * (count + low))
    key = load_u64(begins + 8 * (2 * count + (local_s + THURSDAY_S) // 3600 % WEEK_HOURS))
    return emit(context, load_i64(field + lay.FIELD_WATCH), load_i64(field + lay.FIELD_COUNTED), key, 1.0)


@kernel
def _unit_of(context: int, field: int) -> int:
    """The code of the unit of a field whose times are features."""
    words = 2 * load_i64(field + lay.FIELD_EDGE_COUNT) + WEEK_HOURS
    return load_i64(load_i64(context + lay.CTX_POOL) + load_i64(field + lay.FIELD_EDGES) + 8 * words)


@kernel
def _time_of_digits(text: int, unit: int, integer: bool, value: float) -> int:
    """Epoch ms of the number whose digits are at `text`, else FAIL."""
    if not integer:
        return time_of_float(value, unit)
    _, magnitude = read_integer(text)
    return time_of_integer(np.int64(magnitude), unit) if value >= 0.0 else FAIL


@kernel
def _take_role_time(context: int, field: int, time_ms: int) -> bool:
    """Take the time of the event, FAIL for one that plain Python has to decide; also as a feature if it is one."""
    store_i64(context + lay.CTX_TIME, time_ms)
    return _take_time(context, field, time_ms) if load_i64(field + lay.FIELD_STRING) == lay.TAKE_TIME else time_ms >= 0


@kernel
def take_role_text(context: int, field: int, text: int, length: int) -> bool:
    """Take a string as the value of a role: an id, or a time in ISO 8601; or as a time that is a feature.

    False if no such string is wanted.
    """
    role = load_i64(field + lay.FIELD_ROLE)
    if role == _NO_ROLE:
        return _take_time(context, field, time_of_text(text, length, _unit_of(context, field)))
    if not _found(context, role):
        return False
    if role == _ID:
        store_u64(context + lay.CTX_ID, not_zero(xxh64_at(text, length)))
        return True
    if role != _TIME:
        return False
    return _take_role_time(context, field, time_of_text(text, length, load_i64(context + lay.CTX_TIME_UNIT)))


@kernel
def take_role_number(context: int, field: int, text: int, length: int, integer: bool, value: float) -> bool:
    """Take a number, whose digits are at `text`, as the value of a role, or as a time that is a feature.

    False if no such number is wanted.
    """
    role = load_i64(field + lay.FIELD_ROLE)
    if role == _NO_ROLE:
        return _take_time(context, field, _time_of_digits(text, _unit_of(context, field), integer, value))
    if not _found(context, role):
        return False
    if role == _ID:
        store_u64(context + lay.CTX_ID, not_zero(xxh64_at(text, length)))
        return integer
    if role == _TIME:
        unit = load_i64(context + lay.CTX_TIME_UNIT)
        return _take_role_time(context, field, _time_of_digits(text, unit, integer, value))
    store_f64(context + lay.CTX_NUMBER, abs(value))
    return 0.0 <= value <= load_f64(context + lay.CTX_MAX_NUMBER)


@kernel
def take_role_null(context: int, field: int) -> bool:
    """Take null as the value of a role: weight and value then keep their 1. False for an id or the event's time."""
    role = load_i64(field + lay.FIELD_ROLE)
    return role == _NO_ROLE or (_found(context, role) and (role == _WEIGHT or role == _VALUE))


@kernel
def closing_quote(context: int, text: int, end: int) -> int:
    """Address of the closing quote of the valid string that begins at `text`, else FAIL."""
    close = string_end(text, end)
    if close < 0 or load_byte(close) == QUOTE:
        return close
    room = load_i64(context + lay.CTX_TEXT_BYTES)
    return unescape(text, end, load_i64(context + lay.CTX_TEXT), room)[1]


@kernel
def _skip_key(context: int, at: int, end: int) -> int:
    """Address of the value of the key at `at`, else FAIL."""
    if load_byte(at) != QUOTE:
        return FAIL
    close = closing_quote(context, at + 1, end)
    if close < 0:
        return FAIL
    at = skip_space(close + 1)
    return skip_space(at + 1) if load_byte(at) == COLON else FAIL


@kernel
def _skip_scalar(context: int, at: int, end: int) -> int:
    """The address after a string, number or literal, else FAIL."""
    byte = load_byte(at)
    if byte == QUOTE:
        close = closing_quote(context, at + 1, end)
        return close + 1 if close >= 0 else FAIL
    if byte == MINUS or (byte >= 0x30 and byte <= 0x39):
        return read_number(at)[0]
    return literal_end(at)


@kernel
def skip_inside(context: int, at: int, end: int) -> int:
    """The address after the object or list at `at` if it is valid JSON, else FAIL."""
    lists = 0
    depth = 0
    while True:
        byte = load_byte(at)
        if byte == OPEN_OBJECT or byte == OPEN_LIST:
            depth += 1
            if depth > lay.MAX_DEPTH:
                return FAIL
            lists = (lists << 1) | (1 if byte == OPEN_LIST else 0)
            at = skip_space(at + 1)
            if load_byte(at) != (CLOSE_LIST if lists & 1 else CLOSE_OBJECT):
                at = at if lists & 1 else _skip_key(context, at, end)
                if at < 0:
                    return FAIL
                continue
        else:
            at = _skip_scalar(context, at, end)
            if at < 0:
                return FAIL
        at = skip_space(at)
        while load_byte(at) == (CLOSE_LIST if lists & 1 else CLOSE_OBJECT):
            depth -= 1
            lists >>= 1
            at += 1
            if at >= end:
                return FAIL
            if depth == 0:
                return at
            at = skip_space(at)
        if load_byte(at) != COMMA:
            return FAIL
        at = skip_space(at + 1)
        at = at if lists & 1 else _skip_key(context, at, end)
        if at < 0:
            return FAIL
