"""A command that is run in the tests' process answers as the process does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.operations.topics import control_plan
from tests.cli_e2e.commands import ROLES, Ended, answer_of, run
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.world import World


@pytest.fixture(scope="module")
def world(make_world: MakeWorld) -> Iterator[World]:
    """A model of one version, and a control topic that says nothing."""
    world = make_world()
    world.admin.create([control_plan(world.config)])
    published = Published(world)
    published.publish(5, {BIAS_KEY: 1.0})
    yield world
    published.close()


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "record", "0", "-p", "0", "--json"),
        ("alias", "show", "nobody"),
        ("topics", "ensure", "--dry-run", "--partitions", "2"),
        ("config", "check", "--set", "join.windw=1s"),
        ("pin",),
    ],
    ids=" ".join,
)
def test_both_answer_the_same(world: World, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code, stdout, stderr but for the time; neither heeds the settings of the environment."""
    monkeypatch.setenv("STREAM_LEARNER__MODEL", "another")
    here, there = (each(*words, "-c", world.file) for each in (answer_of, run))
    assert here.out == there.out
    assert (here.code, said(here)) == (there.code, said(there))


def said(ended: Ended) -> list[object]:
    """The lines on stderr; events without their times, which are checked to be times."""
    found: list[object] = []
    for line in ended.err.splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            datetime.fromisoformat(event.pop("time").replace("Z", "+00:00"))
            found.append(event)
        else:
            found.append(line)
    return found


@pytest.mark.parametrize("name", ROLES)
def test_no_role_runs_in_the_process_of_the_tests(name: str) -> None:
    """A role would take over the signals of the tests' process."""
    with pytest.raises(AssertionError, match="takes over the signals"):
        answer_of(name)
