"""`stream-learner doctor`: looks at both topics before anything runs, and says what does not fit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load_for_command
from stream_learner.cli.output import aligned, print_json, print_table
from stream_learner.errors import ConfigError, InputsUnfit
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.operations.doctor.run import Report

COLOURS = {"stops": "red", "warns": "yellow", "tells": "cyan"}


def doctor(
    config: ConfigFile = None,
    overrides: Overrides = None,
    impressions: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Without a configuration: the topic of the impressions.")
    ] = None,
    clicks: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Without a configuration: the topic of the clicks.")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,…", help="The brokers, short for --set kafka.bootstrap.servers=….")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a first configuration there; a file that exists is left as it is."),
    ] = None,
    records: Annotated[int, typer.Option(min=100, max=1_000_000, help="Most records to read of each topic.")] = 20_000,
    fields: Annotated[bool, typer.Option("--fields", help="Print what each field of the impressions holds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at both topics, and say what does not fit: formats, ids, times, keys, delays, fields, retention, replicas.

    It reads some of the newest records of each partition, writes nothing to Kafka, joins no group, and may run beside
    the roles. Each finding has its evidence, what it means, and the line to change. What a model takes at this rate is
    told, too: cores, memory, disk, partitions. The exit code is 67 where a finding stands in the way of a right model,
    else 0. Without a configuration it makes a first one from what it sees:

    stream-learner doctor --impressions ads.impressions --clicks ads.clicks --write model.yaml

    stream-learner doctor -c model.yaml
    """
    from stream_learner.operations.doctor.run import doctor as look
    from stream_learner.operations.doctor.run import first_look
    from stream_learner.operations.doctor.sample import Limits

    configured = _configured(config, overrides or (), impressions, clicks, bootstrap)
    if write is not None and impressions is None:
        raise ConfigError("--write makes a first configuration", action="Give --impressions and --clicks, not -c.")
    if write is not None and write.exists():
        raise ConfigError(f"{write} exists, and is left as it is", action="Name another file, or move it away.")
    limits = Limits(records=records)
    with _progress() as show:
        report = first_look(configured, limits, show) if impressions else look(configured(()), limits, show)
    if write is not None and report.configuration is not None:
        _write(write, report.configuration)
    if as_json:
        print_json(asdict(report))
    else:
        _print(report, write, fields=fields)
    if report.in_the_way:
        names = ", ".join(name.replace("_", " ") for name in report.in_the_way)
        raise InputsUnfit(f"{count_of(len(report.in_the_way), 'finding')} in the way: {names}")


def _configured(
    file: Path | None, overrides: Sequence[str], impressions: str | None, clicks: str | None, bootstrap: str | None
) -> Callable[[Sequence[str]], Config]:
    """Makes the configuration, with further settings before those of the command line."""
    if (impressions is None) != (clicks is None):
        raise ConfigError("one topic alone cannot be judged", action="Give both --impressions and --clicks.")
    if impressions is not None and file is not None:
        raise ConfigError("-c names the topics already", action="Give -c, or --impressions and --clicks.")
    base = [] if bootstrap is None else [f"kafka.bootstrap.servers={bootstrap}"]
    if impressions is not None:
        servers = (
            []
            if bootstrap or any("bootstrap" in one for one in overrides)
            else ["kafka.bootstrap.servers=localhost:9092"]
        )
        topics = {"impressions": {"topic": impressions}, "clicks": {"topic": clicks}}
        base = ["model=ctr", *servers, *base, f"input={json.dumps(topics)}"]
    return lambda more: load_for_command(file, [*base, *more, *overrides])


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A function that shows what is done now, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True, markup=False, emoji=False, highlight=False).status("asking the brokers") as status:
        yield status.update


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", action="Name a file that can be made.") from None


def _print(report: Report, written: Path | None, *, fields: bool) -> None:
    """The report for people: versions, topics, ids, delays, crosses, sizing, fields where asked for, findings,
    configuration, verdict."""
    from stream_learner.operations.doctor.crosses import crosses_in_words
    from stream_learner.operations.doctor.delays import in_words
    from stream_learner.operations.doctor.times import span

    of = report.versions
    typer.echo(
        f"versions: stream_learner {of['stream_learner']}, librdkafka {of['librdkafka']}, key rule {of['key_rule']}"
    )
    for topic in report.topics:
        forms = ", ".join(f"{count:,} {form}" for form, count in topic["forms"].items()) or "none"
        held = f"{count_of(topic['partitions'], 'partition')}, {count_of(topic['held'], 'record')}"
        typer.echo(f"{topic['topic']}: {held}, of which were read: {forms}")
        if topic["records"]:
            times = f"times {topic['times']}, {span(topic['lag_ms'])} before the records' timestamps"
            typer.echo(f"  {times}\n  {topic['keys']}")
        if topic["newest_age_ms"] is not None:
            typer.echo(f"  newest record {span(topic['newest_age_ms'])} before now")
    if "swapped" not in report.in_the_way:
        for pair in report.ids[:3]:
            share = f"{pair['shared']:,} of {count_of(pair['of'], 'click')}"
            typer.echo(f"the `{pair['clicks']}` of {share} is an impression's `{pair['impressions']}`")
        if report.delays["clicks"]:
            typer.echo(in_words(report.delays))
    if report.crosses:
        typer.echo(crosses_in_words(report.crosses))
    if report.sizing is not None:
        _print_sizing(report.sizing)
    elif "swapped" not in report.in_the_way:
        typer.echo("\nwhat a model takes is not known: too few impressions, or their times tell no rate")
    if fields:
        typer.echo()
        _print_fields(report)
    for finding in report.findings:
        typer.echo()
        typer.secho(f"{finding.severity}: {finding.name.replace('_', ' ')}", fg=COLOURS[finding.severity], bold=True)
        for word, text in (("seen", finding.seen), ("means", finding.means), ("change", finding.change)):
            typer.echo(f"  {word + ':':<7} {text}")
    typer.echo()
    if report.configuration is not None:
        typer.echo(f"written to {written}:\n" if written else "a first configuration (--write FILE writes it):\n")
        typer.echo(report.configuration)
    elif written is not None:
        typer.echo(f"{written} is not written: a configuration needs the topics in their places\n")
    if not report.findings:
        typer.echo("nothing found: the topics and the configuration fit")
    elif not report.in_the_way:
        typer.echo(f"{count_of(len(report.findings), 'finding')}, none in the way")
    if written is not None and not report.in_the_way:
        typer.echo(f"next: stream-learner topics ensure -c {written}, then stream-learner run -c {written}")


def _print_sizing(sizing: Mapping[str, Any]) -> None:
    """What a model takes, with the amounts at the peak where they grow with the rate."""
    from stream_learner.operations.doctor.sizing import DAY_S, amount

    a_s, peak = sizing["impressions_a_second"], sizing["peak"]
    typer.echo(f"\nwhat a model takes at {a_s:,.4g} impressions a second, {a_s * DAY_S:,.0f} a day, about:")
    typer.echo(f"  rate by {sizing['rate_by']}")
    of_model = f"in the sample {sizing['features_seen']:,}, new ones a day at most {sizing['new_features_a_day']:,}"
    of_one = f"bytes of an impression {sizing['event_bytes']:.0f}, features {sizing['features_an_example']:.1f}"
    typer.echo(f"  {of_one}, different ones {of_model}")
    shown = {"cores": lambda n: f"{n:.2f}" if n > 0.01 else "< 0.01", "bytes": amount, "partitions": "{:.0f}".format}
    cells = [["", "mean", f"{peak} x as much at the peak", "how it comes about"]]
    for need in sizing["needs"]:
        text = shown[need["unit"]]
        largest = text(need["size"] * peak) if need["grows"] else ""
        cells.append([f"  {need['what']}", text(need["size"]), largest, need["how"]])
    for line in aligned(cells):
        typer.echo(line)


def _print_fields(report: Report) -> None:
    """A line for each field of the impressions."""
    from stream_learner.operations.doctor.findings import percent, shown

    lines = [
        {
            "field": one["path"],
            "kind": one["kind"],
            "of_events": percent(one["share"]),
            "distinct": f"{one['distinct']:,}",
            **{name: one[name] for name in ("least", "median", "largest")},
            "such_as": shown(one["example"]),
        }
        for one in report.fields
    ]
    print_table(lines, title=f"fields of {report.topics[0]['topic']}")
