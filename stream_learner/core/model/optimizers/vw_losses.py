"""Losses as Vowpal Wabbit's default update takes them, in float64: slopes and importance-aware steps.

They take the prediction p, the label y, the rate e = eta h and the size X.

The step is that of `invariant` where the exact value and the tool's differ by rounding only. The logistic step differs:
the tool approximates Lambert's W, and for small steps its error even changes the sign.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream_learner.core.machine.arithmetic import exp, finite, log, sigmoid
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model import losses
from stream_learner.core.model.losses import label_read
from stream_learner.core.model.optimizers.invariant import invariant_scale

WIDEST: Final = 50.0
"""Logistic and Poisson predictions are clipped to this range at least."""
STEEPEST: Final = 44.0
"""Poisson predictions are taken within this range."""


@kernel
def lambert_minus(a: float) -> float:
    """The tool's approximation of W(e^a) - a; for small steps its error even changes the sign."""
    if a >= 1.0:
        w = 0.86 * a + 0.01
        r = a - log(w) - w
    else:
        w = exp(0.8 * a - 0.65)
        r = 0.2 * a + 0.65 - w
    theta = 1.0 + w
    u = 2.0 * theta * (theta + 2.0 * r / 3.0)
    return w * (1.0 + r / theta * (u - r) / (u - 2.0 * r)) - a


@kernel
def label(loss: int, y: float) -> float:
    """The label as the loss reads it; with hinge, as the tool has it, any number but 0, which is read as -1."""
    if (loss == losses.HINGE) & (y != 0.0):
        return y if finite(y) else np.nan
    return label_read(loss, y)


@kernel
def has_loss(loss: int, option: float, p: float, y: float) -> bool:
    """Whether there is anything to learn. Not where log(1 + e^-|p|) rounds to 0: there the approximate W is wrong.

    Poisson: by the deviance, as the tool computes it.
    """
    if loss == losses.LOGISTIC:
        return (y * exp(-p) + 1.0 > 1.0) | ((1.0 - y) * exp(p) + 1.0 > 1.0)
    if loss == losses.POISSON:
        return y * (log(y + 1e-6) - p) - (y - exp(p)) > 0.0
    return losses.loss_value(loss, option, p, y) > 0.0


@kernel
def slope(loss: int, option: float, p: float, y: float) -> float:
    """dl/dp; logistic without the difference of two numbers near 1, since r of a new feature is about 1/|d|."""
    if loss == losses.LOGISTIC:
        return (1.0 - y) * sigmoid(p) - y * sigmoid(-p)
    return losses.slope(loss, option, p, y)


@kernel
def _logistic(p: float, y: float, e: float, b: float, size: float) -> float:
    """The importance-aware step for a label -1 or 1; b = e X."""
    d = exp(y * p)
    if b < 1e-6:
        return y * e / (1.0 + d)
    return -(y * lambert_minus(b + y * p + d) + p) / size


@kernel
def aware(loss: int, option: float, p: float, y: float, e: float, size: float) -> float:
    """The importance-aware step u; for logistic with y in [0, 1], the average over both labels."""
    b = e * size
    if loss == losses.LOGISTIC:
        u = 0.0
        if y > 0.0:
            u += y * _logistic(p, 1.0, e, b, size)
        if y < 1.0:
            u += (1.0 - y) * _logistic(p, -1.0, e, b, size)
        return u
    if (loss == losses.SQUARED) & (b < 1e-6):
        return 2.0 * (y - p) * e
    return -invariant_scale(loss, option, p, y, 1.0, e, size)
