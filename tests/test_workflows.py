"""The workflows of continuous integration run commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(workflow: Path) -> list[str]:
    """What its steps run, with each command of its matrix."""
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    found: list[str] = []
    for job in jobs.values():
        of_matrix = job.get("strategy", {}).get("matrix", {}).get("command", [])
        for run in (step["run"] for step in job["steps"] if "run" in step):
            found += of_matrix if run == "${{ matrix.command }}" else [run]
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: str(workflow.stem))
def test_a_workflow_runs_what_there_is(workflow: Path) -> None:
    for command in commands(workflow):
        program, *arguments = shlex.split(command)
        if program == "make":
            assert arguments[0] in TARGETS, command
        else:
            assert (PROJECT / program).stat().st_mode & 0o100, command


def test_every_python_that_is_tried_is_allowed_and_the_lowest_is_among_them() -> None:
    """`requires-python` promises it."""
    ci = yaml.safe_load((PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    tried = ci["jobs"]["everything"]["strategy"]["matrix"]["python"]
    lowest = re.search(r'requires-python = ">=([\d.]+)"', (PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert lowest is not None and lowest[1] == tried[0]
