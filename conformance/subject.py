"""What a law asks of a learner, whoever wrote it.

In: nothing. Out: the types that subjects implement and laws use.
This file must never know a law or a subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Features = Mapping[int, float]


class NotOffered(Exception):
    """A subject does not have what a law speaks of; the text says what."""


class Machine(Protocol):
    """One linear model being learned. Features have numbers from 1; binary labels are -1 and 1."""

    def margin(self, x: Features) -> float:
        """w.x with the weights that the next example would be predicted with."""
        ...

    def learn(self, x: Features, y: float, h: float = 1.0) -> None:
        """Learn one example of importance h."""
        ...

    def restored(self) -> Machine:
        """The same machine out of a saved file. Raises NotOffered where there is no such file."""
        ...


class Subject(Protocol):
    """A library. `tolerance`: the relative error that its arithmetic excuses."""

    name: str
    version: str
    tolerance: float

    def make(self, algorithm: str, loss: str, **hyper: float) -> Machine:
        """A fresh machine without an intercept. Raises NotOffered.

        Algorithms and hyper-parameters have the names of `stream_learner.core.model.optimizers`.
        """
        ...
