"""The entropic leader, or exponentiated gradient: weights on the simplex.

This file must never estimate the sum over all coordinates: `exact_sum` keeps it without rounding.

    w_i = e^(x_i) / Z,   x_i = -G1_i / lambda,   Z = sum of e^(x_j) over all coordinates

The dimension d is a hyper-parameter. Coordinates whose G1 is 0, because no example named them or because it came back
to 0, have x = 0. They are counted instead of summed: Z = (sum over the `known` others) + (d - known).

A weight has a relative error of at most 1e-12, from the rounding of x, for |x| up to 2000. G1 is clipped there: beyond
that bound a weight is 0 or 1 to 800 digits, which means that lambda is far too small.

Source: [F]: argmin G1.w + lambda sum w log w on the simplex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.optimizers.cells import column, number, set_column, set_number, set_weight
from stream_learner.core.model.optimizers.exact_sum import LARGEST_X, LIMBS, add, exp_parts, parts, two_to
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer
from stream_learner.core.model.optimizers.settings import Setting, Strength

_G1 = 0
_KNOWN, _SUM = range(2)
_STRENGTH, _DIMENSION = range(2)


@kernel
def entropic_weight(columns: int, sc: int, pa: int) -> float:
    """e^x / Z, both scaled by a power of two that keeps them in range.

    A feature that is not among `dimension` any more, because others took all places, has weight 0.
    """
    g1 = number(columns, _G1)
    m, k = exp_parts((0.0 - g1) / number(pa, _STRENGTH))
    s, largest = parts(sc + 8 * _SUM)
    unknown = number(pa, _DIMENSION) - number(sc, _KNOWN)
    if g1 == 0.0 and unknown <= 0.0:
        return 0.0
    if unknown > 0.0:
        z = s * two_to(min(largest, 0)) + unknown * two_to(-max(largest, 0))
        largest = max(largest, 0)
    else:
        z = s
    return m * two_to(k - largest) / z


@kernel
def entropic_step(row: int, x: float, u: float, sc: int, pa: int) -> bool:
    """G1 += g, held within 2000 lambda, and the sum after it; False if the dimension does not suffice."""
    strength, before = number(pa, _STRENGTH), column(row, _G1)
    after = before + u * x
    good = finite(after)
    after = min(max(after, -LARGEST_X * strength), LARGEST_X * strength)
    if good and after != before:
        if before != 0.0:
            add(sc + 8 * _SUM, (0.0 - before) / strength, -1.0)
        if after != 0.0:
            add(sc + 8 * _SUM, (0.0 - after) / strength, 1.0)
        known = number(sc, _KNOWN) + np.float64(after != 0.0) - np.float64(before != 0.0)
        set_number(sc, _KNOWN, known)
        set_column(row, _G1, after)
        good = known <= number(pa, _DIMENSION)
    set_weight(row, entropic_weight(row + 8, sc, pa))
    return good


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropicLeader(RuleOptimizer):
    """FTRL with the entropy as regularizer, lambda = `strength` > 0, on the simplex of `dimension` coordinates, [F].

    Weights are positive and sum to 1 over the declared dimension, which counts the features that no example has named
    yet; a snapshot could not hold those, so it is for evaluation only. An example that would bring in more features
    than the dimension is refused.
    """

    strength: Strength
    dimension: Annotated[int, Setting("How many features there are, those not seen yet included.", at_least=1)]

    name: ClassVar[str] = "entropic"
    rule: ClassVar[Rule] = Rule(step=entropic_step, weight=entropic_weight, weight_is_formula=True)
    columns: ClassVar[tuple[str, ...]] = ("g1",)
    scalars: ClassVar[tuple[str, ...]] = ("known", "limbs", *(f"limb_{i}" for i in range(LIMBS)))
    moves: ClassVar[bool] = True

    @property
    def reason(self) -> str:
        """Features that were never seen have weights too, which a scorer would not know."""
        return "features that no example has named have a weight too, and a scorer would not know it"

    def parameters(self) -> NDArray[np.float64]:
        """The strength, and the number of features without the bias."""
        return np.array([self.strength, float(self.dimension)])
