"""Strings of JSON inside kernels: where they end, whether they are valid, their text, their hash.

`end` is the address after the record, whose last byte is `}`. Bytes from `end` on may be read, PADDING of them, but
must never change a result.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.layout import (
    CTX_POOL,
    CTX_TEXT,
    CTX_TEXT_BYTES,
    FAIL,
    FIELD_PREFIX,
    FIELD_PREFIX_LENGTH,
    FIELD_PREFIX_ROUNDS,
    FIELD_PREFIX_TAIL,
    FIELD_PREFIX_TAIL_MASK,
)
from stream_learner.core.machine.hashing import (
    P1,
    P4,
    P5,
    avalanche,
    not_zero,
    rotate_left,
    take_byte,
    take_half,
    take_word,
    xxh64_at,
)
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    load_byte,
    load_i64,
    load_u64,
    special_bytes,
    store_byte,
    store_u64,
    trailing_zeros,
)

QUOTE, BACKSLASH = 0x22, 0x5C
SHORT = 32
"""XXH64 takes fewer bytes than these word by word."""

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_BYTE = np.uint64(0xFF)
_0 = np.uint64(0)
_8 = np.uint64(8)
_16 = np.uint64(16)
_27 = np.uint64(27)
_32 = np.uint64(32)

_HEX = np.full(256, -1, np.int64)
for _digit in b"0123456789abcdefABCDEF":
    _HEX[_digit] = int(chr(_digit), 16)
_PLAIN_ESCAPES = np.full(256, -1, np.int64)
for _letter, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _PLAIN_ESCAPES[_letter] = _meaning


@inlined
def find_special(at: int, end: int) -> int:
    """Address of the first byte from `at` on that ends plain text (`special_bytes`), or one not below `end`."""
    marks = special_bytes(at)
    while marks == 0:
        at += 16
        if at >= end:
            return at
        marks = special_bytes(at)
    return at + trailing_zeros(marks)


@kernel
def character_bytes(at: int) -> int:
    """Length of the UTF-8 sequence at an address whose byte is not ASCII; 0 if it is invalid (RFC 3629)."""
    lead = load_byte(at)
    second = load_byte(at + 1)
    word = load_u64(at)
    if lead < 0xC2:
        return 0
    if lead < 0xE0:
        return 2 if second & 0xC0 == 0x80 else 0
    if lead < 0xF0:
        low = 0xA0 if lead == 0xE0 else 0x80
        high = 0x9F if lead == 0xED else 0xBF
        tails = word & np.uint64(0xC00000) == np.uint64(0x800000)
        return 3 if tails and low <= second <= high else 0
    if lead < 0xF5:
        low = 0x90 if lead == 0xF0 else 0x80
        high = 0x8F if lead == 0xF4 else 0xBF
        tails = word & np.uint64(0xC0C00000) == np.uint64(0x80800000)
        return 4 if tails and low <= second <= high else 0
    return 0


@kernel
def string_end(at: int, end: int) -> int:
    """Address of the closing quote or the first backslash of a string, whichever comes first, from any place in it.

    FAIL for control characters, invalid UTF-8, or a string without an end.
    """
    while True:
        at = find_special(at, end)
        if at >= end:
            return FAIL
        byte = load_byte(at)
        if byte == QUOTE or byte == BACKSLASH:
            return at
        while byte >= 0x80:
            length = character_bytes(at)
            if length == 0:
                return FAIL
            at += length
            byte = load_byte(at)
        if byte < 0x20:
            return FAIL


@kernel
def _read_hex(at: int) -> int:
    """The number that the four hexadecimal digits at an address are; negative if they are none."""
    high = (_HEX[load_byte(at)] << 12) | (_HEX[load_byte(at + 1)] << 8)
    return high | (_HEX[load_byte(at + 2)] << 4) | _HEX[load_byte(at + 3)]


@kernel
def _write_character(code: int, out: int) -> int:
    """Write a code point as UTF-8. Returns the address after it."""
    if code < 0x80:
        store_byte(out, code)
        return out + 1
    if code < 0x800:
        store_byte(out, 0xC0 | (code >> 6))
        store_byte(out + 1, 0x80 | (code & 0x3F))
        return out + 2
    if code < 0x10000:
        store_byte(out, 0xE0 | (code >> 12))
        store_byte(out + 1, 0x80 | ((code >> 6) & 0x3F))
        store_byte(out + 2, 0x80 | (code & 0x3F))
        return out + 3
    store_byte(out, 0xF0 | (code >> 18))
    store_byte(out + 1, 0x80 | ((code >> 12) & 0x3F))
    store_byte(out + 2, 0x80 | ((code >> 6) & 0x3F))
    store_byte(out + 3, 0x80 | (code & 0x3F))
    return out + 4


@kernel
def _read_escape(at: int) -> tuple[int, int]:
    """Code point of the escape whose backslash is at `at`, and the address after it; (-1, at) if it is invalid."""
    letter = load_byte(at + 1)
    if letter != 0x75:
        return _PLAIN_ESCAPES[letter], at + 2
    code = _read_hex(at + 2)
    if code < 0 or code & 0xFC00 == 0xDC00:
        return -1, at
    if code & 0xFC00 != 0xD800:
        return code, at + 6
    low = _read_hex(at + 8)
    if load_byte(at + 6) != BACKSLASH or load_byte(at + 7) != 0x75 or low < 0 or low & 0xFC00 != 0xDC00:
        return -1, at
    return 0x10000 + ((code & 0x3FF) << 10) + (low & 0x3FF), at + 12


@kernel
def unescape(at: int, end: int, out: int, room: int) -> tuple[int, int]:
    """Write the text of the string that begins at `at` to `out`: (bytes written, address of the closing quote).

    (0, FAIL) if the string is invalid, or its text is longer than `room` - 32 bytes.
    """
    start = out
    while out - start < room - 32:
        plain = min(trailing_zeros(special_bytes(at)), 16)
        store_u64(out, load_u64(at))
        store_u64(out + 8, load_u64(at + 8))
        out += plain
        at += plain
        if at >= end:
            return 0, FAIL
        if plain == 16:
            continue
        byte = load_byte(at)
        if byte == QUOTE:
            return out - start, at
        if byte == BACKSLASH:
            code, at = _read_escape(at)
            if code < 0 or at >= end:
                return 0, FAIL
            out = _write_character(code, out)
        else:
            length = character_bytes(at) if byte >= 0x80 else 0
            if length == 0:
                return 0, FAIL
            store_u64(out, load_u64(at))
            out += length
            at += length
    return 0, FAIL


@kernel
def _hash_long(context: int, field: int, text: int, length: int) -> np.uint64:
    """XXH64 of prefix and text, of 32 bytes or more together, which are first copied to scratch space."""
    out = load_i64(context + CTX_TEXT) + load_i64(context + CTX_TEXT_BYTES)
    prefix = load_i64(context + CTX_POOL) + load_i64(field + FIELD_PREFIX)
    prefix_length = load_i64(field + FIELD_PREFIX_LENGTH)
    for i in range(0, prefix_length, 8):
        store_u64(out + i, load_u64(prefix + i))
    for i in range(0, length, 8):
        store_u64(out + prefix_length + i, load_u64(text + i))
    return xxh64_at(out, prefix_length + length)


@inlined
def _if(condition: bool, then: np.uint64, otherwise: np.uint64) -> np.uint64:
    """One of two words, chosen without a branch that the processor could predict wrongly."""
    return otherwise ^ ((then ^ otherwise) & (_0 - np.uint64(condition)))


@inlined
def _take_tail(state: np.uint64, word: np.uint64, left: int, even: bool) -> np.uint64:
    """XXH64's steps for the last 0 to 7 bytes, the lowest of a word.

    even: lengths are often the same from event to event, as those of strings are, so that branches are predicted and
    cost nothing. If not, as with digits, every step is made, and only the results of the needed ones are kept.
    """
    if left >= 4:
        state = take_half(state, word & _LOW_HALF)
        word >>= _32
        left -= 4
    if even:
        if left > 0:
            state = take_byte(state, word & _BYTE)
            if left > 1:
                state = take_byte(state, (word >> _8) & _BYTE)
                if left > 2:
                    state = take_byte(state, (word >> _16) & _BYTE)
        return state
    state = _if(left > 0, take_byte(state, word & _BYTE), state)
    state = _if(left > 1, take_byte(state, (word >> _8) & _BYTE), state)
    return _if(left > 2, take_byte(state, (word >> _16) & _BYTE), state)


@inlined
def _take_round(state: np.uint64, field: int, at: int) -> np.uint64:
    """XXH64's step for a whole word of the prefix."""
    return rotate_left(state ^ load_u64(field + FIELD_PREFIX_ROUNDS + at), _27) * P1 + P4


@inlined
def short_key(field: int, text: int, length: int, even: bool) -> np.uint64:
    """The key `XXH64(name=text)` of fewer than 32 bytes. The 7 bytes before the text must be readable.

    The prefix's last bytes are laid over the bytes before the text, so that the rest of the hash reads whole words of
    the record.
    """
    prefix_length = load_i64(field + FIELD_PREFIX_LENGTH)
    state = P5 + np.uint64(prefix_length + length)
    if prefix_length >= 8:
        state = _take_round(state, field, 0)
        if prefix_length >= 16:
            state = _take_round(state, field, 8)
            if prefix_length >= 24:
                state = _take_round(state, field, 16)
        prefix_length &= 7
    at = text - prefix_length
    left = prefix_length + length
    word = (load_u64(at) & load_u64(field + FIELD_PREFIX_TAIL_MASK)) | load_u64(field + FIELD_PREFIX_TAIL)
    if left >= 8:
        state = take_word(state, word)
        word = load_u64(at + 8)
        if left >= 16:
            state = take_word(state, word)
            word = load_u64(at + 16)
            if left >= 24:
                state = take_word(state, word)
                word = load_u64(at + 24)
    return not_zero(avalanche(_take_tail(state, word, left & 7, even)))


@inlined
def category_key(context: int, field: int, text: int, length: int, even: bool) -> np.uint64:
    """The key `XXH64(name=text)`. The 7 bytes before the text must be readable."""
    if load_i64(field + FIELD_PREFIX_LENGTH) + length >= SHORT:
        return not_zero(_hash_long(context, field, text, length))
    return short_key(field, text, length, even)
