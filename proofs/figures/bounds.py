"""The regret bounds of the sources on random and adversarial games. Gradients have length at most 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from proofs.figures.page import Claim, Figure, table
from proofs.figures.play import Game, Move, Vector, play

ROUNDS, QUICK_ROUNDS, DIMENSION, RADIUS = 1000, 200, 3, 2.0


def against(w: Vector) -> Vector:
    """A gradient against the sign of each of the player's weights."""
    return np.where(w > 0.0, 1.0, -1.0) / math.sqrt(len(w))


def games(dimension: int, rounds: int) -> Iterator[tuple[str, list[Move]]]:
    """Random, constant, turning, alternating, sparse, growing and adversarial games."""
    rng = np.random.default_rng(20)
    for seed in range(6):
        g = rng.normal(size=(rounds, dimension))
        yield f"random {seed + 1}", list(g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True)))
    one = np.ones(dimension) / math.sqrt(dimension)
    half = rounds // 2
    yield "constant", [one] * rounds
    yield "there and back", [one] * half + [-one] * (rounds - half)
    yield "alternating", [one * (-1.0) ** t for t in range(rounds)]
    yield "sparse", [np.eye(dimension)[t % dimension] * (1.0 if t % 7 else -1.0) for t in range(rounds)]
    yield "growing", [one * (t + 1) / rounds * (1.0 if t % 3 else -1.0) for t in range(rounds)]
    yield "one spike", [one * (1.0 if t == rounds // 3 else 1e-3) for t in range(rounds)]
    yield "adversarial", [against] * rounds
    yield "adversarial, late", [one * 0.1] * half + [against] * (rounds - half)


def in_box(game: Game) -> float:
    """Regret against the best point of [-R, R]^n."""
    return game.cost + RADIUS * float(np.abs(game.gradients.sum(axis=0)).sum())


def in_ball(game: Game) -> float:
    """Regret against the best point of length 1."""
    return game.cost + float(np.linalg.norm(game.gradients.sum(axis=0)))


def on_simplex(game: Game) -> float:
    """Regret against the best corner."""
    return game.cost - float(game.gradients.sum(axis=0).min())


class Bound(NamedTuple):
    """A bound: the player, the dimension, the kind of regret, the limit."""

    optimizer: Callable[[int], Mapping[str, Any]]
    dimension: int
    regret: Callable[[Game], float]
    limit: Callable[[Game], float]


def _rounds(game: Game) -> int:
    return len(game.gradients)


BOX = {"low": -RADIUS, "high": RADIUS}
DIAMETER = 2.0 * RADIUS * math.sqrt(DIMENSION)
HEDGE = 8.0

BOUNDS: dict[str, Bound] = {
    "[SM] Theorem 2: one adaptive rate, D√(2Σ‖g‖²)": Bound(
        lambda rounds: {"name": "ogd_global", "radius": RADIUS, "diameter": DIAMETER},
        DIMENSION,
        in_box,
        lambda game: DIAMETER * math.sqrt(2.0 * float(np.sum(game.gradients**2))),
    ),
    "[SM] eq. 4, [L]: per coordinate, ΣDᵢ√(2Σgᵢ²)": Bound(
        lambda rounds: {"name": "pc_ogd", **BOX},
        DIMENSION,
        in_box,
        lambda game: float(np.sum(2.0 * RADIUS * np.sqrt(2.0 * np.sum(game.gradients**2, axis=0)))),
    ),
    "[L]: η = R√2/√t, 2√2·R√T": Bound(
        lambda rounds: {"name": "ogd", "eta": RADIUS * math.sqrt(2.0), "schedule": "root", **BOX},
        1,
        in_box,
        lambda game: 2.0 * math.sqrt(2.0) * RADIUS * math.sqrt(_rounds(game)),
    ),
    "[F]: horizon known, √T": Bound(
        lambda rounds: {"name": "ftrl_fixed", "strength": math.sqrt(rounds)},
        DIMENSION,
        in_ball,
        lambda game: math.sqrt(_rounds(game)),
    ),
    "[F]: λ_t = √t, 1.5√T": Bound(
        lambda rounds: {"name": "ftrl_sqrt"}, DIMENSION, in_ball, lambda game: 1.5 * math.sqrt(_rounds(game))
    ),
    "[F]: doubling, (1 + √2)√T": Bound(
        lambda rounds: {"name": "ftrl_doubling"},
        DIMENSION,
        in_ball,
        lambda game: (1.0 + math.sqrt(2.0)) * math.sqrt(_rounds(game)),
    ),
    "[F]: entropic, λ log d + Σ max|g|²/(2λ)": Bound(
        lambda rounds: {"name": "entropic", "strength": HEDGE, "dimension": DIMENSION},
        DIMENSION,
        on_simplex,
        lambda game: (
            HEDGE * math.log(DIMENSION) + float(np.sum(np.abs(game.gradients).max(axis=1) ** 2)) / (2.0 * HEDGE)
        ),
    ),
}


def shares(bound: Bound, rounds: int) -> dict[str, float]:
    """The regret of each game as a share of the bound."""
    found = {}
    for name, moves in games(bound.dimension, rounds):
        game = play(bound.optimizer(rounds), moves, bound.dimension)
        found[name] = bound.regret(game) / bound.limit(game)
    return found


def run(quick: bool) -> Figure:
    """Play all games against all bounds."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    found = {name: shares(bound, rounds) for name, bound in BOUNDS.items()}
    worst = {name: max(by_game.items(), key=lambda item: item[1]) for name, by_game in found.items()}
    return Figure(
        name="bounds",
        title="No regret bound is violated",
        source="[L], [SM], [F]",
        text=(
            f"{sum(map(len, found.values()))} games of {rounds} rounds in {DIMENSION} dimensions (one for the rate of "
            "[L]), gradients of length at most 1: random, constant, turning, sparse, growing, and against the player."
        ),
        claims=[
            Claim(name, f"{share:.2f} of the bound at worst ({game})", share <= 1.0)
            for name, (game, share) in worst.items()
        ],
        tables=[
            table(
                ("game", *(name.split(":")[0] for name in found)),
                [
                    (game, *(f"{by_game.get(game, math.nan):.2f}" for by_game in found.values()))
                    for game in next(iter(found.values()))
                ],
            )
        ],
    )
