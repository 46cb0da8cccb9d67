"""L1 inside the update, lazily: equal to the dense oracle however long a row rests; exact zeros."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.model.optimizers import make_optimizer, sparse
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import (
    assert_agrees,
    key_of,
    learner_for,
    oracle_for,
    oracle_margin,
    played,
    resting_examples,
    some_examples,
    weights_of,
)

ROOT = {"eta": 0.3, "schedule": "root"}
POWER = {"eta": 0.3, "schedule": "power", "t0": 5.0, "power": 0.3}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("l1_subgradient", {"l1": 0.05, "eta": 0.2}),
    ("l1_subgradient", {"l1": 0.05, **ROOT}),
    ("l1_subgradient", {"l1": 0.05, **POWER}),
    ("simple_truncation", {"theta": 0.05, "every": 3}),
    ("simple_truncation", {"theta": 0.01, **ROOT}),
    ("truncated_gradient", {"l1": 0.02, "theta": 0.2, "every": 4}),
    ("truncated_gradient", {"l1": 0.02, "every": 7, "decay": 0.7, **POWER}),
    ("fobos", {"l1": 0.02}),
    ("fobos", {"l1": 0.02, **ROOT}),
    ("rda", {"l1": 0.005, "gamma": 5.0}),
)
ONE_OF_EACH = dict(reversed(CASES))
SHRINKS: tuple[tuple[str, dict[str, Any]], ...] = (*CASES[:3], *CASES[5:])


@pytest.mark.parametrize("loss", ["logistic", "half_squared"])
@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_rows_that_rest_for_long_are_brought_up_to_date(name: str, hyper: dict[str, Any], loss: str) -> None:
    """Gaps of more than a hundred examples, read and learned from at their end."""
    assert_agrees(name, loss, hyper, examples=resting_examples(loss, 1))


@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_a_weight_can_be_read_after_any_number_of_steps(name: str, hyper: dict[str, Any]) -> None:
    """After each of a hundred examples without features the weights are the dense ones, and no row was written."""
    learner, oracle = learner_for(name, "logistic", hyper), oracle_for(name, "logistic", hyper)
    for example in some_examples("logistic", 11, count=40):
        learner.fold(as_record([example]), 0)
        oracle_margin(oracle, "logistic", example)
    rows, seen = learner.table.rows_digest, set()
    for _ in range(100):
        assert weights_of(learner).tolist() == pytest.approx(oracle.weights().tolist(), rel=1e-9, abs=1e-12)
        seen.add(tuple(weights_of(learner).tolist()))
        learner.fold(as_record([Example((), 1.0)]), 0)
        oracle_margin(oracle, "logistic", Example((), 1.0))
    assert learner.table.rows_digest == rows
    assert len(seen) > 2 or name == "simple_truncation"


@pytest.mark.parametrize(("name", "hyper"), [case for case in CASES if case[1].get("schedule") == "power"])
def test_the_learning_rate_falls_with_each_pass(name: str, hyper: dict[str, Any]) -> None:
    """A row that rests over the end of a pass is shrunk by the rates of both."""
    assert_agrees(name, "logistic", hyper, passes=3)
    assert_agrees(name, "logistic", hyper, passes=2, examples=resting_examples("logistic", 2, count=120))


@settings(max_examples=60, deadline=None)
@given(st.floats(-2.0, 2.0), st.integers(0, 3000), st.floats(1e-3, 0.3))
def test_a_weight_swings_around_zero_as_if_every_step_were_taken(w: float, steps: int, a: float) -> None:
    """The closed form of the L1 subgradient at a constant rate, where it is not within rounding of 0."""
    walked, nearest = w, math.inf
    for _ in range(steps):
        walked -= math.copysign(a, walked) if walked != 0.0 else 0.0
        nearest = min(nearest, abs(walked))
    if nearest > 1e-9 * a:
        assert sparse._swung(w, float(steps), a) == pytest.approx(walked, abs=1e-11)


def test_a_weight_that_hits_zero_stays() -> None:
    """sgn(0) = 0; powers of two make the sums exact."""
    assert [sparse._swung(0.75, float(n), 0.25) for n in range(5)] == [0.75, 0.5, 0.25, 0.0, 0.0]
    assert [sparse._swung(-0.625, float(n), 0.25) for n in range(6)] == [-0.625, -0.375, -0.125, 0.125, -0.125, 0.125]


@pytest.mark.parametrize("name", ["fobos", "truncated_gradient"])
def test_shrinkage_does_not_drift_over_many_examples(name: str) -> None:
    """After 180,000 examples a resting weight has lost their sum, in exact fractions, to the last bits."""
    learner, _ = played(name, {"l1": 1e-5, "eta": 0.1}, [-7.0])
    (start,) = weights_of(learner)[:1]
    for _ in range(3):
        learner.fold(as_record([Example((), 0.0)] * 60_000), 0)
    lost = Fraction(0.1 * 1e-5) * 180_000
    assert abs(Fraction(float(weights_of(learner)[0])) - (Fraction(float(start)) - lost)) < Fraction(2, 10**16)


def test_truncated_gradient_degenerates_to_fobos_and_to_simple_truncation() -> None:
    """Without a threshold and at every example, to the bit; and where a shrinkage is as large as the threshold."""
    examples = resting_examples("logistic", 3)
    pairs = (
        (("truncated_gradient", {"l1": 0.02, "every": 1, **ROOT}), ("fobos", {"l1": 0.02, **ROOT})),
        (
            ("truncated_gradient", {"l1": 0.1, "theta": 0.03, "every": 3}),
            ("simple_truncation", {"theta": 0.03, "every": 3}),
        ),
    )
    for one, other in pairs:
        learners = [learner_for(name, "logistic", hyper) for name, hyper in (one, other)]
        for learner in learners:
            learner.fold(as_record(examples), 0)
        weights = [weights_of(learner).tolist() for learner in learners]
        assert weights[0] == weights[1]
        assert 0.0 in weights[0] and any(weights[0])


@pytest.mark.parametrize(
    ("name", "hyper"),
    [(name, {"l1": 0.0}) for name in ("l1_subgradient", "truncated_gradient", "fobos")]
    + [("simple_truncation", {"theta": 0.0, "every": 2})],
)
def test_without_a_penalty_it_is_gradient_descent(name: str, hyper: dict[str, Any]) -> None:
    """To the bit, at a falling rate too."""
    examples = some_examples("logistic", 4)
    learners = [learner_for(name, "logistic", {**hyper, **ROOT}), learner_for("ogd", "logistic", ROOT)]
    for learner in learners:
        learner.fold(as_record(examples), 0)
    assert weights_of(learners[0]).tolist() == weights_of(learners[1]).tolist()


OSCILLATION = [0.5, *([-1.0, 1.0] * 200)]


@pytest.mark.parametrize("l1", [0.1, 0.3, 0.6, 0.9])
def test_on_the_oscillation_the_subgradient_never_rests_and_fobos_keeps_leaving_zero(l1: float) -> None:
    """The lecture's gradients 0.5, -1, +1, -1, ..., whose best fixed answer is 0."""
    _, subgradient = played("l1_subgradient", {"l1": l1, "eta": 0.07}, OSCILLATION)
    _, fobos = played("fobos", {"l1": l1, "eta": 0.07}, OSCILLATION)
    assert all(w != 0.0 for w in subgradient)
    assert np.count_nonzero(fobos[-100:]) >= 40


def test_on_the_oscillation_dual_averaging_stays_at_zero() -> None:
    """From the first example on if lambda is 0.6 or more; with a small lambda it comes to rest there."""
    for l1 in (0.6, 0.9):
        assert not any(played("rda", {"l1": l1, "gamma": 1.0}, OSCILLATION)[1])
    for l1 in (0.05, 0.1, 0.3):
        _, path = played("rda", {"l1": l1, "gamma": 1.0}, OSCILLATION)
        assert any(path[:3]) and not any(path[-350:])


@pytest.mark.parametrize(("name", "hyper"), SHRINKS[3:])
def test_zero_is_exact_and_positive(name: str, hyper: dict[str, Any]) -> None:
    """A weight that shrank away is +0.0, whichever side it came from, and a sign bit is never published."""
    for g in (-0.1, 0.1):
        learner, _ = played(name, hyper, [g])
        learner.fold(as_record([Example((), 0.0)] * 2000), 0)
        assert math.copysign(1.0, weights_of(learner)[0]) == 1.0
        assert learner.count_nonzero() == np.count_nonzero(weights_of(learner)) == 0


@pytest.mark.parametrize(("name", "hyper"), ONE_OF_EACH.items())
def test_a_feature_without_a_gradient_changes_no_row(name: str, hyper: dict[str, Any]) -> None:
    """Importance 0, or a loss of slope 0: time passes, weights move, and nothing has to be stored."""
    learner, oracle = learner_for(name, "hinge", hyper), oracle_for(name, "hinge", hyper)
    idle = (Example(((key_of(0), 1.0), (key_of(5), 2.0)), 1.0, 0.0), Example(((key_of(0), 1e3),), 1.0))
    for tick, example in enumerate([Example(((key_of(0), 1.0),), 1.0), *(idle * 20)]):
        learner.fold(as_record([example]), tick)
        oracle_margin(oracle, "hinge", example)
        if oracle.weights()[0] > 2e-3:
            assert weights_of(learner).tolist() == pytest.approx(oracle.weights().tolist(), rel=1e-9, abs=1e-12)
    assert learner.table.rows_of(np.array([key_of(0), key_of(5)], np.uint64)).touched.tolist()[1] == -1
    assert learner.table.count == 1


def test_the_subgradient_streams_only_at_a_constant_rate() -> None:
    """Else the reason is said; the others stream at any rate."""
    constant, falling = (make_optimizer({"name": "l1_subgradient", "l1": 0.1, **s}) for s in ({}, ROOT))
    assert (constant.streaming, constant.reason) == (True, "")
    assert not falling.streaming and "every example" in falling.reason
    assert all(make_optimizer({"name": name, **hyper}).streaming for name, hyper in CASES if name != "l1_subgradient")
    assert all(make_optimizer({"name": name, **hyper}).moves for name, hyper in CASES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "l1_subgradient"}, "needs l1"),
        ({"name": "l1_subgradient", "l1": -1.0}, "l1"),
        ({"name": "l1_subgradient", "l1": 0.1, "schedule": "power", "decay": 0.5}, "decay"),
        ({"name": "simple_truncation"}, "needs theta"),
        ({"name": "simple_truncation", "theta": math.nan}, "theta"),
        ({"name": "simple_truncation", "theta": 0.1, "every": 0}, "every"),
        ({"name": "truncated_gradient", "l1": 0.1, "every": 2.5}, "every"),
        ({"name": "truncated_gradient", "l1": 0.1, "theta": -0.1}, "theta"),
        ({"name": "truncated_gradient", "l1": 0.1, "theta": math.nan}, "theta"),
        ({"name": "fobos", "l1": math.inf}, "l1"),
        ({"name": "fobos", "l1": 0.1, "eta": 0.0}, "eta"),
        ({"name": "rda", "l1": 0.1}, "needs gamma"),
        ({"name": "rda", "l1": 0.1, "gamma": 0.0}, "gamma"),
    ],
)
def test_hyper_parameters_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    """Each is named."""
    with pytest.raises(ValueError, match=said):
        make_optimizer(given)


def test_an_infinite_threshold_is_none() -> None:
    """What a configuration may say either way."""
    endless = make_optimizer({"name": "truncated_gradient", "l1": 0.1, "theta": math.inf})
    assert endless == make_optimizer({"name": "truncated_gradient", "l1": 0.1})
