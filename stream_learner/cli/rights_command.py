"""`stream-learner rights`: prints what to allow on a Kafka with an authorizer. No broker is asked."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load
from stream_learner.cli.output import print_json
from stream_learner.config import Config
from stream_learner.errors import ConfigError


class Role(str, Enum):
    """The roles and commands whose rights can be printed."""

    joiner = "joiner"
    learner = "learner"
    scorer = "scorer"
    serve = "serve"
    topics = "topics"
    backfill = "backfill"
    promote = "promote"
    diff = "diff"
    audit = "audit"
    begin_anew = "begin-anew"
    log_skip = "log-skip"


def rights(
    config: ConfigFile = None,
    overrides: Overrides = None,
    role: Annotated[list[Role] | None, typer.Option(help="Only this role; repeatable.")] = None,
    principal: Annotated[
        str, typer.Option(metavar="User:NAME", help="Who is to have the rights; by default User:ROLE.")
    ] = "",
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further model that aliases may point at, or to compare; repeatable."),
    ] = None,
    new_model: Annotated[
        str, typer.Option("--as", metavar="NAME", help="The new model's name, for the rights of a backfill.")
    ] = "",
    from_log: Annotated[
        str, typer.Option(metavar="MODEL", help="For a backfill that folds this model's training log.")
    ] = "",
    variant: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A model that a backfill learns beside; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the least rights of each role on a Kafka with an authorizer, as kafka-acls.sh commands.

    `promote` stands for promote, rollback, alias, pause, resume, pin and unpin; `backfill` is left out without --as.
    For example:

    stream-learner rights -c model.yaml --role joiner --principal User:ctr-joiner
    """
    from stream_learner.operations.rights import commands, rights_of

    loaded = load(config, overrides, secrets=False)
    new, source = _backfilled(loaded, new_model, from_log)
    wanted = [one.value for one in role or Role if role or one is not Role.backfill or new_model]
    if Role.backfill.value in wanted and not new_model:
        raise ConfigError("a backfill's rights are those on another model's topics", action="Give its name with --as.")
    rows: list[dict[str, Any]] = []
    for one in wanted:
        who = principal or f"User:{one}"
        if one == Role.backfill.value:
            found = rights_of(new, one, source=source, variants=variant or ())
        else:
            found = rights_of(loaded, one, model or ())
        rows += [{"role": one, "principal": who, **vars(right)} for right in found]
        if not as_json:
            typer.echo("\n".join([f"# {one}", *commands(found, who, _brokers(loaded)), ""]))
    if as_json:
        print_json(rows)


def _backfilled(config: Config, new_model: str, from_log: str) -> tuple[Config, Config | None]:
    """The configuration of a backfill's model, and of the model whose log it folds."""
    from stream_learner.operations.backfill.plan import Span, make_plan

    if not new_model:
        return config, None
    plan = make_plan(config, new_model, Span(), from_log=from_log or None)
    return plan.main, plan.source


def _brokers(config: Config) -> str:
    """The brokers of the configuration; a placeholder if they are not in it."""
    given = config.kafka_options().get("bootstrap.servers") or config.kafka_options().get("metadata.broker.list")
    return given if isinstance(given, str) else "BROKERS"
