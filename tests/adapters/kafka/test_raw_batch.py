"""Batches that are split or joined equal batches that came so."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from stream_learner.adapters.kafka.packed_consumer import Messages
from stream_learner.adapters.kafka.raw_batch import PackedBatch, RawBatch, joined
from stream_learner.adapters.kafka.runs import packed_runs_of

VALUES = [b"one", b"", None, b"four", b"fifth", None]
SPLITS = ([6], [1, 5], [2, 1, 3], [1] * 6)


def batch(first: int, end: int, *, complete: bool) -> RawBatch:
    """Records of `VALUES`, with keys and headers or without."""
    return RawBatch(
        np.arange(first, end) * 10,
        np.arange(first, end) + 5,
        VALUES[first:end],
        [b"key%d" % i for i in range(first, end)] if complete else None,
        [[("number", str(i))] for i in range(first, end)] if complete else None,
    )


def packed(first: int, end: int) -> PackedBatch:
    """The same records without keys and headers, with their values back to back."""
    plain = batch(first, end, complete=False)
    return PackedBatch(
        plain.offsets,
        plain.record_times_ms,
        np.frombuffer(bytes(plain.data), np.uint8),
        plain.bounds,
        np.array([value is None for value in plain.values]),
    )


def assert_same(found: RawBatch, wanted: RawBatch) -> None:
    """Compare every field of two batches."""
    for name in ("offsets", "record_times_ms", "lengths", "bounds"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist(), name
    assert (found.is_null is None) == (wanted.is_null is None)
    assert found.is_null is None or found.is_null.tolist() == wanted.is_null.tolist()  # type: ignore[union-attr]
    assert bytes(found.data) == bytes(wanted.data)
    for name in ("values", "keys", "headers", "size_bytes"):
        assert getattr(found, name) == getattr(wanted, name), name


@pytest.mark.parametrize("complete", [False, True])
def test_a_part_is_as_if_it_had_come_alone(complete: bool) -> None:
    """The same holds if the batch has null values and the part has none."""
    whole = batch(0, 6, complete=complete)
    for first in range(6):
        for end in range(first + 1, 7):
            assert_same(whole.part(first, end), batch(first, end, complete=complete))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("complete", [False, True])
def test_joined_batches_are_as_if_they_had_come_at_once(split: list[int], complete: bool) -> None:
    """Join whole batches and parts of batches; some have null values."""
    edges = np.cumsum([0, *split]).tolist()
    whole = batch(0, 6, complete=complete)
    pairs = list(pairwise(edges))
    assert_same(joined([batch(*pair, complete=complete) for pair in pairs]), whole)
    assert_same(joined([whole.part(*pair) for pair in pairs]), whole)


@pytest.mark.parametrize("split", SPLITS)
def test_values_back_to_back_are_the_same_batch(split: list[int]) -> None:
    """Whole, in parts, and joined again."""
    edges = np.cumsum([0, *split]).tolist()
    whole, pairs = packed(0, 6), list(pairwise(edges))
    assert_same(whole, batch(0, 6, complete=False))
    for first in range(6):
        for end in range(first + 1, 7):
            assert_same(whole.part(first, end), batch(first, end, complete=False))
    assert_same(joined([packed(*pair) for pair in pairs]), batch(0, 6, complete=False))
    assert_same(joined([whole.part(*pair) for pair in pairs]), batch(0, 6, complete=False))


def test_a_small_run_keeps_no_memory_of_the_others() -> None:
    """One record of a slow partition must not hold what came with it."""
    data = [np.frombuffer(b"abcdef", np.uint8).copy(), np.frombuffer(b"g", np.uint8).copy()]
    codes, numbers = np.zeros(4, np.int32), np.arange(4, dtype=np.int64)
    bounds = np.array([0, 2, 4, 6, 7], np.int64)
    partitions = np.array([1, 1, 1, 2], np.int32)
    large, small = packed_runs_of(Messages(codes, partitions, numbers, numbers, bounds, [0, 3, 4], data, None, {}))
    assert (large.partition, small.partition) == (1, 2)
    assert large.records is not None and large.records.values == [b"ab", b"cd", b"ef"]
    assert small.records is not None and small.records.values == [b"g"] and small.records.offsets.tolist() == [3]
    for column in (small.records.offsets, small.records.record_times_ms, small.records.data, small.records.bounds):
        assert isinstance(column, np.ndarray) and column.base is None
