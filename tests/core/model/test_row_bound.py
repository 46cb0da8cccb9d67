"""The bound on rows: which features are learned follows from the examples and their order, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.log.examples import ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import sample_optimizer
from stream_learner.core.model.table.bounded import MemoryBudget
from tests.core.model.example_records import Example, as_record, random_examples
from tests.core.model.table.test_bounded import DictRows, limit_bytes
from tests.suite.share import cases

OPTIMIZERS = ["ftrl_proximal", "rda", "adagrad", "averaged", "truncated_gradient", "coin"]
"""With the loss of `LOSS`, the sum of gradients that rda keeps becomes 0 again; weights of some move by themselves."""
LOSS = {"rda": "hinge"}


def let_through(examples: Iterable[Example], max_rows: int) -> tuple[list[Example], set[int], int]:
    """The oracle, example by example: what is learned from, the keys that have a row then, how much is left out."""
    rows: set[int] = set()
    learned, lost = [], 0
    for example in examples:
        features = []
        for key, value in example.features:
            if key not in rows and len(rows) < max_rows:
                rows.add(key)
            if key in rows:
                features.append((key, value))
            else:
                lost += 1
        learned.append(replace(example, features=tuple(features)))
    return learned, rows, lost


def learner_of(name: str, max_rows: int | None) -> Learner:
    """With slices that are short enough to be several."""
    loss = LOSS.get(name, "logistic")
    return Learner(sample_optimizer(name), loss=loss, slice_ms=10_000, slices_kept=4, max_rows=max_rows)


def fold(learner: Learner, examples: list[Example], size: int, *, tick: int = 0, seed: int = 0) -> list[float]:
    """In records of so many examples, each dictionary in another order; returns the margins."""
    margins: list[float] = []
    for start in range(0, len(examples), size):
        margins += learner.fold(as_record(examples[start : start + size], shuffle=seed + start), tick).tolist()
    return margins


def keys_of(learner: Learner) -> set[int]:
    return {int(key) for part in learner.table.items() for key in part.keys}


def unbounded_state(learner: Learner) -> dict[str, object]:
    """All state but that of the bound."""
    state = learner.state_scalars()
    state.pop("max_rows", None)
    state.pop("held_back", None)
    return state


@given(st.integers(0, 2**32), st.sampled_from(OPTIMIZERS), st.integers(1, 80), st.sampled_from((1, 3, 40, 1000)))
@settings(max_examples=40, deadline=None)
def test_a_bounded_learner_is_one_that_never_saw_what_the_oracle_leaves_out(
    seed: int, name: str, max_rows: int, size: int
) -> None:
    """Margins, digest, scalars, metrics; the keys that have a row; however records are cut and dictionaries ordered."""
    examples = random_examples(150, seed)
    wanted, rows, lost = let_through(examples, max_rows)
    bounded, free = learner_of(name, max_rows), learner_of(name, None)
    found = fold(bounded, examples, size, seed=seed)
    assert np.array_equal(found, fold(free, wanted, 7), equal_nan=True)
    assert keys_of(bounded) == rows
    assert bounded.table.count == len(rows) <= max_rows
    assert bounded.row_bound is not None and bounded.row_bound.held_back == lost
    assert unbounded_state(bounded) == free.state_scalars()
    assert bounded.digest_full() == bounded.digest() == free.digest()


@pytest.mark.thorough
@given(st.integers(0, 2**32), st.sampled_from(OPTIMIZERS), st.integers(1, 80))
@settings(max_examples=25, deadline=None)
def test_a_restart_at_any_checkpoint_decides_alike(seed: int, name: str, max_rows: int) -> None:
    """Rows through `load`, state through JSON, at every tick: also rows whose columns are 0, or 0 again."""
    examples = random_examples(120, seed)
    straight, stopping = learner_of(name, max_rows), learner_of(name, max_rows)
    for tick, start in enumerate(range(0, len(examples), 20)):
        part = examples[start : start + 20]
        fold(straight, part, 20, tick=tick)
        fold(stopping, part, 3, tick=tick, seed=seed)
        again = learner_of(name, max_rows)
        for rows in stopping.table.items():
            again.table.load(rows.of_page())
        again.restore(json.loads(json.dumps(stopping.state_scalars())))
        again.table.restart_changes(tick, tick)
        stopping = again
    assert stopping.state_scalars() == straight.state_scalars()
    assert keys_of(stopping) == keys_of(straight)
    assert stopping.digest_full() == straight.digest()


@pytest.mark.parametrize("name", cases(OPTIMIZERS, ["ftrl_proximal"]))
def test_a_table_larger_than_memory_decides_alike(name: str) -> None:
    """Known rows that have left memory are known still; the digest is that of a table that is all in memory."""
    max_rows = 6_000
    whole, bounded = learner_of(name, max_rows), learner_of(name, max_rows)
    ncols = len(whole.optimizer.columns)
    cold, size = DictRows(ncols), limit_bytes(ncols)
    table = bounded.bound_memory(cold, MemoryBudget(size, size, 0, 0, 1_000))
    examples = random_examples(3_000, 4, keys=9_000, longest=60)
    for tick, start in enumerate(range(0, len(examples), 60)):
        record = as_record(examples[start : start + 60], shuffle=tick)
        margins = whole.fold(record, tick).copy()
        assert bounded.fold(record, tick).tobytes() == margins.tobytes()
        if tick % 3 == 0:
            cold.take(table.take_changed_for_checkpoint(tick))
            cold.tick = tick
    assert table.evicted > 1_000 and table.fetched > 1_000
    assert whole.row_bound is not None and whole.row_bound.held_back > 1_000
    assert whole.table.count == max_rows
    assert bounded.count_nonzero() == whole.count_nonzero()
    assert bounded.state_scalars() == whole.state_scalars()
    assert bounded.digest_full() == whole.digest_full() == whole.digest()


def test_known_features_go_on_being_learned_and_strangers_do_not() -> None:
    """The example that brings the third key is learned with the two that it shares with others."""
    learner = learner_of("ftrl_proximal", 2)
    first, second = Example(((7, 1.0), (8, 1.0)), 1.0), Example(((9, 5.0), (8, 1.0), (7, 1.0)), 0.0)
    fold(learner, [first, second, second], 3)
    free = learner_of("ftrl_proximal", None)
    known = Example(((8, 1.0), (7, 1.0)), 0.0)
    fold(free, [first, known, known], 3)
    assert learner.digest() == free.digest() and learner.examples == 3
    assert learner.row_bound is not None and learner.row_bound.held_back == 2


def test_an_example_may_lose_all_its_features() -> None:
    """It counts, and is predicted as one without features."""
    learner = learner_of("ftrl_proximal", 1)
    margins = fold(learner, [Example(((7, 1.0),), 1.0), Example(((9, 1.0), (10, 2.0)), 1.0)], 2)
    assert margins[1] == 0.0 and learner.examples == 2 and keys_of(learner) == {7}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_row_that_is_zero_again_keeps_its_place(size: int) -> None:
    """A gradient and its opposite, in one record or in several; no other key gets the row."""
    learner = learner_of("rda", 1)
    up_and_down = [Example(((7, 1.0),), 1.0), Example(((7, 1.0),), -1.0), Example(((9, 1.0),), 1.0)]
    fold(learner, up_and_down, size)
    assert keys_of(learner) == {7} and learner.table.rows_digest == 0
    assert len(learner.table.take_changed_for_checkpoint(0)) == 1


@pytest.mark.parametrize(
    "idle", [Example(((7, 1.0),), 1.0, 0.0), Example(((7, np.nan),), 1.0), Example(((7, 1.0),), np.nan)]
)
def test_a_row_counts_from_the_first_example_that_names_it(idle: Example) -> None:
    """Whatever becomes of that example: without importance, or refused. Both checkpoints and publications list it."""
    learner = learner_of("ftrl_proximal", 1)
    fold(learner, [idle], 1)
    fold(learner, [Example(((9, 1.0),), 1.0)], 1)
    assert keys_of(learner) == {7} and learner.table.count == 1
    assert learner.table.take_changed_for_checkpoint(0).keys.tolist() == [7]
    assert learner.table.take_changed_for_publication(0).keys.tolist() == [7]
    fold(learner, [Example(((7, 1.0),), 1.0)], 1, tick=1)
    assert learner.table.take_changed_for_checkpoint(1).keys.tolist() == [7]
    assert learner.table.take_changed_for_publication(1).keys.tolist() == [7]


def test_a_record_as_it_is_read_from_the_log_stays_as_it_is() -> None:
    """Its arrays are read-only views; the cut makes arrays of its own."""
    examples = [replace(e, label=1.0, weight=1.0, log_time_ms=5) for e in random_examples(80, 3)]
    value = encode_examples(0, 0, 1, to_batch(as_record(examples)))[0]
    read, untouched = decode(value), decode(value)
    assert isinstance(read, ExampleRecord) and isinstance(untouched, ExampleRecord)
    learner = learner_of("ftrl_proximal", 10)
    learner.fold(read, 0)
    assert learner.table.count == 10
    assert all(np.array_equal(getattr(read, n), getattr(untouched, n)) for n in ("keys", "indices", "values"))


def test_a_key_that_no_example_names_gets_no_row() -> None:
    """A dictionary may hold one; it takes no place, however full the table is."""
    for max_rows in (1, 2, 10):
        learner = learner_of("ftrl_proximal", max_rows)
        record = as_record([Example(((7, 1.0), (8, 1.0)), 1.0)])
        record.keys = np.array([*record.keys, 99], np.uint64)
        learner.fold(record, 0)
        assert keys_of(learner) == ({7} if max_rows == 1 else {7, 8})


def test_a_bound_below_the_rows_that_are_there_lets_them_be() -> None:
    """A learner that is given a bound later learns what it knows, and takes nothing new."""
    free = learner_of("ftrl_proximal", None)
    examples = random_examples(100, 8)
    fold(free, examples, 50)
    bounded = learner_of("ftrl_proximal", 3)
    for rows in free.table.items():
        bounded.table.load(rows)
    bounded.restore(free.state_scalars())
    known = keys_of(bounded)
    fold(bounded, [*examples, Example(((1, 1.0), (2, 1.0)), 1.0)], 50, tick=1)
    assert keys_of(bounded) == known and len(known) > 3


def test_what_cannot_be_decided_is_refused() -> None:
    """A bound below one row; examples that are only predicted."""
    with pytest.raises(ValueError, match="1 or more"):
        learner_of("ftrl_proximal", 0)
    learner = learner_of("ftrl_proximal", 5)
    with pytest.raises(ValueError, match="are learned from"):
        learner.fold(as_record([Example(((7, 1.0),), 1.0)]), 0, learned=np.zeros(1, np.bool_))
