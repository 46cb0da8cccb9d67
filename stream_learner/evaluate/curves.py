"""Learning curves as a file: JSON, or a plot.

In: points of each configuration. Out: a file. This file must never need matplotlib for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from stream_learner.errors import ConfigError
from stream_learner.evaluate.measure import CurvePoint

PLOTS: Final = (".png", ".svg", ".pdf")


def check_curve_file(file: Path) -> None:
    """Raise ConfigError, before anything is read, for a name whose end says nothing, or a plot that cannot be made."""
    if file.suffix not in (".json", *PLOTS):
        raise ConfigError(
            f"--curve {file}: the name must end in one of {', '.join(('.json', *PLOTS))}",
            action="Write --curve curves.png for a plot, --curve curves.json for its points.",
        )
    if file.suffix in PLOTS:
        _import_matplotlib()


def write_curves(file: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """The curves by name of configuration: a list of {config, points: [{examples, average_loss, recent_loss}]}."""
    if file.suffix == ".json":
        content = [{"config": name, "points": [point._asdict() for point in points]} for name, points in curves.items()]
        file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    else:
        _plot(file, curves)


def _plot(file: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """Average loss over examples, both as they come: the first by a logarithmic axis."""
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
        import matplotlib  # noqa: F401 -- asked for here, so that its lack is found before the work
    except ImportError:
        raise ConfigError(
            "plots need matplotlib, which is not installed",
            action="Install stream-learner[evaluate], or write --curve FILE.json.",
        ) from None
