"""Records of examples with a bound on the rows of each field: layout, limits, damage."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord, NewerVersion
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.examples import ExampleBatch, encode_examples, largest_record_bytes, to_batch
from stream_learner.core.log.field_bound import FieldBound
from stream_learner.core.log.subset import DROPPED, without_keys
from tests.core.log.record_layouts import (
    U64,
    batches,
    decoded,
    header_bytes,
    is_soft,
    is_weighted,
    make_batch,
    plain_record,
    same,
    slice_rows,
)
from tests.core.log.test_damaged_records import reseal

SHARED = Scratch()
BOUND = FieldBound(7, (11, 22))


def counted_batch() -> ExampleBatch:
    """The examples {1: 1, 2: 5} and {2: 1}; key 1 counts under field 2, key 2 under none."""
    return replace(make_batch([{1: 1.0, 2: 5.0}, {2: 1.0}]), counted=np.array([2, 0, 0], np.uint8))


@settings(max_examples=80, deadline=None)
@given(
    batches(),
    st.sampled_from([500, 900, 900_000]),
    st.lists(U64, min_size=1, max_size=5),
    st.integers(1, 2**64 - 1),
    st.data(),
)
def test_every_record_is_what_the_layout_says(
    batch: ExampleBatch, max_bytes: int, names: list[int], most_rows: int, data: st.DataObject
) -> None:
    """Split anywhere; where the features of a key do not agree, the first of the record counts."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    batch = replace(batch, counted=rng.integers(0, len(names) + 1, len(batch.keys)).astype(np.uint8))
    weighted, soft, bound = is_weighted(batch), is_soft(batch), FieldBound(most_rows, tuple(names))
    row = 0
    for sequence, value in enumerate(encode_examples(3, 77, 5, batch, max_bytes, scratch=SHARED, bound=bound)):
        record = decoded(value)
        part = slice_rows(batch, row, row + len(record))
        assert value == plain_record(3, 77, 5, sequence, part, weighted, soft, tuple(bound))
        assert record.bound == bound and same(to_batch(record), part)
        first = dict(list(zip(part.keys.tolist(), part.counted.tolist(), strict=True))[::-1])
        assert record.counted.tolist() == [first[key] for key in record.keys.tolist()]
        assert to_batch(record).counted.tolist() == [first[key] for key in part.keys.tolist()]
        assert len(value) <= max_bytes
        row += len(record)
    assert row == len(batch)


@settings(max_examples=40, deadline=None)
@given(batches())
def test_without_a_bound_the_bytes_are_those_of_version_1(batch: ExampleBatch) -> None:
    """Numbers that a batch has are left out."""
    counted = replace(batch, counted=np.ones(len(batch.keys), np.uint8))
    assert encode_examples(0, 1, 5, counted) == encode_examples(0, 1, 5, batch)


def test_the_largest_example_fits_with_as_many_fields_as_there_may_be() -> None:
    """No byte to spare: soft, weighted, no value 1, 255 fields."""
    features = 300
    bound = FieldBound(1, tuple(range(255)))
    batch = make_batch([dict.fromkeys(range(1, features + 1), 2.0)], [0.5], [2.0])
    batch.counted = np.full(features, 255, np.uint8)
    size = largest_record_bytes(features, counted=True)
    (value,) = encode_examples(0, 1, 5, batch, size, bound=bound)
    assert len(value) == size and decoded(value).counted.tolist() == [255] * features
    with pytest.raises(ValueError, match="takes"):
        encode_examples(0, 1, 5, batch, size - 1, bound=bound)


@pytest.mark.parametrize(
    ("counted", "bound"),
    [
        ([2, 0], BOUND),
        ([], BOUND),
        ([3, 0, 0], BOUND),
        ([0, 0, 0], FieldBound(0, (1,))),
        ([0, 0, 0], FieldBound(2**64, (1,))),
        ([0, 0, 0], FieldBound(1, ())),
        ([0, 0, 0], FieldBound(1, tuple(range(256)))),
    ],
)
def test_what_no_reader_takes_is_not_written(counted: list[int], bound: FieldBound) -> None:
    batch = replace(counted_batch(), counted=np.array(counted, np.uint8))
    with pytest.raises(ValueError, match="field"):
        encode_examples(0, 1, 5, batch, bound=bound)


# Bound at 64, fields 72, keys 80, ids 96, values 112, hashes 120, log times 136, ..., labels 158, numbers 160.
VALUE = encode_examples(0, 3, 7, counted_batch(), bound=BOUND)[0]


@pytest.mark.parametrize(
    ("at", "field", "says"),
    [
        (64, struct.pack("<Q", 0), "at most 0 rows"),
        (72, struct.pack("<Q", 0), "each of 0 fields"),
        (72, struct.pack("<Q", 256), "each of 256 fields"),
        (72, struct.pack("<Q", 3), "bytes for 2 examples"),
        (72, struct.pack("<Q", 2**64 - 1), "fields"),
        (160, b"\3", "a field that there is not"),
        (161, b"\xff", "a field that there is not"),
    ],
)
def test_a_bound_that_makes_no_sense_is_damage(at: int, field: bytes, says: str) -> None:
    """Whatever the checksums say: the fold trusts the numbers."""
    assert len(VALUE) == 162 and VALUE[160:] == b"\2\0"
    with pytest.raises(DamagedRecord, match=says):
        decoded(reseal(VALUE, at, field))


def test_a_record_that_was_cut_is_damaged() -> None:
    """At every byte, under right checksums."""
    for size in range(40, len(VALUE)):
        with pytest.raises(DamagedRecord):
            decoded(header_bytes(1, 0, 0, 0, 7, 3, VALUE[40:size], version=4))


@pytest.mark.parametrize("version", [2, 3, 5])
def test_a_version_of_examples_that_there_is_not_is_not_read(version: int) -> None:
    with pytest.raises(NewerVersion):
        decoded(header_bytes(1, 0, 0, 0, 7, 3, VALUE[40:], version=version))


def test_keys_are_left_out_with_their_numbers() -> None:
    """The other keys keep theirs, and the record its bound."""
    record = decoded(VALUE)
    left = without_keys(record, np.array([DROPPED, 0], np.int32))
    assert (left.keys.tolist(), left.counted.tolist(), left.bound) == ([2], [0], BOUND)
    left = without_keys(record, np.array([0, DROPPED], np.int32))
    assert (left.keys.tolist(), left.counted.tolist()) == ([1], [2])
