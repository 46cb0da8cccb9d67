"""Transactions on a real Kafka: all or nothing, fencing, restart after a kill."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader, TransactionalPublisher
from stream_learner.errors import BrokerUnreachable, Fenced, StreamLearnerError
from tests.adapters.kafka.kafka_help import open_transaction, read, read_to, until
from tests.conftest import MakeTopic

MakePublisher = Callable[..., TransactionalPublisher]


@pytest.fixture
def publishers(kafka_settings: KafkaSettings) -> Iterator[MakePublisher]:
    """Makes initialised publishers and closes them."""
    made: list[TransactionalPublisher] = []

    def make(transactional_id: str = "", **properties: str) -> TransactionalPublisher:
        settings = KafkaSettings({"bootstrap.servers": kafka_settings.bootstrap, **properties})
        publisher = TransactionalPublisher(settings, transactional_id or uuid.uuid4().hex)
        made.append(publisher)
        publisher.init()
        return publisher

    yield make
    for publisher in made:
        publisher.close()


def test_a_publication_is_visible_whole(
    publishers: MakePublisher, kafka_settings: KafkaSettings, topics: MakeTopic
) -> None:
    """All records of all partitions become visible, null values too; the last offset of each is returned."""
    topic = topics("publish", 2)
    records = [(topic, i % 2, b"k%d" % i, None if i == 3 else b"v%d" % i) for i in range(6)]
    assert publishers().publish(records) == {(topic, 0): 2, (topic, 1): 2}
    with PartitionReader(kafka_settings, topic, 1, 0, with_keys=True) as reader:
        assert read(reader, 3)[1] == [b"v1", None, b"v5"]


def test_publications_follow_each_other_without_pause_by_the_caller(
    publishers: MakePublisher, kafka_settings: KafkaSettings, topics: MakeTopic
) -> None:
    """Twenty publications in a row all succeed, in order, each with its marker behind it."""
    topic = topics("row")
    publisher = publishers()
    offsets = [publisher.publish([(topic, 0, b"k", b"%d" % i)])[topic, 0] for i in range(20)]
    assert offsets == list(range(0, 40, 2))
    with PartitionReader(kafka_settings, topic, 0, 0) as reader:
        assert read_to(reader, 40) == offsets


def test_an_empty_publication_is_nothing(publishers: MakePublisher, topics: MakeTopic) -> None:
    """A publication without records succeeds, and the next one with some."""
    topic = topics("none")
    publisher = publishers()
    assert publisher.publish([]) == {}
    assert publisher.publish([(topic, 0, b"k", b"v")]) == {(topic, 0): 0}


def test_a_twin_fences_the_older_publisher_for_good(publishers: MakePublisher, topics: MakeTopic) -> None:
    """The one that initialised last goes on; the other is told so, every time, and its records are not visible."""
    topic = topics("fence")
    old = publishers("twin-" + topic)
    old.publish([(topic, 0, b"k", b"old")])
    new = publishers("twin-" + topic)
    for _ in range(2):
        with pytest.raises(Fenced):
            old.publish([(topic, 0, b"k", b"too late")])
    old.close()
    new.publish([(topic, 0, b"k", b"new")])


def test_initialising_ends_the_transaction_of_a_dead_predecessor(
    publishers: MakePublisher, kafka_settings: KafkaSettings, topics: MakeTopic, admin: Admin
) -> None:
    """Readers blocked by a publisher that died inside a transaction go on once its id is initialised again."""
    topic = topics("dead")
    producer = open_transaction(kafka_settings, topic, 3, transactional_id="dead-" + topic)
    assert admin.offsets.last_stable_offsets([(topic, 0)]) == {(topic, 0): 0}
    publisher = publishers("dead-" + topic)
    publisher.publish([(topic, 0, b"k", b"new")])
    with PartitionReader(kafka_settings, topic, 0, 0) as reader:
        assert read(reader, 1) == ([4], [b"new"])
    del producer


def test_an_outlived_transaction_time_out_is_fencing(
    publishers: MakePublisher, topics: MakeTopic, admin: Admin
) -> None:
    """A publisher that pauses longer than `transaction.timeout.ms` inside a publication learns that it is fenced."""
    topic = topics("slow")
    publisher = publishers(**{"transaction.timeout.ms": "1500"})

    def slow_records() -> Iterator[tuple[str, int, bytes, bytes]]:
        yield topic, 0, b"k", b"first"
        until(lambda: admin.offsets.last_stable_offsets([(topic, 0)])[topic, 0])  # the brokers have aborted it
        yield topic, 0, b"k", b"second"

    with pytest.raises(StreamLearnerError):
        publisher.publish(slow_records())
    with pytest.raises(Fenced):
        publisher.publish([(topic, 0, b"k", b"third")])


def test_what_fails_before_the_commit_is_aborted(
    publishers: MakePublisher, kafka_settings: KafkaSettings, topics: MakeTopic, admin: Admin
) -> None:
    """A record that cannot be published takes the whole publication back; the publisher stays usable."""
    topic = topics("abort")
    publisher = publishers()
    with pytest.raises(StreamLearnerError, match="MSG_SIZE_TOO_LARGE"):
        publisher.publish([(topic, 0, b"k", b"v"), (topic, 0, b"k", bytes(17 << 20))])
    publisher.publish([(topic, 0, b"k", b"good")])
    end = until(lambda: admin.offsets.last_stable_offsets([(topic, 0)])[topic, 0])
    with PartitionReader(kafka_settings, topic, 0, 0) as reader:
        assert read(reader, 1)[1] == [b"good"]
        assert end >= 2


def test_an_error_of_the_caller_aborts_too(publishers: MakePublisher, topics: MakeTopic) -> None:
    """When the iterable of records raises, nothing is published and the error is the caller's own."""
    topic = topics("raise")
    publisher = publishers()

    def broken() -> Iterator[tuple[str, int, bytes, bytes]]:
        yield topic, 0, b"k", b"v"
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        publisher.publish(broken())
    publisher.publish([(topic, 0, b"k", b"good")])


def test_without_a_broker_init_can_be_called_again() -> None:
    """Initialising raises BrokerUnreachable when the time is up."""
    publisher = TransactionalPublisher(KafkaSettings({"bootstrap.servers": "127.0.0.1:1"}), "none")
    for _ in range(2):
        with pytest.raises(BrokerUnreachable):
            publisher.init(0.3)
    publisher.close()
