"""`stream-learner inspect`: shows what is in a model, a tick, a record, a snapshot. Nothing is changed."""

from __future__ import annotations

from typing import Annotated

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load_for_command
from stream_learner.cli.output import print_fields, print_table

inspect_app = typer.Typer(help="Look into a model, a tick, a record, a snapshot.", no_args_is_help=True)

Partition = Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition of the training log.")]


@inspect_app.command("weights")
def weights(
    config: ConfigFile = None,
    overrides: Overrides = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many weights to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the published weights of largest magnitude."""
    from stream_learner.operations.inspect_model import inspect_weights

    rows = inspect_weights(load_for_command(config, overrides), limit)
    print_table(rows, title="top weights", as_json=as_json)


@inspect_app.command("feature")
def feature(
    name: Annotated[
        str,
        typer.Argument(
            help="A feature's text as it is hashed, `name=value` or a number's `name`; or a key, 0x and 16 hex digits."
        ),
    ],
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show one feature: its key, its published weight, and its state where the state directory is here."""
    from stream_learner.operations.inspect_model import inspect_feature

    print_fields(inspect_feature(load_for_command(config, overrides), name), as_json=as_json)


@inspect_app.command("tick")
def tick(
    number: Annotated[int, typer.Argument(min=0, metavar="TICK", help="Number of the tick.")],
    partition: Partition,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show the mark of a tick in the training log: positions, counts, and what it follows."""
    from stream_learner.operations.inspect_log import inspect_tick

    print_fields(inspect_tick(load_for_command(config, overrides), partition, number), as_json=as_json)


@inspect_app.command("record")
def record(
    offset: Annotated[int, typer.Argument(min=0, help="Offset of the record.")],
    partition: Partition,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show one record of the training log: header, and examples or mark."""
    from stream_learner.operations.inspect_log import inspect_record

    print_fields(inspect_record(load_for_command(config, overrides), partition, offset), as_json=as_json)


@inspect_app.command("snapshot")
def snapshot(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show the published model: version, sequence, pages and deltas of each shard, metrics."""
    from stream_learner.operations.inspect_model import inspect_snapshot

    print_fields(inspect_snapshot(load_for_command(config, overrides)), as_json=as_json)


@inspect_app.command("fields")
def fields(
    config: ConfigFile = None,
    overrides: Overrides = None,
    events: Annotated[int, typer.Option("--events", "-n", min=1, help="How many of the newest impressions.")] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Show which fields of the newest impressions give how many different features, and how many of them are new."""
    from stream_learner.operations.inspect_fields import inspect_fields

    rows = inspect_fields(load_for_command(config, overrides), events)
    print_table(rows, title="fields", as_json=as_json)
