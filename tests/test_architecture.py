"""`docs/architecture.md` says what the code says: every module, every protocol step, every crash table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stream_learner

PACKAGE = Path(stream_learner.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"

STEPS = {
    "Joiner: rule W": "core/log/rule_w.py",
    "Learner": "roles/learner/role.py",
    "Publication": "roles/learner/publication.py",
    "Checkpoint": "adapters/rocksdb/store.py",
    "Copies of checkpoints": "roles/learner/copies/writer.py",
    "The state at a start": "roles/learner/recovery.py",
}
TABLES = {**STEPS, "Joiner: rule W": "roles/joiner/partition.py"}


def section(title: str) -> str:
    """What stands below a heading, to the next heading of its level or above."""
    found = re.search(rf"^(##+) {re.escape(title)}$", PAGE.read_text(encoding="utf-8"), re.M)
    assert found, title
    rest = found.string[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.M)
    return rest[: following.start()] if following else rest


def docstring(module: str) -> str:
    """The docstring of a module."""
    return ast.get_docstring(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))) or ""


def table(text: str) -> list[list[str]]:
    """The cells of a Markdown table, its line of dashes left out."""
    lines = [line.strip().strip("|") for line in text.splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines if set(line) - set("|-: ")]


def steps(text: str) -> list[str]:
    """The numbered steps of a text, each as one line with its number."""
    text = "\n" + "\n".join(line.strip() for line in text.splitlines())
    found = re.findall(r"\n(?:Step )?(\d)\. (.+(?:\n(?!(?:Step )?\d\. ).+)*)", text)
    return [f"{number}. {' '.join(words.split())}" for number, words in found]


def test_the_code_map_has_every_module_and_no_other() -> None:
    """Each file of the package has its line; whoever adds, moves or removes a file does so here too."""
    lines = re.findall(r"^\| `([\w/]+\.py)` \| \S", section("Code map"), re.M)
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    assert sorted(lines) == sorted(set(lines))
    assert {file for file in files if not file.endswith("__init__.py")} - set(lines) == set()
    assert set(lines) - files == set()


@pytest.mark.parametrize("title", STEPS)
def test_the_steps_of_a_protocol_are_those_of_its_module(title: str) -> None:
    """Numbered alike, word for word."""
    expected = steps(docstring(STEPS[title]))
    assert len(expected) >= 3
    assert steps(section(title)) == expected


@pytest.mark.parametrize("title", TABLES)
def test_the_crash_table_of_a_protocol_is_that_of_its_module(title: str) -> None:
    """Row for row, word for word."""
    expected = table(docstring(TABLES[title]))
    assert len(expected) >= 4
    assert table(section(title)) == expected


def test_the_joiner_takes_the_steps_that_it_documents() -> None:
    """`roles/joiner/partition.py` marks the place of each step of rule W, in order."""
    source = (PACKAGE / "roles" / "joiner" / "partition.py").read_text(encoding="utf-8")
    marked = re.findall(r"# Steps? (\d)(?: and (\d))?:", source)
    taken = [number for pair in marked for number in pair if number]
    assert taken == [step[0] for step in steps(section("Joiner: rule W"))]
