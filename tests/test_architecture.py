"""`docs/architecture.md` has every folder, `docs/protocols.md` every protocol step and crash table of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import stream_learner
from tools.docs import protocols

PACKAGE = Path(stream_learner.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
PROTOCOLS = PAGE.with_name("protocols.md")


def section(title: str, page: Path = PAGE) -> str:
    """The text below a heading, up to the next heading of its level or above."""
    found = re.search(rf"^(##+) {re.escape(title)}$", page.read_text(encoding="utf-8"), re.M)
    assert found, title
    rest = found.string[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.M)
    return rest[: following.start()] if following else rest


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


def test_the_steps_and_crash_tables_are_those_of_the_modules() -> None:
    """Each protocol has both; `make docs` writes them from the docstrings."""
    text = PROTOCOLS.read_text(encoding="utf-8")
    assert text == protocols(text), "run `make docs`"
    parts = re.findall(r"<!-- (steps|crashes): \S+ -->\n\n(.*?)\n\n<!-- /\1 -->", text, re.S)
    assert [what for what, _ in parts] == ["steps", "crashes"] * 6
    assert all(part.count("\n") >= 2 for _, part in parts)


def test_the_joiner_takes_the_steps_that_it_documents() -> None:
    """`roles/joiner/partition.py` marks the place of each step of rule W, in order."""
    source = (PACKAGE / "roles" / "joiner" / "partition.py").read_text(encoding="utf-8")
    marked = re.findall(r"# Steps? (\d)(?: and (\d))?:", source)
    taken = [number for pair in marked for number in pair if number]
    assert taken == [step[0] for step in steps(section("Joiner: rule W", PROTOCOLS))]
