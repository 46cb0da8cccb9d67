"""`stream-learner begin-anew`: lets a training log go on under the same name where its joiner cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load_for_command
from stream_learner.cli.output import print_json, print_table
from stream_learner.config.values import parse_start
from stream_learner.wording import count_of, moment_of

Found = Mapping[str, Any]


def begin_anew(
    config: ConfigFile = None,
    overrides: Overrides = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="last|earliest|latest|MOMENT",
            help="Where to go on in the inputs: after what the log has taken, or as join.start says it.",
        ),
    ] = "last",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Do it; without, it is only shown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let the model go on under its own name where a joiner has stopped for good, and say what is lost by that.

    A joiner makes its state again from the inputs. It stops where that cannot be: records are gone (LogTrimmed), an
    input topic was made anew or is that of another cluster (TopicRecreated), or the settings, or the rules of this
    version, are not those that the log was made with (InputsChanged). This command then ends each partition of the
    training log with a mark from which joiners go on, with an empty memory and the present topics and settings. What is
    in the log stays, and so does all that was learned. Without --write it shows what it would do, and changes nothing.

    What is lost: the ids of earlier impressions, so that one that comes again may count again; which clicks had matched
    already; what the topics no longer hold, and impressions whose clicks they no longer hold. With --from last every
    click that waited for its impression is read again, so no label is lost that way. Where an input is another topic
    now, the positions in the log mean nothing in it: name another --from. Impressions that the log has taken from the
    same topic are never read again, whatever --from says.

    First put right what can be: retention, the topics, the settings. Then stop all joiners of the model, look at what
    this shows, and say it again with --write; then start the joiners. Learners and scorers may run on. For example:

    stream-learner begin-anew -c model.yaml --from last

    Where the inputs and the training log were given more partitions, all partitions begin anew, old and new ones, from
    a moment since which every producer knows of them (--from MOMENT, or latest). What the log has not taken of the time
    before is given up: ids lie elsewhere now, and an impression could miss its click.

    The length of the ticks cannot change, and partitions cannot be taken away: for those, train another model
    (`stream-learner backfill`). The exit code is 30 where joiners run.
    """
    loaded = load_for_command(config, overrides)
    from stream_learner.operations.begin_anew import BeginAnewRequest, overtaken
    from stream_learner.operations.begin_anew import begin_anew as run

    found = run(loaded, BeginAnewRequest(_where(start), tuple(partition or ()), write))
    if as_json:
        print_json(found)
    else:
        _print(found)
    error = overtaken(found)
    if error is not None:
        raise error


def _where(text: str) -> str | int:
    from stream_learner.operations.begin_anew import LAST

    if text == LAST:
        return LAST
    try:
        return parse_start(text)
    except ValueError as error:
        raise typer.BadParameter(f"--from: {error}, or last") from None


def _print(found: Found) -> None:
    print_table([_row(row) for row in found["partitions"]], title=found["log"])
    for row in found["partitions"]:
        for line in _losses(row):
            typer.echo(f"partition {row['partition']}: {line}")
    if not found["written"]:
        typer.echo("nothing was written; --write does it, with no joiner running")


def _row(row: Found) -> dict[str, Any]:
    names = ("tick", "impressions_from", "impressions_to_read", "clicks_from")
    return {"partition": row["partition"], "state": row["state"], **{name: row.get(name) for name in names}}


def _losses(row: Found) -> Iterator[str]:
    """The losses of a partition, a line each."""
    from stream_learner.operations.begin_anew import BEGUN

    if row["state"] == BEGUN:
        yield "it has begun anew since partitions were added"
        return
    if "tick" not in row:
        yield "there is no mark yet; a joiner begins it where join.start says"
        return
    for side in ("impressions", "clicks"):
        lost = row[f"{side}_lost"]
        if lost is None:
            yield f"the {side} are of another topic; what the log had not taken of the one before is lost"
        elif lost:
            yield f"up to {lost:,} {side} are lost: so many offsets lie between what the log has taken and here"
    if row["clicks_given_up"]:
        yield f"given up: {count_of(row['clicks_given_up'], 'click')} that waited; what is read again counts as new"
    late_before = moment_of(row["late_before_ms"], "milliseconds")
    yield f"impressions with a time before {late_before} are late: they give no example"
