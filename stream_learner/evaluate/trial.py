"""One configuration on its way through the data: folded, measured, pass after pass.

In: portions of examples in order. Out: the row of figures, the curve, the predictions of the first pass.
This file must never depend on other configurations, or on how examples are cut into portions.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.evaluate.holdout import BestPass, PassPlan
from stream_learner.evaluate.measure import CurvePoint, Measure
from stream_learner.evaluate.models import Model
from stream_learner.evaluate.portions import Portion

FIGURES: Final = ("average_loss", "log_loss", "normalized_entropy", "auc", "calibration", "mistakes")


class Trial:
    """A model, the passes it makes, and what has been measured. Used by one thread at a time.

    learned: examples that were learned from, in all passes; refused: those that the optimizer would not learn from.
    done: no further pass is wanted.
    margins f64[n]: of the portion taken last.
    """

    def __init__(self, name: str, model: Model, plan: PassPlan, *, learn: bool = True, linked: bool = True) -> None:
        """learn False: everything is predicted and measured, nothing learned from. linked: predictions are written as
        the link makes them of margins, else as margins."""
        self.name = name
        self.model = model
        self.plan = plan
        self.linked = linked
        self.learned = self.refused = 0
        self.margins: NDArray[np.float64] = np.empty(0)
        self.learns = learn
        self._before = 0
        self._best = BestPass(plan)
        self._measure = Measure(model.loss)
        self._figures: dict[str, Any] | None = None
        self._began_s = self._seconds = 0.0

    def start(self, now_s: float) -> None:
        """Reading begins: `seconds` count from here (a reading of the monotonic clock)."""
        self._began_s = now_s

    @property
    def done(self) -> bool:
        """Whether there is no further pass."""
        return self._best.done

    def take(self, portion: Portion) -> None:
        """Predict, measure and learn the examples of a portion, in order."""
        held_out = self.plan.held_out(self._before, len(portion))
        learned = portion.labelled & ~held_out if self.learns else np.zeros(len(portion), np.bool_)
        self.margins = self.model.fold(portion, learned)
        counts = portion.labelled & held_out if self.plan.holds_out else portion.labelled
        start = 0
        for record in portion.records:
            rows = slice(start, start + len(record))
            self._measure.observe(self.margins[rows], record, counts[rows])
            start = rows.stop
        refused = int(np.count_nonzero(np.isnan(self.margins) & learned))
        self.learned += int(np.count_nonzero(learned)) - refused
        self.refused += refused
        self._before += len(portion)

    def end_pass(self) -> None:
        """All examples were taken once more."""
        self._before = 0
        if self.learns:
            self.model.end_pass()
        figures = self._measure.summary()
        figures["average_loss"] = self.mean_loss(figures["average_loss"])
        best = self._best.finish(figures["average_loss"])
        if best or self._figures is None or not self.plan.holds_out:
            self._figures = figures
        if self.plan.holds_out:
            self._measure.restart()
        self._seconds = time.monotonic() - self._began_s

    def mean_loss(self, measured: float | None) -> float | None:
        """The mean loss of the pass that ends, or of all so far without holdout; `measured` by the model's loss."""
        return measured

    def row(self) -> dict[str, Any]:
        """The result: figures that are not defined are None."""
        figures = self._figures or self._measure.summary()
        return {
            "config": self.name,
            "examples": figures["examples"],
            **{name: figures[name] for name in FIGURES},
            "nonzero": self.model.nonzero(),
            "seconds": self._seconds,
        }

    def curve(self) -> list[CurvePoint]:
        """The learning curve, over all passes."""
        return self._measure.curve()
