"""The oracle's losses: slopes are derivatives, labels have domains, links undo each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.optimizers import LOSSES, make, make_loss
from tests.oracles.optimizers.problems import LOSS_NAMES, off_kinks, some_label, some_loss, some_prediction

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20, deadline=None)


@pytest.mark.parametrize("name", LOSS_NAMES)
@few
@given(seeds)
def test_the_slope_is_the_derivative_of_the_value(name: str, seed: int) -> None:
    """Central differences agree, away from kinks."""
    rng = np.random.default_rng(seed)
    loss = some_loss(name, rng)
    p, y, eps = some_prediction(loss, rng), some_label(loss, rng), 1e-6
    if off_kinks(loss, p, y):
        difference = (loss.value(p + eps, y) - loss.value(p - eps, y)) / (2.0 * eps)
        assert loss.slope(p, y) == pytest.approx(difference, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", LOSS_NAMES)
@few
@given(seeds)
def test_a_loss_is_convex_in_the_prediction_and_never_negative(name: str, seed: int) -> None:
    """The chord lies above; only Poisson's value, a part of a deviance, may be negative."""
    rng = np.random.default_rng(seed)
    loss = some_loss(name, rng)
    y, a, b = some_label(loss, rng), some_prediction(loss, rng), some_prediction(loss, rng)
    middle = loss.value((a + b) / 2.0, y)
    assert middle <= (loss.value(a, y) + loss.value(b, y)) / 2.0 + 1e-9 * (1.0 + abs(middle))
    assert name == "poisson" or middle >= 0.0


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("logistic", [-1.0, 1.0], [0.0, 2.0]),
        ("hinge", [-1.0, 1.0], [0.0]),
        ("exponential", [-1.0, 1.0], [0.5]),
        ("log_loss", [0.0, 1.0], [-1.0, 0.5]),
        ("logarithmic", [0.0, 1.0], [-1.0]),
        ("hellinger", [0.0, 1.0], [-1.0]),
        ("poisson", [0.0, 1.0, 7.0], [-1.0, math.inf]),
        ("squared", [-3.5, 0.0], [math.nan]),
        ("quantile", [-3.5, 0.0], [math.inf]),
    ],
)
def test_labels_outside_the_domain_are_refused(name: str, good: list[float], bad: list[float]) -> None:
    """By the loss, and by an optimizer before it changes anything."""
    optimizer = make("ogd", 1, name)
    for y in good:
        make_loss(name).check(y)
    for y in bad:
        with pytest.raises(ValueError, match=name):
            optimizer.update({0: 1.0}, y)
    assert optimizer.t == 0 and not optimizer.weights().any()


@few
@given(seeds)
def test_both_notations_of_the_logistic_loss_agree(seed: int) -> None:
    """Labels −1 and 1, or 0 and 1: value, slope, probability and mistakes are the same."""
    rng = np.random.default_rng(seed)
    p, y = float(rng.normal() * 5.0), float(rng.choice([-1.0, 1.0]))
    signed, binary = make_loss("logistic"), make_loss("log_loss")
    q = 1.0 / (1.0 + math.exp(-p))
    for of in ("value", "slope", "margin"):
        assert getattr(signed, of)(p, y) == pytest.approx(getattr(binary, of)(p, (y + 1.0) / 2.0), rel=1e-12)
    assert binary.value(p, 1.0) == pytest.approx(-math.log(q), rel=1e-9)
    assert binary.slope(p, 0.0) == pytest.approx(q, rel=1e-12)
    assert signed.mean(p) == binary.mean(p) == pytest.approx(q, rel=1e-12)


def test_logistic_loss_survives_any_margin() -> None:
    """No overflow, and the right asymptotes."""
    loss = make_loss("logistic")
    assert loss.value(-1000.0, 1.0) == 1000.0 and loss.slope(-1000.0, 1.0) == -1.0
    assert loss.value(1000.0, 1.0) == 0.0 and loss.slope(1000.0, 1.0) == 0.0


@pytest.mark.parametrize("name", ["logarithmic", "hellinger"])
def test_a_probability_that_left_its_range_is_clipped_when_read(name: str) -> None:
    """The weight stays where it is; value and slope are finite at the bounds."""
    optimizer = make("ogd", 1, make_loss(name, delta=1e-3), eta=100.0)
    assert optimizer.predict({0: 1.0}) == 1e-3
    optimizer.update({0: 1.0}, 1.0)
    assert optimizer.weights()[0] > 1.0
    assert optimizer.predict({0: 1.0}) == 1.0 - 1e-3
    assert math.isfinite(optimizer.loss(1.0 - 1e-3, 0.0))


def test_slopes_at_kinks_are_those_of_the_table() -> None:
    """Hinge at yp = 1 and quantile at p = y take 0."""
    assert make_loss("hinge").slope(1.0, 1.0) == 0.0
    assert make_loss("quantile").slope(2.0, 2.0) == 0.0


def test_the_quantile_loss_charges_tau_above_and_the_rest_below() -> None:
    """Its minimizer over a sample is the τ-quantile; with the terms swapped, as misprinted, the (1 − τ)-quantile."""
    sample = np.random.default_rng(1).normal(size=999)
    candidates = np.sort(sample)

    def best(tau: float) -> float:
        loss = make_loss("quantile", tau=tau)
        costs = [sum(loss.value(p, y) for y in sample) for p in candidates[::10]]
        return float(candidates[::10][int(np.argmin(costs))])

    assert best(0.9) == pytest.approx(np.quantile(sample, 0.9), abs=0.05)
    assert best(0.1) == pytest.approx(np.quantile(sample, 0.1), abs=0.05)


def test_every_loss_has_a_slope_of_the_tool_or_of_the_table() -> None:
    """The squared loss offers both: ½(p − y)², and without the half."""
    assert make_loss("squared").slope(3.0, 1.0) == 2.0
    assert make_loss("squared", factor=2.0).slope(3.0, 1.0) == 4.0
    assert set(LOSS_NAMES) == set(LOSSES)
