"""The whole grid as a table: `python -m tests.evaluate.vw`, with the causes of what differs.

The exit code is 1 if a cause is not known.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tests.evaluate.vw.live import (
    DEFAULTS,
    LOSSES,
    Compared,
    cells,
    compared,
    generated,
    read,
    reals,
    sets,
)
from tests.evaluate.vw.vw_commands import FLAGS, REFERENCES

ROWS = 1000


FEW_ROWS = 300


def few() -> dict[str, bytes]:
    """The beginnings of the files of the grid."""
    every = {**sets(FEW_ROWS), **reals(FEW_ROWS)}
    return {name: every[name] for name in ("a9a", "books", "0001.dat.gz", "0002.dat.gz")}


def commands_on_files(name: str) -> Iterator[str]:
    """Every combination of parts and losses; counts only where labels are not negative."""
    for flags, loss in product(FLAGS, LOSSES):
        if loss != "poisson" or ".dat" in name:
            yield f"{flags} --loss_function {loss}".strip()


def everything() -> list[Compared]:
    """Reference commands, the default update on all sets, the grid on files and on generated lines."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for command, name in REFERENCES:
            found.append(compared(command, name, read(f"vw/{name}"), place))
        for loss in DEFAULTS:
            for name, text in {**sets(ROWS), **(reals(ROWS) if loss != "logistic" else {})}.items():
                found.append(compared(f"--loss_function {loss}", name, text, place))
        for name, text in few().items():
            for command in commands_on_files(name):
                found.append(compared(command, name, text, place))
        for command, counts in cells():
            text = generated(counts=counts)
            found.append(compared(command, "counts" if counts else "generated", text, place))
    return found


def table() -> tuple[str, bool]:
    """The table in Markdown, and whether nothing in it is unexplained."""
    found = everything()
    causes = Counter(cell.cause or "equal" for cell in found)
    lines = [f"{causes['equal']} of {len(found)} runs print the same", ""]
    lines += ["| runs | |", "| --- | --- |", *(f"| {n} | {cause} |" for cause, n in causes.most_common()), ""]
    different = [cell for cell in found if not cell.equal and cell.cause != "diverges"]
    if different:
        lines += ["| command | data | printed | ours | cause |", "| --- | --- | --- | --- | --- |"]
        lines += [f"| `{c.command}` | {c.data} | {c.printed} | {c.ours:.6f} | {c.cause} |" for c in different]
    return "\n".join(lines) + "\n", not any(cell.cause == "unexplained" for cell in found)


def main() -> int:
    """Print the table."""
    text, explained = table()
    sys.stdout.write(f"{text}\n")
    return 0 if explained else 1


if __name__ == "__main__":
    sys.exit(main())
