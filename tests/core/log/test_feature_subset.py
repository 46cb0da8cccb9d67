"""A subset of the features: records without some keys are those of examples that never had them."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.subset import FeatureSubset
from tests.core.model.example_records import Example, as_record, random_examples

ARRAYS = ("log_time_ms", "id_hash", "label", "weight", "keys", "indices", "row_len", "positions", "values")


def without(examples: list[Example], dropped: set[int]) -> list[Example]:
    """The oracle: each example's features, but for those."""
    return [replace(e, features=tuple(f for f in e.features if f[0] not in dropped)) for e in examples]


def rising(keys: set[int]) -> NDArray[np.uint64]:
    return np.array(sorted(keys), np.uint64)


def assert_equal(found: ExampleRecord, wanted: ExampleRecord) -> None:
    """All columns, to the bit and to the type."""
    for name in ARRAYS:
        a, b = getattr(found, name), getattr(wanted, name)
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), name


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_record_without_keys_is_the_record_of_examples_without_them(seed: int, share: float) -> None:
    """Any share of the keys, among them some that no example has; dictionary, features and values agree."""
    examples = random_examples(300, seed)
    keys = sorted({key for e in examples for key, _ in e.features})
    rng = random.Random(seed)
    dropped = set(rng.sample(keys, round(share * len(keys)))) | {rng.randrange(1, 1 << 64) for _ in range(20)}
    found = FeatureSubset(rising(dropped)).apply(as_record(examples))
    assert_equal(found, as_record(without(examples, dropped)))


def test_a_record_as_it_is_read_from_the_log_is_cut_the_same() -> None:
    """Its arrays are read-only views of the record's bytes, and stay as they are."""
    examples = [replace(e, label=1.0, weight=1.0, log_time_ms=5) for e in random_examples(200, 7)]
    value = encode_examples(0, 0, 1, to_batch(as_record(examples)))[0]
    dropped = {key for e in examples[::3] for key, _ in e.features[::2]}
    read = decode(value)
    assert isinstance(read, ExampleRecord)
    found = FeatureSubset(rising(dropped)).apply(read)
    assert_equal(found, as_record(without(examples, dropped)))
    again = decode(value)
    assert isinstance(again, ExampleRecord)
    assert_equal(read, again)


def test_one_subset_serves_records_of_any_size() -> None:
    """Small and large ones in turn: nothing of one record is left in the next."""
    subset = FeatureSubset(rising({key for e in random_examples(50, 1) for key, _ in e.features[:3]}))
    for size in (3, 400, 1, 0, 90):
        examples = random_examples(size, 1)
        assert_equal(subset.apply(as_record(examples)), as_record(without(examples, set(subset.dropped.tolist()))))


def test_keys_that_do_not_rise_are_refused() -> None:
    """They are searched by halves: out of order, some would be kept."""
    for keys in ([3, 2], [2, 2]):
        with pytest.raises(ValueError, match="rise"):
            FeatureSubset(np.array(keys, np.uint64))
