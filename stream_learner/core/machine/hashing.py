"""XXH64 with seed 0, and the mixing step used wherever a 64-bit word must be spread over its bits.

Scorers in other languages compute the same keys, so nothing here may differ from XXH64. Hashes that serve as keys or
ids are never 0. The algorithm: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md; `mix` is the finalizer
of SplitMix64 (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import buffer_address, load_byte, load_i64, load_u64, store_u64

BIAS_KEY = 0xEF46DB3751D8E999
"""Key of the constant feature: XXH64 of the empty text."""

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_WORD_BITS = np.uint64(64)
_START_1 = np.uint64((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % 2**64)
_START_4 = np.uint64(2**64 - 0x9E3779B185EBCA87)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@entry
def mix(z: np.uint64) -> np.uint64:
    """SplitMix64's finalizer: a bijection of 64-bit words that spreads every bit over all bits."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@kernel
def rotate_left(word: np.uint64, bits: np.uint64) -> np.uint64:
    """Rotation by 1 to 63 bits."""
    return (word << bits) | (word >> (_WORD_BITS - bits))


@kernel
def hash_round(lane: np.uint64, word: np.uint64) -> np.uint64:
    """XXH64's round: one input word into one lane."""
    return rotate_left(lane + word * P2, np.uint64(31)) * P1


@kernel
def take_word(state: np.uint64, word: np.uint64) -> np.uint64:
    """XXH64's step for one of the last whole words of an input."""
    return rotate_left(state ^ hash_round(_ZERO, word), np.uint64(27)) * P1 + P4


@kernel
def take_half(state: np.uint64, half: np.uint64) -> np.uint64:
    """XXH64's step for the last four bytes of an input, as a number below 2^32."""
    return rotate_left(state ^ (half * P1), np.uint64(23)) * P2 + P3


@kernel
def take_byte(state: np.uint64, byte: np.uint64) -> np.uint64:
    """XXH64's step for one of the last bytes of an input."""
    return rotate_left(state ^ (byte * P5), np.uint64(11)) * P1


@kernel
def avalanche(state: np.uint64) -> np.uint64:
    """XXH64's last step."""
    state = (state ^ (state >> np.uint64(33))) * P2
    state = (state ^ (state >> np.uint64(29))) * P3
    return state ^ (state >> np.uint64(32))


@kernel
def not_zero(hash_value: np.uint64) -> np.uint64:
    """The hash, or 1 if it is 0: in every table, 0 marks an empty slot."""
    return hash_value if hash_value != _ZERO else _ONE


@kernel
def _merge_lane(state: np.uint64, lane: np.uint64) -> np.uint64:
    return (state ^ hash_round(_ZERO, lane)) * P1 + P4


@kernel
def _hash_stripes(address: int, length: int) -> np.uint64:
    """State after all whole 32-byte stripes of `length` >= 32 bytes."""
    v1, v2, v3, v4 = _START_1, P2, _ZERO, _START_4
    end = address + (length & ~31)
    while address < end:
        v1 = hash_round(v1, load_u64(address))
        v2 = hash_round(v2, load_u64(address + 8))
        v3 = hash_round(v3, load_u64(address + 16))
        v4 = hash_round(v4, load_u64(address + 24))
        address += 32
    state = rotate_left(v1, np.uint64(1)) + rotate_left(v2, np.uint64(7))
    state += rotate_left(v3, np.uint64(12)) + rotate_left(v4, np.uint64(18))
    return _merge_lane(_merge_lane(_merge_lane(_merge_lane(state, v1), v2), v3), v4)


@kernel
def _load_half(address: int) -> int:
    low = load_byte(address) | (load_byte(address + 1) << 8)
    return low | (load_byte(address + 2) << 16) | (load_byte(address + 3) << 24)


@entry
def xxh64_at(address: int, length: int) -> np.uint64:
    """XXH64, seed 0, of `length` bytes from `address` on. Reads no other byte."""
    end = address + length
    state = P5
    if length >= 32:
        state = _hash_stripes(address, length)
        address += length & ~31
    state += np.uint64(length)
    while end - address >= 8:
        state = take_word(state, load_u64(address))
        address += 8
    if end - address >= 4:
        state = take_half(state, np.uint64(_load_half(address)))
        address += 4
    while address < end:
        state = take_byte(state, np.uint64(load_byte(address)))
        address += 1
    return avalanche(state)


@entry
def hash_spans(data: int, bounds: int, n: int, out: int) -> None:
    """Store the key of each of n spans. bounds: address of i64[n+1] offsets into data; out: address of u64[n]."""
    for i in range(n):
        first = load_i64(bounds + 8 * i)
        last = load_i64(bounds + 8 * i + 8)
        store_u64(out + 8 * i, not_zero(xxh64_at(data + first, last - first)))


def xxh64(data: bytes) -> int:
    """XXH64 of bytes with seed 0, as a number in [0, 2^64).

    >>> hex(xxh64(b"")), xxh64(b"") == BIAS_KEY
    ('0xef46db3751d8e999', True)
    """
    if not data:
        return BIAS_KEY
    return int(xxh64_at(buffer_address(data), len(data)))


def hash_texts(texts: Sequence[bytes]) -> list[int]:
    """The key of each text: its XXH64, or 1 if that is 0."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
    data = b"".join(texts) or b"\0"
    keys = np.empty(len(texts), np.uint64)
    hash_spans(buffer_address(data), buffer_address(bounds), len(texts), buffer_address(keys))
    return keys.tolist()
