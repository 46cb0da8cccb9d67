"""Keys of VW text: where names end, their hashes, and the keys of n-grams and interactions; which of both there are.

Our keys are XXH64 of `namespace^name`, or of the name alone in the namespace without a name, so that such features have
the keys of events' fields. VW's are murmur3 (x86, 32 bits; Appleby) with the hash of the namespace as seed; the hash of
a name of digits is its number plus that seed.

The kernels read whole words: a text has 32 bytes of room before and behind it. Bytes that do not belong to a name are
masked away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_learner.core.events.fast.numbers import more_digits
from stream_learner.core.machine.hashing import (
    P5,
    avalanche,
    not_zero,
    take_byte,
    take_half,
    take_word,
    xxh64_at,
)
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_u32
from stream_learner.core.machine.words import (
    inlined,
    load_byte,
    load_int,
    load_word,
    store_byte,
    store_int,
    store_word,
    trailing_zeros,
)
from stream_learner.evaluate.formats.vw.layout import (
    GRAM_WIDTH,
    HASHING,
    NAMESPACE_AT,
    NAMESPACE_LENGTH,
    ORIGINAL,
    PREFIX,
    PREFIX_LENGTH,
    SEED,
)

_0 = np.uint64(0)
_4 = np.uint64(4)
_8 = np.uint64(8)
_32 = np.uint64(32)
_BYTE_MASK = np.uint64(0xFF)
_HALF_MASK = np.uint64(0xFFFFFFFF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_CARET = np.uint64(0x5E)
_BLANK = np.uint64(0x20)
_PREFIX_WORDS = 4
_GRAM = np.uint64(27942141)
_INTERACTION = np.uint64(16777619)
_M1 = np.uint64(0xCC9E2D51)
_M2 = np.uint64(0x1B873593)
_M3 = np.uint64(0xE6546B64)
_M4 = np.uint64(0x85EBCA6B)
_M5 = np.uint64(0xC2B2AE35)

_BYTES = ir.VectorType(ir.IntType(8), 16)


@intrinsic
def _marks(typingctx: Any, address: Any) -> Any:
    """A bit for each of 16 bytes from an address on: a blank or control character, a colon or a bar."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = builder.load(builder.inttoptr(args[0], _BYTES.as_pointer()), align=1)
        low = builder.icmp_unsigned("<=", text, _BYTES([0x20] * 16))
        colons = builder.icmp_unsigned("==", text, _BYTES([0x3A] * 16))
        bars = builder.icmp_unsigned("==", text, _BYTES([0x7C] * 16))
        marks = builder.or_(builder.or_(low, colons), bars)
        return builder.zext(builder.bitcast(marks, ir.IntType(16)), ir.IntType(64))

    return types.uint64(types.int64), codegen


@inlined
def ends_line(byte: int) -> bool:
    """Whether a byte ends a line."""
    return byte == 0x0A or byte == 0x0D


@inlined
def is_blank(byte: int) -> bool:
    """Whether a byte stands between features."""
    return byte == 0x20 or byte == 0x09


@inlined
def name_end(at: int) -> int:
    """The first blank, colon, bar or line end from an address on; a name may hold other control characters."""
    while True:
        marks = _marks(at)
        while marks == _0:
            at += 16
            marks = _marks(at)
        at += trailing_zeros(marks)
        byte = load_byte(at)
        if byte >= 0x20 or is_blank(byte) or ends_line(byte):
            return at
        at += 1


@kernel
def enter_namespace(state: int, at: int, length: int) -> None:
    """Begin a namespace: its name, which may be empty, is at this address."""
    store_int(state + NAMESPACE_AT, at)
    store_int(state + NAMESPACE_LENGTH, length)
    if load_int(state + HASHING) != 0:
        store_word(state + SEED, _seed(state, at, length))
        return
    store_int(state + PREFIX_LENGTH, length + 1 if length > 0 else 0)
    prefix = load_int(state + PREFIX)
    for i in range(_PREFIX_WORDS):
        word, mask = _0, _ALL
        here = length - 8 * i
        if length > 0 and here >= 8:
            word, mask = load_word(at + 8 * i), _0
        elif length > 0 and here >= 0:
            bits = np.uint64(8 * here)
            own = (np.uint64(1) << bits) - np.uint64(1)
            word = (load_word(at + 8 * i) & own) | (_CARET << bits)
            mask = ~((own << _8) | _BYTE_MASK)
        store_word(prefix + 8 * i, word)
        store_word(prefix + 8 * (_PREFIX_WORDS + i), mask)


@kernel
def name_key(state: int, at: int, length: int) -> np.uint64:
    """The key of a name of the current namespace. VW's keys have 64 bits here; `arrange` masks them at the end."""
    hashing = load_int(state + HASHING)
    if hashing == 2:
        return murmur3(at, length, load_word(state + SEED))
    if hashing == 1:
        return _hash_of_name(at, length, load_word(state + SEED))
    before = load_int(state + PREFIX_LENGTH)
    if before + length < 8 * _PREFIX_WORDS:
        return not_zero(_short_key(at - before, before + length, load_int(state + PREFIX)))
    if before == 0:
        return not_zero(xxh64_at(at, length))
    return _long_key(state, at, length)


@kernel
def nameless_key(state: int, at: int, length: int, number: int) -> np.uint64:
    """The key of a feature with an empty name, the `number`-th of its namespace from 0 on.

    Ours is the key of an interaction: of the key of the empty name, and the number.
    """
    if load_int(state + HASHING) != 0:
        return load_word(state + SEED) + np.uint64(number)
    return cross_two(state, name_key(state, at, length), np.uint64(number))


@inlined
def _short_key(base: int, length: int, prefix: int) -> np.uint64:
    """XXH64 of fewer than 32 bytes: the words at `prefix` replace the first bytes at `base`."""
    state = P5 + np.uint64(length)
    at = 0
    while length - at >= 8:
        own = load_word(base + at) & load_word(prefix + 8 * _PREFIX_WORDS + at)
        state = take_word(state, own | load_word(prefix + at))
        at += 8
    word = (load_word(base + at) & load_word(prefix + 8 * _PREFIX_WORDS + at)) | load_word(prefix + at)
    rest = length - at
    if rest >= 4:
        state = take_half(state, word & _HALF_MASK)
        word >>= _32
        rest -= 4
    while rest > 0:
        state = take_byte(state, word & _BYTE_MASK)
        word >>= _8
        rest -= 1
    return avalanche(state)


@kernel
def _long_key(state: int, at: int, length: int) -> np.uint64:
    """Hash a long name with its prefix, which is written before the name for the duration of the call.

    There is room: the bar and the namespace come before the name.
    """
    before = load_int(state + PREFIX_LENGTH)
    original = load_int(state + ORIGINAL)
    namespace = load_int(state + NAMESPACE_AT) + original
    base = at - before
    for i in range(before - 1):
        store_byte(base + i, load_byte(namespace + i))
    store_byte(at - 1, 0x5E)
    key = not_zero(xxh64_at(base, before + length))
    for i in range(before):
        store_byte(base + i, load_byte(base + original + i))
    return key


@kernel
def _seed(state: int, at: int, length: int) -> np.uint64:
    """VW's hash of a namespace's name; 0 if the name is empty."""
    if length == 0:
        return _0
    if load_int(state + HASHING) == 2:
        return murmur3(at, length, _0)
    return _hash_of_name(at, length, _0)


@inlined
def _hash_of_name(at: int, length: int, seed: np.uint64) -> np.uint64:
    """VW's hash of a name: for digits their number plus the seed, else murmur3 without control characters at the
    ends."""
    end = at + length
    while at < end and load_byte(at) <= 0x20:
        at += 1
    while at < end and load_byte(end - 1) <= 0x20:
        end -= 1
    behind, number = more_digits(at, _0)
    if behind >= end:
        return number + seed
    return murmur3(at, end - at, seed)


@inlined
def _rotate(half: np.uint64, bits: np.uint64) -> np.uint64:
    return ((half << bits) | (half >> (_32 - bits))) & _HALF_MASK


@inlined
def _scramble(block: np.uint64) -> np.uint64:
    return (_rotate((block * _M1) & _HALF_MASK, np.uint64(15)) * _M2) & _HALF_MASK


@kernel
def murmur3(at: int, length: int, seed: np.uint64) -> np.uint64:
    """MurmurHash3, x86, 32 bits."""
    h = seed & _HALF_MASK
    end = at + (length & ~3)
    while at < end:
        h ^= _scramble(np.uint64(load_u32(at)))
        h = (_rotate(h, np.uint64(13)) * np.uint64(5) + _M3) & _HALF_MASK
        at += 4
    rest = length & 3
    if rest > 0:
        h ^= _scramble(load_word(at) & ((np.uint64(1) << np.uint64(8 * rest)) - np.uint64(1)))
    h ^= np.uint64(length) & _HALF_MASK
    h = ((h ^ (h >> np.uint64(16))) * _M4) & _HALF_MASK
    h = ((h ^ (h >> np.uint64(13))) * _M5) & _HALF_MASK
    return h ^ (h >> np.uint64(16))


@kernel
def gram_key(state: int, first: np.uint64, following: np.uint64) -> np.uint64:
    """The key of an n-gram. Ours is XXH64 of both keys and a blank, which makes it differ from an interaction."""
    if load_int(state + HASHING) != 0:
        return first * _GRAM + following
    whole = take_byte(take_word(take_word(P5 + np.uint64(17), first), following), _BLANK)
    return not_zero(avalanche(whole))


@kernel
def cross_two(state: int, a: np.uint64, b: np.uint64) -> np.uint64:
    """The key of an interaction of two. Ours is XXH64 of both keys, as for crosses of events' fields."""
    if load_int(state + HASHING) != 0:
        return (a * _INTERACTION) ^ b
    return not_zero(avalanche(take_word(take_word(P5 + np.uint64(16), a), b)))


@kernel
def cross_three(state: int, a: np.uint64, b: np.uint64, c: np.uint64) -> np.uint64:
    """The key of an interaction of three."""
    if load_int(state + HASHING) != 0:
        return (((a * _INTERACTION) ^ b) * _INTERACTION) ^ c
    return not_zero(avalanche(take_word(take_word(take_word(P5 + np.uint64(24), a), b), c)))


WILDCARD = ord(":")


def has_wildcard(words: Iterable[bytes]) -> bool:
    """Whether any interaction has a wildcard, and so depends on the namespaces of the text."""
    return any(WILDCARD in word for word in words)


def expand(words: Iterable[bytes], letters: bytes) -> list[bytes]:
    """All interactions of the namespaces with these first letters, in VW's order; a `:` stands for any of them.

    The letters of an interaction that has one twice are sorted. Of interactions with the same letters the first in the
    order of bytes is kept: the order decides which key is multiplied. Shorter interactions come first.

    >>> expand([b"ba", b"a:"], b"abc")
    [b'aa', b'ab', b'ac']
    """
    found = set()
    for word in words:
        for choice in product(*(letters if letter == WILDCARD else [letter] for letter in word)):
            found.add(bytes(sorted(choice) if len(set(choice)) < len(choice) else choice))
    once: dict[bytes, bytes] = {}
    for word in sorted(found, key=lambda word: (len(word), word)):
        once.setdefault(bytes(sorted(word)), word)
    return list(once.values())


def gram_offsets(n: int, skips: int) -> list[tuple[int, ...]]:
    """The offsets of the further words of each 2- to n-gram with up to `skips` words left out, in VW's order."""
    return [offsets for more in range(1, n) for offsets in _offsets(more, skips, 0, 1)]


def _offsets(more: int, skips: int, last: int, step: int) -> Iterator[tuple[int, ...]]:
    """Offsets whose next word is `step` further on; then those that leave out one word more."""
    if more == 0:
        yield ()
        return
    for rest in _offsets(more - 1, skips, last + step, 1):
        yield (last + step, *rest)
    if skips > 0:
        yield from _offsets(more, skips - 1, last, step + 1)


MAX_GRAM = GRAM_WIDTH
"""Words of the longest n-gram."""
