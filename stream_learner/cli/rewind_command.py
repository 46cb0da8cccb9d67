"""`stream-learner rewind`: takes a stopped learner's state back to a checkpoint that it has kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, Who, load_for_command, who_of
from stream_learner.cli.output import print_fields, print_table
from stream_learner.config.values import parse_start

if TYPE_CHECKING:
    from stream_learner.config import Config


def rewind(
    config: ConfigFile = None,
    overrides: Overrides = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TICK|TIME",
            help="The last tick to keep, or a moment with its zone; the newest kept checkpoint not after it is taken.",
        ),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the kept checkpoints, and change nothing.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Take a stopped learner's state back to a kept checkpoint: to before what the model should not have learned.

    The checkpoints are those that `learner.history` asks for. Stop the learner, take its state back to before the span
    that should not have been learned, say with `stream-learner gate skip` that it is to be left out, and start the
    learner: it learns from there on, as the log and the decisions say. Scorers keep the version they have until the
    learner has passed it; the next one tells them every row anew. Where a second learner stands by, take its state back
    with the same command: until then it ends with exit code 44, and does not lead. For example:

    stream-learner rewind --to 2026-11-01T09:00:00Z --reason "dead clicks since 09:05" -c model.yaml

    Nothing is changed where the state is in use (exit code 41), where nothing early enough is kept (55), or where the
    training log no longer holds what follows the checkpoint (27).
    """
    loaded = load_for_command(config, overrides)
    from stream_learner.operations.rewind import RewindRequest, list_kept
    from stream_learner.operations.rewind import rewind as run

    if list_only:
        print_table(list_kept(loaded), title=f"kept checkpoints of {loaded.model}", as_json=as_json)
        return
    if to is None or not reason:
        raise typer.BadParameter("--to and --reason are needed, or --list")
    print_fields(run(loaded, RewindRequest(_tick(loaded, to), who_of(who), reason)), as_json=as_json)


def _tick(config: Config, text: str) -> int:
    """The last tick to keep. Raises typer.BadParameter."""
    from stream_learner.operations.rewind import tick_before

    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = parse_start(text)
    except ValueError:
        moment = ""
    if isinstance(moment, str):
        raise typer.BadParameter(f'--to: {text!r} is no tick, and no moment with its zone as "2026-11-01T09:00:00Z"')
    return tick_before(config, moment)
