"""The fold: bit for bit what plain Python computes, however its examples are cut into records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.log.dictionary import MAX_KEYS
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.machine.memory import address_of
from stream_learner.core.model import digest as digests
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal, make_optimizer
from tests.core.model.example_records import Example, as_record, random_examples
from tests.oracles.arithmetic import MASK, mix
from tests.oracles.fold import Ftrl

PARAMETERS = [(0.1, 1.0, 1.0, 1.0), (0.5, 0.0, 0.0, 0.0), (2.0, 0.3, 0.05, 0.0), (0.03, 1.0, 0.0, 2.5)]
ROOT = Path(__file__).resolve().parents[3]


def a_learner(parameters: tuple[float, float, float, float]) -> Learner:
    """A learner whose slices are short enough to be several."""
    return Learner(FtrlProximal(*parameters), slice_ms=10_000, slices_kept=4)


def folded(examples: list[Example], size: int, parameters: tuple[float, float, float, float]) -> Learner:
    """A learner that took the examples in records of `size`, each dictionary in another order."""
    learner = a_learner(parameters)
    for start in range(0, len(examples), size):
        learner.fold(as_record(examples[start : start + size], shuffle=start), 0)
    return learner


def rows_of(learner: Learner) -> dict[int, tuple[float, ...]]:
    """Every row's columns by key."""
    parts = learner.table.items()
    return {int(k): tuple(c) for p in parts for k, c in zip(p.keys, p.columns.tolist(), strict=True)}


@given(st.integers(0, 2**32), st.sampled_from(PARAMETERS))
@settings(max_examples=25, deadline=None)
def test_the_fold_is_plain_python_to_the_last_bit(seed: int, parameters: tuple[float, float, float, float]) -> None:
    """Margins, z, n, ticks of change, counts and digest equal those of dictionaries and floats."""
    examples = random_examples(120, seed)
    oracle, learner = Ftrl(*parameters), a_learner(parameters)
    for tick, start in enumerate(range(0, len(examples), 40)):
        part = examples[start : start + 40]
        expected = [oracle.learn(e.features, e.label, e.weight, tick) for e in part]
        margins = learner.fold(as_record(part, shuffle=seed), tick)
        assert np.array_equal(margins, np.array(expected), equal_nan=True)
    assert rows_of(learner) == oracle.rows
    rows = learner.table.rows_of(np.array(list(oracle.rows), np.uint64))
    assert rows.touched.tolist() == [oracle.touched[key] for key in oracle.rows]
    assert (learner.examples, learner.refused) == (oracle.examples, oracle.refused)
    assert learner.digest() == learner.digest_full() == oracle.digest()
    assert learner.nonzero == sum(oracle.weight(key) != 0.0 for key in oracle.rows)


@given(st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_how_examples_are_cut_into_records_changes_nothing(seed: int) -> None:
    """Records of 1, 7 and 1000 examples, dictionaries in any order: same digest, same metrics, same state."""
    examples = random_examples(300, seed)
    whole, *others = (folded(examples, size, PARAMETERS[0]) for size in (1000, 7, 1))
    for other in others:
        assert rows_of(other) == rows_of(whole)
        assert other.state_scalars() == whole.state_scalars()


@pytest.mark.parametrize("seed", range(3))
def test_a_value_of_one_that_is_said_and_one_that_is_not_make_the_same_bits(seed: int) -> None:
    """Examples without a value other than 1 have a loop of their own; so do importances that overflow in it."""
    ones = [
        replace(example, features=tuple((key, 1.0) for key, _ in example.features))
        for example in random_examples(300, seed, longest=40)
    ]
    short, said = (folded([], 1, (0.1, 1.0, 0.1, 1.0)) for _ in range(2))
    record = as_record(ones)
    every = np.arange(len(record.indices), dtype=np.uint32)
    short.fold(record, 0)
    said.fold(replace(record, positions=every, values=np.ones(len(every))), 0)
    assert short.refused == said.refused > 0
    assert (short.digest(), rows_of(short)) == (said.digest(), rows_of(said))


def test_rows_longer_and_shorter_than_the_lanes_agree_with_the_oracle() -> None:
    """Every length around the blocks of four and eight, and very long rows."""
    examples = []
    for length in [*range(20), 63, 64, 65, 1000]:
        features = tuple((key, 1.0 + (key % 5) / 8) for key in range(1, length + 1))
        examples += [Example(features, float(length % 2)), Example(features, float(length % 3 == 0), 2.5)]
    oracle = Ftrl(*PARAMETERS[2])
    expected = [oracle.learn(e.features, e.label, e.weight, 0) for e in examples]
    learner = a_learner(PARAMETERS[2])
    assert learner.fold(as_record(examples), 0).tolist() == expected
    assert learner.digest() == oracle.digest()


@pytest.mark.parametrize(
    "bad",
    [
        Example(((1, 1.0), (2, np.nan)), 1.0),
        Example(((1, 1.0), (2, np.inf)), 1.0),
        Example(((1, 1.0), (9, -np.inf)), 0.0),
        Example(((1, 1.0), (9, 1e200)), 0.0),
        Example(((1, 1.0),), np.nan),
        Example(((1, 1.0),), 1.5),
        Example(((1, 1.0),), -0.5),
        Example(((1, 1.0),), 1.0, np.nan),
        Example(((1, 1.0),), 1.0, np.inf),
        Example(((1, 1.0),), 1.0, -1.0),
        Example(((1, 1.0),), 1.0, 1e300),
    ],
)
def test_an_example_that_is_not_finite_is_refused_whole(bad: Example) -> None:
    """Nothing of it enters the state, not even a row; it is counted, and the next one is learned."""
    good = Example(((1, 1.0), (2, 3.0)), 1.0)
    learner, undisturbed = a_learner(PARAMETERS[0]), a_learner(PARAMETERS[0])
    margins = learner.fold(as_record([good, bad, good]), 0)
    undisturbed.fold(as_record([good, good]), 0)
    assert np.isnan(margins).tolist() == [False, True, False]
    assert (learner.examples, learner.refused) == (2, 1)
    assert learner.digest() == undisturbed.digest()
    assert rows_of(learner) == rows_of(undisturbed)
    assert learner.table.count == 2
    assert learner.progress.summary()["refused"] == 1


def test_an_example_of_importance_zero_is_counted_and_changes_no_row() -> None:
    """An example whose prediction equals its label changes no row either."""
    learner = a_learner(PARAMETERS[0])
    learner.fold(as_record([Example(((1, 1.0),), 1.0, 0.0), Example((), 0.5)]), 0)
    assert (learner.examples, learner.table.count) == (2, 0)
    assert len(learner.table.take_changed_for_checkpoint(0)) == 0


def test_a_restored_learner_goes_on_with_the_same_bits() -> None:
    """State through JSON, rows through `load`, both taken in the middle."""
    examples = random_examples(200, 5)
    learner, straight = folded(examples[:120], 30, PARAMETERS[2]), folded(examples, 200, PARAMETERS[2])
    restored = a_learner(PARAMETERS[2])
    for rows in learner.table.items():
        restored.table.load(rows)
    restored.restore(json.loads(json.dumps(learner.state_scalars())))
    restored.fold(as_record(examples[120:]), 0)
    assert restored.state_scalars() == straight.state_scalars()
    assert rows_of(restored) == rows_of(straight)


def test_a_state_that_is_not_of_these_rows_or_this_optimizer_is_refused() -> None:
    """A lost row is found by the digest; other hyper-parameters by name."""
    learner = folded(random_examples(50, 1), 50, PARAMETERS[0])
    with pytest.raises(ValueError, match="digest"):
        a_learner(PARAMETERS[0]).restore(learner.state_scalars())
    with pytest.raises(ValueError, match="optimizer"):
        a_learner(PARAMETERS[1]).restore(learner.state_scalars())


def test_a_tick_whose_changes_were_taken_is_closed() -> None:
    """Folding into such a tick is refused, and changes nothing."""
    learner = folded(random_examples(50, 1), 50, PARAMETERS[0])
    learner.table.take_changed_for_publication(3)
    digest = learner.digest()
    with pytest.raises(ValueError, match="tick 3"):
        learner.fold(as_record(random_examples(5, 2)), 3)
    assert learner.digest() == digest
    learner.fold(as_record(random_examples(5, 2)), 4)


def test_an_unknown_loss_is_refused() -> None:
    """With the nearest name."""
    with pytest.raises(ValueError, match="did you mean 'logistic'"):
        Learner(FtrlProximal(), loss="logistik")


def test_the_digest_is_of_the_optimizers_scalars_too() -> None:
    """Rows and count of examples being equal, another number of steps makes another digest; the formula is plain."""
    learner = Learner(make_optimizer({"name": "ogd"}))
    learner.fold(as_record(random_examples(40, 3)), 0)
    state = learner.state_scalars()
    rows = sum(int(digests.row_digest(np.uint64(key), address_of(columns), 1)) for key, columns in rows_at(learner))
    expected = mix((rows & MASK) ^ mix(learner.examples))
    for scalar in state["scalars"][2:]:
        expected = mix(expected ^ int(np.float64(float.fromhex(scalar)).view(np.uint64)))
    assert state["scalars"][2:] and learner.digest() == learner.digest_full() == expected
    other = Learner(make_optimizer({"name": "ogd"}))
    for part in learner.table.items():
        other.table.load(part)
    with pytest.raises(ValueError, match="digest"):
        other.restore({**state, "scalars": [*state["scalars"][:2], (999.0).hex(), *state["scalars"][3:]]})


def rows_at(learner: Learner) -> Iterator[tuple[int, np.ndarray]]:
    """Every row's key and columns."""
    for part in learner.table.items():
        yield from zip(part.keys.tolist(), part.columns, strict=True)


def with_columns(**columns: Any) -> Callable[[ExampleRecord], ExampleRecord]:
    """A change of a record's columns."""
    return lambda record: replace(record, **columns)


@pytest.mark.parametrize(
    "damage",
    [
        with_columns(indices=np.array([0, 1, 2], np.uint16)),
        with_columns(row_len=np.array([2, 2], np.uint16)),
        with_columns(row_len=np.array([3], np.uint16)),
        with_columns(keys=np.array([5, 0], np.uint64)),
        with_columns(keys=np.array([5], np.uint64)),
        with_columns(positions=np.array([3], np.uint32)),
        with_columns(positions=np.array([1, 1], np.uint32), values=np.array([2.0, 3.0])),
        with_columns(values=np.array([2.0, 3.0])),
        with_columns(label=np.array([1.0])),
        with_columns(log_time_ms=np.array([1])),
        with_columns(keys=np.arange(1, MAX_KEYS + 2, dtype=np.uint64)),
    ],
)
def test_a_record_whose_columns_disagree_is_refused_before_anything_changes(
    damage: Callable[[ExampleRecord], ExampleRecord],
) -> None:
    """A wrong index would be a crash, so it is an error instead, and the learner may go on."""
    learner = a_learner(PARAMETERS[0])
    record = as_record([Example(((5, 1.0), (6, 2.0)), 1.0), Example(((5, 1.0),), 0.0)])
    with pytest.raises(ValueError, match="record"):
        learner.fold(damage(record), 0)
    learner.fold(record, 0)
    fresh = a_learner(PARAMETERS[0])
    fresh.fold(record, 0)
    assert learner.state_scalars() == fresh.state_scalars()


@pytest.mark.thorough
def test_a_generic_processor_computes_the_same_bits(tmp_path: Path) -> None:
    """The kernels compiled without any vector extension give the digest and metrics of this machine's own."""
    script = (
        "import json; from tests.core.model.test_learner import *; "
        "print(json.dumps(folded(random_examples(400, 3), 64, PARAMETERS[2]).state_scalars()))"
    )
    settings = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    output = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(output) == folded(random_examples(400, 3), 64, PARAMETERS[2]).state_scalars()
