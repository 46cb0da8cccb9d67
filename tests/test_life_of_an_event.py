"""`docs/life-of-an-event.md` is true: its examples run from top to bottom and print what it says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import stream_learner

PAGE = Path(__file__).resolve().parent.parent / "docs" / "life-of-an-event.md"
PACKAGE = Path(stream_learner.__file__).parent


def code_only(text: str) -> str:
    """The lines of ```python blocks where they stand, every other line empty."""
    lines, inside = [], False
    for line in text.split("\n"):
        fence = line.startswith("```")
        inside = line == "```python" if fence else inside
        lines.append(line if inside and not fence else "")
    return "\n".join(lines)


def test_every_value_on_the_page_is_what_the_code_gives() -> None:
    """The blocks are one session; each value printed in them is compared to the last digit."""
    text = code_only(PAGE.read_text(encoding="utf-8"))
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(example.examples) > 50
    report: list[str] = []
    found = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert found.failed == 0, "".join(report)


def test_every_file_named_on_the_page_exists() -> None:
    """`name.py` and `folder/name.py` are files of the package, or of the tests."""
    there = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    there |= {name.rpartition("/")[2] for name in there}
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert named - there == {"tests/test_life_of_an_event.py"}


def test_the_page_follows_the_order_of_the_data() -> None:
    """The modules at which one stage hands over to the next are all named, in the order of the data."""
    text = PAGE.read_text(encoding="utf-8")
    stages = [
        "events/decoders",
        "join/state",
        "log/rule_w",
        "log/rule_r",
        "model/fold",
        "snapshots/pages",
        "snapshots/records",
        "snapshots/replica",
        "events/features",
    ]
    places = [text.index(f"`core/{stage}.py`") for stage in stages]
    assert places == sorted(places)
