"""Passive-Aggressive and confidence-weighted, by the fold: equal to the dense oracle, and what they are defined by."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import make_optimizer
from stream_learner.core.model.optimizers.baselines import confidence_weighted_scale
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import (
    DIMENSION,
    LOSS_NAMES,
    assert_agrees,
    in_domain,
    key_of,
    learner_for,
    resting_examples,
    some_examples,
    weights_of,
)

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("passive_aggressive", {}),
    ("confidence_weighted", {}),
    ("confidence_weighted", {"phi": 0.3, "a": 2.5}),
)
NAMES = ("passive_aggressive", "confidence_weighted")


@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_it_is_the_dense_oracle(name: str, hyper: dict[str, Any]) -> None:
    """Every prediction, and all weights after every few examples; importances also 0; both notations of labels."""
    for seed in range(5):
        assert_agrees(name, "hinge", hyper, seed=seed, passes=2)
    assert_agrees(name, "hinge", hyper, examples=resting_examples("hinge", 1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", [loss for loss in LOSS_NAMES if loss != "hinge"])
def test_other_losses_are_refused(name: str, loss: str) -> None:
    """When the learner is made, with the name of the one that is meant."""
    with pytest.raises(ValueError, match=f"{name}.*hinge.*{loss}"):
        learner_for(name, loss, {})


def learned(learner: Learner, example: Example) -> float:
    """The margin before."""
    return float(learner.fold(as_record([example]), 0)[0])


def test_passive_aggressive_brings_the_margin_to_one() -> None:
    """Right after an update with a loss, y p = 1; without a loss nothing changes."""
    learner = learner_for("passive_aggressive", "hinge", {})
    for example in some_examples("hinge", 3):
        before = weights_of(learner).tolist()
        y = in_domain("hinge", example.label)
        margin = y * learned(learner, example)
        if margin >= 1.0 or example.weight == 0.0 or not any(x for _, x in example.features):
            assert weights_of(learner).tolist() == before
        else:
            again = Example(example.features, example.label, 0.0)
            assert y * learned(learner, again) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_importance_says_only_whether_an_example_counts(name: str) -> None:
    """Any importance but 0 is 1."""
    one, other = learner_for(name, "hinge", {}), learner_for(name, "hinge", {})
    examples = some_examples("hinge", 4)
    one.fold(as_record(examples), 0)
    other.fold(as_record([Example(e.features, e.label, 3.0 * e.weight) for e in examples]), 0)
    assert weights_of(one).tolist() == weights_of(other).tolist()


def test_confidence_only_grows_and_starts_at_a() -> None:
    """A feature's variance is a at first sight and never rises; one that taught nothing has no row."""
    learner, keys = learner_for("confidence_weighted", "hinge", {"a": 2.5}), [key_of(i) for i in range(DIMENSION)]
    known = np.full(DIMENSION, 2.5)
    learned(learner, Example(((key_of(0), 1.0),), 1.0, 0.0))
    assert learner.table.count == 0
    for example in some_examples("hinge", 5):
        learned(learner, example)
        stored = learner.table.rows_of(np.array(keys, np.uint64)).columns[:, 1]
        variances = np.where(stored == 0.0, 2.5, stored)
        assert np.all(variances <= known) and np.all(variances > 0.0)
        known = variances
    assert known.min() < 0.5


def test_the_confident_step_is_the_root_it_is_defined_by() -> None:
    """gamma of the paper's formula in 60 digits, where the formula in float64 cancels and where it does not."""
    from decimal import Decimal, localcontext

    rng = random.Random(6)
    for _ in range(300):
        phi, v = 10.0 ** rng.uniform(-3, 1), 10.0 ** rng.uniform(-12, 6)
        p = rng.gauss(0.0, 1.0) * 10.0 ** rng.uniform(-8, 4)
        y = rng.choice((-1.0, 1.0))
        parameters = np.array([phi, 1.0])
        u = confidence_weighted_scale(p, y, 1.0, v, address_of(parameters))
        with localcontext() as context:
            context.prec = 60
            f, big, m = Decimal(phi), Decimal(v), Decimal(y * p)
            b = 1 + 2 * f * m
            gamma = (-b + (b * b - 8 * f * (m - f * big)).sqrt()) / (4 * f * big)
            expected = float(max(Decimal(0), gamma))
        assert -y * u == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_a_variance_never_becomes_zero() -> None:
    """The example that would bring it there is refused; a variance of 0 would be read as never seen."""
    learner = learner_for("confidence_weighted", "hinge", {})
    assert math.isnan(learned(learner, Example(((key_of(0), 1e200),), 1.0)))
    assert (learner.refused, learner.table.count) == (1, 0)


@pytest.mark.parametrize("given", [{"phi": 0.0}, {"phi": math.nan}, {"a": 0.0}, {"a": -1.0}])
def test_hyper_parameters_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    """Each is named."""
    (name,) = given
    with pytest.raises(ValueError, match=f"{name} must"):
        make_optimizer({"name": "confidence_weighted", **given})
