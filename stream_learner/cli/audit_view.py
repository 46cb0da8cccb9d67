"""Shows an audit: its progress on stderr while it runs, then its report as tables on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.cli.output import print_table
from stream_learner.core.log.balance import balance_lines
from stream_learner.operations.audit.findings import MEANINGS
from stream_learner.operations.audit.run import AuditStatus
from stream_learner.wording import count_of

LINE_EVERY_S = 10.0

Found = Mapping[str, Any]


@contextmanager
def showing(title: str) -> Iterator[Callable[[AuditStatus], None]]:
    """A function that shows progress while the `with` block runs: as a bar on a terminal, else as log lines."""
    if not sys.stderr.isatty():
        yield _LogLines().show
        return
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def show(status: AuditStatus) -> None:
            found = f", {count_of(status.findings, 'finding')}" if status.findings else ""
            progress.update(task, description=f"{title}: {status.what}{found}", completed=status.done, total=status.of)

        yield show


class _LogLines:
    """Shows progress as a log line every `LINE_EVERY_S`."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + LINE_EVERY_S

    def show(self, status: AuditStatus) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_EVERY_S
            get_logger("audit").info(
                "audit_progress", reading=status.what, records=status.done, of=status.of, findings=status.findings
            )


def print_report(found: Found) -> None:
    """Print the report for people: partitions, balance, checks, findings, and the verdict as the last line."""
    print_table([_partition(row) for row in found["partitions"]], title=f"{found['log']}")
    for row in found["partitions"]:
        for tick in row["begins_anew"]:
            typer.echo(f"partition {row['partition']} begins anew with tick {tick}")
        for line in _passed_over(row):
            typer.echo(f"partition {row['partition']}: {line}")
    if found["balance"]:
        typer.echo("\n".join(balance_lines(found["balance"])))
    not_joined = _not_joined(found["partitions"])
    if not_joined:
        typer.echo(not_joined)
    print_table([_check(name, found["checks"][name]) for name in MEANINGS], title="checks")
    for finding in found["findings"]:
        typer.echo(_line(finding))
    if found["total"] > len(found["findings"]):
        typer.echo(f"{len(found['findings'])} of {count_of(found['total'], 'finding')} are listed")
    for name, check in found["checks"].items():
        for why in check["not_checked"]:
            typer.echo(f"not checked: {name.replace('_', ' ')}: {why}")
    for line in _junk(found["passed_over"]):
        typer.echo(line)
    published, copied, folded = found["published"], found["copied"], found["folded"]
    if published["version"] >= 0:
        typer.echo(f"published: version {published['version']}, digest {published['digest']}")
    if published["ticks_behind"]:
        typer.echo(f"not in a published version yet: the last {count_of(published['ticks_behind'], 'tick')} of the log")
    if copied is not None:
        typer.echo(f"copied: tick {copied['tick']}, digest {copied['digest']}")
    if folded is not None:
        typer.echo(f"folded again: up to tick {folded['tick']}, digest {folded['digest']}")
    if found["sound"] and found["complete"]:
        typer.echo("sound: everything that was asked for was checked, and holds")


def _partition(row: Found) -> dict[str, Any]:
    """The line of a partition, with the figures a person looks for first."""
    names = ("partition", "from_tick", "until_tick", "records", "marks", "examples", "positives", "ignored_records")
    return {**{name: row[name] for name in names}, "ignored_marks": row["ignored_marks"]}


def _not_joined(rows: Sequence[Found]) -> str:
    """How much of the inputs lies behind the last marks; "" where the range ends before the log."""
    behind = [row["not_joined"] for row in rows if row["not_joined"] is not None]
    if not behind:
        return ""
    impressions, clicks = (sum(of[side] for of in behind) for side in ("impressions", "clicks"))
    return f"in the inputs and not joined yet: {count_of(impressions, 'impression')}, {count_of(clicks, 'click')}"


def _junk(found: Found) -> Iterator[str]:
    """The lines about records that cannot be used and that harm nothing: of the snapshots and of the dead letters."""
    if found["records"]:
        yield f"passed over: {count_of(found['records'], 'record')} of other programs in the snapshots or dead letters"
    for finding in found["listed"]:
        yield f"passed over: {_line(finding)}"


def _passed_over(row: Found) -> Iterator[str]:
    """A line for each kind of record that every reader passes over."""
    if row["foreign_records"]:
        yield f"{count_of(row['foreign_records'], 'foreign record')} passed over: somebody else writes to the log"
    if row["skipped_records"]:
        lost = count_of(row["lost_examples"], "example")
        yield f"{count_of(row['skipped_records'], 'damaged record')} passed over by `log skip`, with {lost}"


def _check(name: str, check: Found) -> dict[str, Any]:
    counted = {"checked": check["checked"], "failures": check["failures"]}
    return {"check": name.replace("_", " "), "status": check["status"], **counted, "that": MEANINGS[name]}


def _line(finding: Found) -> str:
    where = [finding["topic"]]
    where += [f"{name} {finding[name]}" for name in ("partition", "offset", "tick") if finding[name] is not None]
    return f"{finding['check'].replace('_', ' ')}: {' '.join(where)}: {finding['what']}"
