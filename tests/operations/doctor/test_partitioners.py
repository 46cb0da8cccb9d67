"""Keys are hashed as the clients of Kafka do."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.operations.doctor.partitioners import PARTITIONERS, fnv1a, murmur2

MURMUR2 = {
    b"": 0x106E08D9,
    b"4": 0x5A4B5CA1,
    b"34": 0x873930DA,
    b"234": 0xE7C009CA,
    b"1234": 0x9FC97B14,
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
    b"21": -973_932_308 & 0xFFFFFFFF,
    b"foobar": -790_332_482 & 0xFFFFFFFF,
    b"a-little-bit-longer-string": -1_486_304_829 & 0xFFFFFFFF,
    b"abc": 479_470_107,
}
"""From the tests of Kafka's Java client and of librdkafka."""
FNV1A = {
    b"": 0x7EE3623B,
    b"4": 0x310CA263,
    b"34": 0x740FA83E,
    b"234": 0x2DEA3CD2,
    b"1234": 0x023BDD03,
    b"kafka": 0x0D33C4E1,
    b"giberish123456789": 0x77A58295,
}
"""From the tests of librdkafka, which has them from Sarama."""


@pytest.mark.parametrize(("key", "hashed"), MURMUR2.items())
def test_murmur2_is_that_of_kafka(key: bytes, hashed: int) -> None:
    """The published vectors."""
    assert murmur2(key) == hashed


@pytest.mark.parametrize(("key", "hashed"), FNV1A.items())
def test_fnv1a_is_that_of_sarama(key: bytes, hashed: int) -> None:
    """The published vectors; of a negative number the absolute value."""
    assert fnv1a(key) == hashed


@given(st.binary(max_size=40))
def test_murmur2_by_its_definition(key: bytes) -> None:
    """Slow and obvious: a word of four bytes after the other, the rest byte by byte, as the paper's code has it."""

    def signed(number: int) -> int:
        return (number + (1 << 31)) % (1 << 32) - (1 << 31)

    def shifted(number: int, by: int) -> int:
        return (number % (1 << 32)) >> by

    m, h = 0x5BD1E995, signed(0x9747B28C ^ len(key))
    for at in range(0, len(key) // 4 * 4, 4):
        k = signed((key[at] + (key[at + 1] << 8) + (key[at + 2] << 16) + (key[at + 3] << 24)) * m)
        h = signed(signed(h * m) ^ signed(signed(k ^ shifted(k, 24)) * m))
    rest = key[len(key) // 4 * 4 :]
    for place in reversed(range(len(rest))):
        h ^= rest[place] << 8 * place
    h = signed(h * m) if rest else h
    h = signed(signed(h ^ shifted(h, 13)) * m)
    assert murmur2(key) == (h ^ shifted(h, 15)) % (1 << 32)


@given(st.binary(min_size=1, max_size=20), st.integers(1, 64))
def test_a_partition_is_one_of_them(key: bytes, partitions: int) -> None:
    """From 0 to n - 1; CRC32 is zlib's."""
    found = {name.split()[0]: place(key, partitions) for name, place in PARTITIONERS.items()}
    assert all(0 <= partition < partitions for partition in found.values())
    assert found["CRC32"] == zlib.crc32(key) % partitions
