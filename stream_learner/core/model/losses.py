"""Losses: value, slope, labels and link, by a small code that kernels switch on.

p = w.x is the margin, y the label. Nothing here is multiplied by the importance of an example: optimizers and metrics
do that.

| loss         | l(p, y)                                  | dl/dp                       | labels   | prediction |
|--------------|------------------------------------------|-----------------------------|----------|------------|
| logistic     | y softplus(-p) + (1 - y) softplus(p)     | sigmoid(p) - y              | [0, 1]   | sigmoid(p) |
| squared      | (p - y)^2                                | 2 (p - y)                   | finite   | p          |
| half_squared | (p - y)^2 / 2                            | p - y                       | finite   | p          |
| hinge        | max(0, 1 - y p)                          | -y if y p < 1, else 0       | -1, 1    | p          |
| quantile     | tau (y - p) if y > p, else               | -tau if y > p, 0 if y = p,  | finite   | p          |
|              | (1 - tau) (p - y)                        | 1 - tau if y < p            |          |            |
| exponential  | e^(-y p)                                 | -y e^(-y p)                 | -1, 1    | p          |
| logarithmic  | -log p if y = 1, -log (1 - p) if y = 0   | (p - y) / (p (1 - p))       | 0, 1     | p          |
| hellinger    | 2 (1 - sqrt(p y) - sqrt((1-p) (1-y)))    | sqrt((1-y)/(1-p)) - sqrt(y/p) | 0, 1   | p          |
| poisson      | e^p - y p                                | e^p - y                     | >= 0     | e^p        |
| linear       | y p                                      | y                           | finite   | p          |

Sources: Chikkerur (2015), whose first table swaps the two terms of the quantile loss; the logistic loss is printed
with signs or logarithms missing by Streeter & McMahan (2010) and by the slides "Online convex optimization 2".
Poisson is the part of the deviance that depends on p, halved. `linear` plays games of given gradients.

A label of -1 is read as 0 where the labels are 0 and 1, and a label of 0 as -1 where they are -1 and 1.
The squared loss is Vowpal Wabbit's: it has the factor 2, and the margin is clipped to the range of the labels up to and
including the current one. The range starts at [0, 0] and is model state: two scalars.
With logarithmic and hellinger the margin is itself the probability. Updates can push it out of its range, so it is
clipped to [delta, 1 - delta] before a loss or slope is taken, and to [0, 1] for a prediction.
`option` is tau or delta, and 0.0 for losses that have neither.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stream_learner.core.machine.arithmetic import exp, log, log1p, log1p_unit, sigmoid
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel

LOGISTIC: Final = 0
SQUARED: Final = 1
HALF_SQUARED: Final = 2
HINGE: Final = 3
QUANTILE: Final = 4
EXPONENTIAL: Final = 5
LOGARITHMIC: Final = 6
HELLINGER: Final = 7
POISSON: Final = 8
LINEAR: Final = 9
LOSSES: Final = {
    "logistic": LOGISTIC,
    "squared": SQUARED,
    "half_squared": HALF_SQUARED,
    "hinge": HINGE,
    "quantile": QUANTILE,
    "exponential": EXPONENTIAL,
    "logarithmic": LOGARITHMIC,
    "hellinger": HELLINGER,
    "poisson": POISSON,
    "linear": LINEAR,
}
"""Loss names and their codes in kernels."""

OPTION_NAMES: Final = {"quantile": "tau", "logarithmic": "delta", "hellinger": "delta"}
"""The name of the option of each loss that has one."""
DEFAULT_OPTIONS: Final = {"quantile": 0.5, "logarithmic": 1e-9, "hellinger": 1e-9}
"""The options of losses that have one."""

LABEL_LOW: Final = 0
LABEL_HIGH: Final = 1
LOSS_SCALARS: Final = ("label_low", "label_high")
"""Scalars of the model state that belong to the loss."""

_LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss with its option, as `make_loss` makes it."""

    name: str
    code: int
    option: float = 0.0

    def __str__(self) -> str:
        option = OPTION_NAMES.get(self.name)
        return f"{self.name}({option}={self.option!r})" if option else self.name

    def to_dict(self) -> dict[str, Any]:
        """Name and option, as `make_loss` takes them."""
        option = OPTION_NAMES.get(self.name)
        return {"name": self.name, option: self.option} if option else {"name": self.name}


def make_loss(name: str, **options: float) -> Loss:
    """A loss by name, with `tau` (quantile) in (0, 1), or `delta` (logarithmic, hellinger) in (0, 1/2).

    Raises ValueError for an unknown name or option, with the nearest known one, and for an option out of range.

    >>> make_loss("quantile", tau=0.9)
    Loss(name='quantile', code=4, option=0.9)
    """
    if name not in LOSSES:
        close = difflib.get_close_matches(str(name), LOSSES, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(LOSSES)}"
        raise ValueError(f"unknown loss {name!r}; {hint}")
    option_name = OPTION_NAMES.get(name)
    for given in options:
        if given != option_name:
            known = f"its option is {option_name!r}" if option_name else "it has none"
            raise ValueError(f"the loss {name} has no option {given!r}; {known}")
    option = options.get(option_name or "", DEFAULT_OPTIONS.get(name, 0.0))
    limit = 1.0 if option_name == "tau" else 0.5
    if option_name and not (math.isfinite(option) and 0.0 < option < limit):
        raise ValueError(f"{option_name} of the loss {name} must lie between 0 and {limit:g}, not {option!r}")
    return Loss(name, LOSSES[name], float(option))


@kernel
def label_read(loss: int, y: float) -> float:
    """The label as the loss takes it, or NaN where the loss does not allow it, by the table of this module."""
    if loss == LOGISTIC:
        y = 0.0 if y == -1.0 else y
        return y if (y >= 0.0) & (y <= 1.0) else np.nan
    if (loss == HINGE) | (loss == EXPONENTIAL):
        y = -1.0 if y == 0.0 else y
        return y if (y == -1.0) | (y == 1.0) else np.nan
    if (loss == LOGARITHMIC) | (loss == HELLINGER):
        y = 0.0 if y == -1.0 else y
        return y if (y == 0.0) | (y == 1.0) else np.nan
    if (loss == POISSON) & (y < 0.0):
        return np.nan
    return y if abs(y) <= _LARGEST else np.nan


@kernel
def _clipped(p: float, low: float, high: float) -> float:
    """p moved into [low, high]; NaN stays NaN."""
    if p < low:
        return low
    return high if p > high else p


@kernel
def margin_read(loss: int, option: float, p: float, low: float, high: float) -> float:
    """The margin as the loss takes it: squared clips to the label range [low, high], a probability to
    [delta, 1 - delta]. NaN stays NaN.
    """
    if loss == SQUARED:
        return _clipped(p, low, high)
    if (loss == LOGARITHMIC) | (loss == HELLINGER):
        return _clipped(p, option, 1.0 - option)
    return p


@kernel
def slope(loss: int, option: float, p: float, y: float) -> float:
    """dl/dp, of what `margin_read` and `label_read` gave; at a kink the subgradient of the table."""
    if loss == LOGISTIC:
        return sigmoid(p) - y
    if loss == SQUARED:
        return 2.0 * (p - y)
    if loss == HALF_SQUARED:
        return p - y
    if loss == HINGE:
        return -y if y * p < 1.0 else 0.0
    if loss == QUANTILE:
        if y == p:
            return 0.0
        return -option if y > p else 1.0 - option
    if loss == EXPONENTIAL:
        return -y * exp(-y * p)
    if loss == LOGARITHMIC:
        return -1.0 / p if y == 1.0 else 1.0 / (1.0 - p)
    if loss == HELLINGER:
        return -1.0 / np.sqrt(p) if y == 1.0 else 1.0 / np.sqrt(1.0 - p)
    if loss == POISSON:
        return exp(p) - y
    return y


@kernel
def loss_value(loss: int, option: float, p: float, y: float) -> float:
    """l(p, y) of one example of importance 1, of what `margin_read` and `label_read` gave."""
    if loss == LOGISTIC:
        tail = log1p_unit(exp(-abs(p)))
        return y * (max(-p, 0.0) + tail) + (1.0 - y) * (max(p, 0.0) + tail)
    if loss == SQUARED:
        return (p - y) * (p - y)
    if loss == HALF_SQUARED:
        return 0.5 * (p - y) * (p - y)
    if loss == HINGE:
        return max(0.0, 1.0 - y * p)
    if loss == QUANTILE:
        return option * (y - p) if y > p else (1.0 - option) * (p - y)
    if loss == EXPONENTIAL:
        return exp(-y * p)
    if loss == LOGARITHMIC:
        return -log(p) if y == 1.0 else -log1p(-p)
    if loss == HELLINGER:
        return 2.0 * (1.0 - np.sqrt(p if y == 1.0 else 1.0 - p))
    if loss == POISSON:
        return exp(p) - y * p
    return y * p


@entry
def prediction(loss: int, p: float) -> float:
    """The prediction of a margin, by the inverse link: a probability, a mean count, or the value itself."""
    if loss == LOGISTIC:
        return sigmoid(p)
    if (loss == LOGARITHMIC) | (loss == HELLINGER):
        return _clipped(p, 0.0, 1.0)
    return exp(p) if loss == POISSON else p


@kernel
def class_of(loss: int, y: float) -> float:
    """The share of an example that is a positive, in [0, 1], by its label from `label_read`; NaN without classes."""
    if (loss == LOGISTIC) | (loss == LOGARITHMIC) | (loss == HELLINGER):
        return y
    if (loss == HINGE) | (loss == EXPONENTIAL):
        return 0.5 * (y + 1.0)
    return np.nan


@kernel
def mistake(loss: int, p: float, y: float) -> bool:
    """Whether a margin is on the wrong side of its label, or on neither; never for losses without classes."""
    if loss == LOGISTIC:
        return (2.0 * y - 1.0) * p <= 0.0
    if (loss == LOGARITHMIC) | (loss == HELLINGER):
        return (2.0 * y - 1.0) * (p - 0.5) <= 0.0
    if (loss == HINGE) | (loss == EXPONENTIAL):
        return y * p <= 0.0
    return False
