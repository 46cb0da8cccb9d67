"""How long each test file takes: measured, kept in `times.json`, shown in CONTRIBUTING.

In: the results of a whole run (`make test-all`), as `.build/tests` has them. Out: `times.json` and the table of both
parts. `python -m tests.suite.times` writes both anew.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
BUILD = Path(".build", "tests")
TIMES = HERE / "times.json"
PAGE = PROJECT / "CONTRIBUTING.md"
BEGIN, END = "<!-- times: python -m tests.suite.times -->\n", "<!-- /times -->\n"

Times = dict[str, dict[str, float]]
"""Seconds by part and file."""


@cache
def read() -> Times:
    """The times that were measured last."""
    return json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.exists() else {}


def seconds_by_file() -> dict[str, float]:
    """Seconds of each file, the longer of its two parts."""
    found: dict[str, float] = defaultdict(float)
    for part in read().values():
        for file, seconds in part.items():
            found[file] = max(found[file], seconds)
    return found


def measured(lines: Iterable[str]) -> dict[str, float]:
    """Seconds of each file, from a file of results."""
    found: dict[str, float] = defaultdict(float)
    for line in lines:
        result = json.loads(line)
        found[result["id"].partition("::")[0]] += result.get("seconds", 0.0)
    return {file: round(seconds, 1) for file, seconds in sorted(found.items()) if file.endswith(".py")}


def table(times: Times) -> str:
    """Both parts by folder, as Markdown."""
    rooms: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(times, 0.0))
    for part, files in times.items():
        for file, seconds in files.items():
            rooms[room_of(file)][part] += seconds
    rows = [f"| tests | {' | '.join(f'`make {name_of(part)}`' for part in times)} |", f"| --- |{' --- |' * len(times)}"]
    for room, by_part in sorted(rooms.items(), key=lambda one: -sum(one[1].values())):
        rows.append(f"| `{room}` | {' | '.join(f'{seconds:.0f} s' for seconds in by_part.values())} |")
    sums = [sum(files.values()) for files in times.values()]
    rows.append(f"| together, one after the other | {' | '.join(f'{seconds:.0f} s' for seconds in sums)} |")
    return "\n".join(rows) + "\n"


def room_of(file: str) -> str:
    """The folder of a test file, and `tests` for those in no folder."""
    return "/".join(file.split("/")[:2]) if file.count("/") > 1 else "tests"


def name_of(part: str) -> str:
    """The target of the Makefile that runs a part."""
    return {"newcomer": "test", "thorough": "test-thorough"}[part]


def page_with(times: Times) -> str:
    """CONTRIBUTING with the table of these times."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + "\n" + table(times) + "\n" + END + rest.partition(END)[2]


def main() -> None:
    """Write `times.json` and the table from the results of the last whole run."""
    times: Times = {}
    for part in ("newcomer", "thorough"):
        path = PROJECT / BUILD / f"{part}.jsonl"
        if not path.exists():
            sys.exit(f"{path} is missing: run `make test-all` first")
        times[part] = measured(path.read_text(encoding="utf-8").splitlines())
    TIMES.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_with(times), encoding="utf-8")


if __name__ == "__main__":
    main()
