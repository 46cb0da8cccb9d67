"""`gate status | accept | skip | policy` as a person or a script calls them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_learner import errors
from stream_learner.core.control.gate_state import GateState, HeldPublication, Holding
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.operations.topics import control_plan
from stream_learner.roles.control.topic import ControlTopic
from tests.cli_e2e.commands import Ended, answer_of
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.world import World

VERSION = 10_000
HELD = 10_005


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A model at VERSION, with a control topic."""
    world = make_world()
    world.admin.create([control_plan(world.config)])
    published = Published(world)
    published.publish(VERSION, {BIAS_KEY: 1.0})
    published.close()
    return world


def run(world: World, *words: str, as_json: bool = True) -> Ended:
    return answer_of("gate", *words, "-c", str(world.file), *(["--json"] if as_json else []))


def hold(world: World) -> None:
    """Say what a learner would say that holds."""
    config = world.config
    holding = Holding(HELD, HELD - 2, "positives", "", 0.0, 20.5, 3.0, 50.0)
    state = GateState(config.model, config.examples_topic, "hold", holding, (), "learner@pod", 1, "too few clicks")
    ControlTopic(world.settings, config.control_topic).write(state)


def test_from_open_to_decided(world: World) -> None:
    """Status before, what holds, a decision from the tick that is held on, and status after: who, when and why."""
    before = run(world, "status").json
    assert (before["state"], before["decisions"], before["published"]) == ("open", [], VERSION)
    hold(world)
    held = run(world, "status").json
    assert (held["state"], held["tick"], held["since_tick"]) == ("held", HELD, HELD - 2)
    assert (held["bound"], held["found"], held["expected"]) == ("positives", 0.0, 20.5)
    assert held["message"] == "too few clicks" and held["said_by"] == "learner@pod"
    skipped = run(world, "skip", "--to", str(HELD + 10), "--reason", " dead clicks ", "--who", "ann")
    assert skipped.code == 0
    assert (skipped.json["from_tick"], skipped.json["to_tick"]) == (HELD, HELD + 10)
    assert f"{world.config.model}, which goes on within a second once its learner runs" in skipped.json["hint"]
    accepted = run(world, "accept", "--from", str(HELD + 20), "--reason", "a launch").json
    assert (accepted["from_tick"], accepted["to_tick"]) == (HELD + 20, HELD + 20)
    assert "not about what is held" in accepted["hint"]
    rows = run(world, "status").json["decisions"]
    assert [(row["what"], row["who"], row["why"], row["late"]) for row in rows] == [
        ("skip", "ann", "dead clicks", False),
        ("accept", accepted["who"], "a launch", False),
    ]
    text = run(world, "status", as_json=False).out
    assert "too few clicks" in text and skipped.json["decision"] in text and "dead clicks" in text


def test_the_same_decision_twice_is_one(world: World) -> None:
    """The second answers with the first, and writes nothing; an accept below a skip is refused; moments are ticks."""
    hold(world)
    skip = ["skip", "--from", str(HELD), "--to", str(HELD + 9), "--reason", "dead"]
    first = run(world, *skip).json
    again = run(world, *skip)
    assert again.code == 0 and again.json["decision"] == first["decision"] and "already" in again.json["hint"]
    part = run(world, "skip", "--to", str(HELD + 3), "--reason", "dead").json
    assert part["decision"] == first["decision"]
    times = ["--from", first["from"], "--to", first["until"]]
    assert run(world, "skip", *times, "--reason", "dead").json["decision"] == first["decision"]
    refused = run(world, "accept", "--reason", "a launch")
    assert refused.code == errors.DecisionRefused.exit_code and first["decision"] in refused.error["message"]
    longer = run(world, "skip", "--to", str(HELD + 10), "--reason", "dead").json
    rows = run(world, "status").json["decisions"]
    covered = {row["decision"]: row["covered_by"] for row in rows}
    assert covered == {first["decision"]: longer["decision"], longer["decision"]: None} or covered == {
        first["decision"]: None,
        longer["decision"]: None,
    }


@pytest.mark.parametrize(
    "wrong", ["-5", "1.5", "soon", "earliest", "2026-11-01T09:00:00", "1" * 5_000, "1960-01-01T00:00:00Z"]
)
def test_what_is_no_tick_and_no_moment_is_a_wrong_command_line(world: World, wrong: str) -> None:
    """Each is said with the option."""
    assert run(world, "skip", f"--from={wrong}", "--to", str(HELD), "--reason", "x").code == 2
    assert run(world, "skip", "--from", str(HELD), f"--to={wrong}", "--reason", "x").code == 2


def test_without_a_record_of_its_gate_nothing_is_sure(world: World) -> None:
    """The learner may be down, and its record deleted: the note says so, and no publication is accepted beforehand."""
    assert "not sure" in run(world, "status").json["note"]
    refused = run(world, "accept", "--publication", "--reason", "x")
    assert refused.code == errors.NotFound.exit_code and "gate status" in refused.error["action"]
    hold(world)
    assert run(world, "accept", "--publication", "--reason", "x").code == errors.NotFound.exit_code
    assert ControlTopic(world.settings, world.config.control_topic).state.accepted == {}


def test_a_model_that_is_held_before_its_publication_is_shown(world: World) -> None:
    """With the reason, since when, and the version that scorers have; as text too."""
    assert run(world, "status").json["publication"] == "open"
    config = world.config
    withheld = HeldPublication(HELD, "change", "the mean change of predictions is 0.9")
    state = GateState(config.model, config.examples_topic, "hold", None, (), "learner@pod", 1, publication=withheld)
    ControlTopic(world.settings, config.control_topic).write(state)
    found = run(world, "status").json
    assert (found["state"], found["publication"], found["published"]) == (
        "held before its publication",
        "held",
        VERSION,
    )
    assert (found["publication_since_tick"], found["publication_bound"]) == (HELD, "change")
    text = run(world, "status", as_json=False).out
    assert withheld.reason in text and found["publication_since"] in text
    ControlTopic(world.settings, config.control_topic).write(replace(state, publication=replace(withheld, tick=-1)))
    found = run(world, "status").json
    assert (found["publication"], found["publication_since_tick"], found["publication_since"]) == ("held", None, None)


def test_what_is_refused(world: World) -> None:
    """Exit codes and what to do; nothing is written."""
    refused = errors.DecisionRefused.exit_code
    ticks = ["--from", str(VERSION), "--to", str(VERSION + 5)]
    published = run(world, "skip", *ticks, "--reason", "x")
    assert published.code == refused and f"version {VERSION}" in published.error["message"]
    assert "rewind" in published.error["action"] and f"tick {VERSION + 1} on" in published.error["action"]
    assert run(world, "accept", "--reason", "x").code == refused, "nothing is held"
    assert run(world, "skip", "--from", "10009", "--to", "10008", "--reason", "x").code == refused
    assert run(world, "skip", "--from", "10008", "--to", "10009", "--reason", "").code == refused
    assert run(world, "skip", "--from", "10008", "--to", "99999999999999", "--reason", "x").code == refused
    assert run(world, "skip", "--from", "10008", "--reason", "x").code == 2, "--to is asked for"
    assert run(world, "skip", "--from", "10008", "--to", "10009", "--reason", "x" * 2001).code == refused
    assert run(world, "skip", "--from", "10008", "--to", "10009", "--reason", "\udcff").code == refused
    unknown = run(world, "skip", "--from", "1", "--to", "2", "--reason", "x", "--set", "model=nobody")
    assert unknown.code == errors.NotFound.exit_code and "nobody" in unknown.error["message"]
    assert run(world, "status", "--set", "model=nobody").code == errors.NotFound.exit_code
    hold(world)
    folded = run(world, "skip", "--from", str(HELD - 1), "--to", str(HELD), "--reason", "x")
    assert folded.code == refused and f"from tick {HELD} on" in folded.error["action"]
    assert run(world, "status").json["decisions"] == []


def test_the_policy_is_that_of_the_configuration(world: World) -> None:
    """With the bounds, also as text."""
    found = run(world, "policy", "--set", "learner.gate=warn").json
    assert found["learner.gate"] == "warn" and found["false_alarms"] > 0
    assert "learner.gate" in run(world, "policy", as_json=False).out
