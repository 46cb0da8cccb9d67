"""Writes the tables of `docs/performance.md`: `python -m benchmarks.performance [FILE …]`.

In: files that `python -m benchmarks --json NAME …` has printed; without one, the figures kept last. Out: the file
`performance.json` beside this one, which keeps the latest figures of each benchmark with their machine and day, and the
tables of the page, each between its marks. The text around the tables is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.performance_tables import NEEDED, TABLES, Figures, Kept

HERE = Path(__file__).resolve().parent
KEPT = HERE / "performance.json"
PAGE = HERE.parent / "docs" / "performance.md"
TABLE = re.compile(r"<!-- table: ([a-z-]+) -->\n.*?<!-- /table -->\n", re.S)


def read() -> Kept:
    """The figures kept last."""
    kept: Kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return kept


def taken_in(kept: Kept, printed: Iterable[dict[str, Any]], day: str) -> Kept:
    """The figures kept with those that benchmarks have printed; a benchmark that is there again replaces its rows."""
    kept = dict(kept)
    for one in printed:
        for benchmark in NEEDED:
            rows = {
                row["name"]: (row["value"], row["unit"], row.get("note", ""))
                for row in one["rows"]
                if row["benchmark"] == benchmark
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
    """Take in what was printed, keep it, and write the page."""
    printed = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    if failed := [f"{name}: {why}" for one in printed for name, why in one["failed"].items()]:
        sys.exit(f"nothing is taken from a run that is not whole: {'; '.join(failed)}")
    kept = taken_in(read(), printed, datetime.now(timezone.utc).date().isoformat())
    if missing := [name for name in NEEDED if name not in kept]:
        sys.exit(f"no figures of {', '.join(missing)}: run `python -m benchmarks --json {' '.join(missing)} > FILE`")
    page = page_with(kept, PAGE.read_text(encoding="utf-8"))
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
