"""What all optimizers share: state as dense vectors, prediction, schedules, progressive validation.

An optimizer that lives on gradients alone overrides `step`, and can then be played in a game without examples; the
others override `update`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.oracles.optimizers.losses import Loss

Vector = NDArray[np.float64]
Features = Mapping[int, float]
Schedule = Callable[[int, int], "float | Vector"]


class Example(NamedTuple):
    """Features by coordinate, label, importance."""

    x: Features
    y: float
    h: float = 1.0


def constant(eta: float | Vector) -> Schedule:
    """η at every step."""
    return lambda t, k: eta


def root(eta: float) -> Schedule:
    """η/√t, [F] [SM eq. 1]."""
    return lambda t, k: eta / math.sqrt(t)


def powers(eta: float, *, decay: float = 1.0, t0: float = 1.0, power: float = 0.5) -> Schedule:
    """λ·d^k·(t0/(t0 + t))^p with k the number of the pass, from 0, [VW]."""
    return lambda t, k: eta * decay**k * (t0 / (t0 + t)) ** power


def soft(v: Vector, a: float) -> Vector:
    """S(v, a) = sgn(v)·max(0, |v| − a)."""
    return np.sign(v) * np.maximum(0.0, np.abs(v) - a)


class Optimizer:
    """An online learner of a linear model: `predict`, then `update`, example by example.

    `t` counts the examples seen, `k` the passes that have ended. With a box (low, high), which must hold 0, the
    weights are clipped into it after each gradient step.
    """

    def __init__(
        self, dimension: int, loss: Loss, *, low: float | Vector = -math.inf, high: float | Vector = math.inf
    ) -> None:
        if np.any(np.asarray(low) > 0.0) or np.any(np.asarray(high) < 0.0):
            raise ValueError("the feasible set must hold w_1 = 0")
        self.dimension = dimension
        self.of = loss
        self.low = low
        self.high = high
        self.t = 0
        self.k = 0
        self.w: Vector = np.zeros(dimension)

    def dense(self, x: Features) -> Vector:
        """The features as a vector."""
        vector = np.zeros(self.dimension)
        for i, value in x.items():
            vector[i] = value
        return vector

    def weights(self) -> Vector:
        """The weights of the next prediction."""
        return self.w.copy()

    def predict(self, x: Features, h: float = 1.0) -> float:
        """The prediction that `update` would start from; changes nothing."""
        return self.of.read(float(self.weights() @ self.dense(x)))

    def loss(self, p: float, y: float) -> float:
        """ℓ(p, y)."""
        return self.of.value(p, y)

    def gradient(self, p: float, x: Features, y: float, h: float) -> Vector:
        """g = h · ∂ℓ/∂p · x."""
        return h * self.of.slope(p, y) * self.dense(x)

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        """Learns one example."""
        self.of.check(y)
        self.step(self.gradient(self.predict(x, h), x, y, h))

    def step(self, g: Vector) -> None:
        """Learns one gradient."""
        raise NotImplementedError

    def clipped(self, w: Vector) -> Vector:
        """P(w)."""
        return np.clip(w, self.low, self.high)

    def end_pass(self) -> None:
        """Counts a pass over the data."""
        self.k += 1


class Run(NamedTuple):
    """Progressive validation: everything measured before the example's own update."""

    predictions: list[float]
    losses: list[float]  # h·ℓ
    mistakes: int
    weights: Vector
    importance_sum: float

    @property
    def average_loss(self) -> float:
        """Weighted mean loss."""
        return math.fsum(self.losses) / self.importance_sum


def progressive(optimizer: Optimizer, examples: Iterable[Example], passes: int = 1) -> Run:
    """Predict, measure, update, one example after another, `passes` times over."""
    predictions: list[float] = []
    losses: list[float] = []
    mistakes = 0
    importance_sum = 0.0
    examples = list(examples)
    for _ in range(passes):
        for x, y, h in examples:
            p = optimizer.predict(x, h)
            margin = optimizer.of.margin(p, y)
            predictions.append(p)
            losses.append(h * optimizer.loss(p, y))
            mistakes += margin is not None and margin <= 0.0
            importance_sum += h
            optimizer.update(x, y, h)
        optimizer.end_pass()
    return Run(predictions, losses, mistakes, optimizer.weights(), importance_sum)
