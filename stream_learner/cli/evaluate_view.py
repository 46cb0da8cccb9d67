"""What a person sees of an evaluation: how far it is, on a terminal; then a table, or JSON.

In: an evaluation. Out: results on stdout, the rest on stderr. This file must never compute a figure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from stream_learner.cli.output import aligned, print_json
from stream_learner.evaluate.run import Evaluation, EvaluationProgress, EvaluationResult
from stream_learner.wording import count_of

NARROW: Final = 110
DIGITS: Final = {"seconds": 2, "auc": 5, "calibration": 4}
TITLES: Final = {
    "examples": "examples",
    "average_loss": "loss",
    "log_loss": "log-loss",
    "normalized_entropy": "NE",
    "auc": "AUC",
    "calibration": "calib.",
    "mistakes": "mistakes",
    "nonzero": "non-zero",
    "seconds": "s",
}


def report(evaluation: Evaluation, *, as_json: bool) -> None:
    """Run an evaluation and print what it found; then raise what keeps it from being a success."""
    with showing() as show:
        result = evaluation.run(show, _say)
    for note in result.notes:
        _say(note)
    if as_json:
        print_json(result.rows)
    else:
        _print_report(result)
    if result.error is not None:
        raise result.error


def _print_report(result: EvaluationResult) -> None:
    """The table, and how long it took."""
    _print_figures(result)
    rate = result.examples / result.seconds if result.seconds > 0.0 else 0.0
    passes = f" in {count_of(result.passes, 'pass', 'passes')}" if result.passes > 1 else ""
    _say(f"{count_of(result.examples, 'example')}{passes}, {result.seconds:.2f} s, {rate:,.0f} examples/s")


@contextmanager
def showing() -> Iterator[Callable[[EvaluationProgress], None]]:
    """A function that shows a progress, for as long as the block lasts; quiet where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    try:
        yield _Bar(bar).show
    finally:
        bar.stop()


class _Bar:
    """One line that is kept current, from the first block on."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def show(self, progress: EvaluationProgress) -> None:
        if self._task is None:
            self._task = self._bar.add_task("")
            self._bar.start()
        rate = progress.examples / progress.seconds if progress.seconds > 0.0 else 0.0
        text = f"pass {progress.passes + 1}: {count_of(progress.examples, 'example')}, {rate:,.0f}/s"
        if progress.skipped:
            text += f", {count_of(progress.skipped, 'bad line')}"
        self._bar.update(self._task, description=text, completed=progress.bytes_read, total=progress.bytes_total)


def _print_figures(result: EvaluationResult) -> None:
    """The figures: on a terminal in its width, elsewhere as wide as they are."""
    if sys.stdout.isatty():
        _print_on_terminal(result)
        return
    rows = [[row["config"], *(_cell(name, row[name]) for name in TITLES)] for row in result.rows]
    for line in aligned([["config", *TITLES.values()], *rows], right_from=1):
        typer.echo(line)


def _print_on_terminal(result: EvaluationResult) -> None:
    """Configurations by number where a line has no room for their names."""
    console = Console(markup=False, emoji=False, highlight=False)
    by_number = console.width < NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("" if by_number else "config", overflow="fold")
    for title in TITLES.values():
        table.add_column(title, justify="right", no_wrap=True)
    for number, row in enumerate(result.rows, 1):
        first = str(number) if by_number else row["config"]
        table.add_row(first, *(_cell(name, row[name]) for name in TITLES))
        if by_number:
            console.print(f"{number}  {row['config']}", soft_wrap=True)
    console.print(table)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{DIGITS.get(name, 6)}f}"
    return str(value)


def _say(text: str) -> None:
    typer.echo(text, err=True)
