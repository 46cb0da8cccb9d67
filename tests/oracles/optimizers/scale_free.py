"""PiSTOL and coin betting: no learning rate, weights by formula from sums of gradients.

In: examples. Out: weights. A prediction depends on the example's own scale (and, for coin, importance), so
`predict` works on copies of what `update` would change first. The gradient is g = h · ∂ℓ/∂p · x.
"""

from __future__ import annotations

import numpy as np

from tests.oracles.optimizers.base import Features, Optimizer, Vector
from tests.oracles.optimizers.losses import Loss


class Pistol(Optimizer):
    """M = max|x|; c = 1/(αM(A + M)); w = β√A·θ·e^(θ²c/2)·c; then θ −= g, A += |g|."""

    def __init__(self, dimension: int, loss: Loss, *, alpha: float = 1.0, beta: float = 0.5) -> None:
        super().__init__(dimension, loss)
        self.alpha, self.beta = alpha, beta
        self.theta, self.a, self.m = np.zeros(dimension), np.zeros(dimension), np.zeros(dimension)

    def weights_at(self, m: Vector) -> Vector:
        """Weights where the largest |x| so far are `m`; 0 where nothing was seen."""
        size = self.alpha * m * (self.a + m)
        c = np.divide(1.0, size, out=np.zeros(self.dimension), where=size > 0.0)
        return self.beta * np.sqrt(self.a) * self.theta * np.exp(self.theta**2 * c / 2.0) * c

    def weights(self) -> Vector:
        return self.weights_at(self.m)

    def predict(self, x: Features, h: float = 1.0) -> float:
        vector = self.dense(x)
        return self.of.read(float(self.weights_at(np.maximum(self.m, np.abs(vector))) @ vector))

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        g = self.gradient(self.predict(x), x, y, h)
        self.t += 1
        self.m = np.maximum(self.m, np.abs(self.dense(x)))
        self.theta = self.theta - g
        self.a = self.a + np.abs(g)


class CoinBetting(Optimizer):
    """w = (α + W)θ/(LM(LM + A)), 0 while LM = 0; p = Σwx/((N + 1e−6)/T), N += hΣ(x/M)², T += h before predicting.

    Then, for the features present: M = max(M, |x|); L = max(|hd|, β) where |hd| > L; w again; θ −= g, A += |g|,
    W −= g·w with d = ∂ℓ/∂p.
    """

    def __init__(self, dimension: int, loss: Loss, *, alpha: float = 4.0, beta: float = 1.0) -> None:
        super().__init__(dimension, loss)
        self.alpha, self.beta = alpha, beta
        self.theta, self.a, self.wealth = np.zeros(dimension), np.zeros(dimension), np.zeros(dimension)
        self.m, self.largest = np.zeros(dimension), np.zeros(dimension)
        self.n = self.total = 0.0

    def bets(self, m: Vector, largest: Vector) -> Vector:
        """w before the division by the average norm."""
        size = largest * m * (largest * m + self.a)
        return np.divide((self.alpha + self.wealth) * self.theta, size, out=np.zeros(self.dimension), where=size > 0.0)

    def weights(self) -> Vector:
        if self.total == 0.0:
            return np.zeros(self.dimension)
        return self.bets(self.m, self.largest) / ((self.n + 1e-6) / self.total)

    def norms(self, x: Features, h: float) -> tuple[Vector, float, float]:
        """M, N and T once they know of the example."""
        vector = np.abs(self.dense(x))
        m = np.maximum(self.m, vector)
        n_x = float(np.sum(np.divide(vector, m, out=np.zeros(self.dimension), where=m > 0.0) ** 2))
        return m, self.n + h * n_x, self.total + h

    def predict(self, x: Features, h: float = 1.0) -> float:
        m, n, total = self.norms(x, h)
        if total == 0.0:
            return self.of.read(0.0)
        return self.of.read(float(self.bets(m, self.largest) @ self.dense(x)) / ((n + 1e-6) / total))

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        p = self.predict(x, h)
        g = self.gradient(p, x, y, h)
        self.t += 1
        self.m, self.n, self.total = self.norms(x, h)
        present = self.dense(x) != 0.0
        pull = abs(h * self.of.slope(p, y))
        grown = present & (pull > self.largest)
        self.largest = np.where(grown, max(pull, self.beta), self.largest)
        w = self.bets(self.m, self.largest)
        self.theta = self.theta - g
        self.a = self.a + np.abs(g)
        self.wealth = self.wealth - g * w
