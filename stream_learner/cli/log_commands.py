"""`stream-learner log skip`: lets every reader of the training log pass a damaged record over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, Who, load_for_command, who_of
from stream_learner.cli.output import print_json
from stream_learner.wording import count_of

log_app = typer.Typer(help="What an operator says in the training log.", no_args_is_help=True)


@log_app.command("skip")
def skip(
    offset: Annotated[int, typer.Argument(min=0, metavar="OFFSET", help="The record that the roles stop at.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition of the training log.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")],
    config: ConfigFile = None,
    overrides: Overrides = None,
    who: Who = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is lost, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say in the training log that a damaged record is passed over, by every reader of it, now and later.

    A record that counts and is damaged stops all joiners and learners (DamagedLog), since leaving it out in silence
    could give each of them another model. This command appends a record to the partition that names it, with who says
    so, when and why. From then on the tick counts without the examples of the damaged record, for whoever reads the
    log, from wherever. Roles that were stopped go on when they are started again. The command cannot be undone.

    It refuses a record that nobody stops at, and one without which the ticks after it would not count. Readers of an
    earlier version stop at what it writes and say that it is newer: upgrade them first. For example:

    stream-learner log skip 9721 --partition 0 --reason "a tool wrote here" -c model.yaml
    """
    loaded = load_for_command(config, overrides)
    from stream_learner.operations.log_skip import SkipRequest, log_skip

    if not reason.strip():
        raise typer.BadParameter("say why, with --reason")
    found = log_skip(loaded, SkipRequest(partition, offset, who_of(who), reason, write=not dry_run))
    if as_json:
        print_json(found)
        return
    for line in _lines(found):
        typer.echo(line)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['log']} partition {found['partition']} offset {found['offset']}: a record of kind {found['kind']}"
    if found["tick"] is None:
        more = found["stopped_at"] is not None
        yield "what is lost is known once readers come further" if more else "it belongs to no tick: nothing is lost"
    else:
        lost = count_of(found["examples_lost"], "example")
        yield f"lost: {lost} of tick {found['tick']}, {found['positives_lost']} of them positive"
    yield f"readers came to tick {found['read_before']}; passing it over, to tick {found['read_now']}"
    if found["stopped_at"] is not None:
        yield f"they stop again at offset {found['stopped_at']}"
    yield f"written, as of {found['who']}: {found['why']}" if found["written"] else "nothing was written"
