"""A Vowpal Wabbit command line as a model, and the average loss that VW would print.

VW's labels are taken as VW takes them: a logistic label between -1 and 1 is the mean of both labels, where the losses
of this project have labels between 0 and 1. Its Poisson loss is the deviance. Its predictions are clipped to the range
of labels for every loss; that is done here, for the figures of optimizers that do not clip.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.model.fold import Learner
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.models import LearnerModel, Trial
from stream_learner.evaluate.vw.command import VwCommand
from stream_learner.evaluate.vw.settings import VwSettings

_POISSON_LIMIT = 44.0


def _read_labels(settings: VwSettings, y: NDArray[np.float64]) -> NDArray[np.float64]:
    """VW's labels as the labels of this project's losses.

    A hinge label of 0 has no slope in VW. Here 0 means -1; the least number above 0 has no slope.
    """
    if settings.loss == "logistic":
        return (y + 1.0) / 2.0
    if settings.loss == "hinge" and settings.kind == "descent":
        return np.where(y == 0.0, np.nextafter(0.0, 1.0), y)
    return y


def printed_losses(settings: VwSettings, p: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss of each example as VW defines it, f64[n]. p: clipped predictions. y: labels as written."""
    if settings.loss == "squared":
        return (p - y) ** 2
    if settings.loss == "hinge":
        return np.maximum(0.0, 1.0 - y * p)
    if settings.loss == "quantile":
        return np.where(y > p, settings.tau * (y - p), (1.0 - settings.tau) * (p - y))
    if settings.loss == "logistic":
        share = (y + 1.0) / 2.0
        return share * np.logaddexp(0.0, -p) + (1.0 - share) * np.logaddexp(0.0, p)
    q = np.clip(p, -_POISSON_LIMIT, _POISSON_LIMIT)
    return 2.0 * (y * (np.log(y + 1e-6) - q) - (y - np.exp(q)))


class _PrintedLoss:
    """Sums up the losses, in float64, whose mean VW prints."""

    def __init__(self, settings: VwSettings) -> None:
        self._settings = settings
        self._low, self._high = settings.first_range()
        self._clips = settings.kind != "descent"
        self._loss = self._importance = 0.0

    def add(self, margins: NDArray[np.float64], block: ExampleBlock, counts: NDArray[np.bool_]) -> None:
        """Add the losses of examples in order: of those that `counts` marks and that were not refused."""
        none = np.zeros(0)
        labels = np.concatenate([none, *(record.label for record in block.records)])
        importances = np.concatenate([none, *(record.weight for record in block.records)])
        p = self._clipped(margins, labels) if self._clips else margins
        rows = counts & ~np.isnan(margins)
        h = importances[rows]
        self._loss += float(np.dot(printed_losses(self._settings, p[rows], labels[rows]), h))
        self._importance += float(h.sum())

    def widen(self, low: float, high: float) -> None:
        """Widen the range by the labels that a loaded model has seen."""
        self._low, self._high = min(self._low, low), max(self._high, high)

    def _clipped(self, margins: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """The margins clipped to the range of the labels so far, each example's own label included."""
        low = np.fmin.accumulate(np.append(self._low, labels))
        high = np.fmax.accumulate(np.append(self._high, labels))
        self._low, self._high = float(low[-1]), float(high[-1])
        clipped: NDArray[np.float64] = np.clip(margins, low[1:], high[1:])
        return clipped

    def mean(self) -> float | None:
        """The mean so far; None without any example."""
        return self._loss / self._importance if self._importance else None

    def restart(self) -> None:
        """Begin the sums again; the range of labels stays."""
        self._loss = self._importance = 0.0


class VwTrial(Trial):
    """The trial of a command line. Its `average_loss` is the one that VW prints."""

    def __init__(self, name: str, command: VwCommand, *, learn: bool) -> None:
        super().__init__(
            name, LearnerModel(Learner(command.optimizer(), loss=command.loss)), command.plan, learn=learn, linked=False
        )
        self._command = command
        self._printed = _PrintedLoss(command.settings)
        self._seen = 0
        self._fresh = True

    def take(self, block: ExampleBlock) -> None:
        """Predict, measure and learn, as `Trial.take` says."""
        records = [
            replace(record, label=_read_labels(self._command.settings, record.label)) for record in block.records
        ]
        if self._fresh:
            low, high = self.model.learner.state_scalars()["scalars"][:2]
            self._printed.widen(float.fromhex(low), float.fromhex(high))
            self._fresh = False
        super().take(replace(block, records=records))
        held_out = self.plan.held_out(self._seen, len(block))
        counts = block.labelled & held_out if self.plan.holds_out else block.labelled
        self._printed.add(self.margins, block, counts)
        self._seen += len(block)

    def mean_loss(self, measured: float | None) -> float | None:
        """The mean loss that VW prints."""
        self._seen = 0
        mean = self._printed.mean()
        if self.plan.holds_out:
            self._printed.restart()
        return mean
