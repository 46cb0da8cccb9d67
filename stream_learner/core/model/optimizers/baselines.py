"""The baselines of [SM] Table 1: Passive-Aggressive and confidence-weighted, linear classifiers by hinge loss.

This file must never weigh an example by its importance: both rules push it to meet a constraint, and meeting it twice
changes nothing. An example of importance 0 is not learned from, any other is learned from once.

Source: [SM] Table 1, whose authors compare with both. Sources are listed in `core.model.optimizers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.optimizers.cells import column, number, set_column, set_weight
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer, column_step
from stream_learner.core.model.optimizers.settings import Setting


@kernel
def passive_aggressive_scale(p: float, y: float, h: float, size: float) -> float:
    """u = -tau y, tau = max(0, 1 - y p) / |x|^2."""
    if h == 0.0 or size == 0.0:
        return 0.0
    return -y * (max(0.0, 1.0 - y * p) / size)


_MU, _VARIANCE = range(2)
_PHI, _A = range(2)


@kernel
def _variance(row: int, pa: int) -> float:
    """sigma^2 of a feature; `a` for a feature that is new."""
    known = column(row, _VARIANCE)
    return known if known != 0.0 else number(pa, _A)


@kernel
def confidence_weighted_read(row: int, x: float, pa: int) -> tuple[float, float, float]:
    """The size is V = sum sigma^2 x^2."""
    mu = column(row, _MU)
    return mu, mu, _variance(row, pa) * x * x


@kernel
def confidence_weighted_scale(p: float, y: float, h: float, size: float, pa: int) -> float:
    """u = -gamma y, gamma = max(0, (-b + sqrt(b^2 - 8 phi (m - phi V))) / (4 phi V)), m = y p, b = 1 + 2 phi m.

    The term under the root equals (1 - 2 phi m)^2 + 8 phi^2 V. For b > 0 the fraction is expanded by b + root, so that
    no two close numbers are subtracted.
    """
    phi, v, m = number(pa, _PHI), size, y * p
    if h == 0.0 or v == 0.0 or m >= phi * v:
        return 0.0
    b, c = 1.0 + 2.0 * phi * m, 1.0 - 2.0 * phi * m
    root = np.sqrt(c * c + 8.0 * phi * phi * v)
    if b > 0.0:
        return -y * (2.0 * (phi * v - m) / (v * (b + root)))
    return -y * ((root - b) / (4.0 * phi * v))


@kernel
def confidence_weighted_step(row: int, x: float, u: float, pa: int) -> bool:
    """mu = mu + gamma y sigma^2 x with the old sigma; then 1 / sigma^2 += 2 gamma phi x^2. Nothing if gamma = 0."""
    if u == 0.0:
        return True
    before = _variance(row, pa)
    mu = column(row, _MU) - u * before * x
    after = 1.0 / (1.0 / before + 2.0 * abs(u) * number(pa, _PHI) * x * x)
    set_column(row, _MU, mu)
    set_column(row, _VARIANCE, after)
    set_weight(row, mu)
    return finite(mu) & (after > 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveAggressive(RuleOptimizer):
    """Plain Passive-Aggressive: w = w + tau y x, tau = hinge / |x|^2, the least change that brings y p to 1."""

    name: ClassVar[str] = "passive_aggressive"
    rule: ClassVar[Rule] = Rule(scale=passive_aggressive_scale, step=column_step)
    columns: ClassVar[tuple[str, ...]] = ("w",)
    losses: ClassVar[tuple[str, ...] | None] = ("hinge",)

    def parameters(self) -> NDArray[np.float64]:
        """One number that no kernel reads: the rule has no hyper-parameters."""
        return np.zeros(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceWeighted(RuleOptimizer):
    """Confidence-weighted learning: variance update, diagonal covariance, confidence phi > 0, first variance a > 0.

    m = y mu.x, V = sum sigma^2 x^2, gamma = max(0, (-(1 + 2 phi m) + sqrt((1 + 2 phi m)^2 - 8 phi (m - phi V)))
    / (4 phi V)); mu_i += gamma y sigma_i^2 x_i with the old sigma; then 1 / sigma_i^2 += 2 gamma phi x_i^2. Hinge loss
    and mistakes are measured on mu. An example that would bring a variance to 0 is refused.
    """

    phi: Annotated[float, Setting("Confidence φ that an update aims at.", above=0)] = 1.0
    a: Annotated[float, Setting("Variance of a feature at first sight.", above=0)] = 1.0

    name: ClassVar[str] = "confidence_weighted"
    rule: ClassVar[Rule] = Rule(
        read=confidence_weighted_read, scale=confidence_weighted_scale, step=confidence_weighted_step
    )
    columns: ClassVar[tuple[str, ...]] = ("mu", "variance")
    losses: ClassVar[tuple[str, ...] | None] = ("hinge",)

    def parameters(self) -> NDArray[np.float64]:
        """phi, and the first variance a."""
        return np.array([self.phi, self.a])
