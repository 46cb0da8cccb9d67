"""Several passes over the same examples, by the conventions of Vowpal Wabbit.

In: what was asked for; the loss of each pass. Out: which examples are only predicted, and when to stop.
This file must never see a model.

With more than one pass every `period`-th example of a pass, counted from 1, is held out: it is predicted and measured
in every pass and never learned from. A pass is as good as its mean loss on them. The best pass counts, and after
`PATIENCE` passes in a row that are no better than the best one there are no more. Without holdout, or with one pass,
every example is measured before it is learned from, over all passes together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

PATIENCE: Final = 3
PERIOD: Final = 10


@dataclass(frozen=True, slots=True)
class PassPlan:
    """How many passes, and what is held out. Raises ValueError for less than one pass, or a period under 2.

    patience: passes in a row that are no better than the best one, after which there are no more.
    """

    passes: int = 1
    holdout_off: bool = False
    period: int = PERIOD
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        if self.passes < 1 or self.period < 2:
            raise ValueError(
                f"passes ({self.passes}) must be at least 1, the holdout period ({self.period}) at least 2"
            )

    @property
    def holds_out(self) -> bool:
        """Whether any example is held out."""
        return self.passes > 1 and not self.holdout_off

    def held_out(self, before: int, count: int) -> NDArray[np.bool_]:
        """bool[count]: which of the examples before + 1 … before + count of a pass are held out."""
        if not self.holds_out:
            return np.zeros(count, np.bool_)
        held_out: NDArray[np.bool_] = np.arange(before + 1, before + count + 1) % self.period == 0
        return held_out


class BestPass:
    """Which pass was best so far, and whether to go on."""

    def __init__(self, plan: PassPlan) -> None:
        self._plan = plan
        self.finished = 0
        self._best = math.inf
        self._waited = 0

    @property
    def done(self) -> bool:
        """Whether there is no further pass."""
        return self.finished >= self._plan.passes or self._waited >= self._plan.patience

    def finish(self, loss: float | None) -> bool:
        """A pass has ended with this mean loss on what was held out; whether it is the best one so far."""
        self.finished += 1
        if loss is not None and loss < self._best:
            self._best, self._waited = loss, 0
            return True
        self._waited += self._plan.holds_out
        return False
