"""Rows copied out of the weight table, or to be loaded into it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StateRows:
    """Optimizer state by key: keys u64[r], rising unless said otherwise; columns f64[r, ncols]; touched i64[r].

    touched: the tick in which a row changed last, -1 where it never changed.
    """

    keys: NDArray[np.uint64]
    columns: NDArray[np.float64]
    touched: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def ncols(self) -> int:
        """Number of state columns, at least 1."""
        return int(self.columns.shape[1])

    def part(self, start: int, stop: int) -> StateRows:
        """Rows start to stop - 1, as views."""
        return StateRows(self.keys[start:stop], self.columns[start:stop], self.touched[start:stop])

    def where(self, mask: NDArray[np.bool_]) -> StateRows:
        """The rows for which `mask` bool[r] is true."""
        return StateRows(self.keys[mask], self.columns[mask], self.touched[mask])

    def of_page(self) -> StateRows:
        """The rows that a page of a checkpoint holds: those that ever changed.

        A row whose columns are all zero again stays, with its tick: scorers may not have been told yet.
        """
        kept = self.touched >= 0
        return self if kept.all() else self.where(kept)


def joined(blocks: Iterable[StateRows]) -> StateRows:
    """The rows of one or more blocks, one block after the other."""
    held = list(blocks)
    return StateRows(
        np.concatenate([block.keys for block in held]),
        np.concatenate([block.columns for block in held]),
        np.concatenate([block.touched for block in held]),
    )
