"""Ordinary categories inside kernels: the text or digits of a field in a few instructions, and runs of such fields.

A category is ordinary if its text is plain or an integer of few digits, `name=text` is shorter than 32 bytes, and no
cross and no indicator asks for its field. Everything else is left to `scanner`, untouched: FAIL here means only that.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.keys import is_predicted
from stream_learner.core.events.fast.layout import FAIL
from stream_learner.core.events.fast.numbers import digit_count
from stream_learner.core.events.fast.strings import QUOTE, short_key
from stream_learner.core.events.fast.values import CLOSE_LIST, CLOSE_OBJECT, COMMA
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    load_byte,
    load_i64,
    prefetch_for_read,
    same_under_mask,
    special_bytes_32,
    store_byte,
    store_f64,
    store_i64,
    store_u64,
    trailing_zeros,
)

_AHEAD = 1024
"""The bytes of an event are asked for so far before they are read: its events lie back to back."""
_STEADY = 16
"""The length of a text is predicted once it has been the same so often in a row."""
_TOP = np.uint64(1 << 63)
_0 = np.uint64(0)


@inlined
def _note_length(field: int, length: int) -> None:
    """Note the length of a text that was not predicted."""
    times = load_i64(field + lay.FIELD_TIMES) + 1
    if length != load_i64(field + lay.FIELD_LAST_LENGTH) or length >= lay.NO_LENGTH:
        times = 0
    store_i64(field + lay.FIELD_TIMES, times)
    store_i64(field + lay.FIELD_LAST_LENGTH, length)
    store_i64(field + lay.FIELD_LENGTH, length if times >= _STEADY else lay.NO_LENGTH)


@inlined
def _ordinary_key(field: int, at: int, end: int) -> tuple[int, np.uint64]:
    """The ordinary category at `at`: (address after it or FAIL, its key).

    A predicted length is only compared with the marks of the text, so that the next field need not wait for them.
    """
    byte = load_byte(at)
    steady = False
    if byte == QUOTE:
        text = at + 1
        marks = special_bytes_32(text)
        length = load_i64(field + lay.FIELD_LENGTH)
        steady = marks << np.uint64(63 - length) == _TOP
        if not steady:
            length = trailing_zeros(marks)
            _note_length(field, length)
        behind = text + length + 1
        if length > load_i64(field + lay.FIELD_TEXT_ROOM) or behind > end or load_byte(behind - 1) != QUOTE:
            return FAIL, _0
    else:
        text = at
        length = digit_count(text)
        behind = text + length
        if length == 0 or length > load_i64(field + lay.FIELD_DIGITS_ROOM) or (byte == 0x30 and length > 1):
            return FAIL, _0
        follows = load_byte(behind)
        if follows != COMMA and follows != CLOSE_OBJECT and follows != CLOSE_LIST:
            return FAIL, _0
    if steady:
        return behind, short_key(field, text, length, True)
    return behind, short_key(field, text, length, False)


@inlined
def take_ordinary(context: int, field: int, at: int, end: int) -> int:
    """Add the feature of the ordinary category at `at`. Returns the address after it, or FAIL."""
    count = load_i64(context + lay.CTX_COUNT)
    if count >= load_i64(context + lay.CTX_MAX_FEATURES):
        return FAIL
    behind, key = _ordinary_key(field, at, end)
    if behind >= 0:
        store_u64(load_i64(context + lay.CTX_ROW_KEYS) + 8 * count, key)
        store_f64(load_i64(context + lay.CTX_ROW_VALUES) + 8 * count, 1.0)
        store_byte(load_i64(context + lay.CTX_ROW_COUNTED) + count, load_i64(field + lay.FIELD_COUNTED))
        store_i64(context + lay.CTX_COUNT, count + 1)
    return behind


@inlined
def begins_run(fields: int, previous: int, at: int) -> bool:
    """Whether a comma is at `at`, and behind it the field that is predicted after `previous`, as far as one look shows.

    fields: address of the entries.
    """
    return load_byte(at) == COMMA and same_under_mask(at + 1, fields + load_i64(fields + previous + lay.FIELD_NEXT))


@kernel
def take_run(context: int, at: int, end: int, parent: int, previous: int, object_number: int) -> tuple[int, int]:
    """Take fields from the comma at `at` on, as long as they are predicted and ordinary.

    Returns the address after the last of them, and its offset; `at` and `previous` if there is none. It calls nothing,
    so that its state stays in registers: through the context, a field takes a tenth longer.
    """
    fields = load_i64(context + lay.CTX_FIELDS)
    most = load_i64(context + lay.CTX_MAX_FEATURES)
    keys, values = load_i64(context + lay.CTX_ROW_KEYS), load_i64(context + lay.CTX_ROW_VALUES)
    counted = load_i64(context + lay.CTX_ROW_COUNTED)
    count = load_i64(context + lay.CTX_COUNT)
    while load_byte(at) == COMMA and count < most:
        field = fields + load_i64(fields + previous + lay.FIELD_NEXT)
        if not is_predicted(context, field, parent, at + 1) or load_i64(field + lay.FIELD_SEEN) == object_number:
            break
        value = at + 1 + load_i64(field + lay.FIELD_PATTERN_LENGTH)
        if value >= end:
            break
        prefetch_for_read(value + _AHEAD)
        behind, key = _ordinary_key(field, value, end)
        if behind < 0:
            break
        store_i64(field + lay.FIELD_SEEN, object_number)
        store_u64(keys + 8 * count, key)
        store_f64(values + 8 * count, 1.0)
        store_byte(counted + count, load_i64(field + lay.FIELD_COUNTED))
        count += 1
        previous = field - fields
        at = behind
    store_i64(context + lay.CTX_COUNT, count)
    return at, previous
