"""This project as a subject, over `core.model.fold.Learner`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from proofs.conformance.subject import Features, Machine
from proofs.figures.play import Player, SparseExamples, keys_of, records


class OurMachine:
    """A model in the fold; every example is a record of its own."""

    def __init__(self, settings: dict[str, Any], loss: str) -> None:
        self._settings, self._loss = settings, loss
        self._player = Player(settings, loss)

    def margin(self, x: Features) -> float:
        """w.x."""
        keys = keys_of(np.array(list(x), np.int64) - 1)
        weights = self._player.learner.weights(self._player.learner.table.rows_of(keys).columns)
        return float(weights @ np.array(list(x.values())))

    def learn(self, x: Features, y: float, h: float = 1.0) -> None:
        """Learn one example."""
        columns = np.array(list(x), np.int64) - 1
        rows = SparseExamples(np.array([0, len(columns)]), columns, np.array(list(x.values())))
        self._player.learn(records(rows, np.array([y]), np.array([h])))

    def restored(self) -> Machine:
        """A machine made of the content of a checkpoint: all rows, and the scalars."""
        learner, other = self._player.learner, OurMachine(self._settings, self._loss)
        fresh = other._player.learner
        for rows in learner.table.items():
            fresh.table.load(rows)
        fresh.restore(learner.state_scalars())
        return other


class Ours:
    """Every optimizer and loss of the registry."""

    name = "stream-learner"
    tolerance = 1e-9

    def __init__(self) -> None:
        self.version = version("stream-learner")

    def make(self, algorithm: str, loss: str, **hyper: float) -> Machine:
        """A machine; this project offers all that laws need."""
        return OurMachine({"name": algorithm, **hyper}, loss)
