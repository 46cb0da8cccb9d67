"""The oracle in games: regret bounds, Theorem 1 of Streeter & McMahan, the oscillation that L1 should silence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.oracles.optimizers import Optimizer, make
from tests.oracles.optimizers.base import Vector, root
from tests.oracles.optimizers.games import Adversary, Game, exponent, one_third_power_regrets, play

ROUNDS, DIMENSION, RADIUS = 200, 3, 2.0
Round = Vector | Adversary


def against(w: Vector) -> Vector:
    """A gradient of length at most 1 that punishes the side on which the player stands."""
    return np.where(w > 0.0, 1.0, -1.0) / math.sqrt(len(w))


def games(dimension: int, rounds: int) -> Iterator[tuple[str, list[Round]]]:
    """Random, constant, alternating, sparse, growing and adversarial games with ‖g‖ ≤ 1."""
    rng = np.random.default_rng(3)
    for seed in range(4):
        g = rng.normal(size=(rounds, dimension))
        yield f"random {seed}", list(g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True)))
    one = np.ones(dimension) / math.sqrt(dimension)
    yield "constant", [one] * rounds
    yield "drift, then back", [one] * (rounds // 2) + [-one] * (rounds - rounds // 2)
    yield "alternating", [one * (-1.0) ** t for t in range(rounds)]
    yield "sparse", [np.eye(dimension)[t % dimension] * (1.0 if t % 7 else -1.0) for t in range(rounds)]
    yield "growing", [one * (t + 1) / rounds * (1.0 if t % 3 else -1.0) for t in range(rounds)]
    yield "one spike", [one * (1.0 if t == rounds // 3 else 1e-3) for t in range(rounds)]
    yield "against the player", [against] * rounds
    yield "against the player, late", [one * 0.1] * (rounds // 2) + [against] * (rounds - rounds // 2)


def norms(game: Game) -> float:
    """Σ‖g‖²."""
    return float(np.sum(game.gradients**2))


def box() -> dict[str, float]:
    """[−R, R]ⁿ."""
    return {"low": -RADIUS, "high": RADIUS}


Bound = Callable[[Game], tuple[float, float]]

BOUNDS: dict[str, tuple[Callable[[], Optimizer], int, Bound]] = {
    "[SM] Theorem 2: global rate, D√(2Σ‖g‖²)": (
        lambda: make("ogd_global", DIMENSION, radius=RADIUS, diameter=2.0 * RADIUS * math.sqrt(DIMENSION)),
        DIMENSION,
        lambda g: (g.regret_in_box(-RADIUS, RADIUS), 2.0 * RADIUS * math.sqrt(DIMENSION * 2.0 * norms(g))),
    ),
    "[SM] equation 4, [L]: per coordinate, ΣD_i√(2G2_i)": (
        lambda: make("pc_ogd", DIMENSION, **box()),
        DIMENSION,
        lambda g: (
            g.regret_in_box(-RADIUS, RADIUS),
            float(np.sum(2.0 * RADIUS * np.sqrt(2.0 * np.sum(g.gradients**2, axis=0)))),
        ),
    ),
    "[L]: η = R√2/√t, 2√2·R√T": (
        lambda: make("ogd", 1, eta=root(RADIUS * math.sqrt(2.0)), **box()),
        1,
        lambda g: (g.regret_in_box(-RADIUS, RADIUS), 2.0 * math.sqrt(2.0) * RADIUS * math.sqrt(ROUNDS)),
    ),
    "[F]: horizon known, √T": (
        lambda: make("ftrl_fixed", DIMENSION, strength=math.sqrt(ROUNDS)),
        DIMENSION,
        lambda g: (g.regret_in_ball(1.0), math.sqrt(ROUNDS)),
    ),
    "[F]: λ_t = √t, 1.5√T": (
        lambda: make("ftrl_sqrt", DIMENSION),
        DIMENSION,
        lambda g: (g.regret_in_ball(1.0), 1.5 * math.sqrt(ROUNDS)),
    ),
    "[F]: doubling, (1 + √2)√T": (
        lambda: make("ftrl_doubling", DIMENSION),
        DIMENSION,
        lambda g: (g.regret_in_ball(1.0), (1.0 + math.sqrt(2.0)) * math.sqrt(ROUNDS)),
    ),
    "entropic: λ log d + Σ max|g|²/(2λ)": (
        lambda: make("entropic", DIMENSION, strength=8.0),
        DIMENSION,
        lambda g: (
            g.regret_on_simplex(),
            8.0 * math.log(DIMENSION) + float(np.sum(np.abs(g.gradients).max(axis=1) ** 2)) / 16.0,
        ),
    ),
}


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_regret_bound_is_never_violated_and_often_near(name: str) -> None:
    """Over all games; the worst comes close enough to show that the games bite."""
    fresh, dimension, bound = BOUNDS[name]
    worst = -math.inf
    for title, rounds in games(dimension, ROUNDS):
        regret, limit = bound(play(fresh(), rounds))
        assert regret <= limit * (1.0 + 1e-12), title
        worst = max(worst, regret / limit)
    assert worst > 0.25


def test_the_per_coordinate_bound_is_never_the_larger_one() -> None:
    """[SM] equation 5."""
    for _, rounds in games(DIMENSION, ROUNDS):
        squares = np.sum(play(make("pc_ogd", DIMENSION, **box()), rounds).gradients ** 2, axis=0)
        per_coordinate = float(np.sum(2.0 * RADIUS * np.sqrt(2.0 * squares)))
        assert per_coordinate <= 2.0 * RADIUS * math.sqrt(DIMENSION * 2.0 * squares.sum()) * (1.0 + 1e-12)


def test_the_rate_without_the_root_of_two_breaks_the_proof() -> None:
    """D²/(2η_T) + ½Σg²η_t stays below D√(2G2) with η = D/√(2G2), and not with Algorithm 1's D/√G2."""

    def proof(g: Vector, two: float) -> float:
        eta = 1.0 / np.sqrt(two * np.cumsum(g * g))
        return float(0.5 / eta[-1] + 0.5 * np.sum(g * g * eta))

    g = np.ones(ROUNDS)
    limit = math.sqrt(2.0 * ROUNDS)
    assert proof(g, 2.0) <= limit < proof(g, 1.0)


def test_a_global_rate_pays_the_two_thirds_power_and_per_coordinate_the_half() -> None:
    """[SM] Theorem 1 on small sizes: the exponents of the regret in T = m³ + m²."""
    sizes = [10, 13, 16, 22, 28]
    regrets = [one_third_power_regrets(m) for m in sizes]
    rounds = [float(m**3 + m**2) for m in sizes]
    assert exponent(rounds, [r for r, _ in regrets]) == pytest.approx(0.667, abs=0.02)
    assert 0.45 <= exponent(rounds, [r for _, r in regrets]) <= 0.52
    assert all(per_coordinate < best for best, per_coordinate in regrets)


def oscillation(rounds: int = 400) -> list[Vector]:
    """[L]'s example: gradients 0.5, −1, +1, −1, … whose best fixed answer is 0."""
    return [np.array([0.5])] + [np.array([-1.0 if t % 2 == 0 else 1.0]) for t in range(rounds)]


def path(name: str, **hyper: float | bool) -> Vector:
    """The one weight before each round of the oscillation, from the second on."""
    return play(make(name, 1, **hyper), oscillation()).plays[1:, 0]


@pytest.mark.parametrize("l1", [0.1, 0.3, 0.6, 0.9])
def test_the_subgradient_never_comes_to_rest_and_fobos_keeps_leaving(l1: float) -> None:
    """L1 as a subgradient misses 0 at every step; FOBOS is pushed off it again and again."""
    assert np.all(path("l1_subgradient", l1=l1, eta=0.07) != 0.0)
    fobos = path("fobos", l1=l1, eta=0.07)
    assert np.count_nonzero(fobos[-100:]) >= 40


@pytest.mark.parametrize("l1", [0.6, 0.9])
def test_dual_averaging_and_proximal_stay_at_zero_exactly(l1: float) -> None:
    """RDA and FTRL-Proximal with a fixed λ1 of 0.6 or more never leave 0."""
    assert not path("rda", l1=l1, gamma=1.0).any()
    assert not path("ftrl_proximal", l1=l1, alpha=1.0, beta=1.0).any()
    assert not path("ftrl_proximal", l1=l1, alpha=1.0, beta=1.0, l1_grows=True).any()


@pytest.mark.parametrize("l1", [0.05, 0.1, 0.3])
def test_a_growing_penalty_comes_to_rest_where_a_fixed_small_one_does_not(l1: float) -> None:
    """With a small λ1 RDA and the lecture's tλ1 leave 0 at first and then stay there; a fixed λ1 keeps leaving."""
    for weights in (path("rda", l1=l1, gamma=1.0), path("ftrl_proximal", l1=l1, l1_grows=True, alpha=1.0)):
        assert weights[:3].any() and not weights[-350:].any()
    assert path("ftrl_proximal", l1=l1, alpha=1.0)[-50:].any()
