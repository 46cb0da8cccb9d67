"""`stream-learner delete`: shows what there is of a model, and removes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, Who, load_for_command, who_of
from stream_learner.cli.output import print_json, print_table


def delete(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A model beside the configured one, with names as `backfill` gives them."),
    ] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    write: Annotated[bool, typer.Option("--write", help="Do it; without, it is only shown.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Although an alias points at it, or another model learns from its log.")
    ] = False,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Also topics that are not named after the model (`topics.*`).")
    ] = False,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Show all that there is of a model; with --write remove it, so that the name can be used again at once.

    Listed and removed, in this order: aliases that point at it (only with --force), the state directory and the
    scorer's copy on this machine, the consumer groups of joiners and learner with their offsets, the topics of copies,
    snapshots, dead letters and of the training log, and what the control topic says of it: pins, pauses, decisions. The
    input topics are never touched. State directories and copies on other machines are not seen from here: empty them,
    or leave them; a learner that finds one there says so.

    Stop the model's roles first. Without --write nothing is changed. What was interrupted is finished by the same
    command. For example:

    stream-learner delete -c model.yaml

    Where nothing but a setting is to change, it is often not needed: as long as the training log holds no example,
    joiner and learner begin again with other settings by themselves (not with a longer join.tick, with other
    snapshots.shards, or with join.close_idle off). Later `begin-anew` keeps what was learned where a setting of the
    join or of the features changes, and `backfill --as NAME` learns a model under another name.

    The exit code is 31 where something uses the model: a role that runs, an alias, another model.
    """
    loaded = load_for_command(config, overrides)
    from stream_learner.operations.delete import DeleteRequest
    from stream_learner.operations.delete import delete as run

    of = loaded if model in (None, loaded.model) else loaded.renamed(str(model))
    found = run(of, DeleteRequest(write, force, all_topics, who_of(who)))
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: Mapping[str, Any]) -> None:
    if all(row["kind"] == "transactional id" for row in found["found"]):  # brokers do not tell whether it was used
        typer.echo(f"there is nothing of {found['model']}: no topic, group, state or record with its name")
        return
    print_table([{name: row[name] for name in ("kind", "name", "state", "what")} for row in found["found"]])
    if found["written"]:
        typer.echo(f"{found['model']} is deleted; `stream-learner topics ensure` makes its topics anew")
        return
    for reason in found["in_use"]:
        typer.echo(f"in use: {reason}")
    typer.echo("nothing was removed; --write does it")
