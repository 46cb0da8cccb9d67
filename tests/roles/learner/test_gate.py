"""The gate of one model on a real state directory: what it rules, what is kept of it, and what comes too late."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.control.gate_state import GateState
from stream_learner.core.control.records import LogDecision, encode
from stream_learner.core.control.state import ControlState
from stream_learner.core.gate.decisions import Decision, decisions_digest
from stream_learner.core.gate.gate import Gate, Verdict
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.errors import OtherDecisions
from stream_learner.roles.learner import model as model_module
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from stream_learner.roles.learner.model import LearnedModel
from tests.cli_e2e.scraped import values_of
from tests.core.model.example_records import Example, as_record
from tests.e2e.configuration import tree_of
from tests.scenarios import scenario

NOBODY = "127.0.0.1:9"
LOG = TopicInfo("m.examples", bytes(range(16)), 1, 1)
POSITIONS = {0: LOG_BEGINNING}
BAD = range(5, 8)
"""The ticks that are out of bounds."""


class Bounds(Gate):
    """Out of bounds in the ticks BAD; counts what it is told."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.told: list[Any] = []

    def count(self, mark: Mark) -> None:
        self.told.append(["count", mark.last_tick])

    def judge(self, tick: int, accepted: Sequence[AcceptedTick], predict: Any = None) -> Verdict | None:
        assert [one.mark.last_tick for one in accepted] == [tick] and predict(accepted[0].records[0][1]).shape == (1,)
        self.judged = tick
        return Verdict("positives", "", 0.0, 20.0, 5.0, float("inf"), tick) if tick in BAD else None

    def take(self) -> None:
        self.told.append(["take", self.judged])

    def accept(self) -> None:
        self.told.append(["accept", self.judged])

    def skip(self) -> None:
        self.told.append(["skip", self.judged])

    def state(self) -> dict[str, Any]:
        return {"told": list(self.told)}

    def restore(self, state: Any) -> None:
        self.told = list(state["told"])


class Control:
    """What the control topic says."""

    def __init__(self) -> None:
        self.state = ControlState()
        self.topic, self.problem, self.is_read = "control", None, False

    def paused(self, model: str) -> bool:
        return self.state.paused(model)

    def decide(self, what: Any, first: int, last: int) -> Decision:
        decision = Decision.make(what, first, last, who="ann", when_ms=1, why="dead clicks")
        self.write(LogDecision("m.examples", decision))
        return decision

    def write(self, record: Any) -> None:
        self.state.take(record.key, encode(record))


class World:
    """One model, started again and again from its state directory."""

    def __init__(self, path: Path, model: str = "m", **learner: Any) -> None:
        settings = scenario("plain", 1).settings
        changes = {"learner": {"publish": False, **learner}, "topics": {"examples": "m.examples"}}
        self.config = Config.model_validate(tree_of(model, NOBODY, settings, path, changes))
        self.control = Control()
        self.model = self.start()

    def start(self) -> LearnedModel:
        self.metrics = Metrics("m")
        self.model = LearnedModel(self.config, self.metrics, self.control)  # type: ignore[arg-type]
        self.model.load(LOG, Admin(KafkaSettings({"bootstrap.servers": NOBODY})))
        return self.model

    def again(self) -> None:
        """Write a checkpoint, and start from it."""
        self.model.finish(POSITIONS)
        self.model.close()
        self.start()

    def lost(self) -> None:
        """Start from the last checkpoint, as after a kill."""
        self.model.close()
        self.start()

    def turn(self, tick: int) -> bool:
        """Fold a tick as the role does, if the gate lets it through."""
        coming = accepted(tick)
        if not self.model.may_fold(coming, tick, self.control.state.decisions_of("m.examples")):
            return False
        self.model.fold(coming, tick)
        return True

    def fold_from(self, tick: int, until: int = 10) -> int:
        """Fold ticks until one is held; returns the last one folded."""
        while tick <= until and self.turn(tick):
            tick += 1
        return tick - 1

    @property
    def told(self) -> list[Any]:
        """What the bounds were told."""
        gate = self.model.gate._gate
        assert isinstance(gate, Bounds)
        return gate.told

    def metric(self, name: str, labels: str = "") -> float | None:
        self.model.gate.report()
        return values_of(self.metrics.text().decode()).get((name, labels))


def accepted(tick: int) -> list[AcceptedTick]:
    """A tick of one example."""
    mark = Mark(0, 1, tick, tick, 0, 0, 0, 1, 1, tick - 1)
    return [AcceptedTick(mark, 2 * tick + 1, [(2 * tick, as_record([Example(((5 + tick, 1.0),), 1.0)], tick=tick))])]


@pytest.fixture(autouse=True)
def _bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "Gate", Bounds)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state")
    yield made
    made.model.close()


def test_a_tick_out_of_bounds_is_held_again_and_again_until_it_is_decided(world: World) -> None:
    """Said once, with what it needs; the checkpoint while it holds is as of the last tick folded, and a start from it
    holds again; `accept` of one tick goes on to the next, which is held by itself; decisions are in the digest."""
    with capture_logs() as logged:
        assert world.fold_from(1) == 4
        assert not any(world.turn(5) for _ in range(3))
    holds = [event for event in logged if event["event"] == "gate_holds"]
    assert [(event["tick"], event["bound"], event["since_tick"]) for event in holds] == [(5, "positives", 5)]
    assert (
        world.model.trouble.startswith("held: too few examples with a click")
        and world.metric("learner_gate_state") == 1
    )
    assert world.model.gate.holding is not None and world.model.gate.holding.high is None, "not finite"
    plain = world.model.learner.digest()
    world.again()
    assert world.told == [["take", tick] for tick in range(1, 5)] and world.model.tick == 4
    assert not world.turn(5) and world.model.learner.digest() == plain
    first = world.control.decide("accept", 5, 5)
    assert world.fold_from(5) == 5 and world.model.gate.holding is not None
    assert world.told[-1] == ["accept", 5]
    second = world.control.decide("skip", 6, 7)
    with capture_logs() as logged:
        assert world.fold_from(6) == 10
    said = [(event["event"], event["tick"]) for event in logged]
    assert said == [("gate_decision", 6), ("gate_opens", 6)]
    assert world.told[-5:] == [["skip", 6], ["skip", 7], ["take", 8], ["take", 9], ["take", 10]]
    assert world.model.learner.examples == 8 and world.model.gate.left_out == 2 and not world.model.trouble
    assert world.metric("learner_gate_state") == 0 and world.metric("learner_gate_skipped_total") == 2
    assert world.metric("learner_gate_decisions_total", "skip") == 1
    assert world.model.learner.decided == decisions_digest([first, second])


def test_a_start_from_before_takes_the_same_decisions(world: World, tmp_path: Path) -> None:
    """Decisions stay in the state, even where the control topic has lost them; a fold from the beginning, with all of
    them known before, comes to the same digest, also where nothing is judged."""
    world.fold_from(1)
    world.again()
    world.control.decide("skip", 5, 5)
    world.control.decide("accept", 6, 20)
    assert world.fold_from(5) == 10
    digest = world.model.learner.digest()
    world.again()
    assert world.model.learner.digest() == digest == world.model.learner.digest_full()
    full, world.control.state = world.control.state, ControlState()
    assert world.fold_from(11, 15) == 15
    for number, policy in enumerate(("hold", "warn", "off")):
        other = World(tmp_path / f"other-{number}", gate=policy)
        other.control.state = full
        assert other.fold_from(1, 15) == 15
        assert other.model.learner.digest() == world.model.learner.digest()
        other.model.close()


def test_a_decision_that_comes_too_late_changes_nothing_and_is_remembered(world: World) -> None:
    """Also of what it names beyond the last tick; in the state, and by the word of the learner that leads."""
    world.fold_from(1, 3)
    late = world.control.decide("skip", 3, 9)
    with capture_logs() as logged:
        assert world.fold_from(4) == 4
    (event,) = (one for one in logged if one["event"] == "gate_decision_late")
    assert (event["decision"], event["tick"]) == (late.id, 3) and "rewind" in event["action"]
    assert world.metric("learner_gate_decisions_total", "late") == 1
    world.again()
    assert world.model.gate.late == (late.id,) and world.fold_from(5) == 4
    other = World(world.config.state_dir.parent / "new")
    other.control.write(LogDecision("m.examples", late))
    other.control.write(GateState("m", "m.examples", "hold", None, (late.id,), "learner@host", 2))
    assert other.fold_from(1) == 4 and other.model.gate.holding is not None
    assert other.model.learner.digest() == world.model.learner.digest()
    other.model.close()


def test_another_fold_of_the_log_leaves_out_what_came_too_late_for_the_first(world: World, tmp_path: Path) -> None:
    """It begins after the decision, and would be in time. What a third model says is of that model only."""
    world.fold_from(1, 4)
    late = world.control.decide("skip", 3, 9)
    in_time = world.control.decide("skip", 5, 7)
    assert world.fold_from(5) == 10
    for said_by, taken in (("m", {in_time.id}), ("third", {late.id})):
        other = World(tmp_path / said_by, model="other")
        for decision in (late, in_time):
            other.control.write(LogDecision("m.examples", decision))
        other.control.write(GateState(said_by, "m.examples", "hold", None, (late.id,), "learner@host", 2))
        assert other.fold_from(1) == 10
        assert set(other.model.gate.state()["applied_at"]) == taken
        assert (other.model.learner.digest() == world.model.learner.digest()) == (said_by == "m")
        other.model.close()


def test_a_state_with_other_decisions_than_the_published_model_is_refused(world: World, tmp_path: Path) -> None:
    """Each side may have the decision that the other one has not; only what both have folded is compared."""
    world.fold_from(1, 3)
    ahead = world.control.decide("skip", 5, 7)
    assert world.fold_from(4) == 10
    with_it, without = world.model.gate.description(), {}
    assert with_it == {"decisions": [(ahead.id, 5)]}
    world.model.gate.check_course(json.loads(json.dumps(with_it)), 10)
    world.model.gate.check_course(without, 4)
    with pytest.raises(OtherDecisions, match=f"version 5 of m and this state, of tick 10, .*{ahead.id}"):
        world.model.gate.check_course(without, 5)
    other = World(tmp_path / "other")
    other.fold_from(1, 4)
    other.model.gate.check_course(with_it, 10)
    other.again()  # what it would have to follow is not known to it
    other.control.decide("accept", 5, 10)
    other.fold_from(5)
    with pytest.raises(OtherDecisions):
        other.model.gate.check_course(with_it, 10)
    other.again()
    with pytest.raises(OtherDecisions):
        other.model.gate.check_course(with_it, 10)
    other.model.close()


def test_a_state_without_a_gate_is_gone_on_from(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a version that had none: a decision on what is folded already is too late."""
    monkeypatch.setattr(type(world.model.gate), "state", lambda gate: None)
    world.fold_from(1)
    world.again()
    world.control.decide("skip", 4, 5)
    assert world.fold_from(5) == 4 and len(world.model.gate.late) == 1
    world.control.decide("skip", 5, 7)
    assert world.fold_from(5) == 10


def test_a_gate_that_warns_learns_on(tmp_path: Path) -> None:
    """Each run of ticks out of bounds is logged once, each tick counted; the model is as without a gate."""
    digests = set()
    for policy in ("warn", "off"):
        world = World(tmp_path / policy, gate=policy)
        with capture_logs() as logged:
            assert world.fold_from(1) == 10
        digests.add(world.model.learner.digest())
        warned = [event for event in logged if event["event"] == "gate_warns"]
        assert len(warned) == (policy == "warn")
        assert (world.metric("learner_gate_warnings_total") or 0) == (3 if policy == "warn" else 0)
        world.model.close()
    assert len(digests) == 1


def test_marks_without_examples_are_counted_once(world: World) -> None:
    """When they are handed out; not again after a start from a checkpoint, and not those a model has passed."""
    world.turn(1)
    empty = [AcceptedTick(Mark(0, 1, tick, tick, 0, 0, 0, 0, 1, tick - 1), 9, []) for tick in (2, 3)]
    world.model.fold(empty, 3)
    world.again()
    world.model.fold([*empty, AcceptedTick(Mark(0, 1, 4, 4, 0, 0, 0, 0, 1, 3), 9, [])], 4)
    assert world.told == [["take", 1], ["count", 2], ["count", 3], ["count", 4]]
