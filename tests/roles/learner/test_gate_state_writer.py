"""What a learner writes of its gate into the control topic, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from stream_learner.adapters.kafka import Admin, Appender, EmbeddedBroker, KafkaSettings
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.control.gate_state import GateState, HeldPublication, Holding
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.learner.gate_state_writer import GateStateWriter
from tests.adapters.kafka.kafka_help import until
from tests.waiting import patience

HOLDING = Holding(7, 5, "positives", "", 0.0, 20.0, 3.5, 40.0)
TOPIC = "site.control"


@pytest.fixture
def settings() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, 1)
        yield KafkaSettings({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def watch(settings: KafkaSettings) -> Iterator[ControlWatch]:
    watch = ControlWatch(settings, TOPIC, get_logger("test")).start()
    until(lambda: watch.is_read)
    yield watch
    watch.stop()


def gate(holding: Holding | None = None, late: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(policy="hold", holding=holding, late=late, message="too few")


def writer(settings: KafkaSettings, watch: Any, of: Any, withheld: HeldPublication | None = None) -> GateStateWriter:
    publications: Any = SimpleNamespace(holding=withheld)
    return GateStateWriter(settings, "m", "m.examples", of, publications, watch, get_logger("test"), clock_ms=lambda: 9)


def written(settings: KafkaSettings) -> int:
    """How many records the topic holds."""
    return Admin(settings).offsets.high_watermarks([(TOPIC, 0)])[TOPIC, 0]


def test_each_change_is_written_once_by_the_learner_that_leads(settings: KafkaSettings, watch: ControlWatch) -> None:
    """Nothing while it follows, or holds nothing and never did; the next leader repeats nothing that is there."""
    mine = gate()
    first = writer(settings, watch, mine)
    for leads in (False, True, True):
        first.turn(leads=leads)
    mine.holding = HOLDING
    first.turn(leads=False)
    assert written(settings) == 0
    for _ in range(3):
        first.turn(leads=True)
    until(lambda: "m" in watch.state.gates)
    found = watch.state.gates["m"]
    assert found == GateState("m", "m.examples", "hold", HOLDING, (), found.who, 9, "too few")
    assert found.who.startswith("learner@")
    next_one = writer(settings, watch, gate(HOLDING))
    next_one.turn(leads=True)
    next_one.close()
    mine.holding, mine.late = None, ("00000000000000ff",)
    first.turn(leads=True)
    until(lambda: watch.state.gates["m"].holding is None)
    assert watch.state.gates["m"].late == mine.late and written(settings) == 2
    first.close()


def test_a_record_that_was_deleted_is_written_again(settings: KafkaSettings, watch: ControlWatch) -> None:
    """Somebody deletes it while the model is held: `gate status` is told again, once."""
    one = writer(settings, watch, gate(HOLDING))
    one.turn(leads=True)
    until(lambda: "m" in watch.state.gates)
    one.turn(leads=True)
    appender = Appender(settings, name="operator")
    appender.append(TOPIC, 0, None, key=watch.state.gates["m"].key)
    appender.flush(patience())
    appender.close()
    until(lambda: "m" not in watch.state.gates)
    for _ in range(3):
        one.turn(leads=True)
    until(lambda: "m" in watch.state.gates)
    assert watch.state.gates["m"].holding == HOLDING
    one.turn(leads=True)
    one.close()
    assert written(settings) == 3


def test_a_model_held_before_its_publication_is_written(settings: KafkaSettings, watch: ControlWatch) -> None:
    """And that it is no longer."""
    withheld = HeldPublication(7, "change", "the mean change is 0.9")
    for now in (withheld, None):
        one = writer(settings, watch, gate(), now)
        one.turn(leads=True)
        until(lambda: "m" in watch.state.gates and watch.state.gates["m"].publication == now)  # noqa: B023
        one.close()
    assert written(settings) == 2


def test_nothing_is_written_to_a_topic_that_is_not_read(settings: KafkaSettings) -> None:
    """One that is missing might be made, by the settings of the brokers; one that cannot be read says nothing."""
    for is_read, problem in ((False, None), (True, RuntimeError("away"))):
        unread = Mock(topic=TOPIC, is_read=is_read, problem=problem)
        one = writer(settings, unread, gate(HOLDING))
        one.turn(leads=True)
        one.close()
    assert written(settings) == 0
