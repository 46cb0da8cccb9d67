"""`stream-learner promote | rollback | alias … | pause | resume | pin | unpin`: aliases, and what scorers serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, Who, load_for_command, seconds, who_of
from stream_learner.cli.output import print_fields, print_json, print_table
from stream_learner.config import Config
from stream_learner.errors import ConfigError

if TYPE_CHECKING:
    from stream_learner.operations.promote.checks import Outcome

alias_app = typer.Typer(help="List, show and delete aliases; `promote` points one at a model.", no_args_is_help=True)

AliasOption = Annotated[
    str | None, typer.Option("--alias", metavar="NAME", help="The alias; scorer.alias if left out.", show_default=False)
]
AliasName = Annotated[str, typer.Argument(metavar="NAME", help="The alias.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="An alias, or a model.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for the record.")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="The model; `model` of the configuration if not given."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check, and write nothing.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    for command in (promote, rollback, pause, resume, pin, unpin):
        app.command()(command)
    app.add_typer(alias_app, name="alias")


def promote(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model that the alias is to point at.")],
    config: ConfigFile = None,
    overrides: Overrides = None,
    alias: AliasOption = None,
    force: Annotated[bool, typer.Option("--force", help="Point it there whatever the checks say.")] = False,
    note: Note = "",
    who: Who = None,
    max_lag: Annotated[
        float,
        typer.Option(
            parser=seconds,
            show_default="10m",
            metavar="TIME",
            help="How far its version may lie behind the clock, or behind the version of the model it replaces.",
        ),
    ] = 600.0,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="How much larger its log-loss may be than the other's, as a share.")
    ] = 0.01,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Point an alias at a model, once it is checked: scorers that follow the alias load it and change without a gap.

    Checked: a replica becomes complete, its version is fresh, its publication is not paused, the alias is not pinned,
    and its log-loss on traffic that both have predicted is no larger than that of the model it replaces. Where a check
    fails nothing is written, and the exit code is 56.
    """
    from stream_learner.operations.promote.checks import PromotionRequest
    from stream_learner.operations.promote.run import promote as promoted

    loaded = load_for_command(config, overrides)
    request = PromotionRequest(
        _alias_of(loaded, alias), _model_name(model), who_of(who), forced=force, note=note, dry_run=dry_run
    )
    _show(promoted(loaded, request, max_lag_ms=round(max_lag * 1000), tolerance=tolerance), as_json)


def rollback(
    config: ConfigFile = None,
    overrides: Overrides = None,
    alias: AliasOption = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="MODEL", help="The model to go back to; the one before if left out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Go back even to a model that is not complete.")] = False,
    note: Note = "",
    who: Who = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Point an alias back at the model before; again, at the one before that.

    Checked is only that a replica of it becomes complete.
    """
    from stream_learner.operations.promote.checks import PromotionRequest
    from stream_learner.operations.promote.run import rollback as rolled_back

    loaded = load_for_command(config, overrides)
    model = _model_name(to) if to is not None else ""
    request = PromotionRequest(_alias_of(loaded, alias), model, who_of(who), forced=force, note=note, dry_run=dry_run)
    _show(rolled_back(loaded, request), as_json)


@alias_app.command("list")
def list_aliases(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """List the aliases: the model that each points at, since when, by whom, whether forced, and what is pinned."""
    from stream_learner.operations.promote import aliases

    print_table(aliases.list_aliases(load_for_command(config, overrides)), title="aliases", as_json=as_json)


@alias_app.command("show")
def show(name: AliasName, config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show one alias and its last 20 changes, newest first: who, when, from, to."""
    from stream_learner.operations.promote import aliases

    fields = aliases.show_alias(load_for_command(config, overrides), name)
    if as_json:
        print_json(fields)
        return
    history = fields.pop("history")
    print_fields(fields)
    print_table(history, title="history")


@alias_app.command("delete")
def delete(
    name: AliasName,
    config: ConfigFile = None,
    overrides: Overrides = None,
    note: Note = "",
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Let an alias point at nothing: scorers that run keep the model they have, one that starts is not ready."""
    from stream_learner.operations.promote import aliases

    print_fields(aliases.delete_alias(load_for_command(config, overrides), name, who_of(who), note), as_json=as_json)


def pause(
    config: ConfigFile = None,
    overrides: Overrides = None,
    model: Model = None,
    note: Note = "",
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Pause the publication of a model: its learner goes on learning, and publishes nothing until `resume`.

    Scorers keep the last version, and stay ready however old it gets.
    """
    _pause(config, overrides, model, True, who_of(who), note, as_json)


def resume(
    config: ConfigFile = None,
    overrides: Overrides = None,
    model: Model = None,
    note: Note = "",
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Resume the publication of a model that was paused: the next version has all that was learned since."""
    _pause(config, overrides, model, False, who_of(who), note, as_json)


def pin(
    name: Name,
    config: ConfigFile = None,
    overrides: Overrides = None,
    version: Annotated[
        int | None,
        typer.Option("--version", min=0, metavar="TICK", help="The last version to serve; the one served if left out."),
    ] = None,
    note: Note = "",
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Pin the scorers that follow an alias or a model to a version: they serve no later one, and change no model.

    They go on reading, so that `unpin` brings them to the last version at once. The topic keeps only the last version:
    a scorer that starts when it is past the pinned one is not ready.
    """
    from stream_learner.operations.promote import aliases

    fields = aliases.set_pin(load_for_command(config, overrides), _model_name(name), version, who_of(who), note)
    print_fields(fields, as_json=as_json)


def unpin(
    name: Name,
    config: ConfigFile = None,
    overrides: Overrides = None,
    note: Note = "",
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Unpin the scorers that follow an alias or a model: they serve the last version, and change models again."""
    from stream_learner.operations.promote import aliases

    print_fields(aliases.remove_pin(load_for_command(config, overrides), name, who_of(who), note), as_json=as_json)


def _pause(
    file: ConfigFile, overrides: Overrides, model: str | None, paused: bool, who: str, note: str, as_json: bool
) -> None:
    from stream_learner.operations.promote import aliases

    loaded = load_for_command(file, overrides)
    name = _model_name(model) if model is not None else loaded.model
    print_fields(aliases.set_paused(loaded, name, paused, who, note), as_json=as_json)


def _show(outcome: Outcome, as_json: bool) -> None:
    """Print the checks and the outcome. Raises PromotionRefused if the promotion was refused."""
    from stream_learner.operations.promote.run import refusal

    request = outcome.request
    fields = {
        "alias": request.alias,
        "from": outcome.before,
        "to": request.model,
        "done": outcome.done,
        "forced": request.forced,
        "who": request.who,
    }
    checks = [{"check": c.name, "result": c.result, "detail": c.detail} for c in outcome.checks]
    if as_json:
        print_json({**fields, "checks": checks, "notes": outcome.notes})
    else:
        print_table(checks, title=f"{request.what} {request.model}")
        print_fields(fields)
        for line in outcome.notes:
            typer.echo(f"note: {line}")
    error = refusal(outcome)
    if error is not None:
        raise error


def _alias_of(config: Config, given: str | None) -> str:
    name = given or config.scorer.alias
    if not name:
        raise ConfigError("no alias was named", action="Give --alias, or set scorer.alias.")
    return _model_name(name)


def _model_name(text: str) -> str:
    """A name that models and aliases may have. Raises ConfigError."""
    from stream_learner.core.control.records import is_name

    if not is_name(text):
        raise ConfigError(
            f"{text!r} is no name of a model or an alias", action="Letters, digits, '.', '_' and '-', at most 200."
        )
    return text
