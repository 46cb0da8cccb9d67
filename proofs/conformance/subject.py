"""The interface that laws use and subjects implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Features = Mapping[int, float]


class NotOffered(Exception):
    """A subject does not offer what a law needs; the message says what."""


class Machine(Protocol):
    """One linear model being learned. Features have numbers from 1; binary labels are -1 and 1."""

    def margin(self, x: Features) -> float:
        """w.x with the weights that would predict the next example."""
        ...

    def learn(self, x: Features, y: float, h: float = 1.0) -> None:
        """Learn one example of importance h."""
        ...

    def restored(self) -> Machine:
        """The machine as read from its saved file. Raises NotOffered if the library has no such files."""
        ...


class Subject(Protocol):
    """A library. tolerance: the relative error that its arithmetic may cause."""

    name: str
    version: str
    tolerance: float

    def make(self, algorithm: str, loss: str, **hyper: float) -> Machine:
        """A fresh machine without an intercept. Raises NotOffered.

        Algorithms and hyper-parameters have the names of `stream_learner.core.model.optimizers`.
        """
        ...
