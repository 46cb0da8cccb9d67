"""Two models compared by their progressive loss, on the slices of traffic that both have predicted.

Two slices, one from each model record, are shared if they have the same `start_ms`, neither is the newest of its model
(that one is still open), both have examples, and their importances differ by at most `SAME_TRAFFIC` of the larger.
Where they differ more, the slices have different lengths, or a model began in the middle of one.

A model's loss is sum h l / sum h over the shared slices, with l its mean loss in a slice, and h the importance of the
slice in the current model: so both losses have the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SAME_TRAFFIC: Final = 0.1
"""Largest difference of two slices' importances, as a share of the larger."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Losses of two models over the slices they share; both 0.0 if they share none.

    start_ms: of the shared slices, rising. examples: how many the current model has in them.
    """

    start_ms: tuple[int, ...]
    examples: int
    current_loss: float
    candidate_loss: float

    def is_worse(self, tolerance: float) -> bool:
        """Whether the candidate's loss is above (1 + tolerance) times the current one's, or not a number."""
        return not self.candidate_loss <= self.current_loss * (1.0 + tolerance)


def compare(current: Sequence[Mapping[str, Any]], candidate: Sequence[Mapping[str, Any]]) -> Compared:
    """Compare two models by their slices, as `Progress.slices` gives them, in any order."""
    theirs = {row["start_ms"]: row for row in _closed(candidate)}
    pairs = [(row, theirs[row["start_ms"]]) for row in _closed(current) if row["start_ms"] in theirs]
    shared = [pair for pair in pairs if _same_traffic(*pair)]
    importance = sum(ours["importance"] for ours, _ in shared)
    if not importance:
        return Compared((), 0, 0.0, 0.0)
    current_loss = sum(ours["importance"] * ours["average_loss"] for ours, _ in shared) / importance
    candidate_loss = sum(ours["importance"] * other["average_loss"] for ours, other in shared) / importance
    starts = tuple(ours["start_ms"] for ours, _ in shared)
    return Compared(starts, sum(ours["examples"] for ours, _ in shared), current_loss, candidate_loss)


def _closed(slices: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The slices that are closed, oldest first: all but the newest."""
    return sorted(slices, key=lambda row: int(row["start_ms"]))[:-1]


def _same_traffic(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["average_loss"] is None or other["average_loss"] is None:
        return False
    importances = one["importance"], other["importance"]
    return abs(importances[0] - importances[1]) <= SAME_TRAFFIC * max(importances)
