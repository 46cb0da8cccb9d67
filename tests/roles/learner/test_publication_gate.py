"""The gate before the publications of one model: what the policies do, whose word lets it through, what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.control.records import Accepted
from stream_learner.core.control.state import ControlState
from stream_learner.core.gate.publication import CHANGE, Held, PublicationGate
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.roles.learner.publication_gate import ModelPublicationGate
from tests.core.gate.published_world import HOUR, POISONS, TICK_MS, World


class Judge:
    """What `PublicationGate` finds, as a test says; what it was told to note."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: Held | None = None
        self.judged: list[int] = []
        self.passed: list[int] = []
        self.accepted: list[int] = []
        monkeypatch.setattr(PublicationGate, "judge", lambda gate, tick, *_: self._judge(gate, tick))
        monkeypatch.setattr(PublicationGate, "passed", lambda gate, tick, *_: self.passed.append(tick))
        accept = PublicationGate.accept

        def accepting(gate: PublicationGate, tick: int, predictions: Sequence[Any]) -> None:
            self.accepted.append(tick)
            accept(gate, tick, predictions)

        monkeypatch.setattr(PublicationGate, "accept", accepting)

    def _judge(self, gate: PublicationGate, tick: int) -> Held | None:
        self.judged.append(tick)
        if self.found is not None and gate.held is None:
            gate.since_tick = tick
        gate.held = self.found
        return self.found

    def holds(self) -> None:
        self.found = Held(CHANGE, 0.9, 0.05, 0.3, 1)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    return Judge(monkeypatch)


class Clock:
    """Seconds, as a test says."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


def gate_of(policy: str, control: ControlState | None = None, clock: Clock | None = None) -> ModelPublicationGate:
    state, metrics = control or ControlState(), Metrics("m")
    return ModelPublicationGate(
        policy, "m", TICK_MS, lambda: state, metrics, get_logger("test"), clock_s=clock or Clock()
    )


def learner() -> Learner:
    return Learner(FtrlProximal())


def test_what_is_out_of_bounds_is_held_and_said_once(judge: Judge) -> None:
    """Until it is within bounds again; nothing of it is noted as published."""
    clock = Clock()
    gate = gate_of("hold", clock=clock)
    assert gate.lets(1, learner(), -1)
    gate.published()
    judge.holds()
    with capture_logs() as logged:
        for tick in (2, 3, 4):
            clock.now_s += 5.0
            assert not gate.lets(tick, learner(), 1)
            assert "held since tick 2" in gate.trouble
            assert gate.holding is not None and (gate.holding.tick, gate.holding.bound) == (2, CHANGE)
        judge.found = None
        clock.now_s += 5.0
        assert gate.lets(5, learner(), 1)
        gate.published()
    assert [event["event"] for event in logged] == ["publication_held", "publication_within_bounds"]
    assert gate.trouble == ""
    assert judge.passed == [1, 5]


def test_a_warning_publishes_and_off_does_not_look(judge: Judge) -> None:
    """What was out of bounds enters no mean under warn either."""
    judge.holds()
    with capture_logs() as logged:
        gate = gate_of("warn")
        assert gate.lets(2, learner(), 1)
        gate.published()
    assert [event["event"] for event in logged] == ["publication_out_of_bounds"]
    assert (gate.trouble, judge.passed) == ("", [])
    off = gate_of("off")
    assert off.lets(3, learner(), 1)
    off.follow(3, learner())
    assert judge.judged == [2]
    assert off.state() is None


def test_a_word_counts_for_the_version_that_it_names(judge: Judge) -> None:
    """Another version's says nothing; the right one lets it through, once."""
    control, clock = ControlState(), Clock()
    gate = gate_of("hold", control, clock)
    judge.holds()
    for version in (6, 8, -1):
        control.accepted["m"] = Accepted("m", version, "ann", 1, "new prices")
        clock.now_s += 5.0
        assert not gate.lets(9, learner(), 7)
    control.accepted["m"] = Accepted("m", 7, "ann", 1, "new prices")
    clock.now_s += 5.0
    with capture_logs() as logged:
        assert gate.lets(10, learner(), 7)
    assert [(event["event"], event.get("who")) for event in logged][-1] == ("publication_accepted", "ann")
    assert (judge.accepted, gate.trouble) == ([10], "")
    clock.now_s += 5.0
    assert not gate.lets(11, learner(), 10)


def test_it_is_judged_once_a_second_at_most(judge: Judge) -> None:
    """In between the last verdict holds, and nothing is noted twice."""
    clock = Clock()
    gate = gate_of("hold", clock=clock)
    for tick in range(1, 10):
        assert gate.lets(tick, learner(), 0)
        gate.published()
    assert (judge.judged, judge.passed) == ([1], [1])
    judge.holds()
    clock.now_s += 5.0
    assert not gate.lets(20, learner(), 0)
    assert not gate.lets(21, learner(), 0)
    assert judge.judged == [1, 20]


def test_a_learner_that_follows_holds_too(judge: Judge) -> None:
    """So that it does not publish the poison when it takes over."""
    clock = Clock()
    gate = gate_of("hold", clock=clock)
    gate.follow(1, learner())
    judge.holds()
    clock.now_s += 5.0
    gate.follow(2, learner())
    assert judge.passed == [1]
    assert not gate.lets(3, learner(), 1)


def test_a_hold_outlives_the_process() -> None:
    """By what a checkpoint has; a state that cannot be read begins anew, and is said."""
    world, gate = World(seed=2), gate_of("hold")
    record = world.record()
    assert record is not None
    gate.admit(world.tick, [record], world.learner)
    state = gate.state()
    assert state is not None
    assert len(state["reservoir"]) == 1
    state["held"], state["ticks"] = [CHANGE, 0.9, 0.05, 0.3, 4], [1, 2, 3, 4]
    again = gate_of("hold")
    again.restore(orjson.loads(orjson.dumps(state)))
    assert "held since tick 4" in again.trouble
    assert again.state() == state
    with capture_logs() as logged:
        again.restore({"usual": {}})
    assert [event["event"] for event in logged if event["log_level"] == "warning"] == ["publication_gate_begins_anew"]
    assert again.trouble == ""
    fresh = gate_of("hold")
    fresh.restore(None)
    assert fresh.trouble == ""


def test_what_is_admitted_is_predicted_before_it_is_learned() -> None:
    """The model and its table are as they were."""
    world, gate = World(seed=2), gate_of("hold")
    record = world.record()
    assert record is not None
    digest, rows = world.learner.digest(), world.learner.table.count
    gate.admit(world.tick, [record], world.learner)
    assert (world.learner.digest(), world.learner.table.count) == (digest, rows)
    assert np.isfinite(world.learner.fold(record, world.tick)).all()


def test_what_is_judged_is_what_the_model_predicts_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks with and without examples, with and without newly admitted ones, and a state brought back in between. A
    model that is the same predicts its reservoir once.
    """
    rng, clock, world = np.random.default_rng(4), Clock(), World(seed=3)
    gate = gate_of("warn", clock=clock)
    given: list[list[list[float]]] = []
    monkeypatch.setattr(
        PublicationGate, "judge", lambda gate, tick, sums, told: given.append([p.tolist() for p in told])
    )
    asked: list[int] = []
    predict = Learner.predict

    def counting(learner: Learner, record: ExampleRecord) -> Any:
        asked.append(len(record))
        return predict(learner, record)

    monkeypatch.setattr(Learner, "predict", counting)
    for step in range(60):
        world.tick += 1
        record = world.record() if rng.random() < 0.5 else None
        if record is not None and rng.random() < 0.5:
            gate.admit(world.tick, [record], world.learner)
        if record is not None and rng.random() < 0.7:
            world.learner.fold(record, world.tick)
        if step % 20 == 19:
            gate.restore(orjson.loads(orjson.dumps(gate.state())))
        clock.now_s += 100.0
        gate.follow(world.tick, world.learner)
        reservoir = gate._gate.reservoir
        assert given[-1] == [predict(world.learner, one).tolist() for one in reservoir]
        asked.clear()
        clock.now_s += 100.0
        gate.follow(world.tick + 1, world.learner)
        assert (asked, given[-1]) == ([], given[-2])
    assert len(given[-1]) > 10


def test_a_backlog_that_is_not_published_arms_it() -> None:
    """Two hours folded at once, and a quarter of an hour of turned labels: not even the first version is published."""
    world, gate = World(seed=10), gate_of("hold")
    for poison, ticks in ((None, 2 * HOUR), (POISONS["flipped labels"], HOUR // 4)):
        assert gate.trouble == ""
        for _ in range(ticks):
            world.tick += 1
            record = world.record(poison)
            assert record is not None
            gate.admit(world.tick, [record], world.learner)
            world.learner.fold(record, world.tick)
    assert not gate.lets(world.tick, world.learner, -1)
    assert "the normalized entropy of the last predictions is" in gate.trouble
