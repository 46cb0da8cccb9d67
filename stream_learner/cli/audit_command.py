"""`stream-learner audit`: checks whether what the topics hold of a model is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load_for_command
from stream_learner.cli.output import print_json
from stream_learner.config.values import parse_start

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.operations.audit.request import Range


def audit(
    config: ConfigFile = None,
    overrides: Overrides = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="The first impressions: a moment with its zone, as of `backfill`."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="End before the impressions of this moment.")
    ] = None,
    from_tick: Annotated[int | None, typer.Option(min=0, metavar="TICK", help="Or: the first tick.")] = None,
    until_tick: Annotated[int | None, typer.Option(min=0, metavar="TICK", help="Or: the last tick.")] = None,
    from_offset: Annotated[
        int | None,
        typer.Option(min=0, metavar="OFFSET", help="Or: the first offset of the training log, of one --partition."),
    ] = None,
    until_offset: Annotated[
        int | None, typer.Option(min=1, metavar="OFFSET", help="Or: end before this offset of the training log.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Also make the examples again from the inputs, and fold the log again.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Most findings to list; all are counted.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Check what the topics hold of a model: that nothing is lost, repeated, altered or made up.

    Every record of the training log is read: its checksum, that every tick follows the one before, that the counts of
    its mark are those of its records and add up, that its positions in the inputs never go back nor beyond an end. Then
    the dead letters are counted, and every shard of the snapshots has to be whole, and the last copied checkpoint. With
    --replay the inputs are joined again, and the examples compared byte for byte; and the log is folded again, and the
    digest compared with that of every version that is still published.

    It writes nothing, joins no group, and may run beside the roles. For example:

    stream-learner audit -c model.yaml --replay --from 2026-11-01T00:00Z --until 2026-11-02T00:00Z

    The exit code is 0 where everything that was asked for was checked and holds, 58 where something does not hold, 59
    where something could not be checked: what has been trimmed, for example.
    """
    loaded = load_for_command(config, overrides)
    from stream_learner.cli.audit_view import print_report, showing
    from stream_learner.operations.audit.request import AuditRequest
    from stream_learner.operations.audit.run import audit as run_audit
    from stream_learner.operations.audit.run import verdict

    wanted = _range(loaded, start, until, from_tick, until_tick, from_offset, until_offset)
    request = AuditRequest(wanted, tuple(partition or ()), replay, limit)
    with showing(f"audit of {loaded.model}") as show:
        found = run_audit(loaded, request, show)
    if as_json:
        print_json(found)
    else:
        print_report(found)
    error = verdict(found)
    if error is not None:
        raise error


def _range(
    config: Config,
    start: str | None,
    until: str | None,
    from_tick: int | None,
    until_tick: int | None,
    from_offset: int | None,
    until_offset: int | None,
) -> Range:
    """The range in ticks or in offsets. Times are those of impressions, whose window ends later."""
    from stream_learner.operations.audit.request import Range
    from stream_learner.operations.backfill.plan import last_tick

    for name, given in (("from", (start, from_tick, from_offset)), ("until", (until, until_tick, until_offset))):
        if sum(one is not None for one in given) > 1:
            raise typer.BadParameter(f"give one of --{name}, --{name}-tick and --{name}-offset")
    window_ms, tick_ms = config.join.window_ms, config.join.tick_ms
    if start is not None:
        from_tick = (_moment("--from", start) + window_ms) // tick_ms
    if until is not None:
        until_tick = last_tick(_moment("--until", until), window_ms, tick_ms)
    return Range(from_tick, until_tick, from_offset, until_offset)


def _moment(option: str, text: str) -> int:
    """A moment in ms since the epoch. Raises typer.BadParameter."""
    try:
        moment = parse_start(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
    if isinstance(moment, str):
        raise typer.BadParameter(f"{option} takes a moment, such as 2026-11-02T00:00Z")
    return moment
