"""What a learner reads ahead while nothing is folded: what it has room for, and all the rest once it goes on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import pytest

from stream_learner.adapters.kafka import Appender, EmbeddedBroker, KafkaSettings
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import GENESIS, ImpressionCounts, MarkId, TickCounts
from stream_learner.core.log.rule_w import Attempt
from stream_learner.roles.learner.log_follower import LOG_BEGINNING, LogFollower
from tests.adapters.kafka.kafka_help import until
from tests.waiting import patience

TICKS, EXAMPLES, FEATURES = 10, 20, 2_000
TICK_BYTES = EXAMPLES * FEATURES * (8 + 2)
LEAST_BUFFER_BYTES = 1 << 20
"""What a partition may read ahead at least."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """A partition of TICKS large ticks."""
    name = f"log-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1)
    appender = Appender(KafkaSettings({"bootstrap.servers": broker.bootstrap}))
    last = GENESIS
    for tick in range(TICKS):
        attempt = Attempt(0, 1 + tick, last, 0)
        for value in attempt.stamp(
            large(tick),
            first_tick=tick,
            last_tick=tick,
            next_impression=0,
            first_click=0,
            click_cursor=0,
            counts=TickCounts(ImpressionCounts(read=EXAMPLES, examples=EXAMPLES)),
        ):
            appender.append(name, 0, value)
        last = MarkId(attempt.id, tick)
    appender.flush(patience())
    appender.close()
    return name


def large(tick: int) -> ExampleBatch:
    """Examples whose keys are all different."""
    keys = np.arange(1, 1 + EXAMPLES * FEATURES, dtype=np.uint64)
    return ExampleBatch(
        np.full(EXAMPLES, tick, np.int64),
        np.arange(1, 1 + EXAMPLES, dtype=np.uint64),
        np.zeros(EXAMPLES),
        np.ones(EXAMPLES),
        np.arange(0, EXAMPLES * FEATURES + 1, FEATURES, dtype=np.int64),
        keys,
        np.ones(len(keys)),
    )


def follow(broker: EmbeddedBroker, topic: str) -> LogFollower:
    settings = KafkaSettings({"bootstrap.servers": broker.bootstrap})
    return LogFollower(settings, topic, {0: LOG_BEGINNING}, buffer_bytes=LEAST_BUFFER_BYTES)


def test_a_fold_that_is_held_does_not_fill_the_memory(broker: EmbeddedBroker, topic: str) -> None:
    """While another one reads the whole log, it reads what it has room for; looking takes nothing; then it goes on."""
    held, free = follow(broker, topic), follow(broker, topic)
    taken: list[int] = []

    def turn() -> bool:
        held.read()
        free.read()
        taken.extend(one.mark.last_tick for one in free.take(free.next_tick()))
        return len(taken) == TICKS

    until(turn)
    until(lambda: not held.read())
    assert LEAST_BUFFER_BYTES <= held.waiting_bytes < TICKS * TICK_BYTES // 2
    for _ in range(2):
        assert [one.mark.last_tick for one in held.look(held.next_tick())] == [0]
    assert held.positions == {0: LOG_BEGINNING}
    found: list[int] = []

    def go_on() -> bool:
        held.read()
        found.extend(one.mark.last_tick for one in held.take(held.next_tick()))
        return len(found) == TICKS

    until(go_on)
    assert found == taken == list(range(TICKS))
    held.close()
    free.close()
