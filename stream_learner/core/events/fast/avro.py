"""Avro records to the JSON that they stand for, by a program that `avro_program` makes of their schema.

The program is steps of STEP_BYTES in a row, named by their offsets from its begin. A step writes its text, which is
what stands in the JSON before its value (`,"site":`), reads one value of the record, writes it, and goes on at NEXT:

    OPERATION | NEXT | TEXT (offset) | LENGTH of the text | A | B      i64 each

| operation | reads | A, B |
|---|---|---|
| NOTHING | nothing, as null does | |
| END | nothing: the record must end here | |
| UNION | the number of a branch, below A | B: offset of i64[A], the first step of each |
| ENUM | the number of a symbol, below A | B: offset of i64[A, 2], offset and length of each text |
| BOOLEAN, LONG, DATE, STRING | what they say | |
| DOUBLE, FLOAT | a float64, a float32 | A: whether one that is not finite is left to the definition |
| BYTES | bytes, written as base64 | A: how many; -1 if their length stands before them |
| UUID | 16 bytes | |
| DECIMAL | bytes, as BYTES | B: its digits behind the point |
| MOMENT | a long | A: TO_NANOS, TO_MICROS, TO_MILLIS; B: how it is written, AS_NUMBER and so on |
| OPEN | nothing; what follows is elements | |
| ELEMENTS | the next element of an array or map, or its end | A: the first step of an element; B: whether a map |

The text must be what `schemas.to_json` writes for what fastavro reads. At anything else, FAIL: then the record goes to
those two. Kernels read at most PADDING bytes after a record, which never change a result. They write at most SLACK
bytes beyond the limit that they are given.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.layout import FAIL
from stream_learner.core.events.fast.number_text import (
    write_byte,
    write_digits,
    write_float,
    write_float32,
    write_integer,
)
from stream_learner.core.events.fast.numbers import nearest_float
from stream_learner.core.events.fast.strings import QUOTE, character_bytes
from stream_learner.core.events.reference import MAX_TIME_MS
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    load_byte,
    load_f64,
    load_i64,
    load_u32_at,
    load_u64,
    special_bytes,
    store_byte,
    store_i64,
    store_u64,
    trailing_zeros,
)

NEXT, TEXT, LENGTH, A, B = 8, 16, 24, 32, 40
STEP_BYTES = 48
NOTHING, END, UNION, ENUM, BOOLEAN, LONG, FLOAT, DATE, STRING = range(9)
DOUBLE, BYTES, UUID, DECIMAL, MOMENT, OPEN, ELEMENTS = range(9, 16)
TO_NANOS, TO_MICROS, TO_MILLIS = range(3)
AS_NUMBER, AS_MS, AS_US, AS_S, AS_ISO = range(5)

MOST_DEEP = 32
"""Most records, arrays and maps inside each other."""
FRAME_BYTES = 5
SLACK = 128
"""More than a value takes that is no text, and the rest of a word behind a text."""
NO_ROOM = -2

# What `transcode` is given: offsets in a block of words. IDS and PROGRAMS: addresses of the schemas' ids and of the
# programs' addresses, COUNT of them. FRAME: bytes before a record. OUT to LIMIT is where text goes, SLACK less than
# there is room. STACK: i64[MOST_DEEP + 1].
(
    CTX_IDS,
    CTX_PROGRAMS,
    CTX_COUNT,
    CTX_FRAME,
    CTX_MOST_BYTES,
    CTX_MOST_TEXT,
    CTX_OUT,
    CTX_LIMIT,
    CTX_STACK,
    CTX_STOPPED_BY,
) = range(0, 80, 8)

_COMMA, _COLON, _MINUS, _EQUALS, _T = 0x2C, 0x3A, 0x2D, 0x3D, 0x54
_NULL = np.uint64(int.from_bytes(b"null", "little"))
_TRUE = np.uint64(int.from_bytes(b"true", "little"))
_FALSE = np.uint64(int.from_bytes(b"false", "little"))
_UTC = np.uint64(int.from_bytes(b'+00:00"', "little"))
_0, _1 = np.uint64(0), np.uint64(1)
_EXACT = 1 << 53
_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FLOAT_INFINITY = 0x7F800000

_SHORT_ESCAPES = dict(zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True))
_ESCAPES = [
    b"\\" + bytes([_SHORT_ESCAPES[code]]) if code in _SHORT_ESCAPES else b"\\u%04x" % code for code in range(128)
]
_ESCAPE_TEXTS = np.array([int.from_bytes(text, "little") for text in _ESCAPES], np.uint64)
_ESCAPE_LENGTHS = np.array([len(text) for text in _ESCAPES], np.int64)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@inlined
def _read_long(at: int, end: int) -> tuple[int, int]:
    """The long at `at`, and the address after it or FAIL."""
    bits, shift = _0, 0
    while at < end:
        byte = load_byte(at)
        at += 1
        bits |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            good = shift < 63 or byte < 2
            return np.int64(bits >> _1) ^ -np.int64(bits & _1), at if good else FAIL
        shift += 7
        if shift > 63:
            break
    return 0, FAIL


@inlined
def _copy(text: int, length: int, out: int) -> int:
    """Copy text by words of 16 bytes, the last of them whole. Returns the address after it."""
    behind = out + length
    while out < behind:
        store_u64(out, load_u64(text))
        store_u64(out + 8, load_u64(text + 8))
        out += 16
        text += 16
    return behind


@kernel
def _write_string(at: int, stop: int, out: int) -> int:
    """Write UTF-8 in quotes, with escapes: at most six times its bytes, and 2. FAIL if it is invalid."""
    out = write_byte(QUOTE, out)
    while at < stop:
        plain = min(trailing_zeros(special_bytes(at)), 16, stop - at)
        store_u64(out, load_u64(at))
        store_u64(out + 8, load_u64(at + 8))
        out += plain
        at += plain
        if at >= stop or plain == 16:
            continue
        byte = load_byte(at)
        if byte < 0x80:
            store_u64(out, _ESCAPE_TEXTS[byte])
            out += _ESCAPE_LENGTHS[byte]
            at += 1
        while byte >= 0x80:
            length = character_bytes(at)
            if length == 0 or at + length > stop:
                return FAIL
            store_u64(out, load_u64(at))
            out += length
            at += length
            byte = load_byte(at) if at < stop else 0
    return write_byte(QUOTE, out)


@kernel
def _write_base64(at: int, stop: int, out: int) -> int:
    out = write_byte(QUOTE, out)
    while at < stop:
        left = stop - at
        bits = load_byte(at) << 16
        if left > 1:
            bits |= load_byte(at + 1) << 8
        if left > 2:
            bits |= load_byte(at + 2)
        store_byte(out, _BASE64[bits >> 18])
        store_byte(out + 1, _BASE64[bits >> 12 & 63])
        store_byte(out + 2, _BASE64[bits >> 6 & 63] if left > 1 else _EQUALS)
        store_byte(out + 3, _BASE64[bits & 63] if left > 2 else _EQUALS)
        at += 3
        out += 4
    return write_byte(QUOTE, out)


@kernel
def _write_uuid(at: int, out: int) -> int:
    out = write_byte(QUOTE, out)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out = write_byte(_MINUS, out)
        byte = load_byte(at + i)
        store_byte(out, _HEX[byte >> 4])
        out = write_byte(_HEX[byte & 15], out + 1)
    return write_byte(QUOTE, out)


@kernel
def _write_day(day: int, out: int) -> int:
    """YYYY-MM-DD of a day since 1970 from the year 1 to 9999, by Hinnant, "chrono-compatible low-level date algorithms"
    (2021), `civil_from_days`: years there begin in March.
    """
    day += 719_468
    era = day // 146_097
    of_era = day - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    out = write_digits(np.uint64(year + era * 400 + (month >= 10)), 4, out)
    out = write_digits(np.uint64(month + 3 if month < 10 else month - 9), 2, write_byte(_MINUS, out))
    return write_digits(np.uint64(of_year - (153 * month + 2) // 5 + 1), 2, write_byte(_MINUS, out))


@kernel
def _write_iso(micros: int, out: int) -> int:
    """`datetime.isoformat` of microseconds since 1970 in UTC."""
    day = micros // _DAY_US
    rest = micros - day * _DAY_US
    out = write_byte(_T, _write_day(day, write_byte(QUOTE, out)))
    out = write_byte(_COLON, write_digits(np.uint64(rest // 3_600_000_000), 2, out))
    out = write_byte(_COLON, write_digits(np.uint64(rest // 60_000_000 % 60), 2, out))
    out = write_digits(np.uint64(rest // 1_000_000 % 60), 2, out)
    if rest % 1_000_000 != 0:
        out = write_digits(np.uint64(rest % 1_000_000), 6, write_byte(0x2E, out))
    store_u64(out, _UTC)
    return out + 7


@inlined
def _write_null(out: int) -> int:
    store_u64(out, _NULL)
    return out + 4


@kernel
def _write_moment(value: int, scale: int, how: int, out: int) -> int:
    """Write a `Moment`: its number, or what its `written` gives for a unit. FAIL where that is not exact here."""
    if scale == TO_NANOS:
        value //= 1000
    millis = value if scale == TO_MILLIS else value // 1000
    if how == AS_NUMBER:
        if scale == TO_MILLIS or value == millis * 1000:
            return write_integer(millis, out)
        return write_float(np.float64(value) / 1000.0, out) if -_EXACT < value < _EXACT else FAIL
    if not 0 <= millis <= MAX_TIME_MS:
        return _write_null(out)
    if how == AS_MS:
        return write_integer(millis, out)
    if how == AS_S:
        return write_float((np.float64(millis) + 0.5) / 1000.0, out)
    micros = value * 1000 if scale == TO_MILLIS else value
    return write_integer(micros, out) if how == AS_US else _write_iso(micros, out)


@kernel
def _write_decimal(at: int, stop: int, scale: int, out: int) -> int:
    """Write a decimal number of at most 64 bits. FAIL for others, and where the nearest float64 is in doubt."""
    negative = at < stop and load_byte(at) >= 0x80
    while stop - at > 8 and load_byte(at) == (0xFF if negative else 0):
        at += 1
    number = -1 if negative else 0
    if stop - at > 8 or (stop - at == 8 and (load_byte(at) >= 0x80) != negative):
        return FAIL
    while at < stop:
        number = number << 8 | load_byte(at)
        at += 1
    if scale == 0:
        return write_integer(number, out)
    value, certain = nearest_float(np.uint64(number) if number >= 0 else _0 - np.uint64(number), -scale)
    return write_float(-value if number < 0 else value, out) if certain else FAIL


@inlined
def _take_string(at: int, end: int, out: int, limit: int) -> tuple[int, int]:
    """Read a string, and write it: (addresses, or FAIL; NO_ROOM)."""
    length, at = _read_long(at, end)
    if at < 0 or not 0 <= length <= end - at:
        return at, FAIL
    if out + 6 * length > limit:
        return at, NO_ROOM
    at += length
    return at, _write_string(at - length, at, out)


@inlined
def _begin_entry(step: int, at: int, end: int, out: int, limit: int) -> tuple[int, int]:
    """Begin an element that is not the first with a comma, one of a map with its key: (addresses, or FAIL; NO_ROOM)."""
    before = load_byte(out - 1)
    if before != 0x5B and before != 0x7B:
        out = write_byte(_COMMA, out)
    if load_i64(step + B) != 0:
        at, out = _take_string(at, end, out, limit)
        if out >= 0:
            out = write_byte(_COLON, out)
    return at, out


@kernel
def _write_record(context: int, program: int, at: int, end: int, out: int, limit: int) -> int:
    """Write the JSON of the record from `at` to `end`. Returns the address after it, FAIL or NO_ROOM."""
    stack = load_i64(context + CTX_STACK)
    step = program
    while True:
        length = load_i64(step + LENGTH)
        if out + length > limit:
            return NO_ROOM
        out = _copy(program + load_i64(step + TEXT), length, out)
        operation = load_i64(step)
        a = load_i64(step + A)
        then = load_i64(step + NEXT)
        if operation == UNION or operation == ENUM:
            number, at = _read_long(at, end)
            if at < 0 or not 0 <= number < a:
                return FAIL
            if operation == UNION:
                then = load_i64(program + load_i64(step + B) + 8 * number)
            else:
                symbol = program + load_i64(step + B) + 16 * number
                length = load_i64(symbol + 8)
                if out + length > limit:
                    return NO_ROOM
                out = _copy(program + load_i64(symbol), length, out)
        elif operation == STRING:
            at, out = _take_string(at, end, out, limit)
        elif operation == LONG:
            number, at = _read_long(at, end)
            out = write_integer(number, out)
        elif operation == DOUBLE:
            at += 8
            if at > end:
                return FAIL
            value = load_f64(at - 8)
            if np.isfinite(value):
                out = write_float(value, out)
            else:
                out = FAIL if a else _write_null(out)
        elif operation == FLOAT:
            at += 4
            if at > end:
                return FAIL
            bits = np.int64(load_u32_at(at, -4))
            if bits & _FLOAT_INFINITY != _FLOAT_INFINITY:
                out = write_float32(bits, out)
            else:
                out = FAIL if a else _write_null(out)
        elif operation == BOOLEAN:
            at += 1
            if at > end:
                return FAIL
            byte = load_byte(at - 1)
            store_u64(out, _TRUE if byte else _FALSE)
            out = out + 5 - byte if byte < 2 else FAIL
        elif operation == ELEMENTS:
            left = load_i64(stack)
            if left == 0:
                left, at = _read_long(at, end)
                if left < 0:
                    left = -left
                    at = _read_long(at, end)[1] if at >= 0 else FAIL
                if at < 0 or not 0 <= left <= end - at:
                    return FAIL
            if left > 0:
                store_i64(stack, left - 1)
                then = a
                at, out = _begin_entry(step, at, end, out, limit)
            else:
                stack -= 8
        elif operation == OPEN:
            stack += 8
            store_i64(stack, 0)
        elif operation == MOMENT:
            number, at = _read_long(at, end)
            out = _write_moment(number, a, load_i64(step + B), out)
        elif operation == DATE:
            number, at = _read_long(at, end)
            if not _FIRST_DAY <= number <= _LAST_DAY:
                return FAIL
            out = write_byte(QUOTE, _write_day(number, write_byte(QUOTE, out)))
        elif operation == BYTES or operation == DECIMAL:
            length = a
            if length < 0:
                length, at = _read_long(at, end)
            if at < 0 or not 0 <= length <= end - at:
                return FAIL
            if out + 2 * length > limit:
                return NO_ROOM
            at += length
            if operation == BYTES:
                out = _write_base64(at - length, at, out)
            else:
                out = _write_decimal(at - length, at, load_i64(step + B), out)
        elif operation == UUID:
            at += 16
            if at > end:
                return FAIL
            out = _write_uuid(at - 16, out)
        elif operation == END:
            return out if at == end else FAIL
        if at < 0 or out < 0:
            return FAIL if at < 0 else out
        step = program + then


@inlined
def _id_at(at: int) -> int:
    """The schema id of the frame at `at`; 2^32 or more if this is no frame."""
    schema_id = 0
    for i in range(FRAME_BYTES):
        schema_id = schema_id << 8 | load_byte(at + i)
    return schema_id


@inlined
def _program_of(context: int, schema_id: int) -> int:
    """The address of a schema's program; 0 if it has none."""
    ids = load_i64(context + CTX_IDS)
    for i in range(load_i64(context + CTX_COUNT)):
        if load_i64(ids + 8 * i) == schema_id:
            return load_i64(load_i64(context + CTX_PROGRAMS) + 8 * i)
    return 0


@entry
def find_ids(data: int, bounds: int, n: int, found: int) -> int:
    """Write the schema ids of n framed records to i64[n], one that is as before only once: how many it wrote."""
    count, before = 0, -1
    for i in range(n):
        at, end = data + load_i64(bounds + 8 * i), data + load_i64(bounds + 8 * i + 8)
        if end - at < FRAME_BYTES or load_byte(at) != 0:
            continue
        schema_id = _id_at(at)
        if schema_id != before:
            store_i64(found + 8 * count, schema_id)
            count += 1
            before = schema_id
    return count


@entry
def transcode(context: int, data: int, bounds: int, lengths: int, first: int, last: int) -> int:
    """Write the JSON of records first to last - 1 to CTX_OUT, up to one at which it must stop.

    data: address that bounds count from; bounds: address of i64 offsets; lengths: address of i64, where the length of
    each text goes. Returns the number of the record it stopped at, for the reason in CTX_STOPPED_BY (FAIL or NO_ROOM);
    or `last`. CTX_OUT is the address after the last text.
    """
    out, limit = load_i64(context + CTX_OUT), load_i64(context + CTX_LIMIT)
    frame = load_i64(context + CTX_FRAME)
    known, program = np.int64(-1), np.int64(0)
    for i in range(first, last):
        at, end = data + load_i64(bounds + 8 * i), data + load_i64(bounds + 8 * i + 8)
        behind = FAIL
        if frame <= end - at <= load_i64(context + CTX_MOST_BYTES):
            schema_id = _id_at(at) if frame > 0 else 0
            if schema_id != known:
                known, program = schema_id, _program_of(context, schema_id)
            if program != 0:
                behind = _write_record(context, program, at + frame, end, out, limit)
        if behind >= 0 and behind - out > load_i64(context + CTX_MOST_TEXT):
            behind = FAIL
        if behind < 0:
            store_i64(context + CTX_STOPPED_BY, behind)
            return i
        store_i64(lengths + 8 * i, behind - out)
        out = behind
        store_i64(context + CTX_OUT, out)
    return last
