"""The bound on the rows of each field: who gets a row follows from the examples, their order and their bounds."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.log.examples import ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.field_bound import FieldBound
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.table.bounded import MemoryBudget
from tests.core.model.example_records import Example, as_record, random_examples
from tests.core.model.table.test_bounded import DictRows, limit_bytes
from tests.core.model.test_row_bound import OPTIMIZERS, keys_of, learner_of, unbounded_state

FIELDS = ("site", "user", "ad")
NAME_HASHES = {"site": 7, "user": 2**64 - 1, "ad": 0x1234}


def field_of(key: int) -> str | None:
    """Every key is of one field; some, as the bias, of none."""
    return (*FIELDS, None)[key % 4]


@dataclass
class Counts:
    """The oracle's memory: the keys that have a row, and by field how many rows there are and how much was left out."""

    rows: set[int] = field(default_factory=set)
    of_field: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    lost_by_all: int = 0

    def learn(self, example: Example, most_rows: int | None, max_rows: int | None) -> Example:
        """What is learned from an example. most_rows: the bound that its record brings, None for none."""
        kept = []
        for key, value in example.features:
            name = field_of(key) if most_rows is not None else None
            if key not in self.rows:
                if name is not None and self.of_field.get(name, 0) >= (most_rows or 0):
                    self.lost[name] = self.lost.get(name, 0) + 1
                    continue
                if max_rows is not None and len(self.rows) >= max_rows:
                    self.lost_by_all += 1
                    continue
                self.rows.add(key)
                if name is not None:
                    self.of_field[name] = self.of_field.get(name, 0) + 1
            kept.append((key, value))
        return replace(example, features=tuple(kept))


def bounded_record(examples: list[Example], most_rows: int | None, seed: int) -> ExampleRecord:
    """A record whose dictionary is in any order, and whose fields have any numbers; it may lack fields without keys."""
    rng = random.Random(seed)
    record = as_record(examples, shuffle=seed)
    if most_rows is None:
        return record
    names = [
        name for name in FIELDS if rng.random() < 0.5 or any(field_of(key) == name for key in record.keys.tolist())
    ]
    names = names or ["site"]
    rng.shuffle(names)
    numbers = {None: 0} | {name: number for number, name in enumerate(names, 1)}
    record.bound = FieldBound(most_rows, tuple(NAME_HASHES[name] for name in names))
    record.counted = np.array([numbers[field_of(key)] for key in record.keys.tolist()], np.uint8)
    return record


Part = tuple[list[Example], int | None]
"""Examples with the bound that their record brings."""


def parts_of(examples: list[Example], bounds: list[int | None], size: int) -> list[Part]:
    """The examples in as many stretches as there are bounds, cut into records of at most so many."""
    step = -(-len(examples) // len(bounds))
    return [
        (examples[start : min(start + size, begin + step)], bound)
        for begin, bound in zip(range(0, len(examples), step), bounds, strict=False)
        for start in range(begin, min(begin + step, len(examples)), size)
    ]


def fold(learner: Learner, parts: list[Part], *, tick: int = 0, seed: int = 0) -> list[float]:
    margins: list[float] = []
    for place, (examples, bound) in enumerate(parts):
        margins += learner.fold(bounded_record(examples, bound, seed + place), tick).tolist()
    return margins


def assert_counts(learner: Learner, counts: Counts) -> None:
    """The rows, the counts of every field, and what was left out."""
    assert keys_of(learner) == counts.rows
    rows = learner.field_rows
    assert rows is not None
    by_name = {name: NAME_HASHES[name] for name in FIELDS}
    assert {name: rows.rows[key] for name, key in by_name.items()} == {n: counts.of_field.get(n, 0) for n in FIELDS}
    assert {name: rows.held_back[key] for name, key in by_name.items()} == {n: counts.lost.get(n, 0) for n in FIELDS}
    assert (0 if learner.row_bound is None else learner.row_bound.held_back) == counts.lost_by_all


def plain_state(learner: Learner) -> dict[str, object]:
    """All state but that of the bounds."""
    state = unbounded_state(learner)
    state.pop("fields", None)
    return state


SIZES = st.integers(1, 25)
BOUNDS = st.tuples(SIZES, st.lists(st.one_of(st.none(), SIZES), max_size=3)).map(lambda found: [found[0], *found[1]])
"""The first examples have a bound; before that, a row counts only once it has changed."""


@given(
    st.integers(0, 2**32),
    st.sampled_from(OPTIMIZERS),
    BOUNDS,
    st.one_of(st.none(), st.integers(1, 60)),
    st.sampled_from((1, 3, 40, 1000)),
)
@settings(max_examples=60, deadline=None)
def test_a_bounded_learner_is_one_that_never_saw_what_the_oracle_leaves_out(
    seed: int, name: str, bounds: list[int | None], max_rows: int | None, size: int
) -> None:
    """Also where the bound changes on the way, is missing in between, or all rows are bounded too. Margins, digest,
    scalars, counts; however records are cut, dictionaries ordered and fields numbered."""
    examples = random_examples(160, seed)
    counts = Counts()
    step = -(-len(examples) // len(bounds))
    wanted = [counts.learn(example, bounds[i // step], max_rows) for i, example in enumerate(examples)]
    bounded, free = learner_of(name, max_rows), learner_of(name, None)
    found = fold(bounded, parts_of(examples, bounds, size), seed=seed)
    expected = [margin for start in range(0, 160, 7) for margin in free.fold(as_record(wanted[start : start + 7]), 0)]
    assert np.array_equal(found, expected, equal_nan=True)
    assert plain_state(bounded) == plain_state(free)
    assert bounded.digest_full() == bounded.digest() == free.digest()
    assert_counts(bounded, counts)
    assert bounded.field_rows is not None
    assert bounded.field_rows.most_rows == [bound for bound in bounds if bound is not None][-1]


@given(st.integers(0, 2**32), st.sampled_from(OPTIMIZERS), BOUNDS)
@settings(max_examples=25, deadline=None)
def test_a_restart_at_any_checkpoint_decides_alike(seed: int, name: str, bounds: list[int | None]) -> None:
    """Rows through `load`, state through JSON, at every tick."""
    examples = random_examples(120, seed)
    straight, stopping = learner_of(name, None), learner_of(name, None)
    for tick, start in enumerate(range(0, len(examples), 20)):
        bound = bounds[tick % len(bounds)]
        fold(straight, [(examples[start : start + 20], bound)], tick=tick)
        fold(stopping, parts_of(examples[start : start + 20], [bound], 3), tick=tick, seed=seed)
        again = learner_of(name, None)
        for rows in stopping.table.items():
            again.table.load(rows.of_page())
        again.restore(json.loads(json.dumps(stopping.state_scalars())))
        again.table.restart_changes(tick, tick)
        stopping = again
    assert stopping.state_scalars() == straight.state_scalars()
    assert keys_of(stopping) == keys_of(straight)
    assert stopping.digest_full() == straight.digest()


@pytest.mark.parametrize("name", ["ftrl_proximal", "rda"])
def test_a_table_larger_than_memory_decides_alike(name: str) -> None:
    """Known rows that have left memory are known still, and no field's count forgets them."""
    whole, bounded = learner_of(name, None), learner_of(name, None)
    ncols = len(whole.optimizer.columns)
    cold, size = DictRows(ncols), limit_bytes(ncols)
    table = bounded.bound_memory(cold, MemoryBudget(size, size, 0, 0, 1_000))
    counts = Counts()
    examples = random_examples(3_000, 4, keys=9_000, longest=60)
    for tick, start in enumerate(range(0, len(examples), 60)):
        part = examples[start : start + 60]
        for example in part:
            counts.learn(example, 1_500, None)
        record = bounded_record(part, 1_500, tick)
        margins = whole.fold(record, tick).copy()
        assert bounded.fold(record, tick).tobytes() == margins.tobytes()
        if tick % 3 == 0:
            cold.take(table.take_changed_for_checkpoint(tick))
            cold.tick = tick
    assert table.evicted > 1_000 and table.fetched > 1_000
    assert min(counts.of_field.values()) == 1_500 and min(counts.lost.values()) > 100
    assert_counts(whole, counts)
    assert bounded.state_scalars() == whole.state_scalars()
    assert bounded.digest_full() == whole.digest_full() == whole.digest()


def test_a_full_field_leaves_the_others_alone() -> None:
    """Its known features are learned on, its new ones left out; another field, and the bias, get rows as before."""
    learner = learner_of("ftrl_proximal", None)
    first = Example(((4, 1.0), (8, 1.0)), 1.0)
    flood = Example(((12, 1.0), (4, 1.0), (5, 1.0), (7, 1.0)), 0.0)
    fold(learner, [([first, flood], 2)])
    free = learner_of("ftrl_proximal", None)
    free.fold(as_record([first, replace(flood, features=((4, 1.0), (5, 1.0), (7, 1.0)))]), 0)
    assert learner.digest() == free.digest() and keys_of(learner) == {4, 8, 5, 7}
    assert learner.field_rows is not None and learner.field_rows.state() == {
        "most_rows": 2,
        "rows": {f"{7:016x}": 2, f"{2**64 - 1:016x}": 1},
        "held_back": {f"{7:016x}": 1},
    }


def test_a_raised_bound_lets_new_features_in_and_a_lowered_one_takes_none_away() -> None:
    learner = learner_of("ftrl_proximal", None)
    singles = [[Example(((4 * i, 1.0),), 1.0)] for i in range(1, 7)]
    fold(learner, [(singles[0], 1), (singles[1], 1), (singles[2], 2), (singles[3], 1), (singles[0], 1)])
    assert keys_of(learner) == {4, 12} and learner.field_rows is not None
    assert learner.field_rows.held_back == {7: 2}


def test_rows_from_before_the_bound_count_for_no_field() -> None:
    """They are known, and each field may have its rows besides."""
    learner = learner_of("ftrl_proximal", None)
    singles = [[Example(((4 * i, 1.0),), 1.0)] for i in range(1, 5)]
    fold(learner, [(singles[0], None), (singles[0], 1), (singles[1], 1), (singles[2], 1), (singles[3], None)])
    assert keys_of(learner) == {4, 8, 16} and learner.field_rows is not None
    assert (learner.field_rows.rows, learner.field_rows.held_back) == ({7: 1}, {7: 1})


def test_a_row_counts_for_the_field_that_its_key_has_in_the_first_record() -> None:
    """Even if another record says otherwise, or nothing."""
    learner = learner_of("ftrl_proximal", None)
    for number, hashes in ((1, (50, 60)), (2, (50, 60)), (1, (60,))):
        record = as_record([Example(((9, 1.0),), 1.0)])
        record.bound, record.counted = FieldBound(1, hashes), np.array([number], np.uint8)
        learner.fold(record, 0)
    learner.fold(as_record([Example(((9, 1.0), (10, 1.0)), 1.0)]), 0)
    assert learner.field_rows is not None and learner.field_rows.rows == {50: 1} and keys_of(learner) == {9, 10}


def test_a_key_that_no_example_names_counts_for_no_field() -> None:
    learner = learner_of("ftrl_proximal", None)
    record = as_record([Example(((4, 1.0),), 1.0)])
    record.keys = np.array([*record.keys, 8], np.uint64)
    record.bound, record.counted = FieldBound(9, (50,)), np.array([1, 1], np.uint8)
    learner.fold(record, 0)
    assert learner.field_rows is not None and learner.field_rows.rows == {50: 1} and keys_of(learner) == {4}


def test_a_record_as_it_is_read_from_the_log_stays_as_it_is() -> None:
    """Its arrays are read-only views; the cut makes arrays of its own."""
    examples = [replace(e, label=1.0, weight=1.0, log_time_ms=5) for e in random_examples(80, 3)]
    batch = to_batch(as_record(examples))
    batch.counted = np.array([1 + int(key) % 2 for key in batch.keys.tolist()], np.uint8)
    value = encode_examples(0, 0, 1, batch, bound=FieldBound(5, (1, 2)))[0]
    read, untouched = decode(value), decode(value)
    assert isinstance(read, ExampleRecord) and isinstance(untouched, ExampleRecord)
    learner = learner_of("ftrl_proximal", None)
    learner.fold(read, 0)
    assert learner.table.count == 10
    assert all(
        np.array_equal(getattr(read, n), getattr(untouched, n)) for n in ("keys", "indices", "values", "counted")
    )


def test_a_bound_beyond_any_table_is_none() -> None:
    learner = learner_of("ftrl_proximal", None)
    fold(learner, [(random_examples(40, 1), 2**64 - 1)])
    assert learner.field_rows is not None and not learner.field_rows.held_back


def test_what_cannot_be_decided_is_refused() -> None:
    """Examples that are only predicted."""
    record = bounded_record([Example(((4, 1.0),), 1.0)], 3, 0)
    with pytest.raises(ValueError, match="are learned from"):
        learner_of("ftrl_proximal", None).fold(record, 0, learned=np.zeros(1, np.bool_))
