"""Reading one partition of a real Kafka: order, ends, markers, gaps, errors."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    Admin,
    Appender,
    KafkaSettings,
    OffsetQueries,
    PartitionReader,
    ReaderPool,
)
from stream_learner.adapters.kafka.shared_reader import SharedReader
from stream_learner.errors import BrokerUnreachable, LogTrimmed, TopicMissing
from tests.adapters.kafka.kafka_help import (
    VisiblePublisher,
    append,
    open_transaction,
    raises_within,
    read,
    read_to,
    transaction,
    until,
)
from tests.conftest import MakeTopic
from tests.kafka_broker.broker import delete_topics
from tests.waiting import patience


@pytest.fixture(params=[False, True], ids=["client", "packed"])
def packed(request: pytest.FixtureRequest) -> bool:
    """Whether records come through a `PackedConsumer`: what holds of the one way to read holds of the other."""
    return bool(request.param)


@pytest.fixture(scope="module")
def queries(admin: Admin) -> OffsetQueries:
    """Questions for offsets."""
    return admin.offsets


@pytest.fixture(scope="module")
def impatient(kafka: str) -> KafkaSettings:
    """Settings with which a topic that is not there is reported after 1 s."""
    return KafkaSettings({"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 1000})


def opened(
    packed: bool, settings: KafkaSettings, topic: str, partition: int, offset: int, **options: str
) -> SharedReader:
    """A reader with a consumer of its own."""
    if packed:
        return ReaderPool(settings, topic, packed=True, **options).open(partition, offset)
    return PartitionReader(settings, topic, partition, offset, **options)


def test_batch_holds_offsets_times_and_values(kafka_settings: KafkaSettings, topics: MakeTopic, packed: bool) -> None:
    """A batch gives every record's offset, wall-clock time and value; nulls are empty slices under a mask."""
    topic = topics("batch")
    before_ms = int(time.time() * 1000)
    append(kafka_settings, topic, 0, [b"one", None, b"", b"four"])
    with opened(packed, kafka_settings, topic, 0, 0) as reader:
        batch = until(lambda: reader.read(10, 1.0))
    after_ms = int(time.time() * 1000)
    assert batch.offsets.tolist() == [0, 1, 2, 3]
    assert batch.offsets.dtype == batch.record_times_ms.dtype == batch.bounds.dtype == np.int64
    assert all(before_ms <= t <= after_ms for t in batch.record_times_ms.tolist())
    assert batch.values == [b"one", None, b"", b"four"]
    assert bytes(batch.data) == b"onefour"
    assert batch.bounds.tolist() == [0, 3, 3, 3, 7]
    assert batch.is_null is not None
    assert batch.is_null.tolist() == [False, True, False, False]
    assert batch.size_bytes == 7
    assert batch.keys is None


def test_reads_in_order_in_limited_batches_and_goes_on_where_it_was(
    kafka_settings: KafkaSettings, topics: MakeTopic, packed: bool
) -> None:
    """No batch is larger than asked for, nothing is left out or repeated, `seek` goes anywhere."""
    topic = topics("order")
    values = [b"%d" % i for i in range(2500)]
    append(kafka_settings, topic, 0, list(values))
    with opened(packed, kafka_settings, topic, 0, 0) as reader:
        first = until(lambda: reader.read(7, 1.0))
        assert len(first) <= 7
        assert reader.position == len(first)
        _, rest = read(reader, 2500 - len(first))
        assert [*first.values, *rest] == values
        reader.seek(1234)
        assert reader.position == 1234
        assert read(reader, 3) == ([1234, 1235, 1236], [b"1234", b"1235", b"1236"])


def test_without_records_it_returns_none_in_time(
    kafka_settings: KafkaSettings, topics: MakeTopic, packed: bool
) -> None:
    """A read at the end of the partition gives None, at once or after the time allowed; within it, what comes."""
    topic = topics("empty")
    with opened(packed, kafka_settings, topic, 0, 0) as reader:
        assert reader.read(10) is None
        read_to(reader, 0)
        assert reader.read(10, 0.3) is None
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(reader.read, 10, patience())
            append(kafka_settings, topic, 0, [b"x"])
            batch = reading.result()
    assert batch is not None and batch.values == [b"x"]


def test_position_passes_transaction_markers_at_the_end(
    kafka_settings: KafkaSettings, topics: MakeTopic, queries: OffsetQueries, packed: bool
) -> None:
    """After a committed transaction the position reaches the high watermark, which no record has."""
    topic = topics("markers")
    transaction(kafka_settings, topic, 3, commit=True)
    end = 4
    until(lambda: queries.high_watermarks([(topic, 0)])[topic, 0] == end)
    for isolation in ("read_committed", READ_UNCOMMITTED):
        with opened(packed, kafka_settings, topic, 0, 0, isolation=isolation) as reader:
            assert read_to(reader, end) == [0, 1, 2]
            assert reader.position == end


def test_aborted_records_are_passed_unseen(
    kafka_settings: KafkaSettings, topics: MakeTopic, queries: OffsetQueries, packed: bool
) -> None:
    """An aborted transaction shows no record, also one that comes while the reader waits at the end."""
    topic = topics("aborted")
    append(kafka_settings, topic, 0, [b"plain"])
    with opened(packed, kafka_settings, topic, 0, 0) as reader:
        assert read_to(reader, 1) == [0]
        transaction(kafka_settings, topic, 5, commit=False)
        assert read_to(reader, 7) == []
        assert reader.position == queries.high_watermarks([(topic, 0)])[topic, 0] == 7


def test_an_open_transaction_holds_committed_readers_at_the_last_stable_offset(
    kafka_settings: KafkaSettings, topics: MakeTopic, queries: OffsetQueries, packed: bool
) -> None:
    """Behind an open transaction nothing is read, and the position stays below the high watermark."""
    topic = topics("open")
    append(kafka_settings, topic, 0, [b"before"])
    producer = open_transaction(kafka_settings, topic, 2)
    append(kafka_settings, topic, 0, [b"after"])
    assert queries.high_watermarks([(topic, 0)]) == {(topic, 0): 4}
    assert queries.last_stable_offsets([(topic, 0)]) == {(topic, 0): 1}
    with opened(packed, kafka_settings, topic, 0, 0) as reader:
        assert read_to(reader, 1) == [0]
        assert reader.read(10, 0.3) is None
        assert reader.position == 1
        producer.commit_transaction(patience())
        assert read_to(reader, 5) == [1, 2, 3]


def test_a_compacted_topic_has_gaps(
    kafka_settings: KafkaSettings, topics: MakeTopic, queries: OffsetQueries, packed: bool
) -> None:
    """Of a compacted topic the latest record of each key is read, and the position still reaches the end."""
    fast = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "max.compaction.lag.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = topics("compacted", **fast)
    publisher = VisiblePublisher(kafka_settings, f"compact-{topic}")
    publisher.init()
    publisher.publish([(topic, 0, b"%d" % (i % 3), b"%d" % i) for i in range(300)])
    time.sleep(0.3)  # longer than a segment may be open: the next record closes it
    publisher.publish([(topic, 0, b"last", b"last")])
    publisher.close()
    end = queries.high_watermarks([(topic, 0)])[topic, 0]

    def compacted() -> list[int]:
        with opened(packed, kafka_settings, topic, 0, 0) as reader:
            offsets = read_to(reader, end)
            assert reader.position == end
        return offsets if len(offsets) < 10 else []

    assert until(compacted, 0.1)[-4:] == [297, 298, 299, 301]


def test_an_offset_the_partition_does_not_hold_is_an_error_with_the_range(
    kafka_settings: KafkaSettings, topics: MakeTopic, kafka: str, packed: bool
) -> None:
    """Beyond the end and before the earliest record alike; nothing is skipped silently, `seek` is the way on."""
    topic = topics("trimmed")
    append(kafka_settings, topic, 0, [b"%d" % i for i in range(10)])
    with opened(packed, kafka_settings, topic, 0, 99) as reader:
        error = raises_within(LogTrimmed, lambda: reader.read(1, 0.1))
        assert str(error) == f"{topic} partition 0 has no offset 99: it holds offsets 0 to 10"
    _delete_records_before(kafka, topic, 4)
    with opened(packed, kafka_settings, topic, 0, 2) as reader:
        error = raises_within(LogTrimmed, lambda: reader.read(1, 0.1))
        assert "no offset 2: it holds offsets 4 to 10" in str(error)
        reader.seek(4)
        assert read(reader, 6)[0] == [4, 5, 6, 7, 8, 9]


def _delete_records_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result()


def test_a_missing_topic_or_partition_is_named(impatient: KafkaSettings, topics: MakeTopic, packed: bool) -> None:
    """Reading what does not exist stops with a message that names it."""
    topic = topics("one-partition")
    with opened(packed, impatient, topic, 5, 0) as reader:
        assert f"{topic} partition 5" in str(raises_within(TopicMissing, lambda: reader.read(1, 0.1)))
    with opened(packed, impatient, "no-such-topic", 0, 0) as reader:
        assert "no-such-topic partition 0" in str(raises_within(TopicMissing, lambda: reader.read(1, 0.1)))


def test_a_topic_deleted_while_read_is_reported(
    impatient: KafkaSettings, topics: MakeTopic, kafka: str, packed: bool
) -> None:
    """The reader of a deleted topic does not wait for ever."""
    topic = topics("deleted")
    append(impatient, topic, 0, [b"x"])
    with opened(packed, impatient, topic, 0, 0) as reader:
        read(reader, 1)
        delete_topics(kafka, [topic])
        raises_within(TopicMissing, lambda: reader.read(1, 0.1))


def test_no_broker_is_an_error_to_retry(packed: bool) -> None:
    """Where nobody listens the reader says so, names the address, and goes on trying."""
    settings = KafkaSettings({"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.max.ms": 300})
    with opened(packed, settings, "any", 0, 0) as reader:
        for _ in range(2):
            error = raises_within(BrokerUnreachable, lambda: reader.read(1, 0.1))
            assert "127.0.0.1:1" in str(error)


def test_keys_and_headers_come_on_request(kafka_settings: KafkaSettings, topics: MakeTopic) -> None:
    """Keys and headers, repeated names included, are given to readers that ask for them."""
    topic = topics("headers")
    appender = Appender(kafka_settings)
    appender.append(topic, 0, b"v", key=b"k", headers=[("reason", b"a"), ("reason", b"b")])
    appender.append(topic, 0, b"w")
    appender.flush(patience())
    appender.close()
    with PartitionReader(kafka_settings, topic, 0, 0, with_keys=True, with_headers=True) as reader:
        batch = until(lambda: reader.read(2, 1.0))
    assert batch.keys == [b"k", None][: len(batch)]
    assert batch.headers is not None
    assert batch.headers[0] == [("reason", b"a"), ("reason", b"b")]


def test_a_negative_offset_is_refused(kafka_settings: KafkaSettings) -> None:
    """librdkafka's logical offsets (beginning, end, stored) are not positions."""
    with pytest.raises(ValueError, match="negative"):
        PartitionReader(kafka_settings, "any", 0, -2)
