"""Shows the demo while it runs: a live page on a terminal, else a line every few seconds.

Showing a status takes milliseconds, so that the demo is not held up.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.demo.report import balance, number, over_best
from stream_learner.demo.system import DemoStatus
from stream_learner.wording import count_of

LINE_EVERY_S = 5.0
BARS = "▁▂▃▄▅▆▇█"
CURVE_CHARACTERS = 60
WIDTH = 84


class View(Protocol):
    """Shows a running demo. Use as a context manager."""

    def note(self, text: str) -> None:
        """Print a text that stays."""

    def show(self, status: DemoStatus) -> None:
        """Show a status, if it is time to."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def make_console(*, stderr: bool) -> Console:
    """A console on stdout or stderr; without wrapping and colours if that is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, soft_wrap=not stream.isatty(), markup=False, emoji=False, highlight=False)


def make_view(console: Console, model: str, duration_s: float) -> View:
    """The view for this console: live on a terminal, else plain."""
    return LiveView(console, model, duration_s) if console.is_terminal else PlainView(console)


class Rates:
    """Computes impressions, clicks and examples a second over the last few seconds."""

    def __init__(self, over_s: float = 3.0) -> None:
        self._over_s = over_s
        self._statuses: list[DemoStatus] = []

    def add(self, status: DemoStatus) -> tuple[float, float, float]:
        """Add a status. Returns the rates up to it."""
        self._statuses.append(status)
        while len(self._statuses) > 2 and status.seconds - self._statuses[1].seconds >= self._over_s:
            del self._statuses[0]
        first = self._statuses[0]
        seconds = max(status.seconds - first.seconds, 1e-3)
        if first is status:
            return 0.0, 0.0, 0.0
        return (
            (status.sent_impressions - first.sent_impressions) / seconds,
            (status.sent_clicks - first.sent_clicks) / seconds,
            (status.learned - first.learned) / seconds,
        )


class PlainView:
    """Prints a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rates = Rates(LINE_EVERY_S)
        self._next_s = LINE_EVERY_S

    def note(self, text: str) -> None:
        """Print a text that stays."""
        self._console.print(text)

    def show(self, status: DemoStatus) -> None:
        """Print a line, if it is time to."""
        rates = self._rates.add(status)
        if status.seconds >= self._next_s:
            self._next_s = status.seconds + LINE_EVERY_S
            self._console.print(line(status, rates))

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


class LiveView:
    """Draws a page again several times a second; logs appear above it."""

    def __init__(self, console: Console, model: str, duration_s: float) -> None:
        self._console = console
        self._model = model
        self._duration_s = duration_s
        self._rates = Rates()
        self._live = Live(console=console, auto_refresh=False)

    def note(self, text: str) -> None:
        """Print a text that stays."""
        self._console.print(text)

    def show(self, status: DemoStatus) -> None:
        """Draw the page."""
        self._live.update(page(status, self._rates.add(status), self._model, self._duration_s), refresh=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        quiet_logs()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()
        quiet_logs()


def quiet_logs() -> None:
    """Log only warnings and errors, for people, to the present stderr, which the live page replaces while it is
    shown."""
    configure_logging(log_format="console", log_level="warning")


def line(status: DemoStatus, rates: tuple[float, float, float]) -> str:
    counts, recent = balance(status), status.recent
    fresh = "–" if status.freshness_ms is None else "{} ms (p99 {})".format(*status.freshness_ms)
    return (
        f"{status.seconds:4.0f} s  {rates[0]:,.0f} impressions/s, {rates[1]:,.0f} clicks/s"
        f" | joined {counts['impressions']['examples']:,}, waiting {counts['impressions']['waiting']:,}"
        f" | log-loss {number(recent.log_loss)} (best {number(recent.best_log_loss)}, {over_best(recent)})"
        f", NE {number(recent.normalized_entropy, '.3f')} (best {number(recent.best_normalized_entropy, '.3f')})"
        f", calibration {number(recent.calibration, '.3f')}"
        f" | fresh {fresh} | {count_of(status.features, 'feature')}, version {status.version}"
    )


def page(status: DemoStatus, rates: tuple[float, float, float], model: str, duration_s: float) -> RenderableType:
    title = f"stream-learner demo · {model}"
    body = Group(
        _progress(status, duration_s),
        Text(),
        _flow(status, rates),
        Text(),
        _learning(status),
        Text(),
        _curve(status.curve),
        _state(status),
    )
    return Panel(body, title=title, title_align="left", border_style="cyan", width=WIDTH, padding=(0, 1))


def _progress(status: DemoStatus, duration_s: float) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    seconds = min(status.seconds, duration_s)
    grid.add_row(ProgressBar(total=duration_s, completed=seconds, width=56), f"{seconds:.0f} s of {duration_s:g} s")
    return grid


def _flow(status: DemoStatus, rates: tuple[float, float, float]) -> Table:
    """The inputs and their outcomes. `joined`: impressions that became examples, and clicks that matched one."""
    counts = balance(status)
    impressions, clicks = counts["impressions"], counts["clicks"]
    table = _table("", "per s", "sent", "joined", "duplicates", "orphans", "late", "dead", "waiting")
    of_impressions = ("read", "examples", "duplicates", None, "late", "dead_lettered", "waiting")
    of_clicks = ("read", "matched", "duplicates", "orphans", "late", "dead_lettered", "waiting")
    table.add_row("impressions", f"{rates[0]:,.0f}", *_cells(impressions, of_impressions))
    table.add_row("clicks", f"{rates[1]:,.0f}", *_cells(clicks, of_clicks))
    table.add_row("learned", f"{rates[2]:,.0f}", "", f"{status.learned:,}")
    return table


def _cells(counts: dict[str, int], names: tuple[str | None, ...]) -> list[str]:
    return ["" if name is None else f"{counts[name]:,}" for name in names]


def _learning(status: DemoStatus) -> Table:
    total, recent = status.total, status.recent
    table = _table("", "log-loss", "best", "over best", "NE", "best", "calibration", "AUC")
    for name, score, auc in (
        (f"last {recent.examples:,}", recent, ""),
        ("from the start", total, number(total.auc, ".3f")),
    ):
        table.add_row(
            name,
            number(score.log_loss),
            number(score.best_log_loss),
            over_best(score),
            number(score.normalized_entropy, ".3f"),
            number(score.best_normalized_entropy, ".3f"),
            number(score.calibration, ".3f"),
            auc,
        )
    return table


def _curve(curve: list[float]) -> Text:
    """The excess over the best possible, which falls as the model learns."""
    return Text.assemble(("over best  ", "dim"), (bars(curve[-CURVE_CHARACTERS:]) or "–", "green"))


def bars(values: list[float]) -> str:
    """Values as a line of bars, the largest full; a value below 0 is the lowest bar.

    >>> bars([0.4, 0.2, 0.0, -0.1])
    '█▅▁▁'
    """
    top = max(values, default=0.0)
    if top <= 0.0:
        return BARS[0] * len(values)
    steps = len(BARS) - 1
    return "".join(BARS[round(max(value, 0.0) / top * steps)] for value in values)


def _state(status: DemoStatus) -> Text:
    fresh = "–" if status.freshness_ms is None else "p50 {} ms, p99 {} ms".format(*status.freshness_ms)
    version = f"{status.version}" if status.version >= 0 else "–"
    return Text.assemble(
        *(("freshness  ", "dim"), (fresh, "bold"), ("  from a window's close to the scorer\n", "dim")),
        *(("model      ", "dim"), f"{count_of(status.features, 'feature')}, {status.nonzero:,} with a weight"),
        *(("   version  ", "dim"), version),
    )


def _table(*columns: str) -> Table:
    """A table without lines; the first column is as wide in all of them."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", min_width=0 if i else 15, no_wrap=True)
    return table
