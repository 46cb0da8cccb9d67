"""The files an evaluation writes, tried before the work and written after it: predictions, curves, models.

No file that is read may be overwritten: `check_outputs` refuses that before anything is read.

Predictions are those of the first pass, each made before its example was learned from; a line for each example, in the
order of the input. With one configuration a line is `prediction` or `prediction tag`, as Vowpal Wabbit writes them.
With several it is CSV with a header, `tag` first, then a column for each configuration. A prediction is the margin
behind the loss's link, so a probability for logistic loss; for a Vowpal Wabbit command line it is the margin, as that
tool writes it. It is NaN if the example was refused.
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
        """Write the predictions of a block that all trials have just taken."""
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
    """The number of the line of each example."""
    return np.concatenate([record.id_hash for record in block.records] or [np.zeros(0, np.uint64)])


def _predictions(trial: Trial) -> list[float]:
    margins: list[float] = trial.margins.tolist()
    code = trial.model.loss.code
    return [prediction(code, margin) for margin in margins] if trial.linked else margins


def check_outputs(request: EvaluationRequest, read: Sequence[str]) -> None:
    """Check, before anything is read, that every file asked for can be written, and is none of those in `read`.

    Raises ConfigError for names that cannot be meant, BadInput for files that cannot be written.
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
    """Try to open a file for writing, and leave everything as it was.

    A pipe or device is not tried: opening a pipe waits for its other end.
    """
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
    """Turn errors of the system into BadInput with the path."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}", action="Name a place that can be written."
        ) from None


@contextmanager
def prediction_writer(file: Path | None, trials: Sequence[Trial]) -> Iterator[Callable[[Sequence[ExampleBlock]], None]]:
    """A function that writes the predictions of a block; without a file it does nothing."""
    if file is None:
        yield lambda blocks: None
        return
    with writing(file), file.open("w", encoding="utf-8", newline="") as stream:
        yield PredictionFile(stream, trials).write


def write_results(request: EvaluationRequest, trials: Sequence[Trial]) -> None:
    """Write the curves and models that were asked for. Raises BadInput."""
    if request.save is not None:
        save_models(request.save, trials)
    if request.curve is not None:
        with writing(request.curve):
            write_curves(request.curve, {trial.name: trial.curve() for trial in trials})


def save_models(folder: Path, trials: Sequence[Trial]) -> list[Path]:
    """Write each model: the first configuration's as `1-ftrl_proximal.slm`, and so on. Raises BadInput."""
    files = [folder / f"{number}-{slug(trial.name)}.slm" for number, trial in enumerate(trials, 1)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, trial in zip(files, trials, strict=True):
            trial.model.save(file)
    return files


def slug(name: str) -> str:
    """The first word of a configuration's name, fit for the name of a file."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name.split()[0] if name.split() else "").strip("-") or "model"
