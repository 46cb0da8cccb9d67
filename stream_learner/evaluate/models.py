"""A model under evaluation, and its trial: the passes it makes over the examples, and what is measured in them.

`LearnerModel` is the learner of production: the same optimizers, the same fold, the same table of weights.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import Loss
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.measure import CurvePoint, Measure
from stream_learner.evaluate.request import BestPass, PassPlan

ONE_TICK = 0
"""Files have no ticks: everything is folded as part of this one."""


class Model(Protocol):
    """One model on its way through the examples. Used by one thread at a time."""

    loss: Loss
    """What it learns by; measured is the same loss."""

    def fold(self, block: ExampleBlock, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict each example of a block, then learn from it if `learned` says so, one after the other.

        Returns the margins f64[n], each as it was before the example was learned from; NaN for an example that was to
        be learned from and was refused: it changed nothing.
        """
        ...

    def end_pass(self) -> None:
        """All examples were seen once more."""
        ...

    def nonzero(self) -> int:
        """Weights that are not 0."""
        ...

    def save(self, file: Path) -> None:
        """Write all state, to be taken up by `load` to the same bits."""
        ...


class LearnerModel:
    """The learner, fed from files."""

    def __init__(self, learner: Learner, key_rule: int = NEWEST_RULE) -> None:
        """key_rule: of the keys it learns from, for whoever loads it."""
        self.learner = learner
        self.key_rule = key_rule
        self.loss = learner.loss

    def fold(self, block: ExampleBlock, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
        """See `Model.fold`."""
        margins = np.empty(len(block))
        start = 0
        for record in block.records:
            end = start + len(record)
            margins[start:end] = self.learner.fold(record, ONE_TICK, learned=learned[start:end])
            start = end
        return margins

    def end_pass(self) -> None:
        """See `Model.end_pass`."""
        self.learner.end_pass()

    def nonzero(self) -> int:
        """See `Model.nonzero`; by a scan where weights move without being touched."""
        return self.learner.count_nonzero()

    def save(self, file: Path) -> None:
        """See `Model.save` and `model_file`."""
        from stream_learner.evaluate.model_file import save_learner

        save_learner(self.learner, file, self.key_rule)


FIGURES: Final = ("average_loss", "log_loss", "normalized_entropy", "auc", "calibration", "mistakes")


class Trial:
    """A model, the passes it makes, and what has been measured. Used by one thread at a time.

    learned: examples that were learned from, in all passes; refused: those that the optimizer would not learn from.
    done: no further pass is wanted.
    margins f64[n]: of the block taken last.
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

    def take(self, block: ExampleBlock) -> None:
        """Predict, measure and learn the examples of a block, in order."""
        held_out = self.plan.held_out(self._before, len(block))
        learned = block.labelled & ~held_out if self.learns else np.zeros(len(block), np.bool_)
        self.margins = self.model.fold(block, learned)
        counts = block.labelled & held_out if self.plan.holds_out else block.labelled
        start = 0
        for record in block.records:
            rows = slice(start, start + len(record))
            self._measure.observe(self.margins[rows], record, counts[rows])
            start = rows.stop
        refused = int(np.count_nonzero(np.isnan(self.margins) & learned))
        self.learned += int(np.count_nonzero(learned)) - refused
        self.refused += refused
        self._before += len(block)

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
