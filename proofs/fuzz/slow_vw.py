"""A line of VW text read slowly, from the docstring of `evaluate/formats/vw/parser` and the texts of its faults.

The result is label, weight, features and tag; or FAULT; or None for a blank line. This file must never import the code
under test.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import xxhash

FAULT = "fault"
BIAS = 0xEF46DB3751D8E999
_NUMBER = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


class _Fault(Exception):
    """The line is left out."""


class SlowExample(NamedTuple):
    """label: None without one. features: key and value, namespaces of one first letter together, in
    the order in which each key came first."""

    label: float | None
    weight: float
    features: list[tuple[int, float]]
    tag: bytes


def read_line(line: bytes) -> SlowExample | str | None:
    """Read a line, with its line feed or without."""
    line = line.removesuffix(b"\n")
    if not line.strip(b" \t\r"):
        return None
    try:
        return _read(line)
    except _Fault:
        return FAULT


def _read(line: bytes) -> SlowExample:
    head, bar, rest = line.partition(b"|")
    if not bar or re.search(rb"[\t\r]", head):
        raise _Fault
    numbers, tag = _head(head)
    if len(numbers) > 3 or numbers[2:3] not in ([], [0.0]):
        raise _Fault
    if rest.endswith(b"\r"):
        rest = rest[:-1]
    if b"\r" in rest:
        raise _Fault
    letters: dict[bytes, list[tuple[int, float]]] = {}
    for space in rest.split(b"|"):
        if features := _namespace(space):
            letters.setdefault(re.match(rb"[^ \t]?", space)[0] or b" ", []).extend(features)  # type: ignore[index]
    sums: dict[int, float] = {}
    for features in letters.values():
        for key, value in features:
            sums[key] = sums[key] + value if key in sums else value
    sums[BIAS] = sums.get(BIAS, 0.0) + 1.0
    if not all(map(math.isfinite, sums.values())):
        raise _Fault
    label, weight = [*numbers[:2], *[None, None][len(numbers[:2]) :]]
    return SlowExample(label, 1.0 if weight is None else weight, list(sums.items()), tag)


def _head(head: bytes) -> tuple[list[float], bytes]:
    """Read numbers, each with a blank behind it; then a tag, which touches the bar or has a quote."""
    words, tag = [word for word in head.split(b" ") if word], b""
    if words and not head.endswith(b" "):
        tag = words.pop()
    elif words and not _NUMBER.fullmatch(words[-1]):
        tag = words.pop()
        if not tag.startswith(b"'"):
            raise _Fault
    return [_number(word) for word in words], tag.removeprefix(b"'")


def _number(text: bytes) -> float:
    if not _NUMBER.fullmatch(text) or math.isinf(float(text)):
        raise _Fault
    return float(text)


def _namespace(text: bytes) -> list[tuple[int, float]]:
    """Key and value of each feature that is not 0: XXH64 of `namespace^name`; one without a name counts by its place
    among those of this segment, as a cross of the namespace and that number."""
    words = re.split(rb"[ \t]", text)
    name, colon, scale_text = words[0].partition(b":")
    if colon and not name:
        raise _Fault
    scale = _number(scale_text) if colon else 1.0
    prefix, found, nameless = name + b"^" if name else b"", [], 0
    for word in filter(None, words[1:]):
        feature, colon, number = word.partition(b":")
        if colon and not _NUMBER.fullmatch(number):
            raise _Fault
        value = float(number) * scale if colon else scale
        if not math.isfinite(value):
            raise _Fault
        key = xxhash.xxh64_intdigest(prefix + feature)
        if not feature:
            key = xxhash.xxh64_intdigest(key.to_bytes(8, "little") + nameless.to_bytes(8, "little"))
            nameless += 1
        if value != 0.0:
            found.append((key, value))
    return found
