"""Records of examples: layout against a plain-Python writer, round trips, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.log.dictionary import LAST_STAMP, Scratch
from stream_learner.core.log.examples import ExampleBatch, encode_examples, largest_record_bytes, to_batch
from tests.core.log.record_layouts import (
    batches,
    decoded,
    is_soft,
    is_weighted,
    make_batch,
    plain_record,
    same,
    slice_rows,
)

SHARED = Scratch()


@settings(max_examples=150, deadline=None)
@given(batches(), st.sampled_from([400, 700, 900_000]))
def test_every_record_is_what_the_layout_says_and_together_they_hold_the_batch(
    batch: ExampleBatch, max_bytes: int
) -> None:
    """Split anywhere, each record equals the plain writer's bytes for its rows, and decodes to them."""
    weighted, soft = is_weighted(batch), is_soft(batch)
    row = 0
    for sequence, value in enumerate(encode_examples(3, 77, 2**64 - 1, batch, max_bytes, scratch=SHARED)):
        record = decoded(value)
        part = slice_rows(batch, row, row + len(record))
        assert value == plain_record(3, 77, 2**64 - 1, sequence, part, weighted, soft)
        assert same(to_batch(record), part)
        assert len(value) <= max_bytes
        row += len(record)
    assert row == len(batch)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_records_of_one_event_do_not_remember_the_record_before(batch: ExampleBatch) -> None:
    """One event at a time through one scratch table gives the bytes a fresh table gives."""
    for row in range(len(batch)):
        one = slice_rows(batch, row, row + 1)
        assert encode_examples(0, 1, 5, one, scratch=SHARED) == encode_examples(0, 1, 5, one)


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from([400, 700, 900_000]))
def test_values_that_are_left_out_are_1(batch: ExampleBatch, max_bytes: int) -> None:
    ones = replace(batch, values=np.ones(len(batch.keys)))
    left_out = replace(batch, values=np.zeros(0))
    wanted = encode_examples(3, 77, 5, ones, max_bytes, scratch=SHARED)
    assert encode_examples(3, 77, 5, left_out, max_bytes, scratch=SHARED) == wanted


def test_a_table_whose_stamps_are_used_up_begins_anew() -> None:
    """Around the last stamp, dictionaries that grow are those of a fresh table: nothing of the old ones is found."""
    scratch = Scratch()
    small, large = make_batch([{1: 1.0, 2: 2.0}]), make_batch([dict.fromkeys(range(1, 3000), 1.0)] * 2)
    wanted = [encode_examples(0, 1, 5, batch) for batch in (small, large)]
    for stamp in range(LAST_STAMP - 40, LAST_STAMP + 1):
        scratch.stamp = stamp
        for _ in range(2):
            assert [encode_examples(0, 1, 5, batch, scratch=scratch) for batch in (small, large)] == wanted
        assert 0 < scratch.stamp <= LAST_STAMP


def test_an_empty_batch_makes_no_record() -> None:
    """A tick without examples has only its mark."""
    assert encode_examples(0, 1, 5, ExampleBatch.empty()) == []


def test_a_record_names_at_most_65536_distinct_keys() -> None:
    """The example that might need key 65,537 begins the next record, with indices from 0 again."""
    rows = [dict.fromkeys(range(1 + 1000 * i, 1001 + 1000 * i), 1.0) for i in range(70)]
    records = [decoded(value) for value in encode_examples(0, 1, 5, make_batch(rows), 10**7)]
    assert [len(record.keys) for record in records] == [65_000, 5_000]
    assert [int(record.indices.max()) for record in records] == [64_999, 4_999]


def test_log_times_further_apart_than_32_bits_begin_a_new_record() -> None:
    """A stretch of 49 days closed by the wall clock does not overflow."""
    batch = make_batch([{1: 1.0}] * 3, times=[5, 5 + 2**32 - 1, 5 + 2**32])
    records = [decoded(value) for value in encode_examples(0, 1, 5, batch)]
    assert [record.log_time_ms.tolist() for record in records] == [[5, 5 + 2**32 - 1], [5 + 2**32]]


def test_an_example_may_have_65535_features_and_no_more() -> None:
    """The largest example fits; one more feature is refused before anything is written."""
    row = dict.fromkeys(range(1, 65536), 2.0)
    (value,) = encode_examples(0, 1, 5, make_batch([row], [0.5], [2.0]), largest_record_bytes(65_535))
    assert len(value) == largest_record_bytes(65_535)
    assert same(to_batch(decoded(value)), make_batch([row], [0.5], [2.0]))
    with pytest.raises(ValueError, match="65535 features"):
        encode_examples(0, 1, 5, make_batch([{**row, 65_536: 1.0}]), 10**7)


def test_an_example_larger_than_a_record_is_refused() -> None:
    """A record is never larger than the broker takes, so an example that would make it so is an error."""
    with pytest.raises(ValueError, match="a record has 200"):
        encode_examples(0, 1, 5, make_batch([dict.fromkeys(range(1, 50), 1.0)]), 200)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda b: setattr(b, "label", b.label[:1]),
        lambda b: setattr(b, "values", b.values[:1]),
        lambda b: setattr(b, "row_start", b.row_start + 1),
        lambda b: setattr(b, "row_start", b.row_start - 1),
        lambda b: setattr(b, "row_start", np.array([0, 2, 1], np.int64)),
        lambda b: setattr(b, "log_time_ms", b.log_time_ms[::-1].copy()),
    ],
)
def test_columns_that_do_not_belong_together_are_refused(break_it: Callable[[ExampleBatch], None]) -> None:
    """The kernel trusts the columns, so the encoder looks first."""
    batch = make_batch([{1: 1.0}, {2: 1.0}])
    break_it(batch)
    with pytest.raises(ValueError):
        encode_examples(0, 1, 5, batch)


def test_decoding_is_a_view() -> None:
    """The arrays of features lie in the record's own bytes, aligned, and cannot be written."""
    (value,) = encode_examples(0, 1, 5, make_batch([{1: 1.0, 2: 3.0}, {2: 1.0}]))
    record = decoded(value)
    whole = np.frombuffer(value, np.uint8)
    for array in (
        record.keys,
        record.indices,
        record.row_len,
        record.positions,
        record.values,
        record.id_hash,
    ):
        assert np.shares_memory(array, whole)
        assert array.flags.aligned
        assert not array.flags.writeable
