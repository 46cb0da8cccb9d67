"""`docs/architecture.md` has every folder, `docs/protocols.md` every protocol step and crash table of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stream_learner

PACKAGE = Path(stream_learner.__file__).parent
NAMES = ("architecture.md", "protocols.md")
TEXT = "\n".join((PACKAGE.parent / "docs" / name).read_text(encoding="utf-8") for name in NAMES)

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
    """The text below a heading, up to the next heading of its level or above."""
    found = re.search(rf"^(##+) {re.escape(title)}$", TEXT, re.M)
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


def folders_on_the_map() -> list[str]:
    """The folders and files of the first column, `a/` below `b/` as it is written there."""
    cells = [row[0] for row in table(section("Code map"))]
    return [name for cell in cells for name in re.findall(r"`([\w/.]+)`", cell)]


def test_the_code_map_has_every_folder_and_no_other() -> None:
    """Whoever adds, moves or removes a folder does so here too; one level below a named one may be spoken of there."""
    spoken = section("Code map")
    named = {name.rstrip("/") for name in folders_on_the_map()}
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - {".", "roles", "core"}
    top = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    unnamed = {folder for folder in folders - named - {"adapters"} if f"`{folder.rpartition('/')[2]}/`" not in spoken}
    assert unnamed == set()
    assert named - folders == top


def test_every_folder_says_what_it_is_for() -> None:
    """The page sends its readers to the docstring of each folder."""
    for path in PACKAGE.rglob("__init__.py"):
        words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert len(words) >= 20, path


def test_no_folder_of_the_core_imports_one_below_it_in_the_map() -> None:
    """The way of the data is the order of the table; the join fills what the log holds."""
    order = [name.rstrip("/").removeprefix("core/") for name in folders_on_the_map() if name.startswith("core/")]
    tops = list(dict.fromkeys(name.partition("/")[0] for name in order))
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {found}"
        for place, folder in enumerate(tops)
        for path in (PACKAGE / "core" / folder).rglob("*.py")
        for found in re.findall(r"^\s*from stream_learner\.core\.(\w+)", path.read_text(encoding="utf-8"), re.M)
        if found in tops[place + 1 :] and (folder, found) != ("join", "log")
    ]
    assert wrong == []


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
