"""A figure as the page shows it: text, tables, plots, and the claims of the sources beside what was measured.

Nothing is rounded so that a claim comes true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE = {"svg.hashsalt": "stream-learner", "svg.fonttype": "none", "font.size": 10.0, "axes.grid": True}
"""With these settings, plots of the same numbers are the same bytes."""


class Claim(NamedTuple):
    """A claim of a source, what was measured, and whether they agree."""

    says: str
    seen: str
    holds: bool


class Plot(NamedTuple):
    """A plot: the name of its file, its caption, and the function that draws it."""

    name: str
    shows: str
    draw: Callable[[Axes], None]


class Figure(NamedTuple):
    """One figure. source: as in the list of sources. text: what was done. tables: in Markdown."""

    name: str
    title: str
    source: str
    text: str
    claims: Sequence[Claim]
    tables: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    notes: str = ""

    @property
    def holds(self) -> bool:
        """Whether every claim of the sources agrees with what was measured."""
        return all(claim.holds for claim in self.claims)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)


def section(figure: Figure, folder: str) -> str:
    """The Markdown of one figure; its plots lie in `folder`."""
    claims = table(
        ("the source says", "seen", "agrees"),
        [(claim.says, claim.seen, "yes" if claim.holds else "**no**") for claim in figure.claims],
    )
    parts = [
        f"## {figure.title}",
        f"Source: {figure.source}. Command: `make figures ARGS={figure.name}`.",
        figure.text,
        claims,
        *figure.tables,
        *(f"![{plot.shows}]({folder}/{plot.name}.svg)" for plot in figure.plots),
        *([figure.notes] if figure.notes else []),
    ]
    return "\n\n".join(parts) + "\n"


def draw(plot: Plot, folder: Path) -> Path:
    """Draw a plot into a file of `folder`."""
    # Imported here because it loads slowly, and only drawing needs it.
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{plot.name}.svg"
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(7.0, 4.2), layout="constrained")
        plot.draw(canvas.subplots())
        canvas.savefig(path, metadata={"Date": None})
    return path
