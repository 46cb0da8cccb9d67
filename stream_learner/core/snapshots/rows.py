"""Rows of a model, sorted by key, as pages and deltas hold them: `WeightRows` for scorers, `StateRows` for learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.model.table.rows import StateRows, joined

__all__ = ["AnyRows", "Rows", "StateRows", "WeightRows", "last_of_each_key", "row_bytes", "rows_between"]

KEY_BYTES = 8
WEIGHT_BYTES = 4
TOUCHED_BYTES = 8
COLUMN_BYTES = 8


@dataclass(frozen=True, slots=True)
class WeightRows:
    """Weights of a snapshot: keys u64[r], rising; weights f32[r]."""

    keys: NDArray[np.uint64]
    weights: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def ncols(self) -> int:
        """Number of state columns: none."""
        return 0

    def part(self, start: int, stop: int) -> WeightRows:
        """Rows start to stop - 1, as views."""
        return WeightRows(self.keys[start:stop], self.weights[start:stop])

    def where(self, mask: NDArray[np.bool_]) -> WeightRows:
        """The rows for which `mask` bool[r] is true."""
        return WeightRows(self.keys[mask], self.weights[mask])

    def of_page(self) -> WeightRows:
        """The rows that a page holds: those whose weight is not zero."""
        kept = self.weights != 0
        return self if kept.all() else self.where(kept)


Rows = TypeVar("Rows", WeightRows, StateRows)
AnyRows = WeightRows | StateRows


def row_bytes(ncols: int) -> int:
    """Bytes of one row in a page or delta: with its weight if `ncols` is 0, else with its tick and state columns."""
    return KEY_BYTES + (TOUCHED_BYTES + COLUMN_BYTES * ncols if ncols else WEIGHT_BYTES)


def rows_between(rows: Rows, first: int, last: int) -> Rows:
    """The rows whose keys lie in [first, last], as views."""
    start = int(np.searchsorted(rows.keys, np.uint64(first), side="left"))
    stop = int(np.searchsorted(rows.keys, np.uint64(last), side="right"))
    return rows.part(start, stop)


def last_of_each_key(blocks: Sequence[StateRows]) -> StateRows:
    """The last row of every key in one or more blocks, given oldest first; rising by key."""
    newest_first = joined(blocks[::-1])
    keys, first = np.unique(newest_first.keys, return_index=True)
    return StateRows(keys, newest_first.columns[first], newest_first.touched[first])
