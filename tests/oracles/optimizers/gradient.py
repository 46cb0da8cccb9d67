"""The gradient descent family: the weights are the state.

In: gradients g = h · ∂ℓ/∂p · x. Out: weights. A coordinate with g = 0 takes no step, so that no rate is 0/0.
"""

from __future__ import annotations

import math

import numpy as np

from tests.oracles.optimizers.base import Features, Optimizer, Schedule, Vector, constant
from tests.oracles.optimizers.losses import Loss


def over_root(g: Vector, squares: Vector) -> Vector:
    """g/√squares where g ≠ 0, else 0."""
    return np.divide(g, np.sqrt(squares), out=np.zeros_like(g), where=g != 0.0)


class GradientDescent(Optimizer):
    """w ← P(w − η_t g), [L] [F] [SM eq. 1]; η a number, an array with a rate a coordinate, or a schedule."""

    def __init__(
        self, dimension: int, loss: Loss, *, eta: float | Vector | Schedule = 0.1, **box: float | Vector
    ) -> None:
        super().__init__(dimension, loss, **box)
        self.eta = eta if callable(eta) else constant(eta)

    def step(self, g: Vector) -> None:
        self.t += 1
        self.w = self.clipped(self.w - self.eta(self.t, self.k) * g)


class GlobalDescent(Optimizer):
    """Gradient descent with η_t = scale · D/√(2 Σ‖g_s‖²), clipped to [−R, R]ⁿ, [SM Theorem 2, §5.1].

    D² = n_seen · (2R)²; n_seen counts the coordinates seen so far, the current example's included. A given
    `diameter` takes the place of D (a game has no features).
    """

    def __init__(
        self, dimension: int, loss: Loss, *, radius: float, scale: float = 1.0, diameter: float | None = None
    ) -> None:
        super().__init__(dimension, loss, low=-radius, high=radius)
        self.radius, self.scale, self.diameter = radius, scale, diameter
        self.seen = np.zeros(dimension, bool)
        self.squares_sum = 0.0

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.seen |= self.dense(x) != 0.0
        super().update(x, y, h)

    def step(self, g: Vector) -> None:
        self.t += 1
        self.seen |= g != 0.0
        self.squares_sum += float(g @ g)
        if self.squares_sum == 0.0:
            return
        d = 2.0 * self.radius * math.sqrt(self.seen.sum()) if self.diameter is None else self.diameter
        self.w = self.clipped(self.w - self.scale * d / math.sqrt(2.0 * self.squares_sum) * g)


class PerCoordinateDescent(Optimizer):
    """w_i ← clip(w_i − η_{t,i} g_i, a_i, b_i), η_{t,i} = scale · D_i/√(c · G2_i), D_i = b_i − a_i, [SM Alg. 1] [L].

    `two` is c: 2 as equation (4) of [SM] needs it (and [L]'s B√2/√G2 with D = 2B), 1 as Algorithm 1 prints it.
    """

    def __init__(
        self,
        dimension: int,
        loss: Loss,
        *,
        low: float | Vector,
        high: float | Vector,
        scale: float = 1.0,
        two: float = 2.0,
    ) -> None:
        super().__init__(dimension, loss, low=low, high=high)
        self.scale, self.two = scale, two
        self.squares = np.zeros(dimension)

    def step(self, g: Vector) -> None:
        self.t += 1
        self.squares += g * g
        d = np.asarray(self.high) - np.asarray(self.low)
        self.w = self.clipped(self.w - self.scale * d * over_root(g, self.two * self.squares))


class AdaGrad(Optimizer):
    """w_i ← w_i − η g_i/√G2_i, the current gradient in G2, [F] [VW]. (Both leave it out and would divide by zero.)"""

    def __init__(self, dimension: int, loss: Loss, *, eta: float = 0.1, **box: float | Vector) -> None:
        super().__init__(dimension, loss, **box)
        self.eta = eta
        self.squares = np.zeros(dimension)

    def step(self, g: Vector) -> None:
        self.t += 1
        self.squares += g * g
        self.w = self.clipped(self.w - self.eta * over_root(g, self.squares))


class NormalizedDescent(Optimizer):
    """Normalized gradient descent (NG), [VW]: scale-free in each feature.

    For x_i ≠ 0: where |x_i| > s_i, w_i ← w_i s_i²/x_i² and s_i ← |x_i|; then predict; N += Σ x_i²/s_i²;
    w_i ← w_i − η_t (t/N) g_i/s_i². N and t include the current example.
    """

    def __init__(self, dimension: int, loss: Loss, *, eta: float | Schedule = 0.1) -> None:
        super().__init__(dimension, loss)
        self.eta = eta if callable(eta) else constant(eta)
        self.s = np.zeros(dimension)
        self.n = 0.0

    def rescaled(self, x: Features) -> tuple[Vector, Vector]:
        """w and s once the scales know of x."""
        w, s = self.w.copy(), self.s.copy()
        for i, value in x.items():
            if abs(value) > s[i]:
                w[i] *= s[i] ** 2 / value**2
                s[i] = abs(value)
        return w, s

    def predict(self, x: Features, h: float = 1.0) -> float:
        w, _ = self.rescaled(x)
        return self.of.read(float(w @ self.dense(x)))

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        g = self.gradient(self.predict(x), x, y, h)
        self.w, self.s = self.rescaled(x)
        self.t += 1
        self.n += sum(value**2 / self.s[i] ** 2 for i, value in x.items() if value != 0.0)
        for i, value in x.items():
            if value != 0.0:
                self.w[i] -= self.eta(self.t, self.k) * (self.t / self.n) * g[i] / self.s[i] ** 2


class AveragedDescent(GradientDescent):
    """Averaged SGD, [VW]: gradients at w_t, predictions with the mean of w_1 … w_t, kept here as their plain sum."""

    def __init__(
        self, dimension: int, loss: Loss, *, eta: float | Vector | Schedule = 0.1, **box: float | Vector
    ) -> None:
        super().__init__(dimension, loss, eta=eta, **box)
        self.w_sum = self.w.copy()

    def weights(self) -> Vector:
        return self.w_sum / (self.t + 1)

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        p = self.of.read(float(self.w @ self.dense(x)))
        self.step(self.gradient(p, x, y, h))

    def step(self, g: Vector) -> None:
        super().step(g)
        self.w_sum = self.w_sum + self.w
