"""docs/reliability.md and its evidence: what they name exists, and what they say of the suite is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proofs.chaos.__main__ import parser
from proofs.chaos.plan import plan_of
from stream_learner.config import Config
from stream_learner.config.paths import leaves
from stream_learner.errors import all_errors

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
EVIDENCE = [PAGE.with_name(f"evidence-{name}.md") for name in ("labels", "faults", "simulation")]
KAFKA = {
    "replication.factor",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "cleanup.policy",
    "message.timestamp.after.max.ms",
    "transactional.id",
}


@pytest.fixture(scope="module")
def text() -> str:
    """All that was tried."""
    return "\n".join(page.read_text(encoding="utf-8") for page in EVIDENCE)


@pytest.fixture(scope="module")
def promises() -> str:
    """The page itself: the promise, and what it asks of Kafka."""
    return PAGE.read_text(encoding="utf-8")


def test_every_setting_that_it_names_exists(promises: str) -> None:
    """Ours by the configuration; Kafka's by a list that was looked up."""
    ours = {".".join(path) for path, _ in leaves(Config)}
    sections = {name.split(".")[0] for name in ours if "." in name}
    named = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", promises)) - KAFKA
    named = {name for name in named if not name.endswith(".md")}
    assert {name for name in named if name.split(".")[0] in sections} <= ours
    assert {name for name in named if name.split(".")[0] not in sections} == set()
    assert len(named) > 8


def test_every_error_that_it_names_exists(promises: str) -> None:
    """By the names of `stream_learner.errors`."""
    errors = {kind.__name__ for kind in all_errors()}
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", promises)) - {"LogAppendTime"}
    assert named and named <= errors


def test_every_command_that_it_names_can_be_given(text: str) -> None:
    """Targets of the Makefile, and options of the suite."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.M), target
    given = re.findall(r'make chaos ARGS="([^"]*)"', text)
    assert len(given) >= 3
    for arguments in given:
        parser().parse_args(arguments.split())


def test_schedules_by_the_clock_are_as_many_as_it_says(text: str) -> None:
    """Every fifth."""
    assert "every fifth by the stream's own clock" in " ".join(text.split())
    assert [plan_of(1, number).by_clock for number in range(5)].count(True) == 1


def test_the_recorded_run_was_whole(text: str) -> None:
    """Its last line is quoted, with its command, and all of its kills ended equal."""
    section = text.split("## The recorded run")[1]
    kills, equal = re.findall(r"^(\d+) kills, (\d+) equal$", section, re.M)[0]
    assert kills == equal
    assert f"--kills {kills} --seed" in section
