"""Batches that are split or joined equal batches that came so."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from stream_learner.adapters.kafka.raw_batch import PackedBatch, RawBatch, joined

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
    """Whole, in parts, joined again, and with arrays of its own."""
    edges = np.cumsum([0, *split]).tolist()
    whole, pairs = packed(0, 6), list(pairwise(edges))
    assert_same(whole, batch(0, 6, complete=False))
    for first in range(6):
        for end in range(first + 1, 7):
            assert_same(whole.part(first, end), batch(first, end, complete=False))
            assert_same(whole.part(first, end).alone(), batch(first, end, complete=False))
    assert_same(joined([packed(*pair) for pair in pairs]), batch(0, 6, complete=False))
    assert_same(joined([whole.part(*pair) for pair in pairs]), batch(0, 6, complete=False))


def test_a_part_that_is_alone_keeps_no_memory_of_the_whole() -> None:
    """One record of a slow partition must not hold what came with it."""
    alone = packed(0, 6).part(3, 4).alone()
    for column in (alone.offsets, alone.record_times_ms, alone.data, alone.bounds):
        assert isinstance(column, np.ndarray) and column.base is None
