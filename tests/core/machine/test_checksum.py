"""The checksum of records: CRC-32 as its definition says, at any length and in any number of parts."""

from __future__ import annotations

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.machine.checksum import crc32


def by_bits(data: bytes) -> int:
    """CRC-32 of ISO 3309, a bit at a time: polynomial 0x04C11DB7, bits reversed, all ones before and after."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0xEDB88320 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_it_is_the_checksum_of_its_definition(data: bytes) -> None:
    """Any bytes, also none."""
    assert crc32(data) == by_bits(data)


@settings(deadline=None)
@given(st.binary(max_size=100), st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 15))
def test_parts_are_the_whole(seed: bytes, length: int, cut: int, start: int) -> None:
    """Any length, from any alignment, cut anywhere, and as zlib computes it, which wrote older logs."""
    data = memoryview((seed + b"stream") * (length // (len(seed) + 6) + 1))[start:length]
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)
