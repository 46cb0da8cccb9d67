"""Importance-aware ("invariant") updates, w ← w − s(h) x, in closed form for every loss, [VW].

In: prediction p, label y, importance h, rate η, X = x·x (or Σ r_i x_i² with rates r_i). Out: s(h), the solution
of ds/dh = η · ℓ'(p − s X), s(0) = 0: the limit of many steps with little importance each. The law: at a
constant rate an update with a + b equals one with a, then one with b. ([VW]'s recursion for s(h + 1) is plain
replication and does not obey it.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.oracles.optimizers.base import Features, Optimizer, Vector
from tests.oracles.optimizers.losses import Loss, Quantile


def lambert_w_of_exp(a: float) -> float:
    """W(e^a): the w with w + log w = a, by Newton's method on v = log w; e^a itself is never formed."""
    v = a if a <= 1.0 else math.log(a)
    for _ in range(100):
        change = (v + math.exp(v) - a) / (1.0 + math.exp(v))
        v -= change
        if abs(change) <= 1e-16 * abs(v):
            break
    return math.exp(v)


def margin_gain(m: float, b: float) -> float:
    """The δ ≥ 0 with δ + e^m(e^δ − 1) = b: by how much a logistic margin m grows with b = hηX.

    The same as log W(e^a) − m with a = b + m + e^m, but without the cancellation, and for every m.
    """
    if b == 0.0:
        return 0.0
    shift, weight = min(m, 0.0), math.exp(-max(m, 0.0))  # the equation divided by e^m where m > 0
    target = b * weight
    delta = min(b, float(np.logaddexp(0.0, math.log(b) - m)))
    for _ in range(200):  # from the right of the root of a convex function: Newton's method only goes down
        risen = math.exp(shift + delta)
        grown = math.exp(shift) * math.expm1(delta) if delta < 1.0 else risen - math.exp(shift)
        change = (weight * delta + grown - target) / (weight + risen)
        delta -= change
        if abs(change) <= 1e-16 * delta:
            break
    return max(delta, 0.0)


def squared(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """(p − y)/X · (1 − e^(−hηX))."""
    return -(p - y) / size * math.expm1(-e * size)


def logistic(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """(W(e^a) − hηX − e^(yp))/(yX), a = hηX + yp + e^(yp); with W = a − log W, that is (yp − log W)/(yX)."""
    return -y * margin_gain(y * p, e * size) / size


def log_loss(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """The logistic one in labels 0 and 1."""
    return logistic(p, 2.0 * y - 1.0, e, size, loss)


def exponential(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """(py − log(hηX + e^(py)))/(Xy)."""
    return -y * math.log1p(e * size * math.exp(-p * y)) / size


def logarithmic(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """(p − 1 + √((p − 1)² + 2hηX))/X for y = 0, (p − √(p² + 2hηX))/X for y = 1."""
    if y == 0.0:
        return (p - 1.0 + math.sqrt((p - 1.0) ** 2 + 2.0 * e * size)) / size
    return (p - math.sqrt(p * p + 2.0 * e * size)) / size


def hellinger(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """(p − 1 + ¼(12hηX + 8(1−p)^(3/2))^(2/3))/X for y = 0, (p − ¼(12hηX + 8p^(3/2))^(2/3))/X for y = 1."""
    if y == 0.0:
        return (p - 1.0 + 0.25 * (12.0 * e * size + 8.0 * (1.0 - p) ** 1.5) ** (2.0 / 3.0)) / size
    return (p - 0.25 * (12.0 * e * size + 8.0 * p**1.5) ** (2.0 / 3.0)) / size


def hinge(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """−y min(hη, (1 − yp)/X), 0 when yp ≥ 1."""
    return -y * min(e, (1.0 - y * p) / size) if y * p < 1.0 else 0.0


def quantile(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """−τ min(hη, (y − p)/(τX)) for y > p, (1 − τ) min(hη, (p − y)/((1 − τ)X)) for y < p."""
    if not isinstance(loss, Quantile):
        raise TypeError("the closed form of the quantile loss needs its tau")
    tau = loss.tau
    if y > p:
        return -tau * min(e, (y - p) / (tau * size))
    if y < p:
        return (1.0 - tau) * min(e, (p - y) / ((1.0 - tau) * size))
    return 0.0


def poisson(p: float, y: float, e: float, size: float, loss: Loss) -> float:
    """log1p(e^p expm1(yhηX)/y)/X − yhη for y > 0, log1p(e^p hηX)/X for y = 0."""
    if y > 0.0:
        return math.log1p(math.exp(p) * math.expm1(y * e * size) / y) / size - y * e
    return math.log1p(math.exp(p) * e * size) / size


CLOSED_FORMS: dict[str, Callable[[float, float, float, float, Loss], float]] = {
    "squared": squared,
    "logistic": logistic,
    "log_loss": log_loss,
    "exponential": exponential,
    "logarithmic": logarithmic,
    "hellinger": hellinger,
    "hinge": hinge,
    "quantile": quantile,
    "poisson": poisson,
}


def invariant_scale(loss: Loss, p: float, y: float, h: float, eta: float, size: float) -> float:
    """s(h) for X = `size` > 0. A loss factor c is a rate of cη."""
    return CLOSED_FORMS[loss.name](p, y, h * eta * loss.factor, size, loss)


class ImportanceAware(Optimizer):
    """w_i ← w_i − s(h) r_i x_i with X = Σ r_i x_i²; `rates` are the r_i, all 1 unless given."""

    def __init__(self, dimension: int, loss: Loss, *, eta: float = 0.1, rates: Vector | None = None) -> None:
        super().__init__(dimension, loss)
        self.eta = eta
        self.rates = np.ones(dimension) if rates is None else np.asarray(rates, float)

    def update(self, x: Features, y: float, h: float = 1.0) -> None:
        self.of.check(y)
        self.t += 1
        direction = self.rates * self.dense(x)
        size = float(direction @ self.dense(x))
        if size > 0.0 and h > 0.0:
            self.w = self.w - invariant_scale(self.of, self.predict(x), y, h, self.eta, size) * direction
