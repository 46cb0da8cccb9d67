"""L1 inside the update: subgradient, simple truncation, truncated gradient, FOBOS, dual averaging.

This file must never touch a row that an example does not name. These rules change every weight at every example. So a
row keeps the weight as of when it was last written, and reading it applies the changes since then.

With v = w - eta g, eta that of example t, lambda = `l1`, S(v, a) = v shrunk by a toward 0 without crossing:

| name                 | what example t does to every weight               | row    | what reading applies            |
|----------------------|---------------------------------------------------|--------|---------------------------------|
| `l1_subgradient`     | v - eta lambda sgn(w)                             | w, tau | the steps tau + 1 ... t         |
| `simple_truncation`  | if t mod k = 0: 0 where abs(v) <= theta           | w, tau | a multiple of k in (tau, t]     |
| `truncated_gradient` | if t mod k = 0: S(v, eta lambda k) where <= theta | w, A_i | S(w, A - A_i) where <= theta    |
| `fobos`              | S(v, eta lambda)                                  | w, A_i | S(w, A - A_i)                   |
| `rda`                | -(sqrt(t) / gamma) S(G1 / t, lambda)              | G1     | nothing, it is a formula in t   |

tau is the example as of which w is; A the sum of all shrinkages so far, with a carry (Kahan), so that A - A_i is right
to the last bit of A after any number of examples. A row is written only where the gradient is not 0. In a step, the
weight of the local row is the one that was read. Sources: [Z]; for FOBOS and RDA also [VW]; for L1 subgradient and
FOBOS also [L]. They are listed in `core.model.optimizers`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.optimizers.cells import column, number, set_column, set_number, set_weight
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer
from stream_learner.core.model.optimizers.schedules import (
    AFTER_SCHEDULE,
    PASSES,
    Scheduled,
    T,
    counted_scale,
    next_rate,
    rate_at,
    scheduled_scale,
)
from stream_learner.core.model.optimizers.settings import L1, Every, Setting, Theta, check_at_least

_W, _SINCE = range(2)
_AMOUNT, _SHRINKAGE, _CARRY = 2, 3, 4
_L1, _THETA, _EVERY = AFTER_SCHEDULE, AFTER_SCHEDULE + 1, AFTER_SCHEDULE + 2
_IS_CONSTANT = AFTER_SCHEDULE + 1


@kernel
def shrunk(v: float, a: float) -> float:
    """S(v, a) for a >= 0; +0.0 where |v| <= a."""
    return 0.0 if abs(v) <= a else v - np.copysign(a, v)


@kernel
def _set(row: int, w: float, since: float) -> bool:
    """Write a row that is up to date; False if w is not finite."""
    set_weight(row, w)
    set_column(row, _W, w)
    set_column(row, _SINCE, since)
    return finite(w)


@kernel
def _rest(row: int, w: float) -> bool:
    """Leave the columns of a row whose gradient is 0 as they are; only its weight is brought up to date."""
    set_weight(row, w)
    return True


@kernel
def l1_subgradient_scale(h: float, d: float, sc: int, pa: int) -> float:
    """u = eta h d, and eta lambda."""
    eta = next_rate(sc, pa)
    set_number(sc, _AMOUNT, eta * number(pa, _L1))
    return eta * (h * d)


@kernel
def _walked(w: float, tau: float, t: float, passes: float, pa: int) -> float:
    """w after the steps tau + 1 ... t with g = 0, one by one."""
    l1 = number(pa, _L1)
    while tau < t and w != 0.0:
        tau += 1.0
        w -= np.copysign(rate_at(tau, passes, pa) * l1, w)
    return w


@kernel
def _swung(w: float, steps: float, a: float) -> float:
    """w after `steps` steps of a > 0 with g = 0: |w| falls to r in (0, a), then w alternates between r - a and r."""
    size = abs(w)
    down = np.floor(size / a)
    half = 0.5 * max(steps - down, 0.0)
    size -= min(steps, down) * a
    if size <= 0.0:
        return 0.0
    if half != np.floor(half):
        size -= a
    return size if w > 0.0 else -size


@kernel
def l1_subgradient_weight(columns: int, sc: int, pa: int) -> float:
    """w after the steps since tau: in closed form if eta is constant, else step by step."""
    w, tau, t = number(columns, _W), number(columns, _SINCE), number(sc, T)
    a = number(sc, _AMOUNT)
    if w == 0.0 or tau == t or a == 0.0:
        return w
    if number(pa, _IS_CONSTANT) != 0.0:
        return _swung(w, t - tau, a)
    return _walked(w, tau, t, number(sc, PASSES), pa)


@kernel
def l1_subgradient_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """w = w - eta g - eta lambda sgn(w)."""
    if u * x == 0.0:
        return _rest(row, l1_subgradient_weight(row + 8, sc, pa))
    w = number(row, 0)
    pull = np.copysign(number(sc, _AMOUNT), w) if w != 0.0 else 0.0
    return _set(row, w - u * x - pull, number(sc, T))


@kernel
def _truncated(w: float, tau: float, t: float, pa: int) -> float:
    """0 if |w| <= theta and a multiple of k lies in (tau, t], else w."""
    every = number(pa, _EVERY)
    if abs(w) <= number(pa, _THETA) and np.floor(t / every) > np.floor(tau / every):
        return 0.0
    return w


@kernel
def simple_truncation_weight(columns: int, sc: int, pa: int) -> float:
    """w after the truncations since tau."""
    return _truncated(number(columns, _W), number(columns, _SINCE), number(sc, T), pa)


@kernel
def simple_truncation_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """w = w - eta g, then the truncation of example t."""
    if u * x == 0.0:
        return _rest(row, simple_truncation_weight(row + 8, sc, pa))
    t = number(sc, T)
    return _set(row, _truncated(number(row, 0) - u * x, t - 1.0, t, pa), t)


@kernel
def shrinkage_scale(h: float, d: float, sc: int, pa: int) -> float:
    """u = eta h d; at a multiple of k, A += eta lambda k."""
    eta = next_rate(sc, pa)
    every, t = number(pa, _EVERY), number(sc, T)
    amount = eta * number(pa, _L1) * every if np.floor(t / every) * every == t else 0.0
    before = number(sc, _SHRINKAGE)
    added = amount + number(sc, _CARRY)
    after = before + added
    set_number(sc, _AMOUNT, amount)
    set_number(sc, _SHRINKAGE, after)
    set_number(sc, _CARRY, added - (after - before))
    return eta * (h * d)


@kernel
def _shrunk_below(w: float, amount: float, theta: float) -> float:
    """S(w, amount) where |w| <= theta, else w."""
    return shrunk(w, amount) if abs(w) <= theta else w


@kernel
def shrinkage_weight(columns: int, sc: int, pa: int) -> float:
    """w after all shrinkages since it was written."""
    since = number(sc, _SHRINKAGE) - number(columns, _SINCE)
    return _shrunk_below(number(columns, _W), since, number(pa, _THETA))


@kernel
def shrinkage_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """w = w - eta g, then the shrinkage of example t."""
    if u * x == 0.0:
        return _rest(row, shrinkage_weight(row + 8, sc, pa))
    w = _shrunk_below(number(row, 0) - u * x, number(sc, _AMOUNT), number(pa, _THETA))
    return _set(row, w, number(sc, _SHRINKAGE))


_G1 = 0
_RDA_L1, _GAMMA = range(2)


@kernel
def rda_weight(columns: int, sc: int, pa: int) -> float:
    """-(sqrt(t) / gamma) S(G1 / t, lambda), 0 before the first example."""
    t = number(sc, T)
    if t == 0.0:
        return 0.0
    return np.sqrt(t) / number(pa, _GAMMA) * shrunk(-number(columns, _G1) / t, number(pa, _RDA_L1))


@kernel
def rda_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """G1 += g."""
    total = column(row, _G1) + u * x
    set_column(row, _G1, total)
    w = rda_weight(row + 8, sc, pa)
    set_weight(row, w)
    return finite(total) & finite(w)


@dataclass(frozen=True, slots=True, kw_only=True)
class L1Subgradient(Scheduled):
    """w = w - eta g - eta lambda sgn(w) on all weights, [Z] [L]; sgn(0) = 0, lambda = `l1` >= 0.

    A weight within eta lambda of 0 alternates around 0 and does not become 0. At a constant rate a row is brought up to
    date in closed form. At a falling rate this takes a step for every example since the row was written, so a falling
    rate is for evaluation only; and schedule power must have decay 1, because a row does not know where passes ended.
    """

    l1: L1

    name: ClassVar[str] = "l1_subgradient"
    rule: ClassVar[Rule] = Rule(
        scale=l1_subgradient_scale, step=l1_subgradient_step, weight=l1_subgradient_weight, weight_is_formula=True
    )
    columns: ClassVar[tuple[str, ...]] = ("w", "tau")
    scalars: ClassVar[tuple[str, ...]] = (*Scheduled.scalars, "amount")
    moves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Scheduled.__post_init__(self)
        if self.schedule == "power" and self.decay != 1.0:
            raise ValueError(f"decay must be 1 for {self.name}, not {self.decay!r}: rows do not know where passes end")

    @property
    def reason(self) -> str:
        """A falling rate makes it too slow for a stream; at a constant rate it fits."""
        if self.schedule == "constant":
            return ""
        return "at a falling rate, a weight is brought up to date through every example since its feature was seen"

    def parameters(self) -> NDArray[np.float64]:
        """The learning rate's parameters, l1, and 1.0 where the rate is constant."""
        return np.array([*self.schedule_parameters(), self.l1, float(self.schedule == "constant")])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleTruncation(Scheduled):
    """A gradient step; then, at every k-th example, weights with |w| <= theta become 0, [Z].

    k = `every`, a whole number >= 1; theta >= 0.
    """

    theta: Theta
    every: Every = 1

    name: ClassVar[str] = "simple_truncation"
    rule: ClassVar[Rule] = Rule(
        scale=scheduled_scale, step=simple_truncation_step, weight=simple_truncation_weight, weight_is_formula=True
    )
    columns: ClassVar[tuple[str, ...]] = ("w", "tau")
    moves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Scheduled.__post_init__(self)
        check_at_least(0.0, theta=self.theta)

    def parameters(self) -> NDArray[np.float64]:
        """The learning rate's parameters, 0.0 for no shrinking, theta, and the examples between two truncations."""
        return np.array([*self.schedule_parameters(), 0.0, self.theta, float(self.every)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedGradient(Scheduled):
    """A gradient step; then, at every k-th example, weights with |w| <= theta shrink by eta lambda k, [Z].

    For w in [0, theta] that is max(0, w - eta lambda k), for w in [-theta, 0] min(0, w + eta lambda k). [Z] prints max
    in both, drops -lambda sgn(w) in one line, and its last reduction is wrong where a weight crosses 0. Without theta
    (None, or infinite) and with k = 1 it is FOBOS; where eta lambda k >= theta it is simple truncation.
    lambda = `l1` >= 0; k = `every`, a whole number >= 1; theta >= 0.
    """

    l1: L1
    theta: Theta | None = None
    every: Every = 1

    name: ClassVar[str] = "truncated_gradient"
    rule: ClassVar[Rule] = Rule(
        scale=shrinkage_scale, step=shrinkage_step, weight=shrinkage_weight, weight_is_formula=True
    )
    columns: ClassVar[tuple[str, ...]] = ("w", "shrinkage")
    scalars: ClassVar[tuple[str, ...]] = (*Scheduled.scalars, "amount", "shrinkage", "carry")
    moves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Scheduled.__post_init__(self)
        if self.theta == math.inf:
            object.__setattr__(self, "theta", None)
        check_at_least(0.0, theta=self.theta or 0.0)

    def parameters(self) -> NDArray[np.float64]:
        """The learning rate's parameters, l1, theta (infinite for None), and the examples between two truncations."""
        theta = math.inf if self.theta is None else self.theta
        return np.array([*self.schedule_parameters(), self.l1, theta, float(self.every)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fobos(Scheduled):
    """w = S(w - eta g, eta lambda) on all weights, both with the eta of example t, [Z] [VW] [L]; lambda = `l1` >= 0."""

    l1: L1

    name: ClassVar[str] = "fobos"
    rule: ClassVar[Rule] = TruncatedGradient.rule
    columns: ClassVar[tuple[str, ...]] = ("w", "shrinkage")
    scalars: ClassVar[tuple[str, ...]] = TruncatedGradient.scalars
    moves: ClassVar[bool] = True

    def parameters(self) -> NDArray[np.float64]:
        """The parameters of the truncated gradient without a threshold, at every example."""
        return np.array([*self.schedule_parameters(), self.l1, math.inf, 1.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class DualAveraging(RuleOptimizer):
    """Regularized dual averaging (RDA) with L1, [Z] [VW]: w = -(sqrt(t) / gamma) S(G1 / t, lambda), lambda = `l1` >= 0.

    It minimizes (G1 / t) w + lambda |w| + gamma / (2 sqrt(t)) w^2, gamma > 0. [VW] prints G1 instead of G1 / t;
    lambda would then need a factor t.
    """

    l1: L1
    gamma: Annotated[float, Setting("Strength of the growing quadratic penalty.", above=0)]

    name: ClassVar[str] = "rda"
    rule: ClassVar[Rule] = Rule(scale=counted_scale, step=rda_step, weight=rda_weight, weight_is_formula=True)
    columns: ClassVar[tuple[str, ...]] = ("g1",)
    scalars: ClassVar[tuple[str, ...]] = ("t",)
    moves: ClassVar[bool] = True

    def parameters(self) -> NDArray[np.float64]:
        """l1 and gamma."""
        return np.array([self.l1, self.gamma])
