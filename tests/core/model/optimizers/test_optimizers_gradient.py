"""The gradient descent family, the invariant updates, averaging: equal to the dense oracle, whatever the loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stream_learner.core.machine import arithmetic
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import make_loss
from stream_learner.core.model.optimizers import invariant, make_optimizer
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import (
    DIMENSION,
    LOSS_NAMES,
    OPTIONS,
    assert_agrees,
    in_domain,
    key_of,
    learner_for,
    oracle_loss,
    some_examples,
    weights_of,
)
from tests.oracles.optimizers.importance import invariant_scale, margin_gain

POWER = {"schedule": "power", "decay": 0.7, "t0": 5.0, "power": 0.3}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ogd", {"eta": 0.2}),
    ("ogd", {"eta": 0.5, "schedule": "root", "low": -0.2, "high": 0.3}),
    ("ogd", {"eta": 0.2, **POWER}),
    ("ogd_global", {"radius": 0.4, "scale": 0.3}),
    ("ogd_global", {"radius": 2.0, "scale": 0.2, "diameter": 1.5}),
    ("pc_ogd", {"low": -0.6, "high": 0.5, "scale": 0.3}),
    ("pc_ogd", {"low": -1.0, "high": 1.0, "scale": 0.2, "two": 1.0}),
    ("adagrad", {"eta": 0.2}),
    ("adagrad", {"eta": 0.3, "low": -0.3, "high": 0.5}),
    ("normalized", {"eta": 0.05}),
    ("normalized", {"eta": 0.1, "schedule": "root"}),
    ("invariant", {"eta": 0.3}),
    ("averaged", {"eta": 0.2}),
    ("averaged", {"eta": 0.4, "schedule": "root", "low": -0.2, "high": 0.2}),
)
ONE_OF_EACH = dict(reversed(CASES))


@pytest.mark.parametrize("name", ["ogd", "averaged", "normalized"])
def test_the_learning_rate_falls_with_each_pass(name: str) -> None:
    """Schedule power over three passes, decay included."""
    assert_agrees(name, "logistic", {"eta": 0.2, **POWER}, passes=3)
    one, three = (learner_for(name, "logistic", {"eta": 0.2, **POWER}) for _ in range(2))
    for learner, passes in ((one, 0), (three, 3)):
        for _ in range(passes):
            learner.end_pass()
        learner.fold(as_record([Example(((key_of(0), 1.0),), 1.0)]), 0)
    assert weights_of(three)[0] == pytest.approx(0.7**3 * weights_of(one)[0], rel=1e-14)


@pytest.mark.parametrize(
    ("name", "hyper"), [("ogd", {"eta": 1e200}), ("adagrad", {"eta": 1.0}), ("averaged", {"eta": 1e200})]
)
def test_a_step_that_would_overflow_is_refused(name: str, hyper: dict[str, Any]) -> None:
    """Already changed rows of the same example are put back, the clock too."""
    good = Example(((key_of(0), 1.0),), 1.0, 1e-210)
    bad = Example(((key_of(0), 1.0), (key_of(1), 1e200)), 1.0)
    learner, undisturbed = learner_for(name, "half_squared", hyper), learner_for(name, "half_squared", hyper)
    margins = learner.fold(as_record([good, bad, good]), 0)
    undisturbed.fold(as_record([good, good]), 0)
    assert np.isnan(margins).tolist() == [False, True, False]
    assert learner.digest() == undisturbed.digest()
    assert learner.state_scalars()["scalars"] == undisturbed.state_scalars()["scalars"]


def test_a_weight_never_leaves_its_box() -> None:
    """Both bounds are reached, none is passed."""
    for name, hyper in (("ogd", {"eta": 3.0, "low": -0.25, "high": 0.5}), ("pc_ogd", {"low": -0.25, "high": 0.5})):
        learner, seen = learner_for(name, "logistic", hyper), set()
        for example in some_examples("logistic", 1):
            learner.fold(as_record([example]), 0)
            seen |= set(weights_of(learner).tolist())
        assert (min(seen), max(seen)) == (-0.25, 0.5)


def test_a_coordinate_without_a_gradient_is_left_alone() -> None:
    """Importance 0, a loss of slope 0 and a value of 0 are no 0/0 in any rule."""
    for name, hyper in ONE_OF_EACH.items():
        learner = learner_for(name, "hinge", hyper)
        learner.fold(as_record([Example(((key_of(0), 1.0), (key_of(1), 0.0)), 1.0, 0.0), Example((), 1.0)]), 0)
        assert weights_of(learner).tolist() == [0.0] * DIMENSION
        assert learner.refused == 0


def test_the_normalized_rule_does_not_care_for_the_scale_of_a_feature() -> None:
    """Every feature multiplied by its own power of two from the first example on: the same predictions."""
    examples = some_examples("logistic", 3)
    scaled = [
        Example(tuple((key, x * 2.0 ** (key % 23 - 11)) for key, x in e.features), e.label, e.weight) for e in examples
    ]
    margins = [
        learner_for("normalized", "logistic", {"eta": 0.1}).fold(as_record(part), 0) for part in (examples, scaled)
    ]
    assert margins[0].tolist() == pytest.approx(margins[1].tolist(), rel=1e-12, abs=1e-14)


INVARIANT_LOSSES = [loss for loss in LOSS_NAMES if loss != "linear"]


@pytest.mark.parametrize("loss", [loss for loss in LOSS_NAMES if loss not in ("logarithmic", "hellinger")])
def test_the_law_of_importance(loss: str) -> None:
    """One update with importance a + b is one with a, then one with b, in any stream of examples."""
    hyper = {"eta": 0.4}
    whole, parts = learner_for("invariant", loss, hyper), learner_for("invariant", loss, hyper)
    for tick, example in enumerate(some_examples(loss, 9, count=40)):
        a, b = 0.3 * example.weight, 0.7 * example.weight
        whole.fold(as_record([example]), tick)
        parts.fold(as_record([Example(example.features, example.label, h) for h in (a, b)]), tick)
        assert weights_of(parts).tolist() == pytest.approx(weights_of(whole).tolist(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("loss", ["logarithmic", "hellinger"])
def test_the_law_of_importance_between_the_bounds_of_a_probability(loss: str) -> None:
    """The same where the margin is a probability, as long as it is read as it is."""
    ours, rng = make_loss(loss), np.random.default_rng(6)
    for _ in range(200):
        p, y, size = float(rng.uniform(0.3, 0.7)), float(rng.integers(2)), float(rng.uniform(0.1, 2.0))
        a, b = (float(rng.uniform(0.0, 0.02)) for _ in range(2))
        first = invariant.invariant_scale(ours.code, ours.option, p, y, a, 1.0, size)
        second = invariant.invariant_scale(ours.code, ours.option, p - first * size, y, b, 1.0, size)
        both = invariant.invariant_scale(ours.code, ours.option, p, y, a + b, 1.0, size)
        assert first + second == pytest.approx(both, rel=1e-12)


@pytest.mark.parametrize("loss", INVARIANT_LOSSES)
def test_closed_forms_are_those_of_the_oracle_over_many_magnitudes(loss: str) -> None:
    """Importance times rate times size from 1e-3 to 1e3, where the printed forms do not cancel much."""
    rng, theirs, ours = np.random.default_rng(4), oracle_loss(loss), make_loss(loss, **OPTIONS.get(loss, {}))
    for _ in range(300):
        p = float(rng.uniform(0.06, 0.94) if loss in ("logarithmic", "hellinger") else rng.normal() * 3.0)
        y = in_domain(loss, float(rng.integers(2) if loss != "quantile" else rng.normal()))
        eta, size, h = (float(10.0 ** rng.uniform(-1, 1)) for _ in range(3))
        got = invariant.invariant_scale(ours.code, ours.option, p, y, h, eta, size)
        assert got == pytest.approx(invariant_scale(theirs, p, y, h, eta, size), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_a_small_invariant_step_is_the_gradient_step_to_the_last_digits(loss: str) -> None:
    """Nothing cancels: s(h) = h eta dl/dp (1 + O(h eta X)), down to products that are no longer numbers."""
    ours, theirs = make_loss(loss, **OPTIONS.get(loss, {})), oracle_loss(loss)
    for p in (0.3, 0.7):
        for y in (0.0, 1.0):
            label = in_domain(loss, y)
            for eta in (1e-12, 1e-30, 1e-200, 1e-310):
                got = invariant.invariant_scale(ours.code, ours.option, p, label, 1.0, eta, 1e-20)
                assert got == pytest.approx(eta * theirs.slope(p, label), rel=1e-11, abs=0.0)


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_an_invariant_step_never_passes_its_label(loss: str) -> None:
    """However large the importance: a finite step; with the hinge and the distances exactly onto the label."""
    for y, h in ((1.0, 1e6), (0.0, 1e6), (1.0, 1e300)):
        learner = learner_for("invariant", loss, {"eta": 1.0})
        learner.fold(as_record([Example(((key_of(0), 2.0),), y, h)]), 0)
        assert learner.refused == 0
        margin = 2.0 * weights_of(learner)[0]
        if loss in ("hinge", "quantile", "squared", "half_squared"):
            assert margin == pytest.approx(in_domain(loss, y), abs=1e-12)


def test_the_invariant_rule_for_a_linear_loss_is_gradient_descent() -> None:
    """A slope that does not change with the margin leaves nothing to integrate."""
    learners = [learner_for(name, "linear", {"eta": 0.3}) for name in ("ogd", "invariant")]
    for learner in learners:
        learner.fold(as_record(some_examples("linear", 2)), 0)
    assert weights_of(learners[0]).tolist() == pytest.approx(weights_of(learners[1]).tolist(), rel=1e-12)


def test_a_soft_label_has_no_closed_form() -> None:
    """The invariant rule refuses it, and learns the next example."""
    learner = learner_for("invariant", "logistic", {})
    soft, hard = Example(((key_of(0), 1.0),), 0.25), Example(((key_of(0), 1.0),), 1.0)
    assert np.isnan(learner.fold(as_record([soft, hard]), 0)).tolist() == [True, False]
    assert learner.refused == 1


@pytest.mark.parametrize("m", [-900.0, -20.0, -1.0, 0.0, 1.0, 20.0, 300.0])
@pytest.mark.parametrize("b", [1e-9, 1e-3, 1.0, 50.0, 1e8])
def test_the_gain_of_a_logistic_margin_is_the_oracles(m: float, b: float) -> None:
    """By Newton's method on the same equation with the C library's functions."""
    assert arithmetic.margin_gain(m, b) == pytest.approx(margin_gain(m, b), rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "ogd", "eta": 0.0}, "eta"),
        ({"name": "ogd", "schedule": "roots"}, "schedule"),
        ({"name": "ogd", "low": 0.1}, "low and high must hold 0"),
        ({"name": "ogd", "rate": 1.0}, "no hyper-parameter 'rate'"),
        ({"name": "ogd_global"}, "needs radius"),
        ({"name": "ogd_global", "radius": -1.0}, "radius"),
        ({"name": "pc_ogd", "low": 0.0, "high": 0.0}, "high - low"),
        ({"name": "pc_ogd", "low": -1.0, "high": 1.0, "two": 0.0}, "two"),
        ({"name": "adagrad", "eta": "fast"}, "adagrad"),
        ({"name": "normalized", "t0": -1.0}, "t0"),
        ({"name": "invariant", "eta": float("nan")}, "eta"),
    ],
)
def test_hyper_parameters_that_cannot_work_are_refused(settings: dict[str, Any], said: str) -> None:
    """Each is named with its value."""
    with pytest.raises(ValueError, match=said):
        make_optimizer(settings)


@pytest.mark.parametrize("name", ["ogd", "adagrad", "averaged"])
def test_an_infinite_bound_is_none(name: str) -> None:
    """JSON has no infinity; either way of saying "no bound" is the same optimizer."""
    optimizer = make_optimizer({"name": name, "low": -math.inf, "high": math.inf})
    assert optimizer == make_optimizer({"name": name})
    with pytest.raises(ValueError, match="must hold 0"):
        make_optimizer({"name": name, "low": math.inf})


def test_a_restored_learner_must_have_the_same_option_of_the_loss() -> None:
    """A quantile is another loss when its tau is."""
    learner = Learner(make_optimizer({"name": "ogd"}), loss=make_loss("quantile", tau=0.3))
    with pytest.raises(ValueError, match="quantile"):
        Learner(make_optimizer({"name": "ogd"}), loss="quantile").restore(learner.state_scalars())
