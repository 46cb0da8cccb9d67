"""Compares the model's loss with that of the true model on the same examples: of all so far, and of the latest
alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_learner.core.model.progress import entropy
from stream_learner.traffic import BestPossible

RECENT_EXAMPLES = 8_000
CURVE_EXAMPLES = 2_000
POINTS_KEPT = 1_024


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of some examples; None where a divisor is 0.

    log_loss, normalized_entropy: of each prediction before its example was learned from. best_…: of the true model.
    calibration: predicted over observed clicks. auc: always of all examples so far.
    """

    examples: int
    log_loss: float | None
    best_log_loss: float | None
    normalized_entropy: float | None
    best_normalized_entropy: float | None
    calibration: float | None
    auc: float | None

    @property
    def excess(self) -> float | None:
        """The excess of the log-loss over the best possible, as a share of the latter."""
        if self.log_loss is None or not self.best_log_loss:
            return None
        return self.log_loss / self.best_log_loss - 1.0


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums up to a version, of the model and (best_…) of the true model."""

    examples: int = 0
    importance: float = 0.0
    label: float = 0.0
    prediction: float = 0.0
    loss: float = 0.0
    best_examples: int = 0
    best_loss: float = 0.0

    def minus(self, other: _Sums) -> _Sums:
        return _Sums(
            self.examples - other.examples,
            self.importance - other.importance,
            self.label - other.label,
            self.prediction - other.prediction,
            self.loss - other.loss,
            self.best_examples - other.best_examples,
            self.best_loss - other.best_loss,
        )

    def score(self, auc: float | None) -> Score:
        loss = _ratio(self.loss, self.importance)
        best = _ratio(self.best_loss, self.best_examples)
        rate = _ratio(self.label, self.importance)
        base = entropy(rate) if rate is not None and 0.0 < rate < 1.0 else 0.0
        return Score(
            examples=self.examples,
            log_loss=loss,
            best_log_loss=best,
            normalized_entropy=_ratio(loss, base),
            best_normalized_entropy=_ratio(best, base),
            calibration=_ratio(self.prediction, self.label),
            auc=auc,
        )


class Scoreboard:
    """Keeps the sums of the latest versions; the figures of the latest examples are differences of two."""

    def __init__(self, recent_examples: int = RECENT_EXAMPLES) -> None:
        self._recent_examples = recent_examples
        self._points: deque[_Sums] = deque([_Sums()], maxlen=POINTS_KEPT)
        self._auc: float | None = None
        self._curve: deque[float] = deque(maxlen=POINTS_KEPT)
        self._curve_end = _Sums()

    def add(self, metrics: Mapping[str, Any], best: BestPossible) -> None:
        """Take the metrics of a version (`core.model.progress`), and the best possible up to the same moment."""
        if metrics.get("log_loss") is None or not best.impressions:
            return
        importance = metrics["importance"]
        self._auc = metrics["auc"]
        sums = _Sums(
            examples=metrics["examples"],
            importance=importance,
            label=metrics["label_rate"] * importance,
            prediction=metrics["prediction_rate"] * importance,
            loss=metrics["log_loss"] * importance,
            best_examples=best.impressions,
            best_loss=best.log_loss * best.impressions,
        )
        if sums.examples > self._points[-1].examples:
            self._points.append(sums)
            self._extend_curve(sums)

    @property
    def total(self) -> Score:
        """The figures of all examples so far."""
        return self._points[-1].score(self._auc)

    @property
    def recent(self) -> Score:
        """The figures of about the last `recent_examples`."""
        last = self._points[-1]
        since = self._points[0]
        for point in self._points:
            if last.examples - point.examples < self._recent_examples:
                break
            since = point
        return last.minus(since).score(self._auc)

    @property
    def curve(self) -> list[float]:
        """The excess of the log-loss over the best possible, by stretches of `CURVE_EXAMPLES`, oldest first."""
        return list(self._curve)

    def _extend_curve(self, sums: _Sums) -> None:
        stretch = sums.minus(self._curve_end)
        excess = stretch.score(None).excess
        if stretch.examples >= CURVE_EXAMPLES and excess is not None:
            self._curve.append(excess)
            self._curve_end = sums


def _ratio(above: float | None, below: float) -> float | None:
    return above / below if above is not None and below > 0.0 else None
