"""What Kafka clients do while their broker is away for a while: a publisher, an appender, a member."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from stream_learner.edges.kafka import (
    Admin,
    Appender,
    KafkaSettings,
    PartitionReader,
    TopicPlan,
    TopicWatch,
    TransactionalPublisher,
)
from stream_learner.errors import RetryLater
from tests.kafka_broker.broker import Broker

PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that is stopped."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def settings(broker: Broker) -> KafkaSettings:
    """Its clients come back soon."""
    return KafkaSettings({"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 500})


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    """A topic with one partition."""
    name = f"away-{uuid.uuid4().hex[:8]}"
    Admin(settings).create([TopicPlan(name, 1)])
    return name


def test_a_publication_without_an_outcome_is_settled_later_and_nobody_waits_long_for_it(
    broker: Broker, settings: KafkaSettings, topic: str
) -> None:
    """The broker goes away while a transaction is open. Every call says so; when the broker is back, the publisher is
    outdated, and its successor's publication is the only other one that is visible, whole.
    """
    publisher = TransactionalPublisher(settings, f"{topic}.publisher")
    publisher.init(60)
    publisher.publish([(topic, 0, b"k", b"first")])

    def records() -> Iterator[tuple[str, int, bytes, bytes]]:
        yield topic, 0, b"k", b"second"
        broker.nodes[0].kill()
        yield topic, 0, b"l", b"second"

    with pytest.raises(RetryLater):
        publisher.publish(records())
    for _ in range(2):
        with pytest.raises(RetryLater):
            publisher.publish([(topic, 0, b"k", b"never")])
        assert not publisher.outdated
    broker.nodes[0].start()
    broker.wait_ready(PATIENCE_S)
    until_s = time.monotonic() + PATIENCE_S
    while not publisher.outdated:
        assert time.monotonic() < until_s
        with pytest.raises(RetryLater):
            publisher.publish([(topic, 0, b"k", b"never")])
    publisher.close()
    other = TransactionalPublisher(settings, f"{topic}.publisher")
    other.init(60)
    other.init(60)  # as when what was published last could not be read after it
    other.publish([(topic, 0, b"k", b"third"), (topic, 0, b"l", b"third")])
    other.close()
    found = _values(settings, topic, b"third", 2)
    assert found in (
        [b"first", b"third", b"third"],
        [b"first", b"second", b"second", b"third", b"third"],
    )


def test_records_wait_for_a_broker_in_their_order(broker: Broker, settings: KafkaSettings, topic: str) -> None:
    """Those appended before and while it is away have no result until it is back; then all are there once, in order."""
    watch = TopicWatch(Admin(settings), Admin(settings).require([topic]).values(), period_s=0.2)
    appender = Appender(settings, queue_bytes=4_000)
    appender.append(topic, 0, b"0")
    broker.nodes[0].kill()
    away_s = time.monotonic()
    for number in range(1, 20):
        appender.append(topic, 0, str(number).encode())
    assert not appender.is_filling
    appender.append(topic, 0, bytes(2_000))
    assert appender.is_filling
    done = appender.poll(3.0)
    assert all(delivery.error is None for delivery in done)
    watch.check()
    broker.nodes[0].start()
    broker.wait_ready(PATIENCE_S)
    until_s = time.monotonic() + PATIENCE_S
    while len(done) < 21:
        assert time.monotonic() < until_s
        done += appender.poll(0.1)
    assert [delivery.offset for delivery in done] == list(range(21))
    assert not appender.is_filling
    assert all(delivery.error is None for delivery in done)
    while watch.answered_s < away_s:
        assert time.monotonic() < until_s
        watch.check()
        time.sleep(0.05)
    appender.close()
    assert _values(settings, topic, bytes(2_000), 1)[:20] == [str(number).encode() for number in range(20)]


def _values(settings: KafkaSettings, topic: str, last: bytes, count: int) -> list[bytes | None]:
    """What is visible, up to so many of the last value."""
    found: list[bytes | None] = []
    until_s = time.monotonic() + PATIENCE_S
    with PartitionReader(settings, topic, 0, 0) as reader:
        while found.count(last) < count:
            assert time.monotonic() < until_s, found
            try:
                batch = reader.read(100, 0.2)
            except RetryLater:
                continue
            found += batch.values if batch is not None else []
    return found
