"""The oracle's optimizers against the laws of their papers: equivalences, optimality, and what misprints break."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.oracles.optimizers import LOSSES, OPTIMIZERS, Example, Loss, Optimizer, make, make_loss, progressive
from tests.oracles.optimizers.base import Vector, powers, root, soft
from tests.oracles.optimizers.problems import some_examples, some_gradients, some_loss

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)

HYPER: dict[str, dict[str, float]] = {
    "ogd_global": {"radius": 5.0},
    "pc_ogd": {"low": -5.0, "high": 5.0},
    "l1_subgradient": {"l1": 0.1},
    "simple_truncation": {"theta": 0.01},
    "truncated_gradient": {"l1": 0.1},
    "fobos": {"l1": 0.1},
    "rda": {"l1": 0.005, "gamma": 5.0},
    "ftrl_fixed": {"strength": 5.0},
    "entropic": {"strength": 5.0},
}


def same_path(a: Optimizer, b: Optimizer, gradients: list[Vector], tolerance: float = 1e-12) -> None:
    """Both give the same weights after every gradient."""
    for g in gradients:
        a.step(g)
        b.step(g)
        np.testing.assert_allclose(a.weights(), b.weights(), rtol=tolerance, atol=tolerance)


def gradients_of(seed: int) -> list[Vector]:
    """Forty gradients in four dimensions."""
    return some_gradients(np.random.default_rng(seed), 40, 4)


@few
@given(seeds, st.floats(0.0, 5.0))
def test_proximal_without_penalties_is_descent_with_per_coordinate_rates(seed: int, beta: float) -> None:
    """w −= αg/(β + √G2), step for step, for any β."""
    optimizer = make("ftrl_proximal", 4, alpha=0.3, beta=beta)
    w, squares = np.zeros(4), np.zeros(4)
    for g in gradients_of(seed):
        squares += g * g
        rate = np.divide(0.3, beta + np.sqrt(squares), out=np.zeros(4), where=g != 0.0)
        w = w - rate * g
        optimizer.step(g)
        np.testing.assert_allclose(optimizer.weights(), w, rtol=1e-12, atol=1e-14)


@few
@given(seeds)
def test_equivalent_optimizers_take_the_same_path(seed: int) -> None:
    """FTRL with fixed λ is OGD; AdaGrad is proximal with β = 0, and PC-OGD far from its box; and so on."""
    g, eta = gradients_of(seed), 0.37
    same_path(make("ftrl_fixed", 4, strength=1.0 / eta), make("ogd", 4, eta=eta), g)
    same_path(make("adagrad", 4, eta=eta), make("ftrl_proximal", 4, alpha=eta, beta=0.0), g, 1e-11)
    wide = make("pc_ogd", 4, low=-1e3, high=1e3, scale=eta * math.sqrt(2.0) / 2e3)
    same_path(make("adagrad", 4, eta=eta), wide, g, 1e-11)
    for name in ("l1_subgradient", "fobos", "truncated_gradient"):
        same_path(make(name, 4, l1=0.0, eta=root(eta)), make("ogd", 4, eta=root(eta)), g)
    same_path(make("simple_truncation", 4, theta=0.0, eta=eta), make("ogd", 4, eta=eta), g)
    same_path(make("ftrl_doubling", 4, first=64, c=2.0), make("ftrl_fixed", 4, strength=16.0), g)


@few
@given(seeds)
def test_truncated_gradient_degenerates_to_fobos_and_to_simple_truncation(seed: int) -> None:
    """θ = ∞ and k = 1 is FOBOS's shrinkage; a shrinkage ηλk of θ or more is simple truncation."""
    g = gradients_of(seed)
    for eta in (0.37, root(0.37), powers(0.37, power=0.3)):
        same_path(make("truncated_gradient", 4, l1=0.2, eta=eta), make("fobos", 4, l1=0.2, eta=eta), g)
    truncated = make("truncated_gradient", 4, l1=1.01 * 0.4 / (0.37 * 3), theta=0.4, every=3, eta=0.37)
    same_path(truncated, make("simple_truncation", 4, theta=0.4, every=3, eta=0.37), g)


@few
@given(seeds)
def test_one_feature_makes_per_coordinate_global(seed: int) -> None:
    """PC-OGD in one dimension, D = 2R, is the global adaptive rate with one feature seen."""
    g = some_gradients(np.random.default_rng(seed), 40, 1)
    same_path(make("pc_ogd", 1, low=-2.0, high=2.0, scale=0.3), make("ogd_global", 1, radius=2.0, scale=0.3), g)


@few
@given(seeds)
def test_both_ways_to_write_the_per_coordinate_rate_agree(seed: int) -> None:
    """[L]'s B√2/√G2 is D/√(2 G2) with D = 2B; without √2 it is √2 as fast."""
    (g,) = some_gradients(np.random.default_rng(seed), 1, 1)
    if g[0] != 0.0:
        lecture, printed = make("pc_ogd", 1, low=-9, high=9), make("pc_ogd", 1, low=-9, high=9, two=1.0)
        lecture.scale = printed.scale = 0.1
        lecture.step(g)
        printed.step(g)
        assert lecture.weights()[0] == pytest.approx(-0.1 * 9.0 * math.sqrt(2.0) * np.sign(g[0]), rel=1e-12)
        assert printed.weights()[0] == pytest.approx(math.sqrt(2.0) * lecture.weights()[0], rel=1e-12)


def least(w: Vector, objective: object, rng: np.random.Generator) -> None:
    """No point near w, nor far, has a smaller objective."""
    value = objective(w)  # type: ignore[operator]
    for scale in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            other = w + scale * rng.normal(size=len(w)) * (rng.uniform(size=len(w)) < 0.5)
            assert objective(other) >= value - 1e-12 * (1.0 + abs(value))  # type: ignore[operator]


@few
@given(seeds)
def test_updates_minimize_what_they_are_defined_to_minimize(seed: int) -> None:
    """OGD, FOBOS, RDA, FTRL-Proximal and entropic FTRL against their objectives."""
    rng = np.random.default_rng(seed)
    g = gradients_of(seed)[:12]
    l1, l2, eta, gamma, alpha, beta = 0.3, 0.2, 0.4, 2.0, 0.5, 0.7
    ogd, fobos = make("ogd", 4, eta=eta), make("fobos", 4, eta=eta, l1=l1)
    rda = make("rda", 4, l1=l1, gamma=gamma)
    proximal = make("ftrl_proximal", 4, alpha=alpha, beta=beta, l1=l1, l2=l2)
    entropic = make("entropic", 4, strength=3.0)
    past: list[tuple[Vector, Vector]] = []
    for one in g:
        before, at = ogd.weights(), fobos.weights()
        roots = np.sqrt(sum((o * o for _, o in past), np.zeros(4)))
        past.append((proximal.weights(), one))
        for optimizer in (ogd, fobos, rda, proximal, entropic):
            optimizer.step(one)
        sigma = (np.sqrt(roots**2 + one * one) - roots) / alpha
        past[-1] = (past[-1][0], one)
        least(ogd.weights(), lambda w, b=before, o=one: o @ w + np.sum((w - b) ** 2) / (2.0 * eta), rng)
        least(
            fobos.weights(),
            lambda w, b=at, o=one: o @ w + l1 * np.abs(w).sum() + np.sum((w - b) ** 2) / (2.0 * eta),
            rng,
        )
        assert np.all(sigma >= 0.0)
    total, t = sum(g), len(g)
    least(
        rda.weights(),
        lambda w: total / t @ w + l1 * np.abs(w).sum() + gamma / (2.0 * math.sqrt(t)) * w @ w,
        rng,
    )
    least(proximal.weights(), lambda w: proximal_objective(w, past, alpha, beta, l1, l2), rng)
    least_on_simplex(entropic.weights(), total, 3.0, rng)


def proximal_objective(
    w: Vector, past: list[tuple[Vector, Vector]], alpha: float, beta: float, l1: float, l2: float
) -> float:
    """g_{1:t}·w + ½Σσ_s(w − w_s)² + λ1‖w‖₁ + ½(λ2 + β/α)‖w‖², with σ_{1:t} = √n_t/α."""
    value = l1 * np.abs(w).sum() + 0.5 * (l2 + beta / alpha) * w @ w
    squares = np.zeros(len(w))
    for at, g in past:
        sigma = (np.sqrt(squares + g * g) - np.sqrt(squares)) / alpha
        squares = squares + g * g
        value += g @ w + 0.5 * np.sum(sigma * (w - at) ** 2)
    return float(value)


def least_on_simplex(w: Vector, total: Vector, strength: float, rng: np.random.Generator) -> None:
    """w minimizes G1·w + λ Σ w log w on the simplex."""
    value = total @ w + strength * np.sum(w * np.log(w))
    assert w.sum() == pytest.approx(1.0, rel=1e-12) and np.all(w > 0.0)
    for _ in range(20):
        other = rng.dirichlet(np.ones(len(w)))
        assert total @ other + strength * np.sum(other * np.log(other)) >= value - 1e-12


@few
@given(seeds)
def test_exponentiated_gradient_multiplies(seed: int) -> None:
    """w ← w e^(−g/λ), renormalized."""
    optimizer = make("entropic", 4, strength=3.0)
    w = np.full(4, 0.25)
    for g in gradients_of(seed):
        np.testing.assert_allclose(optimizer.weights(), w, rtol=1e-9)
        w = w * np.exp(-g / 3.0)
        w /= w.sum()
        optimizer.step(g)


@few
@given(seeds)
def test_the_average_can_be_kept_with_one_correction_per_weight(seed: int) -> None:
    """The mean of w_1 … w_t is w_t − c/t with c += sΔ_s."""
    rng = np.random.default_rng(seed)
    loss = some_loss("squared", rng)
    optimizer = make("averaged", 4, loss, eta=0.05)
    c = np.zeros(4)
    for t, (x, y, h) in enumerate(some_examples(loss, rng, 30, 4), 1):
        before = optimizer.w.copy()
        np.testing.assert_allclose(optimizer.weights(), before - c / t, rtol=1e-9, atol=1e-12)
        slope = loss.slope(float(before @ optimizer.dense(x)), y)
        optimizer.update(x, y, h)
        np.testing.assert_allclose(optimizer.w, before - 0.05 * h * slope * optimizer.dense(x), atol=1e-12)
        c = c + t * (optimizer.w - before)


@few
@given(seeds, st.floats(1e-3, 1e3))
def test_normalized_descent_does_not_see_the_scale_of_a_feature(seed: int, scale: float) -> None:
    """A feature in other units gives the same predictions; plain descent does not."""
    rng = np.random.default_rng(seed)
    loss = make_loss("logistic")
    examples = some_examples(loss, rng, 30, 4)
    scaled = [e._replace(x={i: v * scale if i == 1 else v for i, v in e.x.items()}) for e in examples]
    plain = [progressive(make("normalized", 4, loss, eta=root(0.5)), data).predictions for data in (examples, scaled)]
    np.testing.assert_allclose(plain[0], plain[1], rtol=1e-8, atol=1e-10)


@few
@given(st.floats(0.1, 1.0), st.floats(1.1, 9.0))
def test_a_larger_scale_makes_past_steps_what_they_would_have_been(size: float, growth: float) -> None:
    """NG divides a step by s²; once a larger |x| is seen, the old step counts as if divided by that one's square."""
    optimizer = make("normalized", 1, eta=0.3)
    slope = optimizer.of.slope(0.0, 1.0)
    optimizer.update({0: size}, 1.0)
    larger = size * growth
    assert optimizer.predict({0: larger}) == pytest.approx(-0.3 * slope * size / larger**2 * larger, rel=1e-9)


@few
@given(seeds)
def test_doubling_starts_afresh_or_keeps_its_state(seed: int) -> None:
    """After an epoch's end the weights are those of a fresh fixed-λ run; with `keep`, of all gradients so far."""
    g = gradients_of(seed)
    afresh, kept = make("ftrl_doubling", 4, first=5, c=2.0), make("ftrl_doubling", 4, first=5, c=2.0, keep=True)
    ends = [0, 5, 10, 20, 40]
    for t, one in enumerate(g):
        begin = max(e for e in ends if e <= t)
        strength = 2.0 * math.sqrt(max(begin, 5))
        np.testing.assert_allclose(afresh.weights(), -sum(g[begin:t], np.zeros(4)) / strength, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(kept.weights(), -sum(g[:t], np.zeros(4)) / strength, rtol=1e-9, atol=1e-12)
        afresh.step(one)
        kept.step(one)


@few
@given(seeds)
def test_root_strength_knows_the_past_only(seed: int) -> None:
    """w_t = −G1_{t−1}/(c√t)."""
    optimizer, g = make("ftrl_sqrt", 4, c=2.0), gradients_of(seed)
    for t, one in enumerate(g, 1):
        np.testing.assert_allclose(
            optimizer.weights(), -sum(g[: t - 1], np.zeros(4)) / (2.0 * math.sqrt(t)), rtol=1e-9, atol=1e-12
        )
        optimizer.step(one)


HINGE_ONLY = ("passive_aggressive", "confidence_weighted")


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_learns_every_loss_it_takes(name: str) -> None:
    """Losses, predictions and weights are finite; the baselines take hinge loss only."""
    for loss in sorted(LOSSES):
        if loss != "hinge" and name in HINGE_ONLY:
            with pytest.raises(ValueError, match=loss):
                make(name, 3, loss)
        elif (name, loss) != ("pistol", "squared"):
            rng = np.random.default_rng(7)
            of = some_loss(loss, rng)
            examples = small_examples(of, rng)
            run = progressive(make(name, 3, of, **HYPER.get(name, {})), examples, passes=2)
            assert len(run.losses) == 50 and math.isfinite(run.average_loss)
            assert np.isfinite(run.weights).all() and run.weights.any()
            margins = [of.margin(p, e.y) for p, e in zip(run.predictions, examples * 2, strict=True)]
            assert run.mistakes == sum(m is not None and m <= 0.0 for m in margins)


def small_examples(of: Loss, rng: np.random.Generator) -> list[Example]:
    """Twenty-five examples that no default rate overshoots."""
    return [e._replace(x={i: 0.3 * v for i, v in e.x.items()}) for e in some_examples(of, rng, 25, 3)]


def test_pistol_needs_bounded_slopes() -> None:
    """Squared loss without the tool's clipping of predictions runs away; that is the method, not the oracle."""
    rng = np.random.default_rng(7)
    of = some_loss("squared", rng)
    with np.errstate(all="ignore"):
        run = progressive(make("pistol", 3, of), small_examples(of, rng), passes=2)
    assert not np.isfinite(run.weights).all()


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_importance_zero_teaches_nothing(name: str) -> None:
    """However many such examples come, every prediction is that of a fresh optimizer."""
    rng = np.random.default_rng(8)
    optimizer, fresh = (make(name, 3, "hinge", **HYPER.get(name, {})) for _ in range(2))
    for x, y, _ in small_examples(optimizer.of, rng):
        assert optimizer.predict(x) == fresh.predict(x)
        optimizer.update(x, y, 0.0)


@few
@given(seeds)
def test_passive_aggressive_meets_the_margin_with_the_least_change(seed: int) -> None:
    """After an update with a loss, yp = 1, and the change is along x; without a loss nothing moves."""
    rng = np.random.default_rng(seed)
    optimizer = make("passive_aggressive", 4, "hinge")
    for x, y, _ in some_examples(optimizer.of, rng, 15, 4):
        before, p = optimizer.weights(), optimizer.predict(x)
        optimizer.update(x, y)
        if y * p < 1.0:
            assert y * optimizer.predict(x) == pytest.approx(1.0, rel=1e-9)
            change, vector = optimizer.weights() - before, optimizer.dense(x)
            np.testing.assert_allclose(change, (change @ vector) / (vector @ vector) * vector, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(optimizer.weights(), before)


@few
@given(seeds)
def test_confidence_weighted_meets_its_constraint_with_equality(seed: int) -> None:
    """With one feature the diagonal is exact: after an update, margin = φ · its variance, or nothing moved."""
    rng = np.random.default_rng(seed)
    optimizer = make("confidence_weighted", 1, "hinge", phi=0.8, a=1.5)
    for x, y, _ in some_examples(optimizer.of, rng, 15, 1):
        variance = optimizer.variance.copy()
        optimizer.update(x, y)
        margin, spread = y * optimizer.predict(x), float(optimizer.variance[0] * x[0] ** 2)
        assert optimizer.variance[0] <= variance[0]
        if optimizer.variance[0] < variance[0]:
            assert margin == pytest.approx(0.8 * spread, rel=1e-6, abs=1e-9)
        else:
            assert margin >= 0.8 * spread - 1e-9


@few
@given(seeds)
def test_proximal_sets_a_weight_back_to_zero(seed: int) -> None:
    """w = 0 exactly where |z| ≤ λ1, also after it was not. (River's does not come back.)"""
    optimizer = make("ftrl_proximal", 4, l1=1.0, alpha=1.0)
    was = np.zeros(4, bool)
    for g in gradients_of(seed):
        optimizer.step(g)
        np.testing.assert_array_equal(optimizer.weights() == 0.0, np.abs(optimizer.z) <= 1.0)
        was |= optimizer.weights() != 0.0
    for _ in range(500):
        if optimizer.weights().any():
            optimizer.step(np.where(np.abs(optimizer.z) > 1.0, -0.3 * np.sign(optimizer.z), 0.0))
    assert was.any() and not optimizer.weights().any()


def test_proximal_without_beta_and_l2_starts_at_zero() -> None:
    """0/0 is taken as 0 while n = 0."""
    optimizer = make("ftrl_proximal", 2, beta=0.0)
    optimizer.step(np.array([0.0, 1.0]))
    np.testing.assert_array_equal(optimizer.weights(), [0.0, -0.1])


def test_a_coordinate_without_gradient_takes_no_step() -> None:
    """PC-OGD, AdaGrad and the global rate leave it alone, before anything has been seen too."""
    for name in ("pc_ogd", "adagrad", "ogd_global"):
        optimizer = make(name, 2, **HYPER.get(name, {}))
        optimizer.step(np.zeros(2))
        assert not optimizer.weights().any()
        optimizer.step(np.array([1.0, 0.0]))
        assert optimizer.weights()[0] < 0.0 and optimizer.weights()[1] == 0.0


@few
@example(2255)
@given(seeds)
def test_dual_averaging_without_t_before_lambda_misses_the_minimum(seed: int) -> None:
    """[VW] thresholds G1 by λ instead of tλ: unless both thresholds give 0, the objective ends higher than at the
    oracle's weight."""
    g = np.random.default_rng(seed).normal(size=12) + 0.5
    t, total, l1, gamma = len(g), float(g.sum()), 0.05, 2.0

    def objective(w: float) -> float:
        return total / t * w + l1 * abs(w) + gamma / (2.0 * math.sqrt(t)) * w * w

    printed = -float(soft(np.array([total]), l1)[0]) / (gamma * math.sqrt(t))
    right = make_after("rda", g, l1=l1, gamma=gamma)
    assert objective(right) < objective(printed) if abs(total) > l1 else right == printed == 0.0


@few
@given(st.floats(0.02, 5.0))
def test_truncated_gradient_shrinks_negative_weights_too(size: float) -> None:
    """Mirrored gradients give mirrored weights; [Z]'s max in both branches would send every negative one to 0."""
    up, down = (make_after("truncated_gradient", np.array([sign * size]), l1=0.01, eta=1.0) for sign in (-1.0, 1.0))
    assert up == -down == pytest.approx(size - 0.01, rel=1e-12)
    assert max(0.0, -size + 0.01) != down


@few
@given(seeds)
def test_proximal_is_not_what_two_sources_print(seed: int) -> None:
    """Neither σ_{1:t} = η_t ([VW]) nor line 6 without its brackets ([Z]) gives w −= αg/√G2."""
    g = np.random.default_rng(seed).normal(size=12) + 0.5
    oracle = make_after("ftrl_proximal", g, alpha=0.3, beta=0.0)
    w = -float(np.sum(0.3 * g / np.sqrt(np.cumsum(g * g))))
    assert oracle == pytest.approx(w, rel=1e-9, abs=1e-12)
    assert abs(oracle - descent_with_sigma_as_rate(g, 0.3)) > 1e-6
    first = make_after("ftrl_proximal", g[:1], alpha=0.3, beta=1.0)
    without_brackets = -g[0] / (1.0 + abs(g[0]) / 0.3)
    assert first == pytest.approx(-0.3 * g[0] / (1.0 + abs(g[0])), rel=1e-9)
    assert first != pytest.approx(without_brackets, rel=1e-3)


def test_adagrad_counts_the_current_gradient() -> None:
    """The first step is −η sgn(g); left out, as both sources have it, the rate would be η/0."""
    assert make_after("adagrad", np.array([2.5]), eta=0.3) == pytest.approx(-0.3, rel=1e-15)


@few
@given(seeds, st.integers(1, 4))
def test_regularizers_act_on_coordinates_without_gradient(seed: int, every: int) -> None:
    """L1 subgradient, truncation, truncated gradient and FOBOS move a weight that no example touches."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(0.3, 1.0, size=2) * rng.choice([-1.0, 1.0], size=2)
    silent = np.zeros(2)
    for name, hyper in (("l1_subgradient", {"l1": 0.1}), ("fobos", {"l1": 0.1})):
        optimizer = make(name, 2, eta=0.2, **hyper)
        optimizer.w = start.copy()
        optimizer.step(silent)
        np.testing.assert_allclose(optimizer.weights(), start - 0.02 * np.sign(start), rtol=1e-12)
    truncated = make("truncated_gradient", 2, eta=0.2, l1=0.1, every=every, theta=2.0)
    simple = make("simple_truncation", 2, eta=0.2, theta=2.0, every=every)
    truncated.w, simple.w = start.copy(), start.copy()
    for t in range(1, every + 1):
        np.testing.assert_array_equal(truncated.weights(), start)
        np.testing.assert_array_equal(simple.weights(), start)
        truncated.step(silent)
        simple.step(silent)
        assert t == truncated.t
    np.testing.assert_allclose(truncated.weights(), start - 0.02 * every * np.sign(start), rtol=1e-12)
    assert not simple.weights().any()


def make_after(name: str, gradients: Vector, **hyper: float) -> float:
    """The one weight after the gradients."""
    optimizer = make(name, 1, **hyper)
    for g in gradients:
        optimizer.step(np.array([g]))
    return float(optimizer.weights()[0])


def descent_with_sigma_as_rate(gradients: Vector, alpha: float) -> float:
    """[VW]'s σ_{1:t} = η_t taken at its word: z += g − (η_t − η_{t−1})w, w = −z/η_t."""
    z = n = w = rate = 0.0
    for g in gradients:
        n += g * g
        z += g - (alpha / math.sqrt(n) - rate) * w
        rate = alpha / math.sqrt(n)
        w = -z / rate
    return w
