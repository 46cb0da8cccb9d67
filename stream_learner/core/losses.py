"""Losses: value, slope and link, by a small code that kernels switch on.

In: the margin p = w.x, the label y. Out: loss l(p, y), slope dl/dp, and the prediction the margin stands for.
This file must never know an optimizer, or weigh an example: importance is the optimizer's and the metrics' affair.

| loss     | l(p, y)                              | dl/dp        | labels | prediction |
|----------|--------------------------------------|--------------|--------|------------|
| logistic | y softplus(-p) + (1 - y) softplus(p) | sigmoid(p)-y | [0, 1] | sigmoid(p) |
| squared  | (p - y)^2                            | 2 (p - y)    | finite | p          |

Squared is as Vowpal Wabbit has it: the factor 2, and the margin clipped, when it is read, to the range of the labels
up to and including the current one, which starts at [0, 0]. The range is model state: two scalars.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream_learner.core.arithmetic import exp, log1p_unit, sigmoid
from stream_learner.core.kernels import kernel

LOGISTIC: Final = 0
SQUARED: Final = 1
LOSSES: Final = {"logistic": LOGISTIC, "squared": SQUARED}
"""Loss names and their codes in kernels."""

LABEL_LOW: Final = 0
LABEL_HIGH: Final = 1
LOSS_SCALARS: Final = ("label_low", "label_high")
"""Scalars of the model state that belong to the loss."""

_LARGEST = np.finfo(np.float64).max


@kernel
def label_allowed(loss: int, y: float) -> bool:
    """Whether a loss is defined for the label; never for NaN or infinity."""
    if loss == LOGISTIC:
        return (y >= 0.0) & (y <= 1.0)
    return abs(y) <= _LARGEST


@kernel
def margin_read(loss: int, p: float, low: float, high: float) -> float:
    """The margin as the loss reads it: clipped to the label range for squared, NaN staying NaN."""
    if loss == LOGISTIC:
        return p
    if p < low:
        return low
    return high if p > high else p


@kernel
def slope(loss: int, p: float, y: float) -> float:
    """dl/dp at margin p."""
    if loss == LOGISTIC:
        return sigmoid(p) - y
    return 2.0 * (p - y)


@kernel
def prediction(loss: int, p: float) -> float:
    """What the margin predicts: a probability, or the value itself."""
    if loss == LOGISTIC:
        return sigmoid(p)
    return p


@kernel
def loss_value(loss: int, p: float, y: float) -> float:
    """l(p, y) of one example of importance 1."""
    if loss == LOGISTIC:
        tail = log1p_unit(exp(-abs(p)))
        return y * (max(-p, 0.0) + tail) + (1.0 - y) * (max(p, 0.0) + tail)
    return (p - y) * (p - y)


def warm() -> None:
    """Compile every kernel of this module for float64."""
    label_allowed(LOGISTIC, 0.5)
    margin_read(LOGISTIC, 0.5, 0.0, 1.0)
    for function in (slope, loss_value):
        function(LOGISTIC, 0.5, 1.0)
    prediction(LOGISTIC, 0.5)
