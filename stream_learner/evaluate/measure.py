"""The figures of one model and its learning curve, and the file that curves are written to.

A prediction is measured before its example is learned from. `core/model/progress.py` defines the figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.losses import Loss
from stream_learner.core.model.progress import Progress
from stream_learner.errors import ConfigError

CURVE_RATIO: Final = 2.0**0.25
"""The ratio between the examples at a point of the curve and at the point before."""


class CurvePoint(NamedTuple):
    """examples: measured so far, over all passes; average_loss: of all these; recent_loss: since the point before."""

    examples: int
    average_loss: float | None
    recent_loss: float | None


class Measure:
    """Sums up the figures of the examples since `restart`, and the learning curve of all examples."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._no_times = np.zeros(0, np.int64)
        self._points: list[CurvePoint] = []
        self._shown = 0
        self._next = 1
        self._before = self._last = (0, 0.0, 0.0)
        self._progress = Progress(loss.code, option=loss.option)

    def restart(self) -> None:
        """Begin the figures again; the curve goes on."""
        self._before = self._totals()
        self._progress = Progress(self._loss.code, option=self._loss.option)

    def observe(self, margins: NDArray[np.float64], record: ExampleRecord, counts: NDArray[np.bool_]) -> None:
        """Measure the examples of a record that `counts` marks and whose margin is not NaN."""
        seen = np.where(counts, margins, np.nan)
        if len(self._no_times) < len(seen):
            self._no_times = np.zeros(2 * len(seen), np.int64)
        columns = (
            seen,
            np.ascontiguousarray(record.label, np.float64),
            np.ascontiguousarray(record.weight, np.float64),
        )
        start = 0
        while start < len(seen):
            end = min(len(seen), start + self._next - self._shown)
            p, y, h = (address_of(column[start:]) for column in columns)
            self._progress.observe(p, y, h, address_of(self._no_times), end - start)
            self._shown += end - start
            start = end
            if self._shown == self._next:
                self._points.append(self._point())
                self._next = math.ceil(self._next * CURVE_RATIO)

    def summary(self) -> dict[str, Any]:
        """The figures since `restart`, as `Progress.summary` has them."""
        return self._progress.summary()

    def curve(self) -> list[CurvePoint]:
        """The points so far, the last one after all examples."""
        if self._last != self._totals():
            self._points.append(self._point())
        return list(self._points)

    def _point(self) -> CurvePoint:
        """Make a point here; the recent loss of the next point begins here."""
        now, last = self._totals(), self._last
        self._last = now
        return CurvePoint(now[0], _mean(now[2], now[1]), _mean(now[2] - last[2], now[1] - last[1]))

    def _totals(self) -> tuple[int, float, float]:
        """Examples, importance and loss of everything measured, `restart` or not."""
        since = self._progress.totals()
        return since[0] + self._before[0], since[1] + self._before[1], since[2] + self._before[2]


def _mean(loss: float, importance: float) -> float | None:
    return loss / importance if importance > 0.0 else None


PLOTS: Final = (".png", ".svg", ".pdf")


def check_curve_file(file: Path) -> None:
    """Raise ConfigError for a name with an unknown ending, or for a plot without matplotlib. Called before any work."""
    if file.suffix not in (".json", *PLOTS):
        raise ConfigError(
            f"--curve {file}: the name must end in one of {', '.join(('.json', *PLOTS))}",
            action="Write --curve curves.png for a plot, --curve curves.json for its points.",
        )
    if file.suffix in PLOTS:
        _import_matplotlib()


def write_curves(file: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """Write the curves by configuration: a plot, or a list of {config, points: [{examples, average_loss,
    recent_loss}]}."""
    if file.suffix == ".json":
        content = [{"config": name, "points": [point._asdict() for point in points]} for name, points in curves.items()]
        file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    else:
        _plot(file, curves)


def _plot(file: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """Plot the average loss over the number of examples, which has a logarithmic axis."""
    _import_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in curves.items():
        known = [(point.examples, point.average_loss) for point in points if point.average_loss is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], label=name, linewidth=1.4)
    axes.set_xscale("log")
    axes.set_xlabel("examples")
    axes.set_ylabel("average loss before each update")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file)


def _import_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401 -- imported here, so that its lack is found before the work
    except ImportError:
        raise ConfigError(
            "plots need matplotlib, which is not installed",
            action="Install stream-learner[evaluate], or write --curve FILE.json.",
        ) from None
