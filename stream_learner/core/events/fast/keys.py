"""Keys of JSON objects inside kernels: predicted, or looked up by hash.

A hash only says where to compare: this file must never take one key for another.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.layout import FAIL
from stream_learner.core.events.fast.strings import QUOTE, string_end
from stream_learner.core.events.fast.values import COLON, skip_space
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_i64, load_u64, same_under_mask, store_i64

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_SHIFT = np.uint64(29)


@kernel
def _word_of(at: int, left: int) -> np.uint64:
    """The `left` bytes from an address on, at most 8, as a word with zeros after them."""
    word = load_u64(at)
    return word if left >= 8 else word & ~(_ALL << np.uint64(8 * left))


@entry
def key_hash(parent: int, key: int, length: int) -> int:
    """Hash of the offset of a field's parent and the bytes of its key."""
    state = np.uint64(parent + length) * _FACTOR
    for i in range(0, length, 8):
        state = (state ^ _word_of(key + i, length - i)) * _FACTOR
        state ^= state >> _SHIFT
    return np.int64(state >> np.uint64(20))


@kernel
def _same_bytes(a: int, b: int, length: int) -> bool:
    for i in range(0, length, 8):
        if _word_of(a + i, length - i) != _word_of(b + i, length - i):
            return False
    return True


@entry
def look_up(context: int, parent: int, key: int, length: int) -> int:
    """Offset of the field with this parent (an offset) and key, FAIL if it is not known."""
    fields = load_i64(context + lay.CTX_FIELDS)
    index = load_i64(context + lay.CTX_INDEX)
    pool = load_i64(context + lay.CTX_POOL)
    mask = load_i64(context + lay.CTX_INDEX_MASK)
    entry = key_hash(parent, key, length) & mask
    while True:
        field = load_i64(index + 8 * entry)
        if field < 0:
            return FAIL
        at = fields + field
        if load_i64(at + lay.FIELD_PARENT) == parent and load_i64(at + lay.FIELD_PATTERN_LENGTH) == length + 3:
            if _same_bytes(pool + load_i64(at + lay.FIELD_PATTERN) + 1, key, length):
                return field
        entry = (entry + 1) & mask


@kernel
def _may_skip(context: int, parent: int, key: int, length: int) -> bool:
    """Whether an unknown key inside this parent can be skipped."""
    unknown = load_i64(load_i64(context + lay.CTX_FIELDS) + parent + lay.FIELD_UNKNOWN)
    if unknown == lay.UNKNOWN_MATTERS_IF_DOTTED:
        for i in range(length):
            if load_byte(key + i) == 0x2E:
                return False
        return True
    return unknown == lay.UNKNOWN_IS_SKIPPED


@kernel
def find_field(context: int, parent: int, previous: int, at: int, end: int) -> tuple[int, int]:
    """The field whose key is at `at`, looked up by hash: (its offset or FAIL, address of its value).

    It becomes the field that is predicted after `previous`.
    """
    if load_byte(at) != QUOTE:
        return FAIL, at
    close = string_end(at + 1, end)
    if close < 0 or load_byte(close) != QUOTE:
        return FAIL, at
    behind = skip_space(close + 1)
    if load_byte(behind) != COLON:
        return FAIL, at
    field = look_up(context, parent, at + 1, close - at - 1)
    if field >= 0:
        store_i64(load_i64(context + lay.CTX_FIELDS) + previous + lay.FIELD_NEXT, field)
    elif _may_skip(context, parent, at + 1, close - at - 1):
        field = lay.IGNORED_FIELD
        store_i64(load_i64(context + lay.CTX_FIELDS) + field + lay.FIELD_SEEN, 0)
    else:
        store_i64(context + lay.CTX_STOPPED_BY, lay.UNKNOWN_FIELD)
    return field, skip_space(behind + 1)


@inlined
def is_predicted(context: int, field: int, parent: int, at: int) -> bool:
    """Whether the key and colon at `at` are those of this field (an address)."""
    if not same_under_mask(at, field + lay.FIELD_START) or load_i64(field + lay.FIELD_PARENT) != parent:
        return False
    length = load_i64(field + lay.FIELD_PATTERN_LENGTH)
    if length <= lay.PATTERN_BYTES:
        return True
    pattern = load_i64(context + lay.CTX_POOL) + load_i64(field + lay.FIELD_PATTERN)
    return _same_bytes(pattern + lay.PATTERN_BYTES, at + lay.PATTERN_BYTES, length - lay.PATTERN_BYTES)
