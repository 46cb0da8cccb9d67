"""Makes the figures of the sources again: `python -m proofs.figures [--quick] [name …]`.

It writes `docs/figures.md` with its plots, or with `--quick` prints the claims alone.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from rich.console import Console

from proofs.figures.data import DataMissing
from proofs.figures.page import Figure, draw, section

FIGURES = ("theorem1", "sentiment", "regret", "bounds", "oscillation", "sparsity")
DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = """# The figures of the sources, made again

Every weight behind these figures comes out of the fold that learns in production; `make figures` makes them all
again, `make figures ARGS=name` one of them. Sources: [L] McMahan, "Adaptive per-coordinate learning" (lecture, 2012);
[SM] Streeter and McMahan, "Less regret via online conditioning" (2010); [F] "Online convex optimization 2" (slides on
FTRL); [Z] notes on sparse online optimisation; [G] McMahan et al., "Ad click prediction: a view from the trenches"
(2013). What did not come out as a source says is marked **no**. The losses that Vowpal Wabbit prints are compared
live by `make conformance`.
"""


def make(name: str, quick: bool) -> Figure:
    """Measure one figure. Raises DataMissing where it needs data that is not there."""
    figure: Figure = importlib.import_module(f"proofs.figures.{name}").run(quick)
    return figure


def write(figures: list[Figure]) -> None:
    """Write the figures into the page, each over the one of the same name, and draw their plots."""
    page = DOCS / "figures.md"
    sections = _sections(page.read_text("utf-8")) if page.exists() else {}
    for figure in figures:
        sections[figure.name] = section(figure, "figures")
        for plot in figure.plots:
            draw(plot, DOCS / "figures")
    page.write_text(HEAD + "".join(f"\n{sections[name]}" for name in FIGURES if name in sections), "utf-8")


def _sections(page: str) -> dict[str, str]:
    """The sections of the page by the name in their command."""
    parts = page.split("\n## ")[1:]
    return {part.split("ARGS=", 1)[1].split("`", 1)[0]: f"## {part.rstrip()}\n" for part in parts}


def main() -> int:
    """Make what was asked for. Returns 1 if a claim did not hold or data was missing."""
    parser = argparse.ArgumentParser(prog="make figures", description="Make the figures of the sources again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(FIGURES)}")
    parser.add_argument("--quick", action="store_true", help="small versions; the page stays as it is")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(FIGURES))
    if unknown:
        parser.error(f"no figure is called {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    log, made, missing = Console(stderr=True), [], []
    for name in arguments.names or FIGURES:
        began = time.perf_counter()
        try:
            figure = make(name, arguments.quick)
        except DataMissing as error:
            missing.append(name)
            log.print(f"{name}: {error}", style="red", highlight=False, markup=False)
            continue
        log.print(f"{name}: {time.perf_counter() - began:.1f} s", highlight=False)
        for claim in figure.claims:
            mark = "yes" if claim.holds else "NO "
            log.print(f"  {mark}  {claim.says}: {claim.seen}", highlight=False, markup=False)
        made.append(figure)
    if made and not arguments.quick:
        write(made)
    return 1 if missing or not all(figure.holds for figure in made) else 0


if __name__ == "__main__":
    sys.exit(main())
