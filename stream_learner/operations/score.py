"""`score`: predictions for lines of JSON.

Each line gets a line of JSON, in order, with the version that made the prediction, and the model if an alias is
followed. For a line that is no event it says why, and scoring goes on. At the end it says of how many events no feature
was known. Memory holds one batch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

import orjson

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.config import Config
from stream_learner.core.events.reasons import Reason
from stream_learner.core.events.reference import words_of
from stream_learner.errors import ConfigError, NotReady
from stream_learner.roles.common import startup
from stream_learner.roles.common.compile import load_kernels
from stream_learner.roles.scorer.scorer import Predictions, Scorer

READ_BYTES = 1 << 20
SAY_S = 3.0
SOME = 200
"""So many events are looked at for fields that the model does not know."""
UNKNOWN = (
    "No feature of these events has a weight, so their predictions are those of the bias alone. Compare the names of "
    "their fields with those of `stream-learner inspect fields`."
)


def score(config: Config, events: Path | None, output: Path | None, batch: int) -> None:
    """Predict every line of `events` (None: stdin) into `output` (None: stdout), up to `batch` lines at once.

    Raises NotReady as `_wait` does, ConfigError for files that cannot be opened.
    """
    with ExitStack() as stack:
        source: IO[bytes] = _opened(stack, events, "rb") if events else sys.stdin.buffer
        target: IO[bytes] = _opened(stack, output, "wb") if output else sys.stdout.buffer
        startup.imported()
        load_kernels(["scorer"])
        scorer = stack.enter_context(scorer_of(config))
        _wait(scorer, config)
        startup.over()
        scored, unknown, with_model = 0, 0, config.scorer.alias is not None
        left = SOME
        for lines in _batches(source, batch):
            predictions = scorer.predict_many(lines)
            is_scored = predictions.status == 0
            scored += int(is_scored.sum())
            unknown += int((is_scored & (predictions.known_features == 0)).sum())
            why_bad = partial(_why_bad, scorer, lines, predictions)
            target.writelines(_answers(predictions, why_bad, with_model=with_model))
            target.flush()
            if left > 0:
                scorer.tell_of(lines[:left])
                left -= len(lines)
    if unknown:
        get_logger("score").warning("events_without_known_feature", events=unknown, scored=scored, action=UNKNOWN)


def _wait(scorer: Scorer, config: Config) -> None:
    """Wait for the first version, and say soon why there is none. Raises as `Scorer.wait_ready` does; soon where the
    learner says that it publishes none, unless `scorer.ready_timeout` is set.
    """
    timeout_s = config.scorer.ready_timeout_ms / 1000
    try:
        scorer.wait_ready(min(SAY_S, timeout_s))
    except NotReady:
        is_set = "ready_timeout_ms" in config.scorer.model_fields_set
        if timeout_s <= SAY_S or (scorer.is_held and not is_set):
            raise
        waits = {"waits_seconds": round(timeout_s - SAY_S)}
        get_logger("score").warning("no_version_yet", reason=scorer.why_not_ready, **waits)
        scorer.wait_ready(timeout_s - SAY_S)


def scorer_of(config: Config) -> Scorer:
    """The scorer of the alias that a configuration names, else of its model; not started."""
    alias = config.scorer.alias
    return Scorer(
        model="" if alias else config.model,
        alias=alias or "",
        kafka=config.kafka_options(),
        topic=None if alias else config.snapshots_topic,
        control_topic=config.control_topic,
        stale_after_ms=config.scorer.stale_after_ms,
        refuse_after_ms=config.scorer.refuse_after_ms,
    )


def _opened(stack: ExitStack, path: Path, mode: str) -> IO[bytes]:
    try:
        return stack.enter_context(path.open(mode))
    except OSError as error:
        raise ConfigError(
            f"cannot open {path}: {error.strerror}", action="Give a file that exists and may be used."
        ) from error


def _batches(source: IO[bytes], batch: int) -> Iterator[list[bytes]]:
    """Yield whole lines as they come, at most `batch` at once. It does not wait for a pipe to fill a batch."""
    rest = b""
    while chunk := source.read1(READ_BYTES):  # type: ignore[attr-defined]
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for start in range(0, len(lines), batch):
            yield lines[start : start + batch]
    if rest:
        yield [rest]


def _why_bad(scorer: Scorer, lines: Sequence[bytes], predictions: Predictions, index: int) -> str:
    """Why an event cannot be scored. In which field a time cannot be read the scorer is asked, which costs as much as
    hundreds of predictions.
    """
    reason = Reason(int(predictions.status[index]))
    if reason is Reason.NOT_A_TIME:
        return scorer.predict_many([lines[index]]).why_bad
    return words_of(lines[index], reason)


def _answers(predictions: Predictions, why_bad: Callable[[int], str], *, with_model: bool = False) -> Iterator[bytes]:
    """A line for each prediction. why_bad: why the event of an index cannot be scored. with_model: whether to name the
    model.

    A prediction that is not finite (e^p of a large sum, or values of 1e308) is null: JSON cannot write it.
    """
    made_by = b'"version":%d' % predictions.version
    if with_model:
        made_by += b',"model":"%s"' % predictions.model.encode()
    found = zip(predictions.p_click.tolist(), predictions.status.tolist(), strict=True)
    for index, (p_click, status) in enumerate(found):
        if status:
            yield orjson.dumps({"error": why_bad(index)}) + b"\n"
        else:
            shown = repr(p_click) if math.isfinite(p_click) else "null"
            yield b'{"p":%s,%s}\n' % (shown.encode(), made_by)
