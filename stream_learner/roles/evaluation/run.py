"""An evaluation from beginning to end.

In: a request. Out: a row of figures for each configuration; curves, predictions and models as files.
This file must never print, or decide how a block is read or an example is learned from.

1. Make the trials: their models, compiled before the clock starts.
2. Open what they are evaluated on.
3. Run the pipeline until no trial wants another pass.
4. Write curves and models, and hand out the rows.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stream_learner.errors import BadInput
from stream_learner.roles.evaluation.curves import check_curve_file, write_curves
from stream_learner.roles.evaluation.feeds import Plan, make_plan
from stream_learner.roles.evaluation.pipeline import Counts, Pipeline
from stream_learner.roles.evaluation.portions import Portion
from stream_learner.roles.evaluation.predictions import PredictionFile
from stream_learner.roles.evaluation.request import Request
from stream_learner.roles.evaluation.trial import Trial


class Moment(NamedTuple):
    """How far an evaluation is. Bytes are those of this pass; bytes_total is None where nobody knows."""

    passes: int
    examples: int
    skipped: int
    bytes_read: int
    bytes_total: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """What an evaluation found: a row for each configuration, what was read, what should be known besides."""

    rows: list[dict[str, Any]]
    examples: int
    passes: int
    skipped: int
    seconds: float
    notes: list[str]


class Evaluation:
    """Evaluates a request. Raises ConfigError and BadInput, before anything is learned where that can be known."""

    def __init__(self, request: Request) -> None:
        if request.curve is not None:
            check_curve_file(request.curve)
        self._request = request

    def run(self, show: Callable[[Moment], None], say: Callable[[str], None]) -> Result:
        """Do it. `show` is told how far it is, after every block; `say` gets a message where something takes time."""
        request = self._request
        plan = make_plan(request, say)
        begin_s = time.monotonic()
        for trial in plan.trials:
            trial.start(begin_s)

        def moment(counts: Counts) -> None:
            source = plan.source
            bytes_now = source.bytes_read, source.bytes_total
            show(Moment(counts.passes, counts.examples, counts.skipped, *bytes_now, time.monotonic() - begin_s))

        with _predictions(request.predictions, plan.trials) as write:
            pipeline = Pipeline(plan.source, plan.feeds, skip_bad=request.skip_bad, on_block=moment, on_taken=write)
            pipeline.run()
        seconds = time.monotonic() - begin_s
        return self._result(plan, pipeline.counts, seconds)

    def _result(self, plan: Plan, counts: Counts, seconds: float) -> Result:
        """Write what was asked for, and sum up."""
        request = self._request
        if request.curve is not None:
            write_curves(request.curve, {trial.name: trial.curve() for trial in plan.trials})
        if request.save is not None:
            save_models(request.save, plan.trials)
        rows = [finite(trial.row()) for trial in plan.trials]
        one = counts.skipped == 1
        notes = [f"{counts.skipped:,} bad {'line was' if one else 'lines were'} skipped"] if counts.skipped else []
        for trial in plan.trials:
            if trial.refused:
                notes.append(
                    f"{trial.name}: {trial.refused:,} examples were refused and changed nothing: a label that the loss "
                    "does not know, a number that is not finite, or a negative importance"
                )
        return Result(rows, counts.examples, counts.passes, counts.skipped, seconds, notes)


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row in which what is not finite is None: JSON has no word for it."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def save_models(folder: Path, trials: Sequence[Trial]) -> list[Path]:
    """Write each model: `1-ftrl_proximal.slm` is that of the first configuration. Raises BadInput."""
    files = [folder / f"{number}-{slug(trial.name)}.slm" for number, trial in enumerate(trials, 1)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, trial in zip(files, trials, strict=True):
            trial.model.save(file)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return files


def slug(name: str) -> str:
    """The beginning of a configuration's name as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name.split()[0] if name.split() else "").strip("-") or "model"


@contextmanager
def _predictions(file: Path | None, trials: Sequence[Trial]) -> Iterator[Callable[[Sequence[Portion]], None]]:
    """A function that writes the predictions of a block; one that does nothing without a file."""
    if file is None:
        yield lambda portions: None
        return
    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            yield PredictionFile(stream, trials).write
    except OSError as error:
        raise _unwritable(file, error) from None


def _unwritable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path} cannot be written: {error.strerror or error}", action="Name a place that can be written.")
