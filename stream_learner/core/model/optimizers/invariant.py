"""Importance-aware ("invariant") updates, w = w - s(h) x, in closed form for every loss.

p is the margin, y the label, h the importance, eta the rate, and X = x.x. No formula here subtracts two numbers that
are close when h eta X is small, as it is for most examples: that would lose the digits.

Source: [VW]. s solves ds/dh = eta l'(p - s X), s(0) = 0: the limit of many steps of little importance.
The law: one update with importance a + b equals one with a, then one with b. (The source's recursion for s(h + 1) is
replication, and does not obey it.) With e = h eta and b = e X, where the source prints

    squared       (p - y)/X (1 - e^-b)                     here e (p - y) (1 - e^-b)/b; (p - y)^2 has 2 eta for eta
    logistic      (W(e^a) - b - e^(yp))/(y X)              here -y e gain/b with gain + e^(yp) (e^gain - 1) = b
    exponential   (p y - log(b + e^(py)))/(X y)            here -y e log(1 + b e^(-py))/b
    logarithmic   (p - sqrt(p^2 + 2b))/X                   here -2 e/(p + sqrt(p^2 + 2b)), for y = 1
    hellinger     (p - (12b + 8 p^(3/2))^(2/3)/4)/X        here -e p ((1 + 1.5 b p^(-3/2))^(2/3) - 1)/b, for y = 1
    hinge         -y min(e, (1 - yp)/X), 0 if yp >= 1
    quantile      -tau min(e, (y - p)/(tau X)) if y > p, (1 - tau) min(e, (p - y)/((1 - tau) X)) if y < p
    poisson       log(1 + e^p (e^(yb) - 1)/y)/X - y e      here e log(1 + (1 - e^(-yb)) (e^p/y - 1))/b; y = 0:
                                                           e log(1 + b e^p)/b
    linear        e y

a = b + yp + e^(yp), and W is Lambert's. For y = 0 logarithmic and hellinger are mirrored: 1 - p for p, and the sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import exp, expm1, log, log1p, log1p_of_scaled, margin_gain, sigmoid
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model import losses
from stream_learner.core.model.optimizers.cells import number
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer, column_step
from stream_learner.core.model.optimizers.settings import Eta

_ETA = 0


@kernel
def _poisson_change(p: float, y: float, b: float) -> float:
    """The decrease of the margin for a count y > 0."""
    part, ratio = -expm1(-y * b), exp(p) / y
    if part * (1.0 - ratio) < 0.5:
        return log1p(part * (ratio - 1.0))
    return log((1.0 - part) + part * ratio)


@kernel
def _classes(loss: int, p: float, y: float, e: float, b: float) -> float:
    """s(h) of the losses of a classification with labels -1 and 1, and of the logistic loss with 0 and 1."""
    if loss == losses.LOGISTIC:
        if (y != 0.0) & (y != 1.0):
            return np.nan
        sign = 2.0 * y - 1.0
        return -sign * e * (margin_gain(sign * p, b) / b if b > 0.0 else sigmoid(-sign * p))
    return -y * e * (log1p_of_scaled(b, -y * p) / b if b > 0.0 else exp(-y * p))


@kernel
def _probabilities(loss: int, p: float, y: float, e: float, b: float) -> float:
    """s(h) of the losses whose margin is a probability."""
    q = p if y == 1.0 else 1.0 - p
    sign = -1.0 if y == 1.0 else 1.0
    if loss == losses.LOGARITHMIC:
        return sign * 2.0 * e / (q + np.sqrt(q * q + 2.0 * b))
    root = np.sqrt(q)
    if b == 0.0:
        return sign * e / root
    return sign * e * (q * expm1(log1p(1.5 * b / (q * root)) * (2.0 / 3.0)) / b)


@kernel
def _reals(loss: int, tau: float, p: float, y: float, e: float, b: float, size: float) -> float:
    """s(h) of the losses whose labels are numbers."""
    if loss == losses.QUANTILE:
        if y > p:
            return -tau * min(e, (y - p) / (tau * size))
        return (1.0 - tau) * min(e, (p - y) / ((1.0 - tau) * size))
    if loss == losses.POISSON:
        if b == 0.0:
            return e * (exp(p) - y)
        return e * ((_poisson_change(p, y, b) if y > 0.0 else log1p_of_scaled(b, p)) / b)
    if loss == losses.LINEAR:
        return e * y
    return e * (p - y) * (-expm1(-b) / b if b > 0.0 else 1.0)


@kernel
def invariant_scale(loss: int, option: float, p: float, y: float, h: float, eta: float, size: float) -> float:
    """s(h); 0 for an example without features or importance; NaN for a logistic label that is neither 0 nor 1."""
    e = h * eta * (2.0 if loss == losses.SQUARED else 1.0)
    b = e * size
    if (size == 0.0) | (e == 0.0):
        return 0.0
    if loss == losses.HINGE:
        return -y * min(e, (1.0 - y * p) / size) if y * p < 1.0 else 0.0
    if (loss == losses.LOGISTIC) | (loss == losses.EXPONENTIAL):
        return _classes(loss, p, y, e, b)
    if (loss == losses.LOGARITHMIC) | (loss == losses.HELLINGER):
        return _probabilities(loss, p, y, e, b)
    return _reals(loss, option, p, y, e, b, size)


@kernel
def invariant_u(loss: int, option: float, p: float, y: float, h: float, size: float, pa: int) -> float:
    """u = s(h), so that the step is w - u x."""
    return invariant_scale(loss, option, p, y, h, number(pa, _ETA), size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant(RuleOptimizer):
    """Importance-aware updates at the constant rate eta: see the module.

    The logistic loss has closed forms for the labels 0 and 1 only: an example with a label between them is refused.
    """

    eta: Eta = 0.1

    name: ClassVar[str] = "invariant"
    rule: ClassVar[Rule] = Rule(scale=invariant_u, step=column_step)
    columns: ClassVar[tuple[str, ...]] = ("w",)

    def parameters(self) -> NDArray[np.float64]:
        """The learning rate eta."""
        return np.array([self.eta])
