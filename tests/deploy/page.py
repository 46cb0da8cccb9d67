"""The blocks of docs/deploy.md.

It must never change a block.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from stream_learner.config.yaml import read_yaml

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@cache
def text() -> str:
    """The page."""
    return PAGE.read_text(encoding="utf-8")


@cache
def files() -> dict[str, str]:
    """Every YAML block by the last file name between backticks before it."""
    found = {}
    for match in _BLOCK.finditer(text()):
        if match[1] == "yaml":
            name = re.findall(r"`([\w-]+\.yaml)`", text()[: match.start()])[-1]
            assert name not in found, f"{name} stands on the page twice"
            found[name] = match[2]
    return found


def read(name: str) -> dict[str, Any]:
    """The text of a file of the page."""
    return dict(read_yaml(files()[name]).data)


@cache
def part(title: str) -> str:
    """The text below the heading that begins with these words, up to the next heading."""
    found = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", text(), re.M | re.S)
    assert found, title
    return found[0]


@cache
def commands(title: str) -> str:
    """The shell commands of a part, in order, each whole."""
    return "".join(match[2] for match in _BLOCK.finditer(part(title)) if match[1] == "sh")


def commands_with(title: str, word: str) -> str:
    """The commands of a part that begin with a word, with their continuation lines."""
    lines = re.findall(rf"^{re.escape(word)}\b(?:.*\\\n)*.*\n", commands(title), re.M)
    assert lines, f"part {title} has no command {word}"
    return "".join(lines)


def command(title: str, word: str) -> str:
    """The one command of a part that begins with a word."""
    (found,) = re.findall(rf"^{re.escape(word)}(?:.*\\\n)*.*\n", commands(title), re.M)
    return str(found)
