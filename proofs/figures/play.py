"""Examples and games through the fold: the margin of each example before it is learned from, and the weights.

Every weight comes out of the fold that learns in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import Loss, make_loss
from stream_learner.core.model.optimizers import make_optimizer

Vector = NDArray[np.float64]
RECORD_FEATURES = 65_536
"""The largest number of features of a record, so that its distinct keys are no more either."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number. Its multiples are spread evenly over 64 bits, as hashes are, and never repeat."""


class SparseExamples(NamedTuple):
    """Sparse examples. Example r has the columns and values from start[r] to start[r + 1], each column once."""

    start: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Vector

    def __len__(self) -> int:
        return len(self.start) - 1

    def taken(self, order: NDArray[np.int64]) -> SparseExamples:
        """The examples in another order."""
        lengths = np.diff(self.start)[order]
        start = np.concatenate(([0], np.cumsum(lengths)))
        places = np.repeat(self.start[order] - start[:-1], lengths) + np.arange(start[-1])
        return SparseExamples(start, self.columns[places], self.values[places])


def records(rows: SparseExamples, labels: Vector, importances: Vector | None = None) -> list[ExampleRecord]:
    """The examples as records of the fold."""
    weights = np.ones(len(labels)) if importances is None else importances
    made, first = [], 0
    while first < len(rows):
        end = int(np.searchsorted(rows.start, rows.start[first] + RECORD_FEATURES, side="right")) - 1
        if end == first:
            raise ValueError(f"row {first} has more than {RECORD_FEATURES} features")
        made.append(_record(rows, labels, weights, first, end))
        first = end
    return made


def keys_of(columns: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The feature keys of columns, from 0."""
    return (columns.astype(np.uint64) + np.uint64(1)) * SPREAD


def _record(rows: SparseExamples, labels: Vector, weights: Vector, first: int, end: int) -> ExampleRecord:
    low, high = rows.start[first], rows.start[end]
    distinct, indices = np.unique(rows.columns[low:high], return_inverse=True)
    values = rows.values[low:high]
    positions = np.flatnonzero(values != 1.0)
    return ExampleRecord(
        partition=0,
        tick=0,
        attempt=1,
        sequence=0,
        log_time_ms=np.zeros(end - first, np.int64),
        id_hash=np.arange(first + 1, end + 1, dtype=np.uint64),
        label=labels[first:end],
        weight=weights[first:end],
        keys=keys_of(distinct),
        indices=indices.astype(np.uint16),
        row_len=np.diff(rows.start[first : end + 1]).astype(np.uint16),
        positions=positions.astype(np.uint32),
        values=values[positions],
    )


class Player:
    """An optimizer that learns examples, or plays a game, in the fold."""

    def __init__(self, optimizer: Mapping[str, Any], loss: str | Loss = "linear") -> None:
        """optimizer: `name` and hyper-parameters; loss: a name, or one with options."""
        self.learner = Learner(make_optimizer(optimizer), loss=make_loss(loss) if isinstance(loss, str) else loss)

    def learn(self, made: Iterable[ExampleRecord]) -> Vector:
        """Learn the records in their order; returns the margin of each example before it was learned from."""
        margins = [self.learner.fold(record, 0).copy() for record in made]
        if self.learner.refused:
            raise ValueError(f"{self.learner.optimizer.name} refused {self.learner.refused} examples")
        return np.concatenate(margins)

    def weights(self, dimension: int) -> Vector:
        """The weights of columns 0 .. dimension - 1."""
        rows = self.learner.table.rows_of(keys_of(np.arange(dimension)))
        return self.learner.weights(rows.columns)


class Game(NamedTuple):
    """The plays and gradients of a game, a line of the arrays for each round."""

    plays: Vector
    gradients: Vector

    @property
    def cost(self) -> float:
        """Sum of g.w."""
        return float(np.sum(self.plays * self.gradients))


Move = Vector | Callable[[Vector], Vector]


def play(optimizer: Mapping[str, Any], moves: Iterable[Move], dimension: int) -> Game:
    """Play rounds, each with a gradient, or a function that makes one from the weights.

    A gradient g is an example with features g and label 1 under the linear loss, whose slope is the label.
    """
    player = Player(optimizer)
    plays, gradients = [], []
    for move in moves:
        w = player.weights(dimension)
        g = np.asarray(move(w) if callable(move) else move, float)
        columns = np.flatnonzero(g)
        rows = SparseExamples(np.array([0, len(columns)]), columns, g[columns])
        player.learn(records(rows, np.ones(1)))
        plays.append(w)
        gradients.append(g)
    return Game(np.array(plays), np.array(gradients))
