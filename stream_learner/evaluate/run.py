"""An evaluation from beginning to end.

1. Make the trials: their models, compiled before the clock starts.
2. Open the examples, and try the files to be written.
3. Run the pipeline until no trial wants another pass.
4. Write curves and models, and hand out the figures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from stream_learner.errors import BadInput
from stream_learner.evaluate.models import Trial
from stream_learner.evaluate.outputs import check_outputs, prediction_writer, write_results
from stream_learner.evaluate.pipeline import Pipeline, ReadCounts
from stream_learner.evaluate.plan import EvaluationPlan, make_plan
from stream_learner.evaluate.request import EvaluationRequest
from stream_learner.wording import count_of


class EvaluationStatus(NamedTuple):
    """The progress of an evaluation. Bytes are those of this pass; bytes_total is None if it is not known."""

    passes: int
    examples: int
    skipped: int
    bytes_read: int
    bytes_total: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The outcome of an evaluation: the figures of each configuration, what was read, notes for the user.

    error: to be raised when the figures have been shown: a configuration has learned nothing, or a file could not be
    written in the end.
    """

    figures: list[dict[str, Any]]
    examples: int
    passes: int
    skipped: int
    seconds: float
    notes: list[str]
    error: BadInput | None = None


class Evaluation:
    """Evaluates a request. Raises ConfigError and BadInput, before anything is learned where that can be known."""

    def __init__(self, request: EvaluationRequest) -> None:
        self._request = request

    def run(self, show: Callable[[EvaluationStatus], None], say: Callable[[str], None]) -> EvaluationResult:
        """Run the evaluation. show: called with the progress after every block. say: called with messages."""
        request = self._request
        plan = make_plan(request, say)
        check_outputs(request, plan.files)
        begin_s = time.monotonic()
        for trial in plan.trials:
            trial.start(begin_s)

        def status(counts: ReadCounts) -> None:
            source = plan.source
            bytes_now = source.bytes_read, source.bytes_total
            show(
                EvaluationStatus(counts.passes, counts.examples, counts.skipped, *bytes_now, time.monotonic() - begin_s)
            )

        with prediction_writer(request.predictions, plan.trials) as write:
            pipeline = Pipeline(plan.source, plan.groups, skip_bad=request.skip_bad, on_block=status, on_taken=write)
            pipeline.run()
        seconds = time.monotonic() - begin_s
        return self._result(plan, pipeline.counts, seconds)

    def _result(self, plan: EvaluationPlan, counts: ReadCounts, seconds: float) -> EvaluationResult:
        """Write the files that were asked for, and collect the figures and notes."""
        error = _nothing_learned(plan.trials, counts.examples)
        try:
            write_results(self._request, plan.trials)
        except BadInput as unwritten:
            error = error or unwritten
        figures = [finite(trial.figures()) for trial in plan.trials]
        were = "was" if counts.skipped == 1 else "were"
        notes = [f"{count_of(counts.skipped, 'bad line')} {were} skipped"] if counts.skipped else []
        for trial in plan.trials:
            if trial.refused:
                notes.append(
                    f"{trial.name}: refused, and nothing changed: {count_of(trial.refused, 'example')} with a label "
                    "that the loss does not know, a number that is not finite, or a negative importance"
                )
        return EvaluationResult(figures, counts.examples, counts.passes, counts.skipped, seconds, notes, error)


def _nothing_learned(trials: list[Trial], examples: int) -> BadInput | None:
    """The error for configurations that should learn and have not learned from a single example; None without any."""
    names = [trial.name for trial in trials if trial.learns and not trial.learned]
    if not names:
        return None
    if not examples:
        return BadInput("there was no example, so nothing was learned", action="Look whether the data are complete.")
    refused = any(trial.refused for trial in trials if trial.name in names)
    why = "all with a label were refused" if refused else "none that was not held out has a label"
    return BadInput(
        f"nothing was learned by {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}: of "
        f"{count_of(examples, 'example')} {why}",
        action="Give the loss labels that it knows, as docs/evaluate.md lists them; --test only predicts.",
    )


def finite(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures, with None for each that is not finite: JSON has no word for infinity or NaN."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in figures.items()}
