"""Importance-aware updates: the closed forms solve their equation and obey the law s(a + b) = s(a), then s(b)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.optimizers import Loss, make
from tests.oracles.optimizers.importance import invariant_scale, lambert_w_of_exp, margin_gain
from tests.oracles.optimizers.problems import LOSS_NAMES, some_examples, some_label, some_loss, some_prediction

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20, deadline=None)


def by_small_steps(loss: Loss, p: float, y: float, h: float, eta: float, size: float, steps: int = 400) -> float:
    """ds/dh = η ℓ'(p − sX) from s = 0, by the classic Runge-Kutta method."""
    s, step = 0.0, h / steps
    for _ in range(steps):
        k1 = eta * loss.slope(p - s * size, y)
        k2 = eta * loss.slope(p - (s + 0.5 * step * k1) * size, y)
        k3 = eta * loss.slope(p - (s + 0.5 * step * k2) * size, y)
        k4 = eta * loss.slope(p - (s + step * k3) * size, y)
        s += step * (k1 + 2.0 * k2 + 2.0 * k3 + k4) / 6.0
    return s


def some_step(name: str, seed: int) -> tuple[Loss, float, float, float, float, float]:
    """loss, p, y, h, η, X of a step that ends inside the range where the loss is smooth."""
    rng = np.random.default_rng(seed)
    loss = some_loss(name, rng)
    y, p = some_label(loss, rng), some_prediction(loss, rng)
    h, eta, size = rng.uniform(0.1, 3.0), rng.uniform(0.01, 0.2), rng.uniform(0.2, 3.0)
    if name in ("logarithmic", "hellinger"):
        eta *= 0.1
    return loss, p, y, float(h), float(eta), float(size)


@pytest.mark.parametrize("name", LOSS_NAMES)
@few
@given(seeds)
def test_the_closed_form_is_the_limit_of_many_small_steps(name: str, seed: int) -> None:
    """Checked against an integrator that knows only the slope. A kink is reached and not crossed."""
    loss, p, y, h, eta, size = some_step(name, seed)
    s = invariant_scale(loss, p, y, h, eta, size)
    if name == "hinge" and y * (p - s * size) > 1.0 - 1e-6:
        assert y * (p - s * size) == pytest.approx(max(1.0, y * p), rel=1e-12)
    elif name == "quantile" and abs(p - s * size - y) < 1e-6:
        assert p - s * size == pytest.approx(y, abs=1e-12)
    else:
        assert s == pytest.approx(by_small_steps(loss, p, y, h, eta, size), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", LOSS_NAMES)
@few
@given(seeds)
def test_importance_a_plus_b_is_a_then_b(name: str, seed: int) -> None:
    """At a constant rate, and with constant rates per coordinate."""
    rng = np.random.default_rng(seed)
    loss = some_loss(name, rng)
    (example,) = some_examples(loss, rng, 1, 4)
    rates = rng.uniform(0.2, 3.0, size=4) if seed % 2 else None
    once, twice = (make("invariant", 4, loss, eta=0.003, rates=rates) for _ in range(2))
    if name in ("logarithmic", "hellinger"):
        start = 0.5 / once.dense(example.x).sum() * (once.dense(example.x) != 0.0)
    else:
        start = rng.normal(size=4)
    once.w, twice.w = start.copy(), start.copy()
    a, b = rng.uniform(0.1, 5.0, size=2)
    once.update(example.x, example.y, a + b)
    twice.update(example.x, example.y, a)
    twice.update(example.x, example.y, b)
    np.testing.assert_allclose(once.weights(), twice.weights(), rtol=1e-9, atol=1e-12)


@few
@given(seeds)
def test_replication_does_not_obey_the_law(seed: int) -> None:
    """Plain steps repeated, the recursion that is printed for s(h + 1), end elsewhere than one step of importance 2."""
    rng = np.random.default_rng(seed)
    p, y, size = rng.normal(), rng.normal() + 10.0, rng.uniform(0.5, 2.0)
    replicated = p
    for _ in range(2):
        replicated -= 0.2 * (replicated - y) * size
    loss = some_loss("squared", np.random.default_rng(0))
    aware = p - invariant_scale(loss, p, y, 2.0, 0.2 / loss.factor, size) * size
    assert abs(replicated - aware) > 1e-3


@pytest.mark.parametrize("name", LOSS_NAMES)
@few
@given(seeds)
def test_a_small_step_is_a_gradient_step(name: str, seed: int) -> None:
    """s(h)/(hη) tends to the slope."""
    loss, p, y, _, _, size = some_step(name, seed)
    s = invariant_scale(loss, p, y, 1e-7, 1.0, size)
    assert s / 1e-7 == pytest.approx(loss.slope(p, y), rel=1e-4, abs=1e-4)


@few
@given(seeds)
def test_a_loss_factor_is_a_factor_of_the_rate(seed: int) -> None:
    """(p − y)² at rate η is ½(p − y)² at rate 2η."""
    rng = np.random.default_rng(seed)
    p, y, h, size = rng.normal(), rng.normal(), rng.uniform(0.1, 3.0), rng.uniform(0.2, 3.0)
    half = make("ogd", 1, "squared").of
    whole = type(half)(factor=2.0)
    assert invariant_scale(whole, p, y, h, 0.1, size) == invariant_scale(half, p, y, h, 0.2, size)


@few
@given(st.floats(-700.0, 1e300))
def test_lambert_w_solves_its_equation_without_overflow(a: float) -> None:
    """W + log W = a, where e^a itself has no float."""
    w = lambert_w_of_exp(a)
    assert math.isfinite(w) and w > 0.0
    assert w + math.log(w) == pytest.approx(a, rel=1e-12, abs=1e-12)


def test_lambert_w_has_its_known_values() -> None:
    """W(e) = 1, and the omega constant W(1), which solves Ω = e^(−Ω)."""
    assert lambert_w_of_exp(1.0) == pytest.approx(1.0, rel=1e-15)
    omega = lambert_w_of_exp(0.0)
    assert omega == pytest.approx(math.exp(-omega), rel=1e-15)


@few
@given(st.floats(-30.0, 30.0), st.floats(1e-3, 1e3))
def test_the_logistic_form_with_w_is_the_margin_equation(m: float, b: float) -> None:
    """W(e^a) − hηX − e^m, a = hηX + m + e^m, is −(growth of the margin)."""
    a = b + m + math.exp(m)
    printed = lambert_w_of_exp(a) - b - math.exp(m)
    assert -printed == pytest.approx(margin_gain(m, b), rel=1e-6, abs=1e-3 * max(1.0, math.exp(m)) * 1e-9)


@few
@given(st.floats(-1e4, 1e4), st.floats(0.0, 1e6))
def test_the_margin_grows_and_stays_finite_everywhere(m: float, b: float) -> None:
    """0 ≤ growth ≤ hηX, for margins whose exponential is no float too."""
    gain = margin_gain(m, b)
    assert 0.0 <= gain <= b
    if m < -50.0 and b < -m / 2.0:
        assert gain == pytest.approx(b, rel=1e-9)


@few
@given(seeds)
def test_no_step_crosses_what_it_aims_at(seed: int) -> None:
    """However important an example is, squared, hinge and quantile stop at the label."""
    rng = np.random.default_rng(seed)
    for name in ("squared", "hinge", "quantile"):
        loss = some_loss(name, rng)
        y, p, size = some_label(loss, rng), float(rng.normal()), float(rng.uniform(0.2, 3.0))
        reached = p - invariant_scale(loss, p, y, 1e6, 1.0, size) * size
        aim = max(1.0, y * p) * y if name == "hinge" else y
        assert reached == pytest.approx(aim, abs=1e-9)
