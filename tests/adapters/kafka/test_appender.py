"""Appending to a real Kafka: order, offsets, delivery results, sizes, lost brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from stream_learner.adapters.kafka import Appender, KafkaSettings, PartitionReader
from stream_learner.errors import BrokerUnreachable, Stop, TopicMissing
from tests.adapters.kafka.kafka_help import append, read, until, without_waiting
from tests.conftest import MakeTopic
from tests.waiting import patience

HOUR_S = 3_600.0


@pytest.fixture
def appender(kafka_settings: KafkaSettings) -> Iterator[Appender]:
    """An appender to the real broker."""
    appender = Appender(kafka_settings)
    yield appender
    appender.close()


def test_results_come_in_order_with_contiguous_offsets(
    appender: Appender, kafka_settings: KafkaSettings, topics: MakeTopic
) -> None:
    """Every record has one result, with its tag; offsets of a partition follow each other while nobody else writes."""
    topic = topics("append", 2)
    for i in range(200):
        appender.append(topic, i % 2, b"%d" % i, tag=i)
    assert appender.waiting == 200
    results = appender.flush(patience())
    assert appender.waiting == 0
    for partition in (0, 1):
        mine = [r for r in results if r.partition == partition]
        assert [r.tag for r in mine] == list(range(partition, 200, 2))
        assert [r.offset for r in mine] == list(range(100))
        assert all(r.error is None and r.topic == topic for r in mine)
    with PartitionReader(kafka_settings, topic, 1, 0) as reader:
        assert read(reader, 100)[1] == [b"%d" % i for i in range(1, 200, 2)]


def test_a_foreign_record_shows_as_a_gap(appender: Appender, kafka_settings: KafkaSettings, topics: MakeTopic) -> None:
    """When somebody else writes in between, the next offset is not the expected one."""
    topic = topics("gap")
    appender.append(topic, 0, b"mine")
    first = appender.flush(patience())[0].offset
    append(kafka_settings, topic, 0, [b"foreign"])
    appender.append(topic, 0, b"mine again")
    assert appender.flush(patience())[0].offset == first + 2


def test_poll_returns_as_soon_as_a_result_is_there(appender: Appender, topics: MakeTopic) -> None:
    """A result is handed out once, without waiting for the whole time allowed; with nothing under way none comes."""
    topic = topics("poll")
    appender.append(topic, 0, b"warm up")
    appender.flush(patience())
    appender.append(topic, 0, b"x", tag="x")
    results = until(lambda: without_waiting(lambda: appender.poll(HOUR_S)))
    assert [r.tag for r in results] == ["x"]
    assert without_waiting(lambda: appender.poll(HOUR_S)) == []


def test_record_times_are_the_wall_clock(appender: Appender, kafka_settings: KafkaSettings, topics: MakeTopic) -> None:
    """Records of our own topics carry the time of the append, not of any event."""
    topic = topics("times")
    before_ms = int(time.time() * 1000)
    appender.append(topic, 0, b"x")
    appender.flush(patience())
    with PartitionReader(kafka_settings, topic, 0, 0) as reader:
        batch = until(lambda: reader.read(1, 1.0))
    assert before_ms <= int(batch.record_times_ms[0]) <= time.time() * 1000


def test_large_records_pass_up_to_the_topics_limit(appender: Appender, topics: MakeTopic) -> None:
    """A record above the topic's `max.message.bytes` is an error that says what to raise; the next one passes."""
    topic = topics("large", **{"max.message.bytes": "3000000"})
    appender.append(topic, 0, bytes(2_900_000), tag="fits")
    appender.append(topic, 0, bytes(3_100_000), tag="too large")
    appender.append(topic, 0, b"small", tag="next")
    fits, too_large, following = appender.flush(patience())
    assert (fits.offset, fits.error) == (0, None)
    assert too_large.offset == -1
    assert isinstance(too_large.error, Stop)
    assert "max.message.bytes" in too_large.error.action
    assert following.error is None


def test_a_record_above_the_clients_limit_is_refused_at_once(appender: Appender, topics: MakeTopic) -> None:
    """What can never be sent raises in `append` and leaves the appender usable."""
    topic = topics("refused")
    with pytest.raises(Stop, match="MSG_SIZE_TOO_LARGE"):
        appender.append(topic, 0, bytes(17 << 20))
    appender.append(topic, 0, b"x")
    assert appender.flush(patience())[0].offset == 0


def test_a_missing_topic_or_partition_is_a_result_with_an_error(kafka: str, topics: MakeTopic) -> None:
    """Records for a topic or partition that does not exist come back with TopicMissing, which names it."""
    settings = KafkaSettings({"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 1000})
    topic = topics("partitions", 2)
    appender = Appender(settings)
    appender.append(topic, 7, b"x")
    appender.append("no-such-topic", 0, b"x")
    errors = [str(r.error) for r in appender.flush(patience()) if isinstance(r.error, TopicMissing)]
    appender.close()
    assert len(errors) == 2
    assert f"{topic} partition 7" in errors[0]
    assert "no-such-topic partition 0" in errors[1]


def test_without_a_broker_flush_says_so_and_close_does_not_hang() -> None:
    """Records that cannot be delivered stay queued; what is left at `close` is dropped."""
    appender = Appender(KafkaSettings({"bootstrap.servers": "127.0.0.1:1"}))
    appender.append("any", 0, b"x")
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        appender.flush(0.3)
    assert appender.waiting == 1
    without_waiting(appender.close)
