"""`stream-learner config check | schema | show`: the configuration itself. No broker is asked."""

from __future__ import annotations

import os
from typing import Annotated

import typer
import yaml

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load
from stream_learner.cli.output import print_error, print_json
from stream_learner.config import Config
from stream_learner.config.load import unread_variables
from stream_learner.config.rules import doubtful
from stream_learner.errors import ConfigError

config_app = typer.Typer(help="Check, describe and show the configuration.", no_args_is_help=True)

NoSecrets = Annotated[
    bool,
    typer.Option(
        "--no-secrets",
        help="Leave out what needs the files and variables that hold secrets, as where they are not mounted.",
    ),
]


@config_app.command("check")
def check(
    config: ConfigFile = None, overrides: Overrides = None, no_secrets: NoSecrets = False, as_json: AsJson = False
) -> None:
    """Check everything that can be known without a broker, and name every finding; warn of what was hardly meant."""
    from stream_learner.roles.common.event_decoders import schema_problems

    try:
        checked = load(config, overrides, secrets=not no_secrets)
        problems = () if no_secrets else tuple(schema_problems(checked))
        if problems:
            raise ConfigError(problems[0] if len(problems) == 1 else "schemas cannot be used", problems=problems)
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "problems": list(error.problems or (error.message,)), "warnings": []})
            raise typer.Exit(error.exit_code) from None
        raise typer.Exit(print_error(error)) from None
    warnings = [f"{path} {message}" for path, message in (*doubtful(checked), *unread_variables(os.environ))]
    if as_json:
        print_json({"ok": True, "problems": [], "warnings": warnings})
        return
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo("ok")


@config_app.command("schema")
def schema() -> None:
    """Print the JSON schema of the configuration, for editors and charts."""
    print_json(Config.model_json_schema())


@config_app.command("show")
def show(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Print the configuration as it would be used, defaults included, secrets as ***."""
    shown = load(config, overrides, secrets=False).shown()
    if as_json:
        print_json(shown)
    else:
        typer.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())
