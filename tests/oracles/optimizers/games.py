"""Games against an optimizer: gradients instead of examples, and the regret.

In: an optimizer that learns by `step`, and a sequence of gradients or an adversary that sees the weights. Out:
regret against a box, a ball or the simplex: what the plays lost more than the best fixed play.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from tests.oracles.optimizers.base import Optimizer, Vector
from tests.oracles.optimizers.gradient import GradientDescent, PerCoordinateDescent
from tests.oracles.optimizers.losses import Squared

Adversary = Callable[[Vector], Vector]


class Game(NamedTuple):
    """The plays of a game and their costs, a row for each round."""

    plays: Vector
    gradients: Vector

    @property
    def cost(self) -> float:
        """Σ g_t·w_t."""
        return float(np.sum(self.plays * self.gradients))

    def regret_in_box(self, low: float, high: float) -> float:
        """Against the best point of [low, high]ⁿ."""
        total = self.gradients.sum(axis=0)
        return self.cost - float(np.sum(np.where(total > 0.0, low * total, high * total)))

    def regret_in_ball(self, radius: float) -> float:
        """Against the best point of length `radius`."""
        return self.cost + radius * float(np.linalg.norm(self.gradients.sum(axis=0)))

    def regret_on_simplex(self) -> float:
        """Against the best corner of the simplex."""
        return self.cost - float(self.gradients.sum(axis=0).min())


def play(optimizer: Optimizer, rounds: Iterable[Vector | Adversary]) -> Game:
    """Plays each round: a gradient, or a function that answers the weights with one."""
    plays, gradients = [], []
    for move in rounds:
        w = optimizer.weights()
        g = np.asarray(move(w) if callable(move) else move, float)
        plays.append(w)
        gradients.append(g)
        optimizer.step(g)
    return Game(np.array(plays), np.array(gradients))


def one_third_power_regrets(m: int) -> tuple[float, float]:
    """[SM] Theorem 1's problem of size m: regret of the best global rate, and of per-coordinate rates.

    Coordinate 1 sees |x − ε| for T0 = m³ rounds, then each of m others sees −x for m rounds; F = [0, 1]. Each
    coordinate has its rounds for itself, so a global constant rate is the same one-dimensional game with that
    rate: the rates 2^j/m, j = −4 … 4 by quarters, are played side by side, one a coordinate of the optimizer.
    """
    etas = 2.0 ** np.arange(-4.0, 4.25, 0.25) / m
    eps = 1e-3 / m
    box = {"low": 0.0, "high": 1.0}

    def regret(optimizer: Optimizer, length: int, loss: Adversary, slope: Adversary) -> Vector:
        total = np.zeros(optimizer.dimension)
        for _ in range(length):
            w = optimizer.w
            total += loss(w)
            optimizer.step(slope(w))
        return total

    def both(make: Callable[[], Optimizer]) -> Vector:
        first = regret(make(), m**3, lambda w: np.abs(w - eps), lambda w: np.sign(w - eps))
        other = regret(make(), m, lambda w: 1.0 - w, lambda w: -np.ones_like(w))
        return first + m * other

    best = both(lambda: GradientDescent(len(etas), Squared(), eta=etas, **box)).min()
    return float(best), float(both(lambda: PerCoordinateDescent(1, Squared(), **box))[0])


def exponent(sizes: list[float], values: list[float]) -> float:
    """The slope of log(value) over log(size), by least squares."""
    return float(np.polyfit([math.log(s) for s in sizes], [math.log(v) for v in values], 1)[0])
