"""Where the results of an evaluation go, checked before the work and written after it.

In: a request, trials that have made all their passes. Out: predictions, curves and models as files.
This file must never overwrite what is being read.

Predictions as a file: a line for each example, in the order of the input.

In: blocks, and what each trial predicted. Out: text. This part must never write a prediction that an example's own
label has had a part in: it holds those of the first pass, each made before the example was learned from.

One configuration: `prediction` or `prediction tag`, as Vowpal Wabbit writes them. Several: CSV with a header, `tag`
first, then a column for each configuration. A prediction is what the loss's link makes of the margin, so a probability
for logistic loss; of a Vowpal Wabbit command line it is the margin, as that tool writes it. NaN where the example was
refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.model.losses import prediction
from stream_learner.errors import BadInput, ConfigError
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.measure import check_curve_file, write_curves
from stream_learner.evaluate.models import Trial
from stream_learner.evaluate.request import EvaluationRequest


class PredictionFile:
    """Writes the predictions of trials to an open text file."""

    def __init__(self, file: IO[str], trials: Sequence[Trial]) -> None:
        self._file = file
        self._trials = trials
        self._csv = csv.writer(file, lineterminator="\n")
        if len(trials) > 1:
            self._csv.writerow(["tag", *(trial.name for trial in trials)])

    def write(self, blocks: Sequence[ExampleBlock]) -> None:
        """The predictions of a block that all trials have just taken."""
        places = [_lines(block) for block in blocks]
        if not all(np.array_equal(places[0], other) for other in places[1:]):
            raise BadInput(
                f"{blocks[0].file}: the configurations do not read the same lines of it, so their predictions have "
                "no common lines",
                action="Write predictions of one configuration at a time, or correct the bad lines.",
            )
        columns = [[f"{p:.9g}" for p in _predictions(trial)] for trial in self._trials]
        tags = [tag.decode("utf-8", "replace") for tag in blocks[0].tags] or [""] * len(columns[0])
        if len(columns) > 1:
            self._csv.writerows(zip(tags, *columns, strict=True))
        else:
            lines = (f"{p} {tag}\n" if tag else f"{p}\n" for p, tag in zip(columns[0], tags, strict=True))
            self._file.writelines(lines)


def _lines(block: ExampleBlock) -> NDArray[np.uint64]:
    """The line of each example."""
    return np.concatenate([record.id_hash for record in block.records] or [np.zeros(0, np.uint64)])


def _predictions(trial: Trial) -> list[float]:
    margins: list[float] = trial.margins.tolist()
    code = trial.model.loss.code
    return [prediction(code, margin) for margin in margins] if trial.linked else margins


def check_outputs(request: EvaluationRequest, read: Sequence[str]) -> None:
    """Raise before anything is read where a file that was asked for could not be written, or is one of those to `read`.

    Raises ConfigError for names that cannot be meant, BadInput for places that cannot be written.
    """
    files = {"--predictions": request.predictions, "--curve": request.curve}
    wanted = {option: file for option, file in files.items() if file is not None}
    inputs = [*map(Path, read), *([request.load] if request.load is not None else [])]
    for option, file in wanted.items():
        if any(_same(file, other) for other in inputs):
            raise ConfigError(f"{option} {file} would overwrite what is to be read", action="Name another file.")
        _try_file(file)
    if request.curve is not None:
        check_curve_file(request.curve)
        if request.predictions is not None and request.curve.resolve() == request.predictions.resolve():
            raise ConfigError("--predictions and --curve name the same file", action="Name two files.")
    if request.save is not None:
        with writing(request.save):
            request.save.mkdir(parents=True, exist_ok=True)
        _try_file(request.save / ".written-before")


def _same(file: Path, other: Path) -> bool:
    return file.exists() and other.exists() and file.samefile(other)


def _try_file(file: Path) -> None:
    """Open a file for writing and leave everything as it was. What is there and no plain file is left alone: opening
    a pipe waits for its other end."""
    with writing(file):
        there = file.exists()
        if there and not file.is_file() and not file.is_dir():
            return
        with file.open("ab"):
            pass
        if not there:
            file.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of the system as BadInput that names the path."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}", action="Name a place that can be written."
        ) from None


@contextmanager
def prediction_writer(file: Path | None, trials: Sequence[Trial]) -> Iterator[Callable[[Sequence[ExampleBlock]], None]]:
    """A function that writes the predictions of a block; one that does nothing without a file."""
    if file is None:
        yield lambda blocks: None
        return
    with writing(file), file.open("w", encoding="utf-8", newline="") as stream:
        yield PredictionFile(stream, trials).write


def write_results(request: EvaluationRequest, trials: Sequence[Trial]) -> None:
    """Curves and models, as far as they were asked for. Raises BadInput."""
    if request.save is not None:
        save_models(request.save, trials)
    if request.curve is not None:
        with writing(request.curve):
            write_curves(request.curve, {trial.name: trial.curve() for trial in trials})


def save_models(folder: Path, trials: Sequence[Trial]) -> list[Path]:
    """Write each model: `1-ftrl_proximal.slm` is that of the first configuration. Raises BadInput."""
    files = [folder / f"{number}-{slug(trial.name)}.slm" for number, trial in enumerate(trials, 1)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, trial in zip(files, trials, strict=True):
            trial.model.save(file)
    return files


def slug(name: str) -> str:
    """The beginning of a configuration's name as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name.split()[0] if name.split() else "").strip("-") or "model"
