"""What Kafka clients do while their broker hangs, or is away for a while and comes back."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from copy import copy
from itertools import count

import pytest

from stream_learner.adapters.kafka import (
    Admin,
    Appender,
    EndWatch,
    KafkaSettings,
    OffsetQueries,
    PartitionReader,
    TopicPlan,
    TopicWatch,
    TransactionalPublisher,
)
from stream_learner.errors import BrokerUnreachable, RetryLater
from tests.adapters.kafka.kafka_help import raises_within, read, until, watching
from tests.kafka_broker.broker import Broker
from tests.waiting import patience, wait_until


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


def test_a_hanging_broker_stops_the_time_of_the_ends(broker: Broker, settings: KafkaSettings, topic: str) -> None:
    """While the broker hangs the old answers keep their old times; afterwards they move on."""
    place, asked = (topic, 0), count()
    queries = OffsetQueries(settings, request_timeout_s=0.2)
    with watching(EndWatch(queries, lambda: next(asked), [place], period_s=0.05)) as watch:
        until(lambda: place in watch.snapshot)
        broker.nodes[0].signal(signal.SIGSTOP)
        after_questions(asked, 2)  # one of them was asked, and given up, while nobody could answer
        still = watch.snapshot[place]
        after_questions(asked, 2)
        assert watch.snapshot[place] == still
        broker.nodes[0].signal(signal.SIGCONT)
        until(lambda: watch.snapshot[place].asked_at_ms > still.asked_at_ms)


def after_questions(asked: count[int], number: int) -> None:
    """Wait until so many more have begun."""
    wanted = next(copy(asked)) + number
    until(lambda: next(copy(asked)) > wanted)


def test_a_killed_broker_is_reported_and_everything_goes_on_when_it_is_back(
    broker: Broker, settings: KafkaSettings, topic: str
) -> None:
    """Readers say that nobody answers; after the restart the same reader and appender go on where they were."""
    appender = Appender(settings)
    appender.append(topic, 0, b"before")
    appender.flush(patience())
    with PartitionReader(settings, topic, 0, 0) as reader:
        assert read(reader, 1) == ([0], [b"before"])
        broker.nodes[0].kill()
        raises_within(BrokerUnreachable, lambda: reader.read(1, 0.05))
        appender.append(topic, 0, b"while away")
        broker.nodes[0].start()
        broker.wait_ready()
        assert [d.offset for d in appender.flush(patience())] == [1]
        until(lambda: _read_one(reader) == [b"while away"])
    appender.close()


def _read_one(reader: PartitionReader) -> list[bytes | None]:
    try:
        batch = reader.read(1, 0.1)
    except BrokerUnreachable:
        return []
    return [] if batch is None else list(batch.values)


def test_a_publication_without_an_outcome_is_settled_later_and_nobody_waits_long_for_it(
    broker: Broker, settings: KafkaSettings, topic: str
) -> None:
    """The broker goes away while a transaction is open. Every call says so; when the broker is back, the publisher is
    outdated, and its successor's publication is the only other one that is visible, whole.
    """
    publisher = TransactionalPublisher(settings, f"{topic}.publisher")
    publisher.init(patience())
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
    broker.wait_ready()

    def outdated() -> bool:
        with pytest.raises(RetryLater):
            publisher.publish([(topic, 0, b"k", b"never")])
        return publisher.outdated

    wait_until(outdated, "the publisher knows that it is outdated")
    publisher.close()
    other = TransactionalPublisher(settings, f"{topic}.publisher")
    other.init(patience())
    other.init(patience())  # as when what was published last could not be read after it
    other.publish([(topic, 0, b"k", b"third"), (topic, 0, b"l", b"third")])
    other.close()
    found = _values(settings, topic, b"third", 2)
    assert found in (
        [b"first", b"third", b"third"],
        [b"first", b"second", b"second", b"third", b"third"],
    )


def test_records_wait_for_a_broker_in_their_order(broker: Broker, settings: KafkaSettings, topic: str) -> None:
    """Those appended before and while it is away have no result until it is back; then all are there once, in order."""
    admin = Admin(settings)
    watch = TopicWatch(admin, admin.require([topic]).values(), period_s=0.2)
    appender = Appender(settings, queue_bytes=4_000)
    appender.append(topic, 0, b"0")
    broker.nodes[0].kill()
    away_s = time.monotonic()
    for number in range(1, 20):
        appender.append(topic, 0, str(number).encode())
    assert not appender.is_filling
    appender.append(topic, 0, bytes(2_000))
    assert appender.is_filling
    done = appender.poll(3.0)  # so long no answer is no error
    assert all(delivery.error is None for delivery in done)
    watch.check()
    broker.nodes[0].start()
    broker.wait_ready()

    def all_done() -> bool:
        done.extend(appender.poll(0.1))
        return len(done) >= 21

    wait_until(all_done, "a result of every record")
    assert [delivery.offset for delivery in done] == list(range(21))
    assert not appender.is_filling
    assert all(delivery.error is None for delivery in done)
    until(lambda: watch.check() or watch.answered_s > away_s)
    appender.close()
    assert _values(settings, topic, bytes(2_000), 1)[:20] == [str(number).encode() for number in range(20)]


def _values(settings: KafkaSettings, topic: str, last: bytes, number: int) -> list[bytes | None]:
    """The visible values, read until the last value has come so many times."""
    found: list[bytes | None] = []
    with PartitionReader(settings, topic, 0, 0) as reader:

        def look() -> bool:
            try:
                batch = reader.read(100, 0.2)
            except RetryLater:
                return False
            found.extend(batch.values if batch is not None else [])
            return found.count(last) >= number

        wait_until(look, lambda: f"all of {last!r}, found {found}")
    return found
