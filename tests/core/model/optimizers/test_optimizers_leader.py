"""Follow the regularized leader, by the fold: equal to the dense oracle, its equivalences, its epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_learner.core.model.optimizers import make_optimizer
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import (
    assert_agrees,
    key_of,
    learner_for,
    played,
    resting_examples,
    some_examples,
    weights_of,
)

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ftrl_fixed", {"strength": 5.0}),
    ("ftrl_sqrt", {"c": 2.0}),
    ("ftrl_doubling", {"first": 6, "c": 2.0}),
    ("ftrl_doubling", {"first": 7, "c": 2.0, "keep": True}),
    ("ftrl_proximal", {"alpha": 0.3, "beta": 0.5, "l1": 0.1, "l2": 0.2}),
    ("ftrl_proximal_growing_l1", {"alpha": 0.3, "beta": 0.5, "l1": 0.002, "l2": 0.1}),
)
MOVING = ("ftrl_sqrt", "ftrl_doubling", "ftrl_proximal_growing_l1")


@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_rows_that_rest_for_long_are_read_as_they_are_now(name: str, hyper: dict[str, Any]) -> None:
    """Gaps of more than a hundred examples, over the ends of epochs."""
    assert_agrees(name, "logistic", hyper, examples=resting_examples("logistic", 1))
    assert_agrees(name, "half_squared", hyper, examples=resting_examples("half_squared", 2), passes=2)


def after(name: str, hyper: dict[str, Any], examples: Sequence[Example], loss: str = "logistic") -> list[float]:
    """All weights after the examples."""
    learner = learner_for(name, loss, hyper)
    learner.fold(as_record(list(examples)), 0)
    return [float(w) for w in weights_of(learner)]


def test_a_fixed_strength_is_gradient_descent_at_a_constant_rate() -> None:
    """lambda = 1 / eta."""
    examples = some_examples("logistic", 3)
    expected = after("ogd", {"eta": 0.25}, examples)
    assert after("ftrl_fixed", {"strength": 4.0}, examples) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["ftrl_proximal", "ftrl_proximal_growing_l1"])
@pytest.mark.parametrize("beta", [0.0, 1.0, 3.5])
def test_proximal_without_penalties_is_descent_with_adaptive_rates(name: str, beta: float) -> None:
    """w -= alpha g / (beta + sqrt G2), step for step, for any beta."""
    rng = np.random.default_rng(int(beta * 10))
    gradients = rng.normal(size=100).tolist()
    _, path = played(name, {"alpha": 0.3, "beta": beta, "l1": 0.0, "l2": 0.0}, gradients)
    w = squares = 0.0
    for g, got in zip(gradients, path, strict=True):
        squares += g * g
        w -= 0.3 * g / (beta + math.sqrt(squares))
        assert got == pytest.approx(w, rel=1e-12, abs=1e-14)


def test_proximal_without_beta_is_adagrad() -> None:
    """FTRL-Proximal with beta, l1 and l2 at 0 is AdaGrad."""
    examples = some_examples("logistic", 8)
    proximal = after("ftrl_proximal", {"alpha": 0.3, "beta": 0.0, "l1": 0.0, "l2": 0.0}, examples)
    assert proximal == pytest.approx(after("adagrad", {"eta": 0.3}, examples), rel=1e-10)


def test_a_penalty_that_does_not_grow_from_zero_is_no_penalty() -> None:
    """With l1 = 0 both kinds of FTRL-Proximal are the same."""
    examples = resting_examples("logistic", 5)
    hyper = {"alpha": 0.3, "beta": 0.5, "l1": 0.0, "l2": 0.1}
    assert after("ftrl_proximal_growing_l1", hyper, examples) == pytest.approx(
        after("ftrl_proximal", hyper, examples), rel=1e-11
    )


def test_the_strength_that_grows_knows_the_past_only() -> None:
    """w_t = -G1_{t-1} / (c sqrt t): what the t-th example is predicted with."""
    gradients = [0.5, -2.0, 1.5, 3.0]
    _, path = played("ftrl_sqrt", {"c": 2.0}, gradients)
    expected = [-sum(gradients[:t]) / (2.0 * math.sqrt(t + 1)) for t in range(1, 5)]
    assert path == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("keep", [False, True])
def test_epochs_end_at_powers_of_two_times_the_first(keep: bool) -> None:
    """By hand: first = 3, epochs end with examples 3, 6, 12; the strengths are sqrt of 3, 3, 6, 12."""
    gradients = [1.0] * 14
    _, path = played("ftrl_doubling", {"first": 3, "c": 1.0, "keep": keep}, gradients)
    begins = [0, 0, 3, 3, 3, 6, 6, 6, 6, 6, 6, 12, 12, 12]
    strengths = [3, 3, 3, 3, 3, 6, 6, 6, 6, 6, 6, 12, 12, 12]
    expected = [
        -(t - (0 if keep else b)) / math.sqrt(s) for t, b, s in zip(range(1, 15), begins, strengths, strict=True)
    ]
    assert path == pytest.approx(expected, rel=1e-14)


def test_a_row_of_an_epoch_that_is_over_weighs_nothing_and_starts_afresh() -> None:
    """Read before its next example, and after it; a row that was learned from at the very end of an epoch too."""
    learner, _ = played("ftrl_doubling", {"first": 4}, [1.0, 1.0])
    late = Example(((key_of(1), 1.0),), 1.0)
    learner.fold(as_record([Example((), 0.0), late]), 0)
    assert weights_of(learner).tolist() == [0.0] * 12
    learner.fold(as_record([late, Example(((key_of(0), 1.0),), 5.0)]), 0)
    assert weights_of(learner)[:2].tolist() == [-2.5, -0.5]


@pytest.mark.parametrize(("name", "hyper"), [case for case in CASES if case[0] in MOVING])
def test_weights_move_without_an_example_of_their_feature(name: str, hyper: dict[str, Any]) -> None:
    """Read from the same rows, which nobody wrote."""
    learner, _ = played(name, hyper, [-1.0, -1.0])
    before, rows = weights_of(learner)[0], learner.table.rows_digest
    learner.fold(as_record([Example((), 0.0)] * 30), 0)
    assert 0.0 <= weights_of(learner)[0] < before
    assert learner.table.rows_digest == rows
    assert learner.optimizer.moves and learner.optimizer.streaming


OSCILLATION = [0.5, *([-1.0, 1.0] * 200)]


def test_on_the_oscillation_a_growing_penalty_comes_to_rest_and_a_fixed_one_only_if_it_is_large() -> None:
    """The lecture's gradients 0.5, -1, +1, -1, ..., whose best fixed answer is 0."""
    plain = {"alpha": 1.0, "beta": 1.0, "l2": 0.0}
    for l1 in (0.6, 0.9):
        for name in ("ftrl_proximal", "ftrl_proximal_growing_l1"):
            assert not any(played(name, {"l1": l1, **plain}, OSCILLATION)[1])
    for l1 in (0.05, 0.1, 0.3):
        _, growing = played("ftrl_proximal_growing_l1", {"l1": l1, **plain}, OSCILLATION)
        _, fixed = played("ftrl_proximal", {"l1": l1, **plain}, OSCILLATION)
        assert any(growing[:3]) and not any(growing[-350:])
        assert any(fixed[-50:])


def test_a_weight_that_shrank_away_is_positive_zero() -> None:
    """No sign bit is published for nothing, nor for a feature never seen."""
    for name, hyper in CASES:
        learner = learner_for(name, "linear", hyper)
        learner.fold(as_record([Example(((key_of(0), 1.0),), 0.01), Example(((key_of(1), 1.0),), -0.01)]), 0)
        learner.fold(as_record([Example((), 0.0)] * 20), 0)
        zeros = [w for w in weights_of(learner).tolist() if w == 0.0]
        assert len(zeros) >= 10 and all(math.copysign(1.0, w) == 1.0 for w in zeros)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "ftrl_fixed"}, "needs strength"),
        ({"name": "ftrl_fixed", "strength": 0.0}, "strength"),
        ({"name": "ftrl_sqrt", "c": -1.0}, "c must"),
        ({"name": "ftrl_doubling", "first": 0}, "first"),
        ({"name": "ftrl_doubling", "first": 1.5}, "first"),
        ({"name": "ftrl_doubling", "first": math.nan}, "first"),
        ({"name": "ftrl_doubling", "c": math.inf}, "c must"),
        ({"name": "ftrl_proximal_growing_l1"}, "needs l1"),
        ({"name": "ftrl_proximal_growing_l1", "l1": -0.1}, "l1"),
        ({"name": "ftrl_proximal_growing_l1", "l1": 0.1, "alpha": 0.0}, "alpha"),
    ],
)
def test_hyper_parameters_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    """Each is named."""
    with pytest.raises(ValueError, match=said):
        make_optimizer(given)
