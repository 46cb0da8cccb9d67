"""The partitioners of Kafka's clients that go by a record's key: which partition of n a key belongs to.

| partitioner | formula                                     | default of                                             |
|-------------|---------------------------------------------|--------------------------------------------------------|
| murmur2     | (murmur2(key, seed 0x9747b28c) mod 2^31) mod n | the Java client, and what is built on it             |
| CRC32       | crc32(key) mod n                            | librdkafka (`consistent_random`): Python, Go, .NET, C++ |
| FNV-1a      | abs(fnv1a_32(key) as a signed number) mod n | Sarama (Go)                                            |
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

_M, _SEED, _WORD = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """MurmurHash2 of 32 bits with the seed of Kafka, in [0, 2^32)."""
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _M & _WORD
        h = (h * _M & _WORD) ^ ((k ^ k >> 24) * _M & _WORD)
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15


def fnv1a(key: bytes) -> int:
    """FNV-1a of 32 bits; the absolute value of the signed number, as Sarama takes it."""
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 & _WORD
    return h if h < 1 << 31 else (1 << 32) - h


PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = {
    "murmur2 (Java's default)": lambda key, n: (murmur2(key) & 0x7FFFFFFF) % n,
    "CRC32 (librdkafka's default)": lambda key, n: zlib.crc32(key) % n,
    "FNV-1a (Sarama's default)": lambda key, n: fnv1a(key) % n,
}
"""By name, the partition of n that a key belongs to."""
