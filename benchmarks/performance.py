"""Writes the tables of the two pages of performance and README's figures: `python -m benchmarks.performance [FILE …]`.

In: files that `python -m benchmarks --json NAME …` has printed; without one, the figures kept last. Out: the file
`performance.json` beside this one, which keeps the latest figures of each benchmark with their machine and day, and the
tables of the pages and README, each between its marks. The text around the tables is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.performance_readme import readme_with
from benchmarks.performance_tables import NEEDED, TABLES, Figures, Kept

HERE = Path(__file__).resolve().parent
KEPT = HERE / "performance.json"
PAGES = tuple(HERE.parent / "docs" / name for name in ("performance.md", "performance-growth.md"))
README = HERE.parent / "README.md"
TABLE = re.compile(r"<!-- table: ([a-z-]+) -->\n.*?<!-- /table -->\n", re.S)


def read() -> Kept:
    """The figures kept last."""
    kept: Kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return kept


def taken_in(kept: Kept, printed: Iterable[dict[str, Any]], day: str) -> Kept:
    """The figures kept with those that benchmarks have printed; a benchmark that is there again replaces its rows.

    Of a benchmark that failed nothing is taken: a part of its rows would stand beside others of another day.
    """
    kept = dict(kept)
    for one in printed:
        for benchmark in NEEDED:
            rows = {
                row["name"]: (row["value"], row["unit"], row.get("note", ""))
                for row in one["rows"]
                if row["benchmark"] == benchmark and benchmark not in one["failed"]
            }
            if rows:
                kept[benchmark] = {"machine": one["machine"], "day": day, "quick": one["quick"], "rows": rows}
    return kept


def page_with(kept: Kept, page: str) -> str:
    """The page with its tables made anew. Raises KeyError for a mark without a table."""
    figures = Figures(kept)

    def filled(mark: re.Match[str]) -> str:
        return f"<!-- table: {mark[1]} -->\n\n{TABLES[mark[1]](figures)}\n<!-- /table -->\n"

    return TABLE.sub(filled, page)


def main() -> None:
    """Take in what was printed, keep it, and write pages and README. Ends with 1 if something could not be taken."""
    printed, wrong = _printed(sys.argv[1:])
    kept = taken_in(read(), printed, datetime.now(timezone.utc).date().isoformat())
    wrong += [f"{name}: {why}" for one in printed for name, why in one["failed"].items()]
    if missing := [name for name in NEEDED if name not in kept]:
        sys.exit(f"no figures of {', '.join(missing)}: run `python -m benchmarks --json {' '.join(missing)} > FILE`")
    try:
        pages = {page: page_with(kept, page.read_text(encoding="utf-8")) for page in PAGES}
        readme = readme_with(Figures(kept), README.read_text(encoding="utf-8"))
    except KeyError as error:
        sys.exit(f"no figure {error}: does a benchmark call it otherwise now, or was it a quick run?")
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")
    README.write_text(readme, encoding="utf-8")
    if wrong:
        sys.exit("the figures kept before stay where these are missing:\n" + "\n".join(wrong))


def _printed(names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """What is in the files, and a line about each that holds no figures."""
    printed, wrong = [], []
    for name in names:
        try:
            found = json.loads(Path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            wrong.append(f"{name}: {error}")
            continue
        if isinstance(found, dict) and found.keys() >= {"machine", "quick", "rows", "failed"}:
            printed.append(found)
        else:
            wrong.append(f"{name}: not what `python -m benchmarks --json` prints")
    return printed, wrong


if __name__ == "__main__":
    main()
