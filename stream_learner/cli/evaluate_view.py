"""Shows an evaluation: its progress on a terminal, then the figures as a table or JSON."""

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
from stream_learner.evaluate.run import Evaluation, EvaluationResult, EvaluationStatus
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
    """Run an evaluation and print its figures; then raise its error, if it has one."""
    with showing() as show:
        result = evaluation.run(show, _say)
    for note in result.notes:
        _say(note)
    if as_json:
        print_json(result.figures)
    else:
        _print_report(result)
    if result.error is not None:
        raise result.error


def _print_report(result: EvaluationResult) -> None:
    """Print the table, and how long the evaluation took."""
    _print_figures(result)
    rate = result.examples / result.seconds if result.seconds > 0.0 else 0.0
    passes = f" in {count_of(result.passes, 'pass', 'passes')}" if result.passes > 1 else ""
    _say(f"{count_of(result.examples, 'example')}{passes}, {result.seconds:.2f} s, {rate:,.0f} examples/s")


@contextmanager
def showing() -> Iterator[Callable[[EvaluationStatus], None]]:
    """A function that shows progress while the `with` block runs; it does nothing if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda status: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    try:
        yield _Bar(bar).show
    finally:
        bar.stop()


class _Bar:
    """A progress bar, shown from the first block on."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def show(self, status: EvaluationStatus) -> None:
        if self._task is None:
            self._task = self._bar.add_task("")
            self._bar.start()
        rate = status.examples / status.seconds if status.seconds > 0.0 else 0.0
        text = f"pass {status.passes + 1}: {count_of(status.examples, 'example')}, {rate:,.0f}/s"
        if status.skipped:
            text += f", {count_of(status.skipped, 'bad line')}"
        self._bar.update(self._task, description=text, completed=status.bytes_read, total=status.bytes_total)


def _print_figures(result: EvaluationResult) -> None:
    """Print the figures: fitted to the width of a terminal, elsewhere as wide as they are."""
    if sys.stdout.isatty():
        _print_on_terminal(result)
        return
    rows = [[row["config"], *(_cell(name, row[name]) for name in TITLES)] for row in result.figures]
    for line in aligned([["config", *TITLES.values()], *rows], right_from=1):
        typer.echo(line)


def _print_on_terminal(result: EvaluationResult) -> None:
    """Print the figures as a table; on a narrow terminal configurations have numbers, with their names above."""
    console = Console(markup=False, emoji=False, highlight=False)
    by_number = console.width < NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("" if by_number else "config", overflow="fold")
    for title in TITLES.values():
        table.add_column(title, justify="right", no_wrap=True)
    for number, row in enumerate(result.figures, 1):
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
