"""Averaged gradient descent: gradients at w_t, predictions with the mean of w_1 ... w_t.

This file must never sum up weights: every row would have to be touched at every step.

Source: [VW], averaged SGD. With w_{t+1} = P(w_t - eta_t g) and c = sum over steps s of s (w_{s+1} - w_s),
the mean of w_1 ... w_{t+1} is w_{t+1} - c / (t + 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_f64_at
from stream_learner.core.model.optimizers.cells import column, number, set_column, set_weight
from stream_learner.core.model.optimizers.gradient import GradientDescent, boxed
from stream_learner.core.model.optimizers.rules import Rule
from stream_learner.core.model.optimizers.schedules import AFTER_SCHEDULE, T, scheduled_scale

_W, _C = range(2)


@kernel
def averaged_weight(columns: int, sc: int) -> float:
    """The mean: w - c / (t + 1) after t steps."""
    return load_f64_at(columns, 8 * _W) - load_f64_at(columns, 8 * _C) / (number(sc, T) + 1.0)


@kernel
def averaged_read(row: int, x: float, sc: int) -> tuple[float, float, float]:
    """The mean makes the prediction; the gradient is taken at w."""
    return averaged_weight(row + 8, sc), column(row, _W), x * x


@kernel
def averaged_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """w = P(w - u x), c += t times the change of w."""
    before = column(row, _W)
    w = boxed(before - u * x, number(pa, AFTER_SCHEDULE), number(pa, AFTER_SCHEDULE + 1))
    c = column(row, _C) + number(sc, T) * (w - before)
    set_column(row, _W, w)
    set_column(row, _C, c)
    set_weight(row, averaged_weight(row + 8, sc))
    return finite(w) and finite(c)


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedDescent(GradientDescent):
    """Online gradient descent that predicts with the mean of its weights so far, w_1 = 0 included.

    The mean of a weight moves with every example, touched or not.
    """

    name: ClassVar[str] = "averaged"
    rule: ClassVar[Rule] = Rule(read=averaged_read, scale=scheduled_scale, step=averaged_step, weight=averaged_weight)
    columns: ClassVar[tuple[str, ...]] = ("w", "c")
    moves: ClassVar[bool] = True
