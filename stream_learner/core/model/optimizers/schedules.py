"""Learning rates that depend on the number of the example, and of the pass.

They are computed from the hyper-parameters (places 0 to 4) and the scalars t and passes (places 0 and 1). Rates of
single coordinates are in the files of their rules.

    constant   eta
    root       eta / sqrt t                                 ([SM] eq. 1)
    power      eta decay^k (t0 / (t0 + t))^power            ([VW]; k passes have ended)

t counts examples from 1. Examples of importance 0 count, refused ones do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import power
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.losses import LOSS_SCALARS
from stream_learner.core.model.optimizers.cells import number, set_number
from stream_learner.core.model.optimizers.rules import RuleOptimizer
from stream_learner.core.model.optimizers.settings import SCHEDULES, T0, Decay, Eta, Power, Schedule

_CONSTANT, _ROOT, _POWER = range(3)

_ETA, _SCHEDULE, _DECAY, _T0, _EXPONENT = range(5)
"""Places of the hyper-parameters; an optimizer's own follow."""
AFTER_SCHEDULE: Final = 5
T, PASSES = range(2)
"""Places of the scalars; an optimizer's own follow."""


@kernel
def rate_at(t: float, passes: float, pa: int) -> float:
    """The learning rate of step t, after so many passes."""
    eta, schedule = number(pa, _ETA), number(pa, _SCHEDULE)
    if schedule == _CONSTANT:
        return eta
    if schedule == _ROOT:
        return eta / np.sqrt(t)
    t0 = number(pa, _T0)
    return eta * power(number(pa, _DECAY), passes) * power(t0 / (t0 + t), number(pa, _EXPONENT))


@kernel
def rate(sc: int, pa: int) -> float:
    """The learning rate of step t, with t and the number of passes from the scalars."""
    return rate_at(number(sc, T), number(sc, PASSES), pa)


@kernel
def next_rate(sc: int, pa: int) -> float:
    """Begin the next step; returns its learning rate."""
    set_number(sc, T, number(sc, T) + 1.0)
    return rate(sc, pa)


@kernel
def scheduled_scale(h: float, d: float, sc: int, pa: int) -> float:
    """u = eta_t h d, so that the step is w - u x: for every rule with a learning rate by schedule."""
    return next_rate(sc, pa) * (h * d)


@kernel
def counted_scale(h: float, d: float, sc: int) -> float:
    """t += 1; u = h d, so that g = u x: for every rule whose weight is a formula in t."""
    set_number(sc, T, number(sc, T) + 1.0)
    return h * d


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled(RuleOptimizer):
    """Hyper-parameters of a learning rate: eta > 0; of schedule power, decay > 0, t0 > 0, power >= 0."""

    eta: Eta = 0.1
    schedule: Schedule = "constant"
    decay: Decay = 1.0
    t0: T0 = 1.0
    power: Power = 0.5

    scalars: ClassVar[tuple[str, ...]] = ("t", "passes")

    def schedule_parameters(self) -> tuple[float, ...]:
        """The first `AFTER_SCHEDULE` parameters."""
        return (self.eta, float(SCHEDULES.index(self.schedule)), self.decay, self.t0, self.power)

    def parameters(self) -> NDArray[np.float64]:
        """The learning rate's parameters. An optimizer with more hyper-parameters appends them."""
        return np.array(self.schedule_parameters())

    def end_pass(self, scalars: NDArray[np.float64]) -> None:
        """Count a pass."""
        scalars[len(LOSS_SCALARS) + PASSES] += 1.0
