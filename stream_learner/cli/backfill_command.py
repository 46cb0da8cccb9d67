"""`stream-learner backfill`: trains another model from the topics, from a moment on."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load, load_for_role, start_logging
from stream_learner.cli.output import print_json
from stream_learner.config.values import parse_start

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.operations.backfill.plan import BackfillPlan, Span

_BETWEEN_SETTINGS = re.compile(r",(?=[a-z]\w*(?:\.[\w.]+)?=)")


def backfill(
    name: Annotated[str, typer.Option("--as", metavar="MODEL", help="Name of the new model.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="First impressions: a moment with its zone, 2026-11-01T00:00Z, or earliest."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="End before the impressions of this moment. Without it: stay live."
        ),
    ] = None,
    joiners: Annotated[int, typer.Option(min=1, max=256, help="Processes that join, at most one per partition.")] = 1,
    max_rate: Annotated[
        int | None, typer.Option(min=1, help="Most impressions a second that each joiner reads; join.max_rate.")
    ] = None,
    from_log: Annotated[
        str | None,
        typer.Option("--from-log", metavar="MODEL", help="Fold this model's training log instead of joining again."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="MODEL:SETTING=VALUE,…",
            help="One more model, learned in the same pass with these settings; repeatable.",
        ),
    ] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Train another model from the topics, from a moment on, at full speed, and publish it under its own name.

    It reads the inputs of the configured model and shares nothing else with it: it has topics, a group and a state
    directory of its own, which it makes. --from and --until are about impressions, by their log time: those of
    [from, until) are learned, each one's window waited for. With --until it ends by itself and prints the balance, the
    digest and the metrics; without, it catches up and stays live until a signal.

    A signal, or a crash, ends it with everything kept: the same command goes on where it was, to the same digest.

    --from-log folds a log that is there, from its beginning: other --set learner.… settings, and with --until fewer
    features. For example:

    stream-learner backfill -c model.yaml --as ctr-v2 --from 2026-11-01T00:00Z --until 2026-11-02T00:00Z
    """
    live = load_for_role(config, overrides)
    from stream_learner.operations.backfill.plan import make_plan

    span = _span(start, until, from_log)
    if from_log is not None and (joiners > 1 or max_rate is not None):
        raise typer.BadParameter("--joiners and --max-rate are for joining; --from-log does not join")
    variants = _variants(variant or (), config, overrides)
    plan = make_plan(live, name, span, joiners=joiners, max_rate=max_rate, from_log=from_log, variants=variants)
    start_logging(plan.main, is_role=True)
    code = _run(plan, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _run(plan: BackfillPlan, *, as_json: bool) -> int:
    """Run a plan. Returns the exit code: 0, or 128 + the signal that ended it."""
    from stream_learner.adapters.telemetry.logs import get_logger
    from stream_learner.cli.backfill_view import showing
    from stream_learner.operations.backfill.plan import describe
    from stream_learner.operations.backfill.result import as_object, as_text
    from stream_learner.operations.backfill.run import Backfill
    from stream_learner.roles.common.lifecycle import Stopping

    stopping = Stopping().listen(plan.main.shutdown_timeout_ms / 1000)
    with Backfill(plan) as work, showing(describe(plan)) as show:
        result = work.run(stopping, show)
    if result is None:
        note = "everything is kept; the same command goes on from here"
        if sys.stderr.isatty():
            typer.echo(f"stopped: {note}", err=True)
        else:
            get_logger("backfill").info("backfill_stopped", note=note)
        return 128 + (stopping.signal or 0)
    if as_json:
        print_json(as_object(result))
    else:
        typer.echo(as_text(result))
    return 0


def _span(start: str | None, until: str | None, from_log: str | None) -> Span:
    from stream_learner.operations.backfill.plan import EARLIEST, Span

    if from_log is not None and start not in (None, EARLIEST):
        raise typer.BadParameter(
            "--from-log begins where that log begins: leave --from out. To begin later, join again from --from"
        )
    if from_log is None and start is None:
        raise typer.BadParameter("--from is missing: a moment such as 2026-11-01T00:00Z, or earliest")
    begin = _moment("--from", start or EARLIEST)
    if begin == "latest":
        raise typer.BadParameter(
            "--from latest has nothing to train on; run a new model with join.start=latest instead"
        )
    end = None if until is None else _moment("--until", until)
    if isinstance(end, str):
        raise typer.BadParameter("--until takes a moment, such as 2026-11-02T00:00Z")
    if isinstance(begin, int) and begin > time.time() * 1000:
        raise typer.BadParameter("--from lies in the future")
    if end is not None and isinstance(begin, int) and end <= begin:
        raise typer.BadParameter("--until must be later than --from")
    return Span(begin, end)


def _moment(option: str, text: str) -> str | int:
    try:
        return parse_start(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def _variants(given: Sequence[str], file: Path | None, overrides: Sequence[str] | None) -> dict[str, Config]:
    """By name, the configuration of each variant: the common one with the variant's own settings."""
    found: dict[str, Config] = {}
    for text in given:
        name, colon, settings = text.partition(":")
        if not colon or not name or not settings:
            raise typer.BadParameter("--variant takes MODEL:SETTING=VALUE, such as ctr-a:learner.optimizer.alpha=0.05")
        if name in found:
            raise typer.BadParameter(f"--variant {name} is given twice")
        found[name] = load(file, [*(overrides or ()), *_BETWEEN_SETTINGS.split(settings)])
    return found
