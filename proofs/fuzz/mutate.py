"""Damages bytes, numbers in them, JSON, and sequences of records.

It knows no format of this project: a target corrects checksums and lengths afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

EXTREMES = (
    0, 1, 2, 3, 7, 8, 15, 16, 63, 64, 65, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**24, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1,
)  # fmt: skip
STRANGE = (
    b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xe2\x82", b"\\ud800",
    b"\\u0000", b"\\", b'"', b"{", b"}", b"[", b"]", b":", b",", b"-", b"e", b".", b"0", b"NaN", b"Infinity", b"1e999",
    b"-0", b"18446744073709551616", b"9223372036854775808", b"0.1e-400", b"null", b"true", b"\n", b"\r\n", b"\t",
    b"|", b"#", b"'", b" " * 17, b" " * 70,
)  # fmt: skip


def mutated(rng: Random, data: bytes, others: Sequence[bytes] = (b"",)) -> bytes:
    """The bytes after one to three mutations."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _OPERATIONS[rng.randrange(len(_OPERATIONS))](rng, data, others)
    return data


def _flip(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes((data[at] ^ (1 << rng.randrange(8)),)) + data[at + 1 :]


def _byte(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]


def _cut(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _leave_out(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 1, 2, 4, 8, 16)) :]


def _repeat(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 16, 40))
    return data[:at] + data[at : at + size] * rng.choice((2, 2, 3, 20)) + data[at + size :]


def _insert(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(STRANGE) + data[at:]


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def number_set(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The bytes with one little-endian number, mostly at a multiple of its size, set to an extreme."""
    size = rng.choice((1, 2, 4, 4, 8, 8))
    if len(data) < size:
        return data
    at = rng.randrange(len(data) - size + 1)
    at -= at % size if rng.random() < 0.8 else 0
    before = int.from_bytes(data[at : at + size], "little")
    number = rng.choice((rng.choice(EXTREMES), -rng.choice(EXTREMES), before + rng.choice((-1, 1, 2, -8, 8))))
    return data[:at] + (number % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


_OPERATIONS = (_flip, _byte, _cut, _leave_out, _repeat, _insert, _splice, number_set)


# ------------------------------------------------------------------------------------------------------ JSON

LEAVES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63), 1e308, 0.5, "", "x", "é", "\x00", [], {}, [1], ["a", 2],
    {"a": 1}, "1", "a" * 300,
)  # fmt: skip


def json_mutated(rng: Random, value: Any) -> Any:
    """A copy of a JSON value with one part changed, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.15:
            return {other: inner for other, inner in value.items() if other != name}
        if kind < 0.25:
            return {**value, rng.choice(("x", name + "x", "")): rng.choice(LEAVES)}
        return {**value, name: json_mutated(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        inner = rng.choice(([], [json_mutated(rng, value[at])], [value[at], value[at]]))
        return [*value[:at], *inner, *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.5:
        return mutated(rng, value.encode()).decode("utf-8", "ignore")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return rng.choice((-value, value + 1, value * 2, rng.choice(EXTREMES), value + 0.5))
    return rng.choice(LEAVES)


def json_bytes_mutated(rng: Random, text: bytes) -> bytes:
    """A JSON text changed as a value, if it is valid; most numbers beyond 64 bits keep their digits."""
    try:
        return json.dumps(json_mutated(rng, json.loads(text)), ensure_ascii=rng.random() < 0.2).encode()
    except (ValueError, RecursionError):
        return text


# ------------------------------------------------------------------------------------------------- sequences


def shuffled(rng: Random, items: Sequence[T]) -> list[T]:
    """A sequence with one to four of its items lost, repeated, or moved."""
    found = list(items)
    for _ in range(rng.randrange(1, 5)):
        if not found:
            break
        at, to = rng.randrange(len(found)), rng.randrange(len(found))
        kind = rng.randrange(5)
        if kind == 0:
            del found[at]
        elif kind == 1:
            found.insert(to, found[at])
        elif kind == 2:
            found.insert(to, found.pop(at))
        elif kind == 3:
            begin, end = sorted((at, to))
            del found[begin : min(end, begin + 4)]
        else:
            found[at], found[to] = found[to], found[at]
    return found
