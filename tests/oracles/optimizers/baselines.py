"""The baselines of [SM] Table 1, linear classifiers with labels −1 and 1 and hinge loss.

Both push an example to meet a constraint; meeting it twice changes nothing, so importance counts as seen (> 0) or not
seen (0).
"""

from __future__ import annotations

import math

import numpy as np

from tests.oracles.optimizers.base import Features, Optimizer
from tests.oracles.optimizers.losses import Hinge, Loss


def _hinge_only(loss: Loss) -> None:
    if not isinstance(loss, Hinge):
        raise ValueError(f"the baselines are measured by hinge loss, not {loss.name}")


class PassiveAggressive(Optimizer):
    """Plain Passive-Aggressive: w ← w + τ y x, τ = hinge/‖x‖², the least change that brings yp to 1."""

    def __init__(self, dimension: int, loss: Loss) -> None:
        _hinge_only(loss)
        super().__init__(dimension, loss)

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        self.t += 1
        size = float(self.dense(x) @ self.dense(x))
        if h > 0.0 and size > 0.0:
            self.w = self.w + self.loss(self.predict(x), y) / size * y * self.dense(x)


class ConfidenceWeighted(Optimizer):
    """Confidence-weighted learning, variance update, diagonal covariance; `w` is the mean μ.

    m = y μ·x, V = Σ σ²x², γ = max(0, (−(1 + 2φm) + √((1 + 2φm)² − 8φ(m − φV)))/(4φV));
    μ_i += γ y σ²_i x_i with the old σ, then 1/σ²_i += 2γφx_i². σ² = a at first sight.
    """

    def __init__(self, dimension: int, loss: Loss, *, phi: float = 1.0, a: float = 1.0) -> None:
        _hinge_only(loss)
        super().__init__(dimension, loss)
        self.phi = phi
        self.variance = np.full(dimension, a)

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        self.t += 1
        vector = self.dense(x)
        v = float(self.variance @ vector**2)
        if h <= 0.0 or v == 0.0:
            return
        m, phi = y * float(self.w @ vector), self.phi
        b = 1.0 + 2.0 * phi * m
        gamma = max(0.0, (-b + math.sqrt(b * b - 8.0 * phi * (m - phi * v))) / (4.0 * phi * v))
        self.w = self.w + gamma * y * self.variance * vector
        self.variance = 1.0 / (1.0 / self.variance + 2.0 * gamma * phi * vector**2)
