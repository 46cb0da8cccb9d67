"""Predictions as a file: a line for each example, in the order of the input.

In: portions, and what each trial predicted. Out: text. This file must never write a prediction that an example's own
label has had a part in: it holds those of the first pass, each made before the example was learned from.

One configuration: `prediction` or `prediction tag`, as Vowpal Wabbit writes them. Several: CSV with a header, `tag`
first, then a column for each configuration. A prediction is what the loss's link makes of the margin, so a probability
for logistic loss; of a Vowpal Wabbit command line it is the margin, as that tool writes it. NaN where the example was
refused.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import IO

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.losses import prediction
from stream_learner.errors import BadInput
from stream_learner.roles.evaluation.portions import Portion
from stream_learner.roles.evaluation.trial import Trial


class PredictionFile:
    """Writes the predictions of trials to an open text file."""

    def __init__(self, file: IO[str], trials: Sequence[Trial]) -> None:
        self._file = file
        self._trials = trials
        self._csv = csv.writer(file, lineterminator="\n")
        if len(trials) > 1:
            self._csv.writerow(["tag", *(trial.name for trial in trials)])

    def write(self, portions: Sequence[Portion]) -> None:
        """The predictions of a block that all trials have just taken."""
        places = [_lines(portion) for portion in portions]
        if not all(np.array_equal(places[0], other) for other in places[1:]):
            raise BadInput(
                f"{portions[0].file}: the configurations do not read the same lines of it, so their predictions have "
                "no common lines",
                action="Write predictions of one configuration at a time, or correct the bad lines.",
            )
        columns = [[f"{p:.9g}" for p in _predictions(trial)] for trial in self._trials]
        tags = [tag.decode("utf-8", "replace") for tag in portions[0].tags] or [""] * len(columns[0])
        if len(columns) > 1:
            self._csv.writerows(zip(tags, *columns, strict=True))
        else:
            lines = (f"{p} {tag}\n" if tag else f"{p}\n" for p, tag in zip(columns[0], tags, strict=True))
            self._file.writelines(lines)


def _lines(portion: Portion) -> NDArray[np.uint64]:
    """The line of each example."""
    return np.concatenate([record.id_hash for record in portion.records] or [np.zeros(0, np.uint64)])


def _predictions(trial: Trial) -> list[float]:
    margins: list[float] = trial.margins.tolist()
    code = trial.model.loss.code
    return [prediction(code, margin) for margin in margins] if trial.linked else margins
