"""The gate before the publications of one model: what the policies do, whose word lets it through, what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.control.records import Accepted
from stream_learner.core.control.state import ControlState
from stream_learner.core.gate.first_version import FirstVersion, Needed, Unearned
from stream_learner.core.gate.publication import CHANGE, Held, PublicationGate
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, TickCounts
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.operations.doctor.watch import NOT_YET
from stream_learner.roles.learner.publication_gate import TOLD_EVERY_S, Look, ModelPublicationGate
from tests.cli_e2e.scraped import values_of
from tests.core.gate.log_ticks import record
from tests.core.gate.published_world import HOUR, POISONS, TICK_MS, World

NOTHING = Needed(0, 0, 0.0)
SPAN_MS = 60 * TICK_MS


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


def gate_of(
    policy: str,
    control: ControlState | None = None,
    clock: Clock | None = None,
    needed: Needed = NOTHING,
    metrics: Metrics | None = None,
    look: Look | None = None,
) -> ModelPublicationGate:
    state = control or ControlState()
    return ModelPublicationGate(
        policy,
        "m",
        TICK_MS,
        lambda: state,
        metrics or Metrics("m"),
        get_logger("test"),
        FirstVersion(needed, SPAN_MS, TICK_MS),
        look=look,
        clock_s=clock or Clock(),
    )


def learner() -> Learner:
    return Learner(FtrlProximal())


def test_what_is_out_of_bounds_is_held_and_said_once(judge: Judge) -> None:
    """Until it is within bounds again; nothing of it is noted as published."""
    clock = Clock()
    gate = gate_of("hold", clock=clock)
    assert gate.lets(1, learner(), -1, ends=False)
    gate.published()
    judge.holds()
    with capture_logs() as logged:
        for tick in (2, 3, 4):
            clock.now_s += 5.0
            assert not gate.lets(tick, learner(), 1, ends=False)
            assert "held since tick 2" in gate.trouble
            assert gate.holding is not None and (gate.holding.tick, gate.holding.bound) == (2, CHANGE)
        judge.found = None
        clock.now_s += 5.0
        assert gate.lets(5, learner(), 1, ends=False)
        gate.published()
    assert [event["event"] for event in logged] == ["publication_held", "publication_within_bounds"]
    assert gate.trouble == ""
    assert judge.passed == [1, 5]


def test_a_warning_publishes_and_off_does_not_look(judge: Judge) -> None:
    """What was out of bounds enters no mean under warn either."""
    judge.holds()
    with capture_logs() as logged:
        gate = gate_of("warn")
        assert gate.lets(2, learner(), 1, ends=False)
        gate.published()
    assert [event["event"] for event in logged] == ["publication_out_of_bounds"]
    assert (gate.trouble, judge.passed) == ("", [])
    off = gate_of("off")
    assert off.lets(3, learner(), 1, ends=False)
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
        assert not gate.lets(9, learner(), 7, ends=False)
    control.accepted["m"] = Accepted("m", 7, "ann", 1, "new prices")
    clock.now_s += 5.0
    with capture_logs() as logged:
        assert gate.lets(10, learner(), 7, ends=False)
    assert [(event["event"], event.get("who")) for event in logged][-1] == ("publication_accepted", "ann")
    assert (judge.accepted, gate.trouble) == ([10], "")
    clock.now_s += 5.0
    assert not gate.lets(11, learner(), 10, ends=False)


def test_it_is_judged_once_a_second_at_most(judge: Judge) -> None:
    """In between the last verdict holds, and nothing is noted twice."""
    clock = Clock()
    gate = gate_of("hold", clock=clock)
    for tick in range(1, 10):
        assert gate.lets(tick, learner(), 0, ends=False)
        gate.published()
    assert (judge.judged, judge.passed) == ([1], [1])
    judge.holds()
    clock.now_s += 5.0
    assert not gate.lets(20, learner(), 0, ends=False)
    assert not gate.lets(21, learner(), 0, ends=False)
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
    assert not gate.lets(3, learner(), 1, ends=False)


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
    assert not gate.lets(world.tick, world.learner, -1, ends=False)
    assert "the normalized entropy of the last predictions is" in gate.trouble


NEEDED = Needed(1_000, 20, 0.5)


def marks(ticks: int, *, positives: int, clicks: int, orphans: int = 0) -> Iterator[Mark]:
    """A tick each, with so many of both and 20 examples. orphans: clicks that are known to have no impression."""
    for tick in range(ticks):
        counts = TickCounts(ImpressionCounts(20, 20, positives), ClickCounts(clicks, orphans=orphans, waiting=clicks))
        yield Mark(0, 1, tick, tick, 0, 0, 0, 0, 1, tick - 1, counts)


def learned(positives: int, examples: int = 2_000) -> Learner:
    """A learner that has learned so many, by one feature that tells the label."""
    found = learner()
    found.fold(record([(1 + i, float(i < positives), 1.0, (7 if i < positives else 9,)) for i in range(examples)]), 0)
    return found


def test_a_first_version_waits_for_examples_and_holds_where_clicks_do_not_match(judge: Judge) -> None:
    """Both are told; only the second is an alarm, with what to do. It goes by itself when clicks match."""
    metrics, model = Metrics("m"), learned(400)
    gate = gate_of("hold", needed=NEEDED, metrics=metrics)
    gate.lacks(-1, learner())
    assert gate.waits == "the first version waits: it has learned 0 of 1,000 examples" and gate.holding is not None
    gate = gate_of("hold", needed=NEEDED, metrics=metrics)
    with capture_logs() as logged:
        assert not gate.lets(1, learned(4, examples=40), -1, ends=False)
        assert (gate.trouble, gate.waits) == ("", "the first version waits: it has learned 40 of 1,000 examples")
        assert held(metrics) == 0.0
        for orphans, alarm in ((0, 0.0), (4, 1.0)):
            for mark in marks(200, positives=0, clicks=4, orphans=orphans):
                gate.count(mark)
            assert not gate.lets(2, model, -1, ends=False)
            assert gate.holding is not None and gate.holding.bound == "matched"
            assert (held(metrics), gate.waits == "") == (alarm, alarm > 0)
        for mark in marks(600, positives=4, clicks=4):
            gate.count(mark)
        assert gate.lets(3, model, -1, ends=False)
    assert [event["event"] for event in logged] == [
        "first_version_waits",
        "publication_held",
        "first_version_earned",
    ]
    assert "doctor" in logged[1]["action"]
    assert (gate.trouble, held(metrics)) == ("", 0.0)


def test_what_a_look_at_the_topics_finds_holds_a_first_version(judge: Judge) -> None:
    """What is lacking is told until something is wrong; a published model that fits is not looked at."""
    found: list[Unearned | None] = [None]
    asked: list[bool] = []

    def look(*, earned: bool) -> Unearned | None:
        asked.append(earned)
        return found[0]

    gate = gate_of("hold", needed=NEEDED, look=look)
    assert not gate.lets(1, learned(4, examples=40), -1, ends=False)
    assert "40 of 1,000 examples" in gate.waits and gate.trouble == ""
    found[0] = Unearned("topics", 1, 0, "the keys differ", is_wrong=True)
    unlearned = gate_of("hold", needed=NEEDED, look=lambda *, earned: found[0])
    with capture_logs() as logged:
        unlearned.lacks(-1, learner())
    assert "the change that the reason names" in logged[0]["action"], "doctor has been asked"
    assert unlearned.trouble == "publication held since the start: the keys differ"
    assert not gate.lets(2, learned(4, examples=40), -1, ends=False)
    assert gate.trouble.endswith("the keys differ")
    for mark in marks(600, positives=4, clicks=4):
        gate.count(mark)
    assert not gate.lets(3, learned(400), -1, ends=False)
    assert gate.trouble.endswith("the keys differ")
    found[0] = None
    assert gate.lets(4, learned(400), -1, ends=False)
    assert asked == [False, False, True, True]
    assert gate.lets(5, learned(400), 4, ends=False) and len(asked) == 4


def test_a_look_names_the_cause_where_a_figure_says_that_something_is_wrong(judge: Judge) -> None:
    """Clicks find no impression, and the look says why; where it does not, the figure is told."""
    found: list[Unearned | None] = [Unearned("topics", 1, 0, "the keys differ", is_wrong=True)]
    gate = gate_of("hold", needed=NEEDED, look=lambda *, earned: found[0])
    for mark in marks(600, positives=0, clicks=4, orphans=4):
        gate.count(mark)
    assert not gate.lets(1, learned(400), -1, ends=False)
    assert gate.trouble.endswith("the keys differ")
    found[0] = None
    assert not gate.lets(2, learned(400), -1, ends=False)
    assert "clicks found their impression" in gate.trouble


def test_a_look_names_the_cause_where_a_published_model_stops_fitting(judge: Judge) -> None:
    """As where a producer goes over to another unit of times: clicks stop to match, and the look says why."""
    cause = Unearned("topics", 1, 0, "times of seconds", is_wrong=True)
    gate = gate_of("hold", needed=NEEDED, look=lambda *, earned: None if earned else cause)
    for mark in marks(600, positives=4, clicks=4):
        gate.count(mark)
    assert gate.lets(1, learned(400), -1, ends=False)
    gate.published()
    for mark in marks(2_000, positives=0, clicks=4, orphans=4):
        gate.count(mark)
    with capture_logs() as logged:
        assert not gate.lets(2, learned(400), 1, ends=False)
    assert gate.trouble.endswith("times of seconds")
    assert [event["reason"] for event in logged] == ["times of seconds"]


def test_what_a_look_finds_is_told_in_the_control_topic_at_once(judge: Judge) -> None:
    """Though what was told last, that it looks, is of the same bound and a moment old."""
    wrong = Unearned("topics", 1, 0, "the keys differ", is_wrong=True)
    found = iter([NOT_YET, wrong])
    gate = gate_of("hold", needed=NEEDED, look=lambda *, earned: next(found))
    for mark in marks(600, positives=4, clicks=4):
        gate.count(mark)
    for one in (NOT_YET, wrong):
        assert not gate.lets(1, learned(400), -1, ends=False)
        assert gate.holding is not None and gate.holding.reason == one.message


def test_what_a_first_version_lacks_is_told_as_it_is_now(judge: Judge) -> None:
    """On `/readyz` at once; in the control topic, where each word is a record, at most every `TOLD_EVERY_S`."""
    clock = Clock()
    gate, told = gate_of("hold", clock=clock, needed=NEEDED), []
    for tick in range(1, 7):
        gate.lets(tick, learned(4, examples=100 * tick), -1, ends=False)
        assert gate.waits.endswith(f"{100 * tick} of 1,000 examples")
        assert gate.holding is not None and gate.holding.tick == 1
        told.append(gate.holding.reason.split()[3])
        clock.now_s += TOLD_EVERY_S / 3
    assert told == ["100", "100", "100", "400", "400", "400"]


def test_a_first_version_is_published_by_an_operators_word(judge: Judge) -> None:
    """For the version that scorers have: none. What was shown then is what it is held to."""
    control = ControlState()
    gate = gate_of("hold", control, needed=NEEDED)
    for mark in marks(200, positives=1, clicks=4):
        gate.count(mark)
    assert not gate.lets(1, learned(400), -1, ends=False)
    control.accepted["m"] = Accepted("m", -1, "ann", 1, "half of our clicks are of another site")
    assert gate.lets(1, learned(400), -1, ends=False)
    gate.published()
    assert gate.lets(2, learned(400), 1, ends=False)


def test_a_published_model_is_held_where_clicks_match_no_more(judge: Judge) -> None:
    """Below half of what it had shown; a model of an earlier version, which has shown nothing, goes on."""
    gate, old = gate_of("hold", needed=NEEDED), gate_of("hold", needed=NEEDED)
    for mark in marks(200, positives=4, clicks=4):
        gate.count(mark)
    assert gate.lets(1, learned(400), -1, ends=False)
    gate.published()
    for mark in marks(4_000, positives=1, clicks=4):
        gate.count(mark)
        old.count(mark)
    assert not gate.lets(2, learned(400), 1, ends=False)
    assert old.lets(2, learned(400), 1, ends=False)


def held(metrics: Metrics) -> float:
    return values_of(metrics.text().decode())["learner_publication_held", ""]
