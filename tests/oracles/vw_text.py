"""Vowpal Wabbit's text, as the tool reads it: numbers, names, namespaces, n-grams, interactions.

In: lines of text and the options that make features. Out: examples as (index, value) in the tool's order. The
number type is an argument: `np.float32` is the tool's own arithmetic, `np.float64` the exact counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np

Real = type[np.floating[Any]]
Number = Any  # a value of the number type
Feature = tuple[int, Number]

CONSTANT = 11650396  # the index of the constant feature
_32 = 0xFFFFFFFF
_64 = 0xFFFFFFFFFFFFFFFF
_GRAM, _INTERACTION = 27942141, 16777619
_LEAST_POWER = -37  # of ten in float32


class VwExample(NamedTuple):
    """One line: label, importance, the features in the order in which the tool goes through them, and Σx²."""

    label: Number
    importance: Number
    features: list[Feature]
    squares: Number  # each namespace summed alone, then all of them: it shows in the last digits


@np.errstate(over="ignore", invalid="ignore")
def read_number(text: str, real: Real) -> Number:
    """Digit by digit in the number type, then times a power of ten. Infinity times 0 is 0 to the tool."""
    mantissa, _, exponent = text.lower().partition("e")
    if exponent.startswith("+"):  # the tool leaves such a number to the C library, which gives the nearest float
        return real(float(text))
    whole, _, decimals = mantissa.lstrip("+-").partition(".")
    value = real(0)
    for digit in whole + decimals[:35]:
        value = value * real(10) + real(int(digit))
    value = value * power_of_ten(int(exponent or "0") - len(decimals[:35]), real)
    if np.isnan(value):
        return real(0)
    return -value if text.startswith("-") else value


def power_of_ten(power: int, real: Real) -> Number:
    """Repeated steps of ten. In float32 the power is a signed byte to the tool, and 0 is what it has below 1e-37."""
    if real is np.float32:
        power = (power + 128) % 256 - 128
        if power < _LEAST_POWER:
            return real(0)
    scale = real(1)
    for _ in range(abs(power)):
        scale = scale * real(10) if power > 0 else scale / real(10)
    return scale


def _rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & _32


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3, x86, 32 bits."""
    h = seed & _32
    whole = len(data) & ~3
    blocks = [int.from_bytes(data[i : i + 4], "little") for i in range(0, whole, 4)]
    for k in blocks:
        h ^= _rotate(k * 0xCC9E2D51 & _32, 15) * 0x1B873593 & _32
        h = (_rotate(h, 13) * 5 + 0xE6546B64) & _32
    if data[whole:]:
        tail = int.from_bytes(data[whole:], "little")
        h ^= _rotate(tail * 0xCC9E2D51 & _32, 15) * 0x1B873593 & _32
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _32
    h = (h ^ h >> 13) * 0xC2B2AE35 & _32
    return h ^ h >> 16


def hash_name(name: str, seed: int) -> int:
    """All digits: their value plus the seed. Anything else: murmur3 of the bytes."""
    if name.isdigit() or not name:
        return (int(name or "0") + seed) & _64
    return murmur3(name.encode(), seed)


def _namespace(text: str, real: Real) -> tuple[str, list[Feature]]:
    """The first byte and the features of `name:scale feature:value …`; a feature of value 0 is dropped."""
    head, *words = text.split(" ")
    name, _, scale = head.partition(":")
    seed = hash_name(name, 0) if name else 0
    features = []
    for word in filter(None, words):
        feature, _, value = word.partition(":")
        x = (read_number(value, real) if value else real(1)) * (read_number(scale, real) if scale else real(1))
        if x != 0:
            features.append((hash_name(feature, seed), x))
    return name.encode()[:1].decode("latin-1") or " ", features


def _gram_offsets(more: int, skips: int, last: int = 0, step: int = 1) -> Iterator[tuple[int, ...]]:
    """Offsets of the further words of an n-gram with `more` of them, its skips shared out, the unskipped first."""
    if more == 0:
        yield ()
        return
    for rest in _gram_offsets(more - 1, skips, last + step):
        yield (last + step, *rest)
    if skips > 0:
        yield from _gram_offsets(more, skips - 1, last, step + 1)


def grams(features: Sequence[Feature], n: int, skips: int, real: Real) -> list[Feature]:
    """All 2- to n-grams of a namespace with up to `skips` words left out: a · 27942141 + b, value 1."""
    out = []
    for more in range(1, n):
        for offsets in _gram_offsets(more, skips):
            for i in range(len(features) - offsets[-1]):
                index = features[i][0]
                for offset in offsets:
                    index = (index * _GRAM + features[i + offset][0]) & _64
                out.append((index, real(1)))
    return out


def _pairs(a: list[Feature], b: list[Feature], same: bool) -> Iterator[tuple[Feature, Feature]]:
    return combinations_with_replacement(a, 2) if same else product(a, b)  # type: ignore[return-value]


def _ordered(pairs: Sequence[str]) -> list[tuple[str, str]]:
    """By bytes; of two with the same letters the first remains, with its letters as they are."""
    kept: list[tuple[str, str]] = []
    for pair in sorted(pairs):
        first, second = pair[0], pair[1]
        if (first, second) not in kept and (second, first) not in kept:
            kept.append((first, second))
    return kept


def interactions(by_letter: dict[str, list[Feature]], pairs: Sequence[str]) -> list[Feature]:
    """(16777619 · a) ⊕ b with the product of the values; a namespace with itself: every unordered pair."""
    out = []
    for first, second in _ordered(pairs):
        for (a, x), (b, z) in _pairs(by_letter.get(first, []), by_letter.get(second, []), first == second):
            out.append((a * _INTERACTION & _64 ^ b, x * z))
    return out


def read_line(line: str, real: Real, bits: int, ngram: int = 1, skips: int = 0, pairs: Sequence[str] = ()) -> VwExample:
    """One line of text. The constant comes after the namespaces and before the interactions."""
    head, *texts = line.split("|")
    fields = head.split()
    if head and not head.endswith(" "):
        fields.pop()  # a tag
    if not fields:
        raise ValueError(f"the oracle reads labelled examples only: {line[:60]!r}")
    by_letter: dict[str, list[Feature]] = {}
    for text in texts:
        letter, features = _namespace(text, real)
        if features:  # an empty namespace takes no place in the order
            by_letter.setdefault(letter, []).extend(features)
    for features in by_letter.values():
        features.extend(grams(list(features), ngram, skips, real))
    groups = [*by_letter.values(), [(CONSTANT, real(1))], interactions(by_letter, pairs)]
    mask = (1 << bits) - 1
    importance = read_number(fields[1], real) if len(fields) > 1 else real(1)
    every = [(i & mask, x) for group in groups for i, x in group]
    squares = sum((sum((x * x for _, x in group), real(0)) for group in groups), real(0))
    return VwExample(read_number(fields[0], real), importance, every, squares)
