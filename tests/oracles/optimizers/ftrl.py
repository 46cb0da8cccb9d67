"""Follow the regularized leader: the weights are a function of the sum of the gradients.

The weights are computed again from the sums at every step.
"""

from __future__ import annotations

import math

import numpy as np

from tests.oracles.optimizers.base import Optimizer, Vector, soft
from tests.oracles.optimizers.losses import Loss


class _Leader(Optimizer):
    """Keeps G1; `leader` says which weights belong to it."""

    def __init__(self, dimension: int, loss: Loss) -> None:
        super().__init__(dimension, loss)
        self.gradient_sum = np.zeros(dimension)

    def leader(self) -> Vector:
        """The weights for round t + 1."""
        raise NotImplementedError

    def weights(self) -> Vector:
        return self.leader()

    def step(self, g: Vector) -> None:
        self.t += 1
        self.gradient_sum = self.gradient_sum + g


class FixedFtrl(_Leader):
    """argmin G1·w + (λ/2)‖w‖² = −G1/λ, [F] [L]: unprojected gradient descent with η = 1/λ."""

    def __init__(self, dimension: int, loss: Loss, *, strength: float) -> None:
        super().__init__(dimension, loss)
        self.strength = strength

    def leader(self) -> Vector:
        return -self.gradient_sum / self.strength


class RootFtrl(_Leader):
    """λ_t = c√t, [F]: w_t = −G1_{t−1}/(c√t), where G1_{t−1} is all that is known before round t."""

    def __init__(self, dimension: int, loss: Loss, *, c: float = 1.0) -> None:
        super().__init__(dimension, loss)
        self.c = c

    def leader(self) -> Vector:
        return -self.gradient_sum / (self.c * math.sqrt(self.t + 1))


class DoublingFtrl(_Leader):
    """The doubling trick, [F]: epochs end at T1, 2T1, 4T1, …; λ = c√T_k inside (T_k, 2T_k], c√T1 in the first.

    The state starts afresh with every epoch, unless `keep`.
    """

    def __init__(self, dimension: int, loss: Loss, *, first: int = 1, c: float = 1.0, keep: bool = False) -> None:
        super().__init__(dimension, loss)
        self.first, self.c, self.keep = first, c, keep

    def strength(self, t: int) -> float:
        """λ of round t, from 1."""
        begin = self.first
        while 2 * begin < t:
            begin *= 2
        return self.c * math.sqrt(begin)

    def ends(self, t: int) -> bool:
        """Whether an epoch ends with round t."""
        end = self.first
        while end < t:
            end *= 2
        return end == t

    def leader(self) -> Vector:
        return -self.gradient_sum / self.strength(self.t + 1)

    def step(self, g: Vector) -> None:
        super().step(g)
        if self.ends(self.t) and not self.keep:
            self.gradient_sum = np.zeros(self.dimension)


class EntropicFtrl(_Leader):
    """Exponentiated gradient, [F]: on the simplex of the declared dimension, w_i ∝ e^(−G1_i/λ)."""

    def __init__(self, dimension: int, loss: Loss, *, strength: float) -> None:
        super().__init__(dimension, loss)
        self.strength = strength

    def leader(self) -> Vector:
        exponent = -self.gradient_sum / self.strength
        share = np.exp(exponent - exponent.max())
        return share / share.sum()


class FtrlProximal(Optimizer):
    """FTRL-Proximal, [G] Algorithm 1 with the penalty (λ2/2)‖w‖², [Z] [VW].

    w_i = −S(z_i, λ1)/((β + √n_i)/α + λ2), 0 while the denominator is 0; σ_i = (√(n_i + g_i²) − √n_i)/α;
    z_i += g_i − σ_i w_i with the w that predicted; n_i += g_i². ([Z] line 6 needs brackets; [VW] prints
    σ_{1:t} = η_t for 1/η_t.) `l1_grows` takes tλ1 for λ1 after t gradients, as [L] has it.
    """

    def __init__(
        self,
        dimension: int,
        loss: Loss,
        *,
        alpha: float = 0.1,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        l1_grows: bool = False,
    ) -> None:
        super().__init__(dimension, loss)
        self.alpha, self.beta, self.l1, self.l2, self.l1_grows = alpha, beta, l1, l2, l1_grows
        self.z = np.zeros(dimension)
        self.n = np.zeros(dimension)

    def weights(self) -> Vector:
        l1 = self.l1 * self.t if self.l1_grows else self.l1
        denominator = (self.beta + np.sqrt(self.n)) / self.alpha + self.l2
        return np.divide(-soft(self.z, l1), denominator, out=np.zeros(self.dimension), where=denominator != 0.0)

    def step(self, g: Vector) -> None:
        w = self.weights()
        sigma = (np.sqrt(self.n + g * g) - np.sqrt(self.n)) / self.alpha
        self.z = self.z + g - sigma * w
        self.n = self.n + g * g
        self.t += 1
