"""A rule: the kernels that make an optimizer out of the general fold.

Kernels get the address of a local row, of the optimizer's own scalars `sc` and of its hyper-parameters `pa`; x is never
0.

`general` folds an example in four steps and calls a kernel of the rule at each. A kernel declares only those of the
step's arguments that it needs, under the names they have here. `h` is the importance, `d` = dl/dp the slope of the
loss at the margin p of the gradient, so g = h d x; `size` is the sum of the parts that `read` returned.

| kernel  | arguments                              | what it does                                                      |
|---------|----------------------------------------|-------------------------------------------------------------------|
| read    | row, x, sc, pa                         | brings a row up to the last step; returns the weight for the      |
|         |                                        | prediction, that for the gradient, and a part of the size; may    |
|         |                                        | change the row and the scalars                                    |
| predict | dot, size, h, sc, pa                   | the margin that a sum of w x stands for; changes nothing          |
| scale   | loss, option, p, y, h, d, size, sc, pa | advances the scalars by one example, with features or without;    |
|         |                                        | returns the factor u of the step, which refuses the example if it |
|         |                                        | is not finite                                                     |
| step    | row, x, u, sc, pa                      | changes a row's columns, and its weight to what `weight` then     |
|         |                                        | says; False if one of them is not finite                          |
| weight  | columns, sc, pa                        | the weight of a row whose columns are at this address, as the     |
|         |                                        | next example would read it; changes nothing                       |

The kernels below are shared by several families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_f64
from stream_learner.core.model.optimizers.base import ROW_BYTES, RULE_SCRATCH_BYTES, Optimizer
from stream_learner.core.model.optimizers.cells import column, set_column, set_weight

_W = 0


@kernel
def column_read(row: int, x: float) -> tuple[float, float, float]:
    """Read for every rule whose first column is the weight; the size is x^2."""
    w = column(row, _W)
    return w, w, x * x


@kernel
def column_weight(columns: int) -> float:
    """The first column."""
    return load_f64(columns)


@kernel
def column_step(row: int, x: float, u: float) -> bool:
    """w = w - u x, for every rule without a box whose first column is the weight."""
    return set_both(row, column(row, _W) - u * x)


@kernel
def set_both(row: int, w: float) -> bool:
    """The new weight of a rule whose first column it is; False if it is not finite."""
    set_column(row, _W, w)
    set_weight(row, w)
    return finite(w)


@kernel
def formula_read(row: int, x: float, w: float) -> tuple[float, float, float]:
    """Read for every rule whose weight is a formula: `w` is what `weight` says now; the size is x^2."""
    set_weight(row, w)
    return w, w, x * x


@kernel
def sum_predict(dot: float) -> float:
    """The margin is the sum."""
    return dot


@kernel
def gradient_scale(h: float, d: float) -> float:
    """u = h d, so that g = u x: for every rule whose rate is the coordinate's own."""
    return h * d


class Rule(NamedTuple):
    """The kernels of a rule; those that are left out are the ones of a weight that is the first column.

    weight_is_formula: the weight of a row changes with the scalars also while no example names it, so `read` is
    `weight`, computed anew. Such a rule has no `read` of its own.
    """

    step: Callable[..., bool]
    scale: Callable[..., float] = gradient_scale
    read: Callable[..., tuple[float, float, float]] = column_read
    predict: Callable[..., float] = sum_predict
    weight: Callable[..., float] = column_weight
    weight_is_formula: bool = False


@dataclass(frozen=True, slots=True)
class RuleOptimizer(Optimizer):
    """An optimizer that is a rule in the general fold.

    A local row is float64[8]: the weight, then the columns. The rule's kernels read the hyper-parameters as
    `parameters` has them.
    """

    rule: ClassVar[Rule]
    local_bytes: ClassVar[int] = ROW_BYTES
    scratch_bytes: ClassVar[int] = RULE_SCRATCH_BYTES

    def parameters(self) -> NDArray[np.float64]:
        """The hyper-parameters as the kernels of the rule read them."""
        raise NotImplementedError
