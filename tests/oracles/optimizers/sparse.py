"""The sparse family: L1 inside the update. Every rule acts on every coordinate at every step.

In: gradients. Out: weights with exact zeros. λ is `l1`, a rate η a number or a schedule.
"""

from __future__ import annotations

import math

import numpy as np

from tests.oracles.optimizers.base import Optimizer, Schedule, Vector, constant, soft
from tests.oracles.optimizers.losses import Loss


class _Rated(Optimizer):
    """An optimizer with a learning rate."""

    def __init__(self, dimension: int, loss: Loss, *, eta: float | Schedule = 0.1) -> None:
        super().__init__(dimension, loss)
        self.eta = eta if callable(eta) else constant(eta)

    def rate(self) -> float:
        """η_t of the step that has just begun."""
        return float(self.eta(self.t, self.k))


class L1Subgradient(_Rated):
    """w ← w − ηg − ηλ sgn(w), [Z] [L]."""

    def __init__(self, dimension: int, loss: Loss, *, l1: float, eta: float | Schedule = 0.1) -> None:
        super().__init__(dimension, loss, eta=eta)
        self.l1 = l1

    def step(self, g: Vector) -> None:
        self.t += 1
        self.w = self.w - self.rate() * g - self.rate() * self.l1 * np.sign(self.w)


class SimpleTruncation(_Rated):
    """A gradient step; then, when t mod k = 0, w_i ← 0 where |w_i| ≤ θ, [Z]."""

    def __init__(
        self, dimension: int, loss: Loss, *, theta: float, every: int = 1, eta: float | Schedule = 0.1
    ) -> None:
        super().__init__(dimension, loss, eta=eta)
        self.theta, self.every = theta, every

    def step(self, g: Vector) -> None:
        self.t += 1
        v = self.w - self.rate() * g
        if self.t % self.every == 0:
            v = np.where(np.abs(v) <= self.theta, 0.0, v)
        self.w = v


class TruncatedGradient(_Rated):
    """A gradient step; then, when t mod k = 0, shrink by ηλk where |v_i| ≤ θ, never across 0, [Z].

    For v in [0, θ] that is max(0, v − ηλk), for v in [−θ, 0] it is min(0, v + ηλk): [Z] prints max in both. It
    also drops −λ sgn(w) in one line, and its last reduction is wrong where a weight crosses 0.
    """

    def __init__(
        self,
        dimension: int,
        loss: Loss,
        *,
        l1: float,
        theta: float = math.inf,
        every: int = 1,
        eta: float | Schedule = 0.1,
    ) -> None:
        super().__init__(dimension, loss, eta=eta)
        self.l1, self.theta, self.every = l1, theta, every

    def step(self, g: Vector) -> None:
        self.t += 1
        v = self.w - self.rate() * g
        if self.t % self.every == 0:
            amount = self.rate() * self.l1 * self.every
            v = np.where((v >= 0.0) & (v <= self.theta), np.maximum(0.0, v - amount), v)
            v = np.where((v < 0.0) & (v >= -self.theta), np.minimum(0.0, v + amount), v)
        self.w = v


class Fobos(_Rated):
    """w_i ← S(w_i − η_t g_i, η_t λ), [Z] [VW] [L], with η_{t+½} = η_t."""

    def __init__(self, dimension: int, loss: Loss, *, l1: float, eta: float | Schedule = 0.1) -> None:
        super().__init__(dimension, loss, eta=eta)
        self.l1 = l1

    def step(self, g: Vector) -> None:
        self.t += 1
        self.w = soft(self.w - self.rate() * g, self.rate() * self.l1)


class Rda(Optimizer):
    """Regularized dual averaging with L1, [Z] [VW]: with ḡ = G1/t, w_i = −(√t/γ) S(ḡ_i, λ).

    It minimizes ḡ·w + λ‖w‖₁ + γ/(2√t) ‖w‖². ([VW] omits the t before λ that goes with G1 in place of ḡ.)
    """

    def __init__(self, dimension: int, loss: Loss, *, l1: float, gamma: float) -> None:
        super().__init__(dimension, loss)
        self.l1, self.gamma = l1, gamma
        self.gradient_sum = np.zeros(dimension)

    def step(self, g: Vector) -> None:
        self.t += 1
        self.gradient_sum += g
        self.w = -(math.sqrt(self.t) / self.gamma) * soft(self.gradient_sum / self.t, self.l1)
