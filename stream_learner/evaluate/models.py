"""What is evaluated, behind one small interface.

In: records of examples. Out: the margin each was predicted with before it was learned from. `LearnerModel` is the
learner of production: the same optimizers, the same fold, the same table of weights.
This file must never measure anything, or decide which examples are learned from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import Loss
from stream_learner.evaluate.portions import Portion

ONE_TICK = 0
"""Files have no ticks: everything is folded as part of this one."""


class Model(Protocol):
    """One model on its way through the examples. Used by one thread at a time."""

    loss: Loss
    """What it learns by; measured is the same loss."""

    def fold(self, portion: Portion, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict each example of a portion, then learn from it if `learned` says so, one after the other.

        Returns the margins f64[n], each as it was before the example was learned from; NaN for an example that was to
        be learned from and was refused: it changed nothing.
        """
        ...

    def end_pass(self) -> None:
        """All examples were seen once more."""
        ...

    def nonzero(self) -> int:
        """Weights that are not 0."""
        ...

    def save(self, file: Path) -> None:
        """Write all state, to be taken up by `load` to the same bits."""
        ...


class LearnerModel:
    """The learner, fed from files."""

    def __init__(self, learner: Learner, key_rule: int = NEWEST_RULE) -> None:
        """key_rule: of the keys it learns from, for whoever loads it."""
        self.learner = learner
        self.key_rule = key_rule
        self.loss = learner.loss

    def fold(self, portion: Portion, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
        """See `Model.fold`."""
        margins = np.empty(len(portion))
        start = 0
        for record in portion.records:
            end = start + len(record)
            margins[start:end] = self.learner.fold(record, ONE_TICK, learned=learned[start:end])
            start = end
        return margins

    def end_pass(self) -> None:
        """See `Model.end_pass`."""
        self.learner.end_pass()

    def nonzero(self) -> int:
        """See `Model.nonzero`; by a scan where weights move without being touched."""
        return self.learner.count_nonzero()

    def save(self, file: Path) -> None:
        """See `Model.save` and `model_file`."""
        from stream_learner.evaluate.model_file import save_learner

        save_learner(self.learner, file, self.key_rule)
