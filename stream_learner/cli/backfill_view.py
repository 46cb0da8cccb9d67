"""Shows a backfill on stderr while it runs: a live page on a terminal, else a log line every ten seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
from stream_learner.operations.backfill.progress import BackfillStatus, as_fields, clock
from stream_learner.wording import count_of

LINE_EVERY_S = 10.0
BAR_WIDTH = 48


@contextmanager
def showing(title: str) -> Iterator[Callable[[BackfillStatus], None]]:
    """A function that shows progress while the `with` block runs."""
    if not sys.stderr.isatty():
        yield _LogLines().show
        return
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        _quiet_logs()
        try:
            yield lambda status: live.update(page(status, title), refresh=True)
        finally:
            live.stop()
            _quiet_logs()


def _quiet_logs() -> None:
    """Log only warnings and errors, to the present stderr, which the live page replaces while it is shown."""
    configure_logging(log_format="console", log_level="warning")


class _LogLines:
    """Shows progress as a log line every `LINE_EVERY_S`."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def show(self, status: BackfillStatus) -> None:
        if status.seconds >= self._next_s:
            self._next_s = status.seconds + LINE_EVERY_S
            get_logger("backfill").info("backfill_progress", **as_fields(status))


def page(status: BackfillStatus, title: str) -> RenderableType:
    """The progress as a page of a few lines."""
    bar = Table.grid(padding=(0, 1))
    share = status.share or 0.0
    bar.add_row(
        ProgressBar(total=1.0, completed=share, width=BAR_WIDTH),
        f"{100 * share:.1f} %",
        f"{_time(status.left_s)} left" if status.left_s is not None else "",
    )
    passed = "–" if status.passed_ms is None else clock(status.passed_ms)
    lines: list[RenderableType] = [
        Text(title, style="bold"),
        bar,
        Text(f"impressions before {passed} are learned; behind the clock by {_time(status.lag_s)}"),
        Text(
            f"{status.impressions_per_s:,.0f} impressions/s, {status.examples_per_s:,.0f} examples/s; "
            f"{count_of(status.examples, 'example')} learned in all; {_time(status.seconds)} so far"
        ),
    ]
    if status.waits:
        lines.append(Text(status.waits, style="yellow"))
    return Group(*lines)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else str(timedelta(seconds=round(seconds)))
