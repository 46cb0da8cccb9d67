"""PiSTOL and coin betting: no learning rate, weights by formula from sums of gradients.

This file must never bound a slope: with losses whose slope grows with the margin both methods can run away, and an
example is refused where a weight would not be finite.

With g = h (dl/dp) x, theta the sum of -g, A the sum of |g|, M the largest |x| of a feature, the current one included:

    PiSTOL   c = 1 / (alpha M (A + M));  w = beta sqrt(A) theta e^(theta^2 c / 2) c
    coin     w = (alpha + W) theta / (L M (L M + A)), 0 while L M = 0;  p = w.x / ((N + 1e-6) / T), with
             N += h sum (x / M)^2 and T += h before predicting; then, where |h dl/dp| > L, L = max(|h dl/dp|, beta), w
             again, and W -= g w

Scaling all values of a feature changes nothing in coin betting, except through the 1e-6. With PiSTOL, w x grows with
the square root of the scale. Source: [T], `--pistol` and `--coin`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import exp, finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.optimizers.cells import column, number, set_column, set_number, set_weight
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer
from stream_learner.core.model.optimizers.settings import Alpha, BetaAboveZero

_THETA, _A, _M, _WEALTH, _L = range(5)
_N, _TOTAL = range(2)
_ALPHA, _BETA = range(2)
_SMALL = 1e-6


@kernel
def _stretch(row: int, x: float) -> None:
    """M = max(M, |x|)."""
    set_column(row, _M, max(column(row, _M), abs(x)))


@kernel
def pistol_weight(columns: int, pa: int) -> float:
    """beta sqrt(A) theta e^(theta^2 c / 2) c, 0 where nothing was seen."""
    theta, a, m = number(columns, _THETA), number(columns, _A), number(columns, _M)
    size = number(pa, _ALPHA) * m * (a + m)
    if size == 0.0:
        return 0.0
    c = 1.0 / size
    return number(pa, _BETA) * np.sqrt(a) * theta * exp(theta * theta * c / 2.0) * c


@kernel
def pistol_read(row: int, x: float, pa: int) -> tuple[float, float, float]:
    """The weight at the scale of x."""
    _stretch(row, x)
    w = pistol_weight(row + 8, pa)
    return w, w, x * x


@kernel
def pistol_step(row: int, x: float, u: float, pa: int) -> bool:
    """theta -= g, A += |g|."""
    g = u * x
    set_column(row, _THETA, column(row, _THETA) - g)
    set_column(row, _A, column(row, _A) + abs(g))
    w = pistol_weight(row + 8, pa)
    set_weight(row, w)
    return finite(w) & finite(column(row, _A))


@kernel
def _bet(columns: int, pa: int) -> float:
    """(alpha + W) theta / (L M (L M + A)), 0 while L M = 0."""
    largest = number(columns, _L) * number(columns, _M)
    size = largest * (largest + number(columns, _A))
    if size == 0.0:
        return 0.0
    return (number(pa, _ALPHA) + number(columns, _WEALTH)) * number(columns, _THETA) / size


@kernel
def coin_read(row: int, x: float, pa: int) -> tuple[float, float, float]:
    """The bet at the scale of x; the size is (x / M)^2."""
    _stretch(row, x)
    w, part = _bet(row + 8, pa), x / column(row, _M)
    return w, w, part * part


@kernel
def coin_predict(dot: float, size: float, h: float, sc: int) -> float:
    """w.x / ((N + 1e-6) / T), with the current example in N and T; 0 while T = 0."""
    total = number(sc, _TOTAL) + h
    return dot / ((number(sc, _N) + h * size + _SMALL) / total) if total > 0.0 else 0.0


@kernel
def coin_scale(h: float, d: float, size: float, sc: int) -> float:
    """N += h sum (x / M)^2, T += h; u = h d."""
    set_number(sc, _N, number(sc, _N) + h * size)
    set_number(sc, _TOTAL, number(sc, _TOTAL) + h)
    return h * d


@kernel
def coin_weight(columns: int, sc: int, pa: int) -> float:
    """The bet over the average size of an example so far."""
    total = number(sc, _TOTAL)
    return _bet(columns, pa) / ((number(sc, _N) + _SMALL) / total) if total > 0.0 else 0.0


@kernel
def coin_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """L, then theta -= g, A += |g|, W -= g w."""
    g = u * x
    if abs(u) > column(row, _L):
        set_column(row, _L, max(abs(u), number(pa, _BETA)))
    wealth = column(row, _WEALTH) - g * _bet(row + 8, pa)
    set_column(row, _THETA, column(row, _THETA) - g)
    set_column(row, _A, column(row, _A) + abs(g))
    set_column(row, _WEALTH, wealth)
    w = coin_weight(row + 8, sc, pa)
    set_weight(row, w)
    return finite(w) & finite(column(row, _A)) & finite(wealth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pistol(RuleOptimizer):
    """PiSTOL: no learning rate; alpha, beta > 0. See the equations of this module."""

    alpha: Alpha = 1.0
    beta: BetaAboveZero = 0.5

    name: ClassVar[str] = "pistol"
    rule: ClassVar[Rule] = Rule(read=pistol_read, step=pistol_step, weight=pistol_weight)
    columns: ClassVar[tuple[str, ...]] = ("theta", "a", "m")

    def parameters(self) -> NDArray[np.float64]:
        """alpha and beta."""
        return np.array([self.alpha, self.beta])


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinBetting(RuleOptimizer):
    """Coin betting: no learning rate, and no units of features; alpha, beta > 0. See the equations of this module.

    W is the wealth won by betting, L the largest |h dl/dp| a feature met. `weights` divides by the average size
    of the examples so far.
    """

    alpha: Alpha = 4.0
    beta: BetaAboveZero = 1.0

    name: ClassVar[str] = "coin"
    rule: ClassVar[Rule] = Rule(
        read=coin_read, predict=coin_predict, scale=coin_scale, step=coin_step, weight=coin_weight
    )
    columns: ClassVar[tuple[str, ...]] = ("theta", "a", "m", "wealth", "largest")
    scalars: ClassVar[tuple[str, ...]] = ("n", "total")
    moves: ClassVar[bool] = True

    def parameters(self) -> NDArray[np.float64]:
        """alpha and beta."""
        return np.array([self.alpha, self.beta])
