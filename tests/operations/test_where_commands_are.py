"""The docstring of `operations` says where the work of each command is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from stream_learner import operations
from stream_learner.cli import app

FOLDER = Path(operations.__file__ or "").parent
PAGE = operations.__doc__ or ""
ROWS = {
    command: where
    for commands, where in re.findall(r"^\| (`.+`) +\| `([\w.]+)` +\|$", PAGE, re.M)
    for command in re.findall(r"`([^`]+)`", commands)
}
ELSEWHERE = {"serve", "evaluate", "demo", "config check", "config show", "config schema"}


def commands_of(group: Any, before: str = "") -> Iterator[str]:
    """Every command as it is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_command_has_its_place_and_no_other() -> None:
    """Whoever adds a command says here where its work is; those with a home outside are named below the table."""
    assert {*commands_of(typer.main.get_command(app))} == {*ROWS} | ELSEWHERE
    last = PAGE.rpartition("|")[2]
    assert [command for command in ELSEWHERE if f"`{command}`" not in last] == []


def test_every_place_is_a_module_that_names_its_commands() -> None:
    """The docstring of the module begins with the commands, or their first words."""
    for command, where in ROWS.items():
        source = (FOLDER / f"{where.replace('.', '/')}.py").read_text(encoding="utf-8")
        first = source.partition("\n")[0]
        assert f"`{command}`" in first or f"`{command.split()[0]}`" in first, (command, first)
