"""A model under evaluation, and its trial: the passes it makes over the examples, and what is measured in them.

`LearnerModel` is the learner of production: the same optimizers, the same fold, the same table of weights.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.core.model.fold import Learner
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.measure import CurvePoint, Measure
from stream_learner.evaluate.request import BestPass, PassPlan

ONE_TICK = 0
"""Files have no ticks: all examples are folded as part of this one."""


class LearnerModel:
    """The learner of production, without its log."""

    def __init__(self, learner: Learner, key_rule: int = NEWEST_RULE) -> None:
        """key_rule: the rule of the keys it learns from, which is saved with it."""
        self.learner = learner
        self.key_rule = key_rule
        self.loss = learner.loss

    def fold(self, block: ExampleBlock, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict each example of a block, then learn from it if `learned` says so, one after the other.

        Returns the margins f64[n], each as it was before the example was learned from. The margin is NaN if the model
        refused to learn the example; such an example changes nothing.
        """
        margins = np.empty(len(block))
        start = 0
        for record in block.records:
            end = start + len(record)
            margins[start:end] = self.learner.fold(record, ONE_TICK, learned=learned[start:end])
            start = end
        return margins

    def end_pass(self) -> None:
        """End a pass over all examples."""
        self.learner.end_pass()

    def nonzero(self) -> int:
        """The number of weights that are not 0; counted by a scan if weights change without being touched."""
        return self.learner.count_nonzero()

    def save(self, file: Path) -> None:
        """Write the whole state, so that a model loaded from it goes on to the same bits."""
        from stream_learner.evaluate.model_file import save_learner

        save_learner(self.learner, file, self.key_rule)


FIGURES: Final = ("average_loss", "log_loss", "normalized_entropy", "auc", "calibration", "mistakes")


class Trial:
    """A model, the passes it makes, and what has been measured. One thread at a time.

    Its results do not depend on how examples are cut into blocks. learned: examples learned from, in all passes.
    refused: examples that the optimizer would not learn from. margins f64[n]: those of the last block.
    """

    def __init__(
        self, name: str, model: LearnerModel, plan: PassPlan, *, learn: bool = True, linked: bool = True
    ) -> None:
        """learn: False to predict and measure only. linked: predictions are written behind the loss's link, as
        probabilities for logistic loss, else as margins."""
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
        """Note when the work begins, by the monotonic clock; `seconds` of the figures count from here."""
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
        """End a pass: note its figures, and whether it was the best."""
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
        """The mean loss to report: `measured`, that of the pass that ends, or of all passes without holdout."""
        return measured

    def figures(self) -> dict[str, Any]:
        """The figures of this configuration; None where one is not defined."""
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
