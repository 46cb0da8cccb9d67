"""What README, its neighbours and docs/ name exists: commands, options, make targets, files, links, library calls."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from stream_learner import __version__
from stream_learner.cli import app
from stream_learner.config import load_config
from stream_learner.roles.scorer.scorer import Prediction, Predictions, Scorer

PROJECT = Path(__file__).resolve().parent.parent
README = PROJECT / "README.md"
AT_THE_TOP = [README, *(PROJECT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
PAGES = [*AT_THE_TOP, *sorted((PROJECT / "docs").rglob("*.md"))]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_of(text: str) -> str:
    """The text in fenced blocks and between backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return "\n".join([*blocks, *inline])


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every `stream-learner …` on a page."""
    for line in code_of(text_of(page)).splitlines():
        found = re.search(r"(?:^|[\s|])stream-learner( [^#|…]*)?", line)
        if found:
            yield shlex.split(found[1] or "")


@cache
def program() -> Any:
    """The commands as a tree, which takes a while to build."""
    return typer.main.get_command(app)


def parse(arguments: list[str]) -> None:
    """Walk down to the command, and look up each of its options; raises AssertionError for what is not there.

    What holds a space is the value of an option.
    """
    command = program()
    rest = list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for argument in rest:
        known = {*options, "--help", "-"}
        assert not argument.startswith("-") or " " in argument or argument in known, f"{command.name} has no {argument}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S), re.M)
    return {anchor_of(heading) for heading in headings}


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link is a file or folder of the project, every anchor a heading there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), target
        if anchor:
            assert anchor in anchors(place), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_commands_exist_with_their_options(page: Path) -> None:
    """Every `stream-learner` command on a page is one, and knows the options it is given."""
    for arguments in commands(page):
        parse(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_make_targets_and_files_exist(page: Path) -> None:
    """Every `make target` is in the Makefile, and every file of configs/, docs/ and tests/ is there."""
    code = code_of(text_of(page))
    targets = set(re.findall(r"^([a-z-]+):", text_of(PROJECT / "Makefile"), re.M))
    assert set(re.findall(r"(?:^|[`\s])make ([a-z-]+)", code, re.M)) <= targets
    for name in re.findall(r"(?<!\.build/)(?:configs|tests|docs)/[\w/.-]+\.\w+", code):
        assert (PROJECT / name).exists(), name


def test_the_command_gets_onto_the_path_before_it_is_used(tmp_path: Path) -> None:
    """What the README says before the first command makes `stream-learner` one, from the folder that `make` fills."""
    before = text_of(README).partition("\nstream-learner ")[0]
    (line,) = re.findall(r"`(export PATH=[^`]+)`", before)
    (folder,) = re.findall(r"^VENV := (\S+)$", text_of(PROJECT / "Makefile"), re.M)
    (tmp_path / folder).symlink_to(sys.prefix)
    ended = subprocess.run(
        ["bash", "-c", f"{line}; command -v stream-learner; stream-learner --version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert ended.stdout.split() == [f"{tmp_path}/{folder}/bin/stream-learner", "stream-learner", __version__]


def test_the_readme_has_a_command_for_each_role() -> None:
    """Who follows it meets every command that a site needs."""
    named = {arguments[0] for arguments in commands(README) if arguments}
    assert {"topics", "run", "join", "learn", "score"} <= named


def test_the_first_model_uses_a_configuration_that_works() -> None:
    """Every configuration named in the README can be loaded; the library's example names a model of one of them."""
    files = sorted(set(re.findall(r"configs/\w+\.yaml", text_of(README))))
    assert "configs/minimal.yaml" in files
    models = {load_config(PROJECT / name, environ={}).model for name in files}
    assert set(re.findall(r'model="(\w+)"', text_of(README))) <= models


def test_the_library_has_what_its_example_uses() -> None:
    """The example's import works, and each method and field it touches is there."""
    (block,) = re.findall(r"^```python\n(.*?)^```", text_of(README), re.M | re.S)
    assert len(block.strip().splitlines()) <= 8
    tree = ast.parse(block)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    scope: dict[str, object] = {}
    exec(compile(ast.Module(imports, []), "README", "exec"), scope)
    assert scope["Scorer"] is Scorer
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert all(hasattr(Scorer, name) or name in Predictions.__dataclass_fields__ for name in used), used
    assert Prediction._fields == ("p_click", "version", "model", "known_features")


def test_the_readme_fits_a_screen_or_two() -> None:
    """The README stays short; everything else has a page of its own."""
    assert len(text_of(README).splitlines()) <= 110


def test_the_measured_figures_are_marked() -> None:
    """The table stands between its marks, so that it can be filled from `make bench`."""
    body = re.search(r"<!-- figures: make bench -->\n(.*?)<!-- /figures -->", text_of(README), re.S)
    assert body
    rows = [line.split("|")[1].strip() for line in body[1].splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "decode + hash",
        "join from Kafka",
        "fold",
        "whole loop",
        "predict one",
        "predict many",
        "HTTP, one event",
        "freshness p99",
        "restart with 10 M features",
    ]
