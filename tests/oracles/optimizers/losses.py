"""The losses: value, slope in the prediction, label domain, link.

In: the linear prediction p = w·x and a label y. Out: floats. A loss never sees weights, features or importance.
Where a loss asks for a probability, `read` clips p into [delta, 1 − delta] before anybody uses it.
"""

from __future__ import annotations

import math
from typing import Any


class Loss:
    """The parts of a loss. `factor` multiplies value and slope; `mean` is the inverse link, from p to an expected y."""

    name = ""
    factor = 1.0

    def value(self, p: float, y: float) -> float:
        """ℓ(p, y)."""
        raise NotImplementedError

    def slope(self, p: float, y: float) -> float:
        """∂ℓ/∂p; at a kink the subgradient that the table names."""
        raise NotImplementedError

    def check(self, y: float) -> None:
        """Raises ValueError where `y` is not a label of this loss."""
        if not math.isfinite(y):
            raise ValueError(f"{self.name}: a label is a finite number, not {y}")

    def read(self, p: float) -> float:
        """The prediction as this loss uses it."""
        return p

    def mean(self, p: float) -> float:
        """Inverse link of p: identity unless a loss says otherwise."""
        return p

    def margin(self, p: float, y: float) -> float | None:
        """Right side of zero: > 0. A mistake is a margin ≤ 0. None: the loss knows no classes."""
        return None


class Signed(Loss):
    """Labels −1 and 1."""

    def check(self, y: float) -> None:
        if y not in (-1.0, 1.0):
            raise ValueError(f"{self.name}: a label is -1 or 1, not {y}")

    def margin(self, p: float, y: float) -> float | None:
        return y * p


class Binary(Loss):
    """Labels 0 and 1."""

    def check(self, y: float) -> None:
        if y not in (0.0, 1.0):
            raise ValueError(f"{self.name}: a label is 0 or 1, not {y}")


class Probability(Binary):
    """Identity link: p itself is the probability, clipped when it is read, because updates can push it out."""

    def __init__(self, delta: float = 1e-9) -> None:
        self.delta = delta

    def read(self, p: float) -> float:
        return min(max(p, self.delta), 1.0 - self.delta)

    def margin(self, p: float, y: float) -> float | None:
        return (2.0 * y - 1.0) * (p - 0.5)


class Squared(Loss):
    """½(p − y)². With `factor` 2 it is (p − y)², the tool's own [VW]."""

    name = "squared"

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def value(self, p: float, y: float) -> float:
        return self.factor * 0.5 * (p - y) ** 2

    def slope(self, p: float, y: float) -> float:
        return self.factor * (p - y)


def sigmoid(p: float) -> float:
    """1 / (1 + e^(−p)) without overflow."""
    if p >= 0:
        return 1.0 / (1.0 + math.exp(-p))
    return math.exp(p) / (1.0 + math.exp(p))


def softplus(p: float) -> float:
    """log(1 + e^p) without overflow."""
    return max(p, 0.0) + math.log1p(math.exp(-abs(p)))


class Logistic(Signed):
    """log(1 + e^(−yp)), labels −1 and 1; logit link."""

    name = "logistic"

    def value(self, p: float, y: float) -> float:
        return softplus(-y * p)

    def slope(self, p: float, y: float) -> float:
        return -y * sigmoid(-y * p)

    def mean(self, p: float) -> float:
        return sigmoid(p)


class LogLoss(Binary):
    """−y log q − (1 − y) log(1 − q), q = σ(p), labels 0 and 1: the same in the other notation, slope q − y.

    [F] and [SM] print it with signs or logarithms missing.
    """

    name = "log_loss"

    def value(self, p: float, y: float) -> float:
        return y * softplus(-p) + (1.0 - y) * softplus(p)

    def slope(self, p: float, y: float) -> float:
        return -sigmoid(-p) if y == 1.0 else sigmoid(p)

    def mean(self, p: float) -> float:
        return sigmoid(p)

    def margin(self, p: float, y: float) -> float | None:
        return (2.0 * y - 1.0) * p


class Hinge(Signed):
    """max(0, 1 − yp); slope 0 at yp = 1."""

    name = "hinge"

    def value(self, p: float, y: float) -> float:
        return max(0.0, 1.0 - y * p)

    def slope(self, p: float, y: float) -> float:
        return -y if y * p < 1.0 else 0.0


class Quantile(Loss):
    """τ(y − p) above the prediction, (1 − τ)(p − y) below; slope 0 at p = y. ([VW]'s first table swaps the terms.)"""

    name = "quantile"

    def __init__(self, tau: float = 0.5) -> None:
        self.tau = tau

    def value(self, p: float, y: float) -> float:
        return self.tau * (y - p) if y > p else (1.0 - self.tau) * (p - y)

    def slope(self, p: float, y: float) -> float:
        if y == p:
            return 0.0
        return -self.tau if y > p else 1.0 - self.tau


class Exponential(Signed):
    """e^(−yp)."""

    name = "exponential"

    def value(self, p: float, y: float) -> float:
        return math.exp(-y * p)

    def slope(self, p: float, y: float) -> float:
        return -y * math.exp(-y * p)


class Logarithmic(Probability):
    """y log(y/p) + (1 − y) log((1 − y)/(1 − p)), with 0 log 0 = 0."""

    name = "logarithmic"

    def value(self, p: float, y: float) -> float:
        return -math.log(p) if y == 1.0 else -math.log1p(-p)

    def slope(self, p: float, y: float) -> float:
        return (p - y) / (p * (1.0 - p))


class Hellinger(Probability):
    """2(1 − √(py) − √((1 − p)(1 − y)))."""

    name = "hellinger"

    def value(self, p: float, y: float) -> float:
        return 2.0 * (1.0 - math.sqrt(p * y) - math.sqrt((1.0 - p) * (1.0 - y)))

    def slope(self, p: float, y: float) -> float:
        return -math.sqrt(y / p) + math.sqrt((1.0 - y) / (1.0 - p))


class Poisson(Loss):
    """e^p − yp, labels are counts, log link. (The part of the deviance that depends on p, halved.)"""

    name = "poisson"

    def value(self, p: float, y: float) -> float:
        return math.exp(p) - y * p

    def slope(self, p: float, y: float) -> float:
        return math.exp(p) - y

    def check(self, y: float) -> None:
        if not (math.isfinite(y) and y >= 0.0):
            raise ValueError(f"{self.name}: a label is a count, not {y}")

    def mean(self, p: float) -> float:
        return math.exp(p)


LOSSES: dict[str, type[Loss]] = {
    kind.name: kind
    for kind in (Squared, Logistic, LogLoss, Hinge, Quantile, Exponential, Logarithmic, Hellinger, Poisson)
}


def make_loss(name: str, **options: Any) -> Loss:
    """A loss by name; options: `factor` (squared), `tau` (quantile), `delta` (logarithmic, hellinger)."""
    return LOSSES[name](**options)
