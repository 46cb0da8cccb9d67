"""Follow the regularized leader: the weights are a function of the sums of the gradients.

This file must never touch a row that an example does not name. A weight that changes with t is computed when it is
read.

With t the examples folded so far and G1 the sum of a feature's gradients, the weight for example t + 1 is

| name                       | weight                                       | columns   | scalars  | source  |
|----------------------------|----------------------------------------------|-----------|----------|---------|
| `ftrl_fixed`               | -G1 / lambda                                 | G1        |          | [F] [L] |
| `ftrl_sqrt`                | -G1 / (c sqrt(t + 1))                        | G1        | t        | [F]     |
| `ftrl_doubling`            | -G1 / (c sqrt(T)), T that of the epoch       | G1, epoch | t, epoch | [F]     |
| `ftrl_proximal_growing_l1` | -S(z, t l1) / ((beta + sqrt n) / alpha + l2) | z, n      | t        | [L] [G] |

S(v, a) is v shrunk by a toward 0, and 0 where |v| <= a. The sources are listed in `core.model.optimizers`. In the
w_t = -G1 / (c sqrt(t)) of [F], G1 is the sum over the examples before t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import float_of_bits
from stream_learner.core.model.optimizers.cells import column, number, set_column, set_number, set_weight
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer
from stream_learner.core.model.optimizers.schedules import T, counted_scale
from stream_learner.core.model.optimizers.settings import L1, L2, Alpha, Beta, RootFactor, Setting, Strength
from stream_learner.core.model.optimizers.sparse import shrunk

_G1, _ROW_EPOCH = range(2)
_EPOCH = 1


@kernel
def _add(row: int, g: float) -> bool:
    """G1 += g."""
    total = column(row, _G1) + g
    set_column(row, _G1, total)
    return finite(total)


@kernel
def _leads(row: int, w: float) -> bool:
    """Set the weight that was computed from the columns; False if it is not finite."""
    set_weight(row, w)
    return finite(w)


@kernel
def ftrl_fixed_weight(columns: int, pa: int) -> float:
    """-G1 / lambda."""
    return (0.0 - number(columns, _G1)) / number(pa, 0)


@kernel
def ftrl_fixed_step(row: int, x: float, u: float, pa: int) -> bool:
    """G1 += g."""
    return _add(row, u * x) and _leads(row, ftrl_fixed_weight(row + 8, pa))


@kernel
def ftrl_sqrt_weight(columns: int, sc: int, pa: int) -> float:
    """-G1 / (c sqrt(t + 1))."""
    return (0.0 - number(columns, _G1)) / (number(pa, 0) * np.sqrt(number(sc, T) + 1.0))


@kernel
def ftrl_sqrt_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """G1 += g."""
    return _add(row, u * x) and _leads(row, ftrl_sqrt_weight(row + 8, sc, pa))


_C, _FIRST, _KEEP = range(3)


@kernel
def _two_to(exponent: float) -> float:
    """2^exponent, for a whole number from 0 to 1000."""
    return float_of_bits((np.int64(exponent) + 1023) << 52)


@kernel
def _next_epoch(sc: int, pa: int) -> float:
    """The epoch of example t + 1. Epoch e ends with example first 2^e; the scalar is the epoch of example t."""
    epoch = number(sc, _EPOCH)
    return epoch + 1.0 if number(sc, T) >= number(pa, _FIRST) * _two_to(epoch) else epoch


@kernel
def ftrl_doubling_scale(h: float, d: float, sc: int, pa: int) -> float:
    """Begin example t + 1, in its epoch; u = h d."""
    set_number(sc, _EPOCH, _next_epoch(sc, pa))
    return counted_scale(h, d, sc)


@kernel
def ftrl_doubling_weight(columns: int, sc: int, pa: int) -> float:
    """-G1 / (c sqrt(T)), T = first 2^(epoch - 1), `first` in epoch 0; 0 if G1 is of an earlier epoch."""
    epoch = _next_epoch(sc, pa)
    if number(pa, _KEEP) == 0.0 and number(columns, _ROW_EPOCH) != epoch:
        return 0.0
    begin = number(pa, _FIRST) * _two_to(max(epoch - 1.0, 0.0))
    return (0.0 - number(columns, _G1)) / (number(pa, _C) * np.sqrt(begin))


@kernel
def ftrl_doubling_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """G1 += g, from 0 if G1 is of an earlier epoch."""
    epoch = number(sc, _EPOCH)
    if number(pa, _KEEP) == 0.0 and column(row, _ROW_EPOCH) != epoch:
        set_column(row, _G1, 0.0)
        set_column(row, _ROW_EPOCH, epoch)
    return _add(row, u * x) and _leads(row, ftrl_doubling_weight(row + 8, sc, pa))


_Z, _N = range(2)
_ALPHA, _BETA, _L1, _L2 = range(4)


@kernel
def ftrl_growing_weight(columns: int, sc: int, pa: int) -> float:
    """-S(z, t l1) / ((beta + sqrt n) / alpha + l2), 0 where that divides by 0."""
    n = number(columns, _N)
    denominator = (number(pa, _BETA) + np.sqrt(n)) / number(pa, _ALPHA) + number(pa, _L2)
    if denominator == 0.0:
        return 0.0
    return shrunk(-number(columns, _Z), number(sc, T) * number(pa, _L1)) / denominator


@kernel
def ftrl_growing_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """sigma = (sqrt(n + g^2) - sqrt n) / alpha; z += g - sigma w with the w that predicted; n += g^2."""
    g, w = u * x, number(row, 0)
    before = column(row, _N)
    n = before + g * g
    sigma = (np.sqrt(n) - np.sqrt(before)) / number(pa, _ALPHA)
    z = column(row, _Z) + (g - sigma * w)
    set_column(row, _Z, z)
    set_column(row, _N, n)
    return _leads(row, ftrl_growing_weight(row + 8, sc, pa)) & finite(z) & finite(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLeader(RuleOptimizer):
    """FTRL with a fixed strength lambda = `strength` > 0: argmin G1 w + (lambda / 2) w^2 = -G1 / lambda, [F] [L].

    It is gradient descent at the constant rate 1 / lambda, without a box.
    """

    strength: Strength

    name: ClassVar[str] = "ftrl_fixed"
    rule: ClassVar[Rule] = Rule(step=ftrl_fixed_step, weight=ftrl_fixed_weight, weight_is_formula=True)
    columns: ClassVar[tuple[str, ...]] = ("g1",)

    def parameters(self) -> NDArray[np.float64]:
        """The strength."""
        return np.array([self.strength])


@dataclass(frozen=True, slots=True, kw_only=True)
class RootLeader(RuleOptimizer):
    """FTRL with strength c sqrt(t), c > 0, [F]: w_t = -G1 / (c sqrt(t)), G1 over the t - 1 examples before.

    With c = 1, and slopes and comparators within 1, its regret is at most 1.5 sqrt(T).
    """

    c: RootFactor = 1.0

    name: ClassVar[str] = "ftrl_sqrt"
    rule: ClassVar[Rule] = Rule(
        scale=counted_scale, step=ftrl_sqrt_step, weight=ftrl_sqrt_weight, weight_is_formula=True
    )
    columns: ClassVar[tuple[str, ...]] = ("g1",)
    scalars: ClassVar[tuple[str, ...]] = ("t",)
    moves: ClassVar[bool] = True

    def parameters(self) -> NDArray[np.float64]:
        """The factor c."""
        return np.array([self.c])


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublingLeader(RuleOptimizer):
    """FTRL by the doubling trick, [F]: epochs end at T1, 2 T1, 4 T1, ...; T1 = `first`, a whole number >= 1.

    In the epoch (T, 2 T] the strength is c sqrt(T), c > 0, in the first one c sqrt(T1). The sums start afresh with
    each epoch, unless `keep`. Afresh, with c = 1, and slopes and comparators within 1, the regret is at most
    (1 + sqrt 2) sqrt(T).
    """

    first: Annotated[int, Setting("Examples in the first epoch.", at_least=1)] = 1
    c: RootFactor = 1.0
    keep: Annotated[bool, Setting("Whether the state is kept at the end of an epoch.")] = False

    name: ClassVar[str] = "ftrl_doubling"
    rule: ClassVar[Rule] = Rule(
        scale=ftrl_doubling_scale, step=ftrl_doubling_step, weight=ftrl_doubling_weight, weight_is_formula=True
    )
    columns: ClassVar[tuple[str, ...]] = ("g1", "epoch")
    scalars: ClassVar[tuple[str, ...]] = ("t", "epoch")
    moves: ClassVar[bool] = True

    def parameters(self) -> NDArray[np.float64]:
        """The factor c, the length of the first epoch, and whether sums are kept (1.0 or 0.0)."""
        return np.array([self.c, float(self.first), float(self.keep)])


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingL1Leader(RuleOptimizer):
    """FTRL-Proximal whose L1 penalty grows with the gradients: after t examples it is t l1 |w|, as [L] has it.

    In `FtrlProximal`, [G], the penalty stays l1 |w| while the gradients add up. Where it grows, the weight of a feature
    whose gradients cancel out becomes 0 in time. alpha > 0; beta, l1, l2 >= 0; w = 0 where n, beta and l2 are 0.
    """

    l1: L1
    alpha: Alpha = 0.1
    beta: Beta = 1.0
    l2: L2 = 0.0

    name: ClassVar[str] = "ftrl_proximal_growing_l1"
    rule: ClassVar[Rule] = Rule(
        scale=counted_scale, step=ftrl_growing_step, weight=ftrl_growing_weight, weight_is_formula=True
    )
    columns: ClassVar[tuple[str, ...]] = ("z", "n")
    scalars: ClassVar[tuple[str, ...]] = ("t",)
    moves: ClassVar[bool] = True

    def parameters(self) -> NDArray[np.float64]:
        """alpha, beta, l1 and l2."""
        return np.array([self.alpha, self.beta, self.l1, self.l2])
