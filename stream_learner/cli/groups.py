"""The commands in groups, in the order in which one needs them: the first page of `--help`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

GROUPS: dict[str, Sequence[str]] = {
    "Begin here": ("demo", "doctor", "config", "topics", "run"),
    "Roles": ("join", "learn", "score", "serve"),
    "Look": ("inspect", "gate", "audit", "diff", "rights"),
    "Try another model and change to it": (
        "evaluate",
        "backfill",
        "promote",
        "rollback",
        "alias",
        "pause",
        "resume",
        "pin",
        "unpin",
    ),
    "Routine and repair": ("begin-anew", "rewind", "log", "delete", "compile"),
}
MOST_CHARACTERS = 300
"""A first sentence is shown whole, on as many lines as it takes."""


class GroupedCommands(TyperGroup):
    """A program whose `--help` shows its commands in `GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group, with the first sentence of each command's text."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(MOST_CHARACTERS)) for name in names])
