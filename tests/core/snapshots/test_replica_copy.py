"""A copy of a version: what is read back is what was served, and nothing else is ever served."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion, RecordError
from stream_learner.core.snapshots.replica import Served
from stream_learner.core.snapshots.replica_copy import Copy, WholeVersion, encode_copy, read_copy

CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": {}, "metrics": {}}
U64 = st.integers(1, 2**64 - 1)
WEIGHTS = st.floats(-3, 3, width=32).filter(bool)


def version_of(weights: dict[int, float], shards: int = 2, sequence: int = 9) -> WholeVersion:
    """Version 77 of a model."""
    keys = np.array(sorted(weights), np.uint64)
    served = Served(77, 0xFEED, sequence, {**CONTENT, "digest": "000000000000feed", "format": 1, "shards": shards})
    return WholeVersion(served, shards, keys, np.array([weights[key] for key in keys.tolist()], np.float32))


def bytes_of(version: WholeVersion, published_ms: int = 5) -> bytes:
    """The whole file."""
    return b"".join(encode_copy(version, published_ms))


def read(data: bytes) -> Copy:
    """The copy's content."""
    return read_copy(io.BytesIO(data), len(data))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(U64, WEIGHTS, max_size=40), st.sampled_from([1, 2, 8]), st.integers(1, 2**40))
def test_what_is_read_back_is_what_was_served(weights: dict[int, float], shards: int, sequence: int) -> None:
    """Every weight, no other row, the version, its digest and what the model says of itself."""
    version = version_of(weights, shards, sequence)
    copy = read(bytes_of(version, 1_234))
    assert copy.replica.ready and copy.published_ms == 1_234
    assert copy.replica.served == version.served
    keys, found = copy.replica.all_rows()
    assert dict(zip(keys.tolist(), found.tolist(), strict=True)) == {
        k: float(np.float32(w)) for k, w in weights.items()
    }


def test_a_model_of_many_pages() -> None:
    """More rows than a page holds, in an order that is not that of the keys' making."""
    weights = {(i * 0x9E3779B97F4A7C15 + 1) % 2**64: 1.0 + i for i in range(60_000)}
    copy = read(bytes_of(version_of(weights, 4)))
    assert copy.replica.rows == len(weights)
    assert all(copy.replica.weight(key) == weight for key, weight in list(weights.items())[::997])


def test_a_copy_that_differs_in_any_byte_or_ends_early_is_refused() -> None:
    """Whatever the byte says."""
    data = bytes_of(version_of({1: 0.5, 2**63: -2.0}, 2))
    for place in range(len(data)):
        with pytest.raises(RecordError):
            read(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(RecordError):
            read(data[:place])
    with pytest.raises(RecordError):
        read(data + b"\0")


def test_what_is_no_copy_and_what_is_a_later_one_are_told_apart() -> None:
    """So that a later program's is not set aside."""
    data = bytes_of(version_of({1: 0.5}))
    with pytest.raises(ForeignRecord):
        read(b"junk" * 20)
    with pytest.raises(NewerVersion, match="format 2"):
        read(data[:4] + b"\2\0" + data[6:])
    with pytest.raises(DamagedRecord):
        read(b"")
