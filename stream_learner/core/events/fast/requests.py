"""Finds the events of a request: `{"instances": [event, event, …], …}`, found without parsing them.

An unusual object (an escape in a key, the key twice, no array there) is left to a parser. This file never decides
whether an element is JSON; the decoder of the element does.

The whole object is JSON if two things are: the object with the array emptied, and every element. For between elements
only one comma and white space are accepted, and an element ends where its own brackets and quotes end. An element with
mixed-up brackets also ends somewhere, and then it is not JSON itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import (
    buffer_address,
    load_byte,
    load_i64,
    load_u64,
    places_of_byte,
    store_byte,
    store_i64,
    store_u64,
    trailing_zeros,
)

UNUSUAL = -1
_QUOTE, _ESCAPE, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
_BLOCK = 64
_0, _1, _LAST = np.uint64(0), np.uint64(1), np.uint64(_BLOCK - 1)
_SPAN = 3
"""How many numbers tell where the array is, and what is in it."""
_LEAST_ELEMENT = 2
"""Least bytes of an element and the comma after it."""


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of the array: element i is data[bounds[i]:bounds[i+1]], data u8[m], bounds i64[n+1].

    any_text: whether an element is a string. rest: the bytes of the object with the array emptied.
    """

    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    any_text: bool
    rest: bytes

    def __len__(self) -> int:
        return len(self.bounds) - 1


class TooManyElements(ValueError):
    """The array has more elements than the caller allows; `count` says how many."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} elements")
        self.count = count


def find_elements(text: bytes, key: bytes, most: int) -> Elements | None:
    """The elements of the array under `key`, a name without quotes or escapes; None if the object is unusual.

    `rest` and each element may still be invalid JSON. Raises TooManyElements for more than `most`.
    """
    if not text or not key:
        return None
    room = min(len(text) // _LEAST_ELEMENT + 1, most)
    places, data = np.empty(_SPAN + room + 1, np.int64), np.empty(len(text), np.uint8)
    span = buffer_address(places)
    names = buffer_address(key)
    count = take_elements(
        buffer_address(text), len(text), names, len(key), span + 8 * _SPAN, room, buffer_address(data), span
    )
    if count < 0:
        return None
    if count > room:
        raise TooManyElements(count)
    begin, end, any_text = places[:_SPAN].tolist()
    bounds = places[_SPAN : _SPAN + count + 1]
    return Elements(data[: bounds[count]], bounds, any_text != 0, text[:begin] + b"[]" + text[end:])


@kernel
def _copy(source: int, end: int, target: int) -> None:
    """Copy the bytes from one address up to another."""
    while source + 8 <= end:
        store_u64(target, load_u64(source))
        source += 8
        target += 8
    while source < end:
        store_byte(target, load_byte(source))
        source += 1
        target += 1


@kernel
def _skip_space(text: int, at: int, length: int) -> int:
    while at < length:
        byte = load_byte(text + at)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += 1
    return at


@kernel
def _byte_at(text: int, at: int, length: int) -> int:
    """The byte at an offset in the text, 0 past its end."""
    return load_byte(text + at) if at < length else 0


@kernel
def _skip_string(text: int, at: int, length: int) -> int:
    """The offset after the string whose opening quote is at `at`, or UNUSUAL."""
    at += 1
    while at < length:
        byte = load_byte(text + at)
        if byte == _QUOTE:
            return at + 1
        at += 2 if byte == _ESCAPE else 1
    return UNUSUAL


@kernel
def _skip_value(text: int, at: int, length: int) -> int:
    """The offset after the value that begins at `at`, or UNUSUAL."""
    first = _byte_at(text, at, length)
    if first == _QUOTE:
        return _skip_string(text, at, length)
    if first != _OPEN and first != _OPEN_LIST:
        return _skip_scalar(text, at, length)
    return _skip_nested(text, at, length)


@kernel
def _skip_nested(text: int, at: int, length: int) -> int:
    """The offset after the object or array that begins at `at`, or UNUSUAL.

    Takes 64 bytes at once, up to the first escape or the last bytes of the text.
    """
    depth = 0
    in_string = _0
    while at + _BLOCK <= length and places_of_byte(text + at, _ESCAPE) == _0:
        strings = _between_quotes(places_of_byte(text + at, _QUOTE)) ^ in_string
        brackets = _brackets(text + at) & ~strings
        while brackets != _0:
            place = at + trailing_zeros(brackets)
            byte = load_byte(text + place)
            depth += 1 if byte == _OPEN or byte == _OPEN_LIST else -1
            if depth == 0:
                return place + 1
            brackets &= brackets - _1
        in_string = _0 - (strings >> _LAST)
        at += _BLOCK
    if in_string != _0:
        at = _skip_string(text, at - 1, length)
    return _skip_bytes(text, at, length, depth)


@kernel
def _brackets(address: int) -> np.uint64:
    """The places of brackets among the 64 bytes at an address, one bit each."""
    opening = places_of_byte(address, _OPEN) | places_of_byte(address, _OPEN_LIST)
    return opening | places_of_byte(address, _CLOSE) | places_of_byte(address, _CLOSE_LIST)


@kernel
def _between_quotes(quotes: np.uint64) -> np.uint64:
    """From the places of quotes those from each odd one up to the next: a bit is the xor of all bits up to it."""
    for shift in (1, 2, 4, 8, 16, 32):
        quotes ^= quotes << np.uint64(shift)
    return quotes


@kernel
def _skip_bytes(text: int, at: int, length: int, depth: int) -> int:
    """The offset after the bracket that closes `depth` open ones, or UNUSUAL. at: outside of strings, or negative."""
    while 0 <= at < length:
        byte = load_byte(text + at)
        if byte == _QUOTE:
            at = _skip_string(text, at, length)
            continue
        at += 1
        if byte == _OPEN or byte == _OPEN_LIST:
            depth += 1
        elif byte == _CLOSE or byte == _CLOSE_LIST:
            depth -= 1
            if depth == 0:
                return at
    return UNUSUAL


@kernel
def _skip_scalar(text: int, at: int, length: int) -> int:
    start = at
    while at < length:
        byte = load_byte(text + at)
        if byte <= 0x20 or byte == _COMMA or byte == _CLOSE or byte == _CLOSE_LIST:
            break
        at += 1
    return at if at > start else UNUSUAL


@kernel
def _is_key(text: int, start: int, behind: int, name: int, name_length: int) -> bool:
    """Whether the string in [start, behind), quotes included, is the name."""
    if behind - start != name_length + 2:
        return False
    for i in range(name_length):
        if load_byte(text + start + 1 + i) != load_byte(name + i):
            return False
    return True


@kernel
def _has_escape(text: int, start: int, behind: int) -> bool:
    for at in range(start, behind):
        if load_byte(text + at) == _ESCAPE:
            return True
    return False


@kernel
def _list_elements(text: int, at: int, length: int, bounds: int, room: int, data: int, span: int) -> int:
    """Take the first `room` elements of the array at `at`. Returns the number of elements, or UNUSUAL.

    bounds, data, span: as in `take_elements`.
    """
    store_i64(span, at)
    store_i64(span + 16, 0)
    store_i64(bounds, 0)
    filled = 0
    at = _skip_space(text, at + 1, length)
    count = 0
    if _byte_at(text, at, length) != _CLOSE_LIST:
        while True:
            start = at
            if _byte_at(text, at, length) == _QUOTE:
                store_i64(span + 16, 1)
            at = _skip_value(text, at, length)
            if at < 0:
                return UNUSUAL
            count += 1
            if count <= room:
                _copy(text + start, text + at, data + filled)
                filled += at - start
                store_i64(bounds + 8 * count, filled)
            at = _skip_space(text, at, length)
            byte = _byte_at(text, at, length)
            if byte == _CLOSE_LIST:
                break
            if byte != _COMMA:
                return UNUSUAL
            at = _skip_space(text, at + 1, length)
    store_i64(span + 8, at + 1)
    return count


@entry
def take_elements(
    text: int, length: int, name: int, name_length: int, bounds: int, room: int, data: int, span: int
) -> int:
    """Copy the elements of the array under the name one behind the other. Returns how many there are, or UNUSUAL.

    bounds: address of i64[room+1], where they then begin and end; later elements are only counted. data: address of
    u8[length], where they are copied to. span: address of three i64: where the array begins and ends, and whether an
    element is a string.
    """
    at = _skip_space(text, 0, length)
    if _byte_at(text, at, length) != _OPEN:
        return UNUSUAL
    count = UNUSUAL
    while True:
        start = _skip_space(text, at + 1, length)
        if _byte_at(text, start, length) != _QUOTE:
            return UNUSUAL
        behind = _skip_string(text, start, length)
        if behind < 0 or _has_escape(text, start, behind):
            return UNUSUAL
        at = _skip_space(text, behind, length)
        if _byte_at(text, at, length) != _COLON:
            return UNUSUAL
        at = _skip_space(text, at + 1, length)
        if _is_key(text, start, behind, name, name_length):
            if count >= 0 or _byte_at(text, at, length) != _OPEN_LIST:
                return UNUSUAL
            count = _list_elements(text, at, length, bounds, room, data, span)
            if count < 0:
                return UNUSUAL
            at = load_i64(span + 8)
        else:
            at = _skip_value(text, at, length)
            if at < 0:
                return UNUSUAL
        at = _skip_space(text, at, length)
        byte = _byte_at(text, at, length)
        if byte == _CLOSE:
            return count if _skip_space(text, at + 1, length) == length else UNUSUAL
        if byte != _COMMA:
            return UNUSUAL
