"""Two models compared on the traffic that both have predicted: their progressive loss, slice by slice.

In: the slices of two model records, as `Progress.slices` makes them. Out: both losses over the slices that they share.
This file must never compare a slice that is still open, or slices that are not of the same traffic.

A slice is shared when both have one with the same `start_ms`, it is the newest of neither, both have examples in it,
and their importances differ by at most SAME_TRAFFIC of the larger: slices of different length, or one that a model
began in the middle of, are other traffic. With h the importance of the shared slice s in the current model and l a
model's mean loss in it, a model's loss is sum h l / sum h: the same weights for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SAME_TRAFFIC: Final = 0.1


@dataclass(frozen=True, slots=True)
class Compared:
    """Losses of two models over the slices they share; 0.0 both where there is none.

    start_ms: of the shared slices, ascending. examples: of the current model, in all of them together.
    """

    start_ms: tuple[int, ...]
    examples: int
    current_loss: float
    candidate_loss: float

    def is_worse(self, tolerance: float) -> bool:
        """Whether the candidate's loss is above the current one's times (1 + tolerance), or not a number."""
        return not self.candidate_loss <= self.current_loss * (1.0 + tolerance)


def compare(current: Sequence[Mapping[str, Any]], candidate: Sequence[Mapping[str, Any]]) -> Compared:
    """Compare two models by their slices, in any order."""
    theirs = {row["start_ms"]: row for row in _closed(candidate)}
    pairs = [(row, theirs[row["start_ms"]]) for row in _closed(current) if row["start_ms"] in theirs]
    shared = [pair for pair in pairs if _same_traffic(*pair)]
    importance = sum(row["importance"] for row, _ in shared)
    if not importance:
        return Compared((), 0, 0.0, 0.0)
    losses = [sum(pair[0]["importance"] * pair[k]["average_loss"] for pair in shared) / importance for k in (0, 1)]
    starts = tuple(row["start_ms"] for row, _ in shared)
    return Compared(starts, sum(row["examples"] for row, _ in shared), *losses)


def _closed(slices: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All but the newest, oldest first."""
    return sorted(slices, key=lambda row: int(row["start_ms"]))[:-1]


def _same_traffic(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["average_loss"] is None or other["average_loss"] is None:
        return False
    importances = one["importance"], other["importance"]
    return abs(importances[0] - importances[1]) <= SAME_TRAFFIC * max(importances)
