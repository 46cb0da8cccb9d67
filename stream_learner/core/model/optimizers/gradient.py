"""The gradient descent family: the weight is a column, g = h (dl/dp) x.

This file must never take a step where g = 0: a rate may be 0/0 there.

| name       | step                                                   | columns | scalars       |
|------------|--------------------------------------------------------|---------|---------------|
| ogd        | w = P(w - eta_t g)                                     | w       | t, passes     |
| ogd_global | the same, eta_t = scale D / sqrt(2 sum of all g^2)     | w, seen | squares, seen |
| pc_ogd     | w = P(w - scale D / sqrt(two G2) g)                    | w, g2   |               |
| adagrad    | w = P(w - eta g / sqrt G2)                             | w, g2   |               |
| normalized | see `Normalized`                                       | w, s    | t, passes, n  |

P clips into the box after the step; sums of squares include the current gradient.
Sources: [L], [F], [SM], [VW], listed in `core.model.optimizers`.
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
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer, column_read, set_both
from stream_learner.core.model.optimizers.schedules import AFTER_SCHEDULE, Scheduled, T, next_rate, scheduled_scale
from stream_learner.core.model.optimizers.settings import Eta, High, Low, Scale, Setting, check_above

_W = 0


@kernel
def boxed(w: float, low: float, high: float) -> float:
    """P(w)."""
    return min(max(w, low), high)


def box(low: float | None, high: float | None) -> tuple[float, float]:
    """The bounds of a box; None means no bound. Raises ValueError unless the box holds the first weight, 0."""
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    if not bounds[0] <= 0.0 <= bounds[1]:
        raise ValueError(f"low and high must hold 0, where weights start: not {low!r} and {high!r}")
    return bounds


def forget_no_bounds(optimizer: RuleOptimizer) -> None:
    """Replace an infinite bound by None: a state keeps its optimizer as JSON, which has no infinity."""
    for name in ("low", "high"):
        value = getattr(optimizer, name)
        if value is not None and math.isinf(value):
            object.__setattr__(optimizer, name, None)


@kernel
def ogd_step(row: int, x: float, u: float, pa: int) -> bool:
    """w = P(w - u x)."""
    w = column(row, _W) - u * x
    return set_both(row, boxed(w, number(pa, AFTER_SCHEDULE), number(pa, AFTER_SCHEDULE + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientDescent(Scheduled):
    """Online gradient descent: w = P(w - eta_t g), [L], [F], [SM] eq. 1.

    eta_t by `schedule`; weights stay in [low, high], where None is no bound.
    """

    low: Low | None = None
    high: High | None = None

    name: ClassVar[str] = "ogd"
    rule: ClassVar[Rule] = Rule(scale=scheduled_scale, step=ogd_step)
    columns: ClassVar[tuple[str, ...]] = ("w",)

    def __post_init__(self) -> None:
        Scheduled.__post_init__(self)
        box(self.low, self.high)
        forget_no_bounds(self)

    def parameters(self) -> NDArray[np.float64]:
        """The learning rate's parameters, then the bounds of a weight."""
        return np.array([*self.schedule_parameters(), *box(self.low, self.high)])


_SEEN = 1
_SQUARES, _SEEN_COUNT = range(2)
_RADIUS, _GLOBAL_SCALE, _DIAMETER = range(3)


@kernel
def ogd_global_read(row: int, x: float, sc: int) -> tuple[float, float, float]:
    """Count the feature if it is new; its weight is the first column."""
    if column(row, _SEEN) == 0.0:
        set_column(row, _SEEN, 1.0)
        set_number(sc, _SEEN_COUNT, number(sc, _SEEN_COUNT) + 1.0)
    return column_read(row, x)


@kernel
def ogd_global_scale(h: float, d: float, size: float, sc: int, pa: int) -> float:
    """Add ||g||^2; u = scale D / sqrt(2 sum ||g||^2) h d, with D = 2 radius sqrt(seen) unless it is given."""
    g = h * d
    squares = number(sc, _SQUARES) + g * g * size
    set_number(sc, _SQUARES, squares)
    if squares == 0.0:
        return 0.0
    diameter = number(pa, _DIAMETER)
    if diameter == 0.0:
        diameter = 2.0 * number(pa, _RADIUS) * np.sqrt(number(sc, _SEEN_COUNT))
    return number(pa, _GLOBAL_SCALE) * diameter / np.sqrt(2.0 * squares) * g


@kernel
def ogd_global_step(row: int, x: float, u: float, pa: int) -> bool:
    """w = clip(w - u x, -radius, radius)."""
    radius = number(pa, _RADIUS)
    return set_both(row, boxed(column(row, _W) - u * x, -radius, radius))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalDescent(RuleOptimizer):
    """Gradient descent with one rate from the data: eta_t = scale D / sqrt(2 sum_s ||g_s||^2), [SM] Theorem 2, 5.1.

    Weights stay in [-radius, radius]; D = 2 radius sqrt(n), the diameter of that box over the n features seen so far,
    those of the current example included; a `diameter` > 0 takes its place (None: none).
    """

    radius: Annotated[float, Setting("Largest magnitude of a weight.", above=0)]
    scale: Scale = 1.0
    diameter: (
        Annotated[
            float,
            Setting("Diameter of the box in the learning rate, in place of that of the features seen.", above=0),
        ]
        | None
    ) = None

    name: ClassVar[str] = "ogd_global"
    rule: ClassVar[Rule] = Rule(read=ogd_global_read, scale=ogd_global_scale, step=ogd_global_step)
    columns: ClassVar[tuple[str, ...]] = ("w", "seen")
    scalars: ClassVar[tuple[str, ...]] = ("squares", "seen")

    def parameters(self) -> NDArray[np.float64]:
        """Radius, scale and diameter; a diameter of 0 stands for none."""
        return np.array([self.radius, self.scale, self.diameter or 0.0])


_G2 = 1
_RATE, _LOW, _HIGH = range(3)


@kernel
def adagrad_step(row: int, x: float, u: float, pa: int) -> bool:
    """G2 += g^2; w = P(w - rate g / sqrt G2), nothing where g^2 is 0."""
    g = u * x
    g2 = column(row, _G2) + g * g
    set_column(row, _G2, g2)
    w = column(row, _W)
    if g2 > 0.0:
        w = boxed(w - number(pa, _RATE) * (g / np.sqrt(g2)), number(pa, _LOW), number(pa, _HIGH))
    return set_both(row, w) and finite(g2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCoordinateDescent(RuleOptimizer):
    """Gradient descent with a rate a coordinate: w = clip(w - scale D / sqrt(two G2) g, low, high), D = high - low.

    [SM] Algorithm 1 prints D / sqrt G2 (`two` = 1), but its equation (4) needs the 2 under the root (`two` = 2);
    [L]'s B sqrt 2 / sqrt G2 is the same rate with D = 2 B.
    """

    low: Low
    high: High
    scale: Scale = 1.0
    two: Annotated[
        float,
        Setting("What the sum of squares is multiplied by under the root of the learning rate: 2 or 1.", above=0),
    ] = 2.0

    name: ClassVar[str] = "pc_ogd"
    rule: ClassVar[Rule] = Rule(step=adagrad_step)
    columns: ClassVar[tuple[str, ...]] = ("w", "g2")

    def __post_init__(self) -> None:
        RuleOptimizer.__post_init__(self)
        box(self.low, self.high)
        check_above(0.0, **{"high - low": self.high - self.low})

    def parameters(self) -> NDArray[np.float64]:
        """The rate scale (high - low) / sqrt(two), then the bounds of a weight."""
        return np.array([self.scale * (self.high - self.low) / math.sqrt(self.two), self.low, self.high])


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaGrad(RuleOptimizer):
    """AdaGrad, diagonal: w = P(w - eta g / sqrt G2), [F], [VW].

    Both print it with the current gradient left out of G2, which would divide by zero.
    Weights stay in [low, high], where None is no bound.
    """

    eta: Eta = 0.1
    low: Low | None = None
    high: High | None = None

    name: ClassVar[str] = "adagrad"
    rule: ClassVar[Rule] = Rule(step=adagrad_step)
    columns: ClassVar[tuple[str, ...]] = ("w", "g2")

    def __post_init__(self) -> None:
        RuleOptimizer.__post_init__(self)
        box(self.low, self.high)
        forget_no_bounds(self)

    def parameters(self) -> NDArray[np.float64]:
        """eta, then the bounds of a weight."""
        return np.array([self.eta, *box(self.low, self.high)])


_S = 1
_N = 2


@kernel
def normalized_read(row: int, x: float) -> tuple[float, float, float]:
    """If |x| > s: w = w s^2 / x^2, s = |x|. The size is x^2 / s^2."""
    s, w = column(row, _S), column(row, _W)
    if abs(x) > s:
        shrunk = s / abs(x)
        w *= shrunk * shrunk
        s = abs(x)
        set_column(row, _W, w)
        set_column(row, _S, s)
        set_weight(row, w)
    return w, w, (x / s) * (x / s)


@kernel
def normalized_scale(h: float, d: float, size: float, sc: int, pa: int) -> float:
    """N += size; u = eta_t (t / N) h d; 0 before the first feature."""
    eta = next_rate(sc, pa)
    n = number(sc, _N) + size
    set_number(sc, _N, n)
    return eta * (number(sc, T) / n) * (h * d) if n > 0.0 else 0.0


@kernel
def normalized_step(row: int, x: float, u: float) -> bool:
    """w = w - u x / s^2."""
    s = column(row, _S)
    return set_both(row, column(row, _W) - u * (x / s) / s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalized(Scheduled):
    """Normalized gradient descent (NG): scale-free in each feature, [VW].

    For each x_i that is not 0: where |x_i| > s_i, w_i = w_i s_i^2 / x_i^2 and s_i = |x_i|. Then predict;
    N += sum x_i^2 / s_i^2; w_i = w_i - eta_t (t / N) g_i / s_i^2. N and t include the current example, whatever its
    importance. `weights` returns the weights before the next example's values rescale them.
    """

    name: ClassVar[str] = "normalized"
    rule: ClassVar[Rule] = Rule(read=normalized_read, scale=normalized_scale, step=normalized_step)
    columns: ClassVar[tuple[str, ...]] = ("w", "s")
    scalars: ClassVar[tuple[str, ...]] = (*Scheduled.scalars, "n")
