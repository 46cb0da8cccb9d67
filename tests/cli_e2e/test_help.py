"""`--help`: what a person sees who knows nothing but the name of a command."""

from __future__ import annotations

import re

import pytest
import typer

from stream_learner.cli import app
from tests.cli_e2e.commands import answers_of


def leaves(command: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every command that does something."""
    inner = getattr(command, "commands", {})
    return [leaf for name in sorted(inner) for leaf in leaves(inner[name], (*path, name))] or [path]


@pytest.fixture(scope="module")
def pages() -> dict[tuple[str, ...], str]:
    """The help of every command, without a configuration or a broker."""
    words = leaves(typer.main.get_command(app))
    ended = answers_of(*((*path, "--help") for path in words))
    assert all((e.code, e.err) == (0, "") for e in ended)
    return {path: " ".join(e.out.split()) for path, e in zip(words, ended, strict=True)}


def test_every_command_says_what_it_does(pages: dict[tuple[str, ...], str]) -> None:
    """How it is called, a sentence, and its options."""
    for path, page in pages.items():
        assert page.startswith(f"Usage: stream-learner {' '.join(path)} ")
        assert re.search(
            r"\] (\{(TICK|OFFSET|NAME|MODEL)\} |\[\[?EVENTS\]\]? |\[FILE\]\.\.\. )?[A-Z][^.]{20,}[.:]", page
        ), page
        if path not in {("demo",), ("compile",), ("config", "schema")}:
            assert "-c, --config FILE" in page and "--set NAME=VALUE" in page


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("run",), ("topics ensure", "/metrics", "SIGTERM", "goes on from there")),
        (("join",), ("partitions", "join.start")),
        (("learn",), ("One per model publishes", "Two with --standby")),
        (("score",), ("JSON lines", "stdin if left out", '{"error": …}', "echo")),
        (("backfill",), ("of [from, until) are learned", "the same command goes on", "--from-log folds", "--until")),
        (("audit",), ("writes nothing", "--replay", "byte for byte", "--from-tick", "58", "59", "For example")),
        (
            ("begin-anew",),
            ("LogTrimmed", "TopicRecreated", "InputsChanged", "changes nothing", "What is lost", "30"),
        ),
        (
            ("delete",),
            ("never touched", "--write", "interrupted", "begin again", "begin-anew", "backfill", "31", "For example"),
        ),
        (("evaluate",), ("before its example is learned from", "--learn", "- is stdin", "every 10th", "For example")),
        (("topics", "ensure"), ("--partitions", "--apply", "--dry-run", "exit code is 25")),
        (("inspect", "feature"), ("name=value", "0x")),
        (("promote",), ("complete", "fresh", "not paused", "log-loss", "exit code is 56", "--force", "--dry-run")),
        (("rollback",), ("the model before", "--to")),
        (("pause",), ("resume", "stay ready")),
        (("pin",), ("no later one", "not ready", "--version")),
        (("compile",), ("Without --role", "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "no configuration", "For example")),
        (("config", "check"), ("without a broker",)),
    ],
)
def test_the_help_teaches(pages: dict[tuple[str, ...], str], path: tuple[str, ...], words: tuple[str, ...]) -> None:
    """What one must know to use the command is on its page."""
    assert not [word for word in words if word not in pages[path]], pages[path]
