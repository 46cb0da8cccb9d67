"""`docs/evaluate.md` is executed, and names everything that a configuration may name."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from stream_learner.cli import main
from stream_learner.core.model.losses import LOSSES, OPTION_NAMES
from stream_learner.core.model.optimizers import OPTIMIZERS
from tests.cli_e2e.commands import environment

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def form(value: Any) -> Any:
    """A value without its figures, which depend on the machine's awk."""
    if isinstance(value, list):
        return [form(inner) for inner in value]
    if isinstance(value, dict):
        return {key: form(inner) for key, inner in value.items()}
    return "number" if isinstance(value, (int, float)) else value


def test_its_commands_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page: the same rows, names and words, with figures of their own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STREAM_LEARNER")]:
        monkeypatch.delenv(name)
    shell = f'stream-learner() {{ {sys.executable} -m stream_learner "$@"; }}; '
    ran = 0
    for command, printed in (pair for block in BLOCKS for pair in commands(block)):
        if command.startswith("stream-learner "):
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(shlex.split(command)[1:])
            out, err = capsys.readouterr()
            assert not ended.value.code, err
        else:
            done = subprocess.run(
                ["bash", "-c", shell + command], capture_output=True, text=True, check=False, env=environment()
            )
            assert done.returncode == 0, done.stderr
            out = done.stdout
        ran += 1
        if printed and printed[0].startswith("["):
            assert form(json.loads(out)) == form(json.loads(printed[0])), command
        else:
            assert [line.split()[1:] for line in out.splitlines()] == [line.split()[1:] for line in printed], command
    assert ran >= 8


def test_it_names_every_optimizer_hyper_parameter_and_loss() -> None:
    """The tables are those of the registry."""
    rows = dict(re.findall(r"^\| (`[a-z_0-9`, ]+`) \|([^|]*)\|$", PAGE, re.M))
    named = {
        name: [part.strip("` ") for part in cell.split(",") if part.strip()]
        for names, cell in rows.items()
        for name in (word.strip("` ") for word in names.split(","))
    }
    for name, kind in OPTIMIZERS.items():
        assert named[name] == [field.name for field in fields(kind)], name
    for loss in LOSSES:
        assert f"`{loss}`" in PAGE.split("| loss | labels |")[1].split("\n\n")[0], loss
    for option in OPTION_NAMES.values():
        assert f"`{option}`" in PAGE
