"""`stream-learner diff`: compares two models, their training logs and their publications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load_for_command
from stream_learner.cli.output import print_json
from stream_learner.errors import ModelsDiffer
from stream_learner.wording import count_of, moment_of

Found = Mapping[str, Any]


def diff(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="One model, such as the live one.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other, such as a backfill of the same span.")],
    config: ConfigFile = None,
    overrides: Overrides = None,
    from_tick: Annotated[
        int | None,
        typer.Option(min=0, metavar="TICK", help="The first tick to compare; where both have begun if left out."),
    ] = None,
    until_tick: Annotated[
        int | None, typer.Option(min=0, metavar="TICK", help="The last tick to compare; the last of both if left out.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most differences to list; all are counted.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Compare two models: their training logs example by example, and the digests of what they have published.

    Over the ticks that both logs have, every example that only one of them has is named, with what became of its
    impression in the other one (late, duplicate, sampled out, dead), and every one with another label, weight, log time
    or other features: its partition, tick, time, and the hash of its id. Where a label differs, the clicks with that id
    are named by topic, partition and offset, and for which model each came too late.

    Examples are matched by id, the n-th of one log with the n-th of the other, in whichever ticks they are: 128 MiB of
    each partition of each log may wait for their partner. Those in other ticks are counted, and are no difference.

    A live model and a backfill of the same span have the same examples but for what came after the live one had
    closed its window (docs/backfill.md, "What from and until mean"). For example:

    stream-learner diff ctr ctr-v2 -c model.yaml

    The configuration says how to reach Kafka, and what a model that has published nothing is made of. Both logs are
    read once, from their beginnings. The exit code is 0 where the models are the same, 57 where they differ.
    """
    from stream_learner.operations.diff.run import compare_models

    loaded = load_for_command(config, overrides)
    pair = [loaded if name == loaded.model else loaded.renamed(name) for name in (model, other)]
    found = compare_models(pair[0], pair[1], from_tick=from_tick, until_tick=until_tick, limit=limit)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if not found["equal"]:
        raise ModelsDiffer(f"{model} and {other} differ: {_summary(found)}")


def _summary(found: Found) -> str:
    parts = [f"{what}: {count}" for what, count in found["differences"].items()]
    for name, outcomes in found["outcomes"].items():
        parts.append(f"in {name} these are {', '.join(f'{outcome}: {count}' for outcome, count in outcomes.items())}")
    if found["digests"] == "differ":
        parts.append(f"digests of version {found['models'][0]['version']}")
    return ", ".join(parts)


def _print(found: Found) -> None:
    for entry in found["listed"]:
        typer.echo(_line(entry))
        for click in entry.get("clicks", ()):
            typer.echo(f"    {_click(click)}")
        if entry.get("clicks") == []:
            typer.echo("    the topic holds no click of this id that either had read for the tick")
    if found["total"] > len(found["listed"]):
        typer.echo(f"{len(found['listed'])} of {count_of(found['total'], 'difference')} are listed")
    if found["same_log"]:
        typer.echo(f"both are folded from {found['models'][0]['log']}")
    else:
        compared = ", ".join(f"{count} of {name}" for name, count in found["examples"].items())
        first, last = min(s["from_tick"] for s in found["spans"]), max(s["until_tick"] for s in found["spans"])
        typer.echo(f"compared the ticks {first} to {last}, examples: {compared}")
        for name, count in found["examples_before"].items():
            if count:
                typer.echo(f"not compared: {count_of(count, 'example')} of {name} before that")
        if found["other_ticks"]:
            typer.echo(f"in other ticks of the two logs: {count_of(found['other_ticks'], 'example')}")
        for name, count in found["not_yet"].items():
            if count:
                typer.echo(f"not compared, since {name} has not come so far: {count_of(count, 'example')}")
    if not found["same_inputs"]:
        inputs = " and ".join(f"{m['name']} of {m['impressions']}, {m['clicks']}" for m in found["models"])
        typer.echo(f"they are not of the same input topics: {inputs}")
    typer.echo(f"published digests: {_digests(found)}")
    if found["equal"]:
        typer.echo("no difference")


def _digests(found: Found) -> str:
    published = ", ".join(f"{m['name']} {m['digest']} (version {m['version']})" for m in found["models"] if m["digest"])
    by_optimizer = "; their optimizers differ" if found["same_optimizer"] is False else ""
    return f"{found['digests']}{by_optimizer}{': ' if published else ''}{published}"


def _line(entry: Found) -> str:
    where = f"partition {entry['partition']} tick {entry['tick']}"
    if "id_hash" not in entry:
        return f"{where}: the same examples in another {entry['what']}"
    if "ticks" in entry:
        where += f" ({', '.join(f'{model} {tick}' for model, tick in entry['ticks'].items())})"
    moment = moment_of(entry["log_time_ms"], "milliseconds")
    return f"{where} {moment} id {entry['id_hash']}: {entry['what']} ({'; '.join(_values(entry))})"


def _values(entry: Found) -> list[str]:
    """The values of both models in the columns that differ."""
    texts = [
        ", ".join(f"{model} {value:.15g}" for model, value in entry[name].items())
        for name in ("labels", "weights", "log_times_ms")
        if name in entry
    ]
    texts += [f"{outcome} in {model}" for model, outcome in entry.get("outcomes", {}).items()]
    if "features" in entry:
        features = entry["features"].items()
        texts.append(", ".join(f"{model} {f['count']}, {f['only_here']} only there" for model, f in features))
    return texts


def _click(click: Found) -> str:
    where = f"{click['topic']} {click['partition']} {click['offset']}"
    late = "".join(f", too late for {model}" for model in click["too_late_for"])
    return f"click {where} {moment_of(click['time_ms'], 'milliseconds')} {click['value']:g}{late}"
