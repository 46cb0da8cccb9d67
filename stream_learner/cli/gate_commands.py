"""`stream-learner gate status | accept | skip | policy`: what a learner holds, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, Who, load_for_command, who_of
from stream_learner.cli.output import print_fields, print_json, print_table
from stream_learner.config.values import parse_start

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.core.gate.decisions import What

DIGITS = 18

gate_app = typer.Typer(
    help="Show what the learner holds because it is out of bounds, and decide about it.", no_args_is_help=True
)

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept with the decision.")]
FromTick = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TICK|TIME",
        help="The first tick, or a moment in it, with its zone; the one that is held if left out.",
    ),
]
TO_TIME = "or a moment with its zone: ticks that begin then or later are not meant"


@gate_app.command("status")
def status(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show whether the learner holds: which bound, by how much, since which tick; and the decisions on its log."""
    from stream_learner.operations import gate

    fields = gate.status(load_for_command(config, overrides))
    if as_json:
        print_json(fields)
        return
    decisions = fields.pop("decisions")
    print_fields({name: value for name, value in fields.items() if value is not None})
    print_table(decisions, title="decisions")


@gate_app.command("accept")
def accept(
    reason: Reason,
    config: ConfigFile = None,
    overrides: Overrides = None,
    first: FromTick = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="TICK|TIME", help=f"The last tick, {TO_TIME}; that of --from if left out."),
    ] = None,
    publication: Annotated[
        bool, typer.Option("--publication", help="Accept what is held before its publication (`snapshots.gate`).")
    ] = False,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Let the learner learn from ticks that are out of bounds: it goes on, and what it holds them against begins anew.

    The decision is taken by every model of the log, and in every replay of it. With --publication nothing is decided
    about ticks: the model that is held before its publication is published.
    """
    if publication:
        from stream_learner.operations import gate

        if first is not None or last is not None:
            raise typer.BadParameter("--publication is about no ticks: leave --from and --to out")
        fields = gate.accept_publication(load_for_command(config, overrides), reason, who_of(who))
        print_fields(fields, as_json=as_json)
        return
    _decide("accept", config, overrides, first, last, reason, who, as_json)


@gate_app.command("skip")
def skip(
    last: Annotated[str, typer.Option("--to", metavar="TICK|TIME", help=f"The last tick, {TO_TIME}.")],
    reason: Reason,
    config: ConfigFile = None,
    overrides: Overrides = None,
    first: FromTick = None,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Let the learner leave out the examples of some ticks, and go on behind them.

    The decision is taken by every model of the log, and in every replay of it. Ticks that are published already are
    refused.
    """
    _decide("skip", config, overrides, first, last, reason, who, as_json)


@gate_app.command("policy")
def policy(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show what the configuration says: `learner.gate`, and the bounds of the section `gate`."""
    from stream_learner.operations import gate

    print_fields(gate.policy(load_for_command(config, overrides)), as_json=as_json)


def _decide(
    what: What,
    file: ConfigFile,
    overrides: Overrides,
    first: str | None,
    last: str | None,
    reason: str,
    who: str | None,
    as_json: bool,
) -> None:
    from stream_learner.operations import gate

    config = load_for_command(file, overrides)
    ticks = _tick(config, "--from", first), _tick(config, "--to", last)
    print_fields(gate.decide(config, gate.DecisionRequest(what, *ticks, reason, who_of(who))), as_json=as_json)


def _tick(config: Config, option: str, text: str | None) -> int | None:
    """The tick that an option names by its number or by a moment. Raises typer.BadParameter."""
    if text is None or (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        return None if text is None else int(text)
    try:
        moment = parse_start(text)
    except ValueError:
        moment = ""
    if isinstance(moment, str) or moment < 0:
        raise typer.BadParameter(
            f'{option}: {text!r} is no tick, and no moment with its zone as "2026-11-01T09:00:00Z"'
        )
    tick_ms = config.join.tick_ms
    return moment // tick_ms if option == "--from" else -(-moment // tick_ms) - 1
