"""Where the results of an evaluation go, checked before the work and written after it.

In: a request, trials that have made all their passes. Out: predictions, curves and models as files.
This file must never overwrite what is being read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stream_learner.errors import BadInput, ConfigError
from stream_learner.roles.evaluation.curves import check_curve_file, write_curves
from stream_learner.roles.evaluation.portions import Portion
from stream_learner.roles.evaluation.predictions import PredictionFile
from stream_learner.roles.evaluation.request import Request
from stream_learner.roles.evaluation.trial import Trial


def check_outputs(request: Request, read: Sequence[str]) -> None:
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
def prediction_writer(file: Path | None, trials: Sequence[Trial]) -> Iterator[Callable[[Sequence[Portion]], None]]:
    """A function that writes the predictions of a block; one that does nothing without a file."""
    if file is None:
        yield lambda portions: None
        return
    with writing(file), file.open("w", encoding="utf-8", newline="") as stream:
        yield PredictionFile(stream, trials).write


def write_results(request: Request, trials: Sequence[Trial]) -> None:
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
