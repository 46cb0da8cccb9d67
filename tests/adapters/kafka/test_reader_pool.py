"""Many partitions of a real Kafka through one consumer: each as if it were read alone."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    Admin,
    KafkaSettings,
    OffsetQueries,
    ReaderPool,
    ReaderPools,
    Wake,
    clients,
)
from stream_learner.adapters.kafka.runs import Run
from stream_learner.adapters.kafka.shared_reader import SharedReader
from stream_learner.errors import BrokerUnreachable, ConfigError, LogTrimmed, TopicMissing
from tests.adapters.kafka.kafka_help import append, open_transaction, raises_within, read, read_to, transaction, until
from tests.conftest import MakeTopic
from tests.waiting import patience

MIB = 1 << 20
VALUE_BYTES = 1_000


@pytest.fixture(params=[False, True], ids=["client", "packed"])
def packed(request: pytest.FixtureRequest) -> bool:
    """Whether records come through a `PackedConsumer`: what holds of the one way to read holds of the other."""
    return bool(request.param)


@pytest.fixture(scope="module")
def queries(admin: Admin) -> OffsetQueries:
    """Questions for offsets."""
    return admin.offsets


@pytest.fixture(scope="module")
def full(kafka_settings: KafkaSettings, topics: MakeTopic) -> str:
    """A topic of four partitions, 6,000 records of a kilobyte in each, that begin with partition and offset."""
    topic = topics("full", partitions=4)
    fill(kafka_settings, topic, dict.fromkeys(range(4), 6_000))
    return topic


def fill(settings: KafkaSettings, topic: str, counts: dict[int, int]) -> None:
    """So many records of a kilobyte in each partition."""
    producer = Producer(settings.producer(linger__ms=5))
    for partition, count in counts.items():
        for offset in range(count):
            producer.produce(topic, value_at(partition, offset), partition=partition)
            if offset % 1000 == 0:
                producer.poll(0)
    assert producer.flush(patience()) == 0


def value_at(partition: int, offset: int) -> bytes:
    """The value that `fill` writes at an offset."""
    return b"%d/%d " % (partition, offset) + bytes(VALUE_BYTES - 12)


class Followed:
    """A reader, and what it must give next: every record from an offset on."""

    def __init__(self, pool: ReaderPool, partition: int, offset: int) -> None:
        self.reader = pool.open(partition, offset)
        self.next = offset

    def read(self, limit: int) -> int:
        """Read once and compare; how many came."""
        batch = self.reader.read(limit)
        if batch is None:
            return 0
        offsets = list(range(self.next, self.next + len(batch)))
        assert len(batch) <= limit
        assert batch.offsets.tolist() == offsets
        assert list(batch.values) == [value_at(self.reader.partition, offset) for offset in offsets]
        self.next += len(batch)
        assert self.reader.position == self.next
        return len(batch)

    def seek(self, offset: int) -> None:
        """Go on from there."""
        self.reader.seek(offset)
        self.next = offset


def test_partitions_are_read_side_by_side_each_in_order(kafka_settings: KafkaSettings, full: str, packed: bool) -> None:
    """Every partition's records come once, in order, in batches no larger than asked for, whoever reads first."""
    pool = ReaderPool(kafka_settings, full, partitions=4, packed=packed)
    chance = random.Random(1)
    with ExitStack() as stack:
        followed = [Followed(pool, partition, 0) for partition in range(4)]
        for one in followed:
            stack.enter_context(one.reader)

        def all_read() -> bool:
            for one in chance.sample(followed, 4):
                one.read(chance.choice((1, 7, 500, 3000)))
            return all(one.next == 6_000 for one in followed)

        until(all_read, 0.0)


def test_partitions_come_go_and_jump_while_others_flow(kafka_settings: KafkaSettings, full: str, packed: bool) -> None:
    """Opened, closed and opened elsewhere, or told to seek: no record of before is seen, none of after is missed."""
    pool = ReaderPool(kafka_settings, full, partitions=4, buffer_bytes=MIB, packed=packed)
    chance = random.Random(2)
    open_now: dict[int, Followed] = {}
    seen, changes = 0, 0

    def enough() -> bool:
        nonlocal seen, changes
        partition, offset = chance.randrange(4), chance.randrange(6_000)
        roll = chance.random()
        if partition not in open_now:
            open_now[partition] = Followed(pool, partition, offset)
        elif roll < 0.02:
            open_now.pop(partition).reader.close()
            changes += 1
        elif roll < 0.04:
            open_now[partition].seek(offset)
            changes += 1
        for one in list(open_now.values()):
            seen += one.read(chance.choice((1, 100, 2000)))
        return changes > 60 and seen > 60_000

    until(enough, 0.0)
    for one in open_now.values():
        one.reader.close()
    assert pool.held_bytes == 0


def test_a_partition_that_nobody_reads_keeps_nobody_waiting_and_little_memory(
    kafka_settings: KafkaSettings, topics: MakeTopic, packed: bool
) -> None:
    """One huge partition beside small ones: it is set aside, the others are read to their ends and what is new in
    them comes; then it goes on where it was."""
    topic = topics("huge", partitions=3)
    fill(kafka_settings, topic, {0: 20_000, 1: 30, 2: 30})
    pool = ReaderPool(kafka_settings, topic, partitions=3, buffer_bytes=4 * MIB, packed=packed)
    most = 0
    with pool.open(0, 0) as huge, pool.open(1, 0) as small, pool.open(2, 0) as other:
        for reader in (small, other):
            assert read_to(reader, 30) == list(range(30))
        first = until(lambda: huge.read(10))

        def is_set_aside() -> bool:
            nonlocal most
            small.read(10)
            most = max(most, pool.held_bytes)
            return pool.set_aside == {0}

        until(is_set_aside)
        fill(kafka_settings, topic, {1: 5})
        assert read(small, 5)[0] == [30, 31, 32, 33, 34]
        offsets = first.offsets.tolist()

        def all_read() -> bool:
            nonlocal most
            batch = huge.read(500)
            offsets.extend([] if batch is None else batch.offsets.tolist())
            most = max(most, pool.held_bytes)
            return len(offsets) >= 20_000

        until(all_read, 0.0)
        assert offsets == list(range(20_000))
        assert not pool.set_aside
    assert most < 4 * MIB


def test_when_all_run_ahead_the_memory_is_bounded(kafka_settings: KafkaSettings, full: str, packed: bool) -> None:
    """Partitions of which next to nothing is read fill what the pool may hold, and no more; nothing is lost by it."""
    pool = ReaderPool(kafka_settings, full, partitions=4, buffer_bytes=2 * MIB, packed=packed)
    followed = [Followed(pool, partition, 0) for partition in range(4)]
    most = 0

    def all_set_aside() -> bool:
        nonlocal most
        for one in followed:
            one.read(1)
        most = max(most, pool.held_bytes)
        return len(pool.set_aside) == 4

    # Each takes one record a turn, so only what is polled for those that hold nothing fills the memory.
    with ExitStack() as stack:
        for one in followed:
            stack.enter_context(one.reader)
        until(lambda: all_set_aside() or all(one.next > 300 for one in followed), 0.0)
        assert most < 2 * MIB

        def all_read() -> bool:
            for one in followed:
                one.read(2_000)
            return all(one.next == 6_000 for one in followed)

        until(all_read, 0.0)


def test_positions_pass_markers_of_their_own_partition_only(
    kafka_settings: KafkaSettings, topics: MakeTopic, queries: OffsetQueries, packed: bool
) -> None:
    """Committed, aborted and open transactions side by side: each position is where it would be if read alone."""
    topic = topics("markers", partitions=4)
    append(kafka_settings, topic, 0, [b"plain"])
    transaction(kafka_settings, topic, 3, commit=True, partition=1)
    transaction(kafka_settings, topic, 3, commit=False, partition=2)
    append(kafka_settings, topic, 3, [b"before"])
    producer = open_transaction(kafka_settings, topic, 2, partition=3)
    until(lambda: queries.last_stable_offsets([(topic, 1), (topic, 2)]) == {(topic, 1): 4, (topic, 2): 4})
    pool = ReaderPool(kafka_settings, topic, partitions=4, packed=packed)
    with ExitStack() as stack:
        readers = [stack.enter_context(pool.open(partition, 0)) for partition in range(4)]
        ends = {0: 1, 1: 4, 2: 4, 3: 1}
        assert [read_to(readers[p], end) for p, end in ends.items()] == [[0], [0, 1, 2], [], [0]]
        assert [reader.position for reader in readers] == list(ends.values())
        producer.commit_transaction(patience())
        assert read_to(readers[3], 4) == [1, 2]
        assert [reader.position for reader in readers] == [1, 4, 4, 4]


def test_a_trimmed_partition_says_so_and_the_others_flow(
    kafka_settings: KafkaSettings, full: str, topics: MakeTopic, kafka: str, packed: bool
) -> None:
    """An offset that is not held is an error of its partition alone; `seek` is the way on."""
    topic = topics("trimmed", partitions=3)
    fill(kafka_settings, topic, {0: 10, 1: 10, 2: 10})
    deleting = AdminClient({"bootstrap.servers": kafka})
    for answer in deleting.delete_records([TopicPartition(topic, 1, 4)]).values():
        answer.result()
    pool = ReaderPool(kafka_settings, topic, partitions=3, packed=packed)
    with pool.open(0, 0) as whole, pool.open(1, 2) as trimmed, pool.open(2, 99) as beyond:
        assert read(whole, 10)[0] == list(range(10))
        error = raises_within(LogTrimmed, lambda: trimmed.read(1, 0.05))
        assert str(error) == f"{topic} partition 1 has no offset 2: it holds offsets 4 to 10"
        error = raises_within(LogTrimmed, lambda: beyond.read(1, 0.05))
        assert str(error) == f"{topic} partition 2 has no offset 99: it holds offsets 0 to 10"
        assert whole.read(1) is None
        trimmed.seek(4)
        assert read(trimmed, 6)[0] == [4, 5, 6, 7, 8, 9]
        beyond.seek(7)
        assert read(beyond, 3)[0] == [7, 8, 9]


def test_a_partition_that_does_not_exist_is_named_and_the_others_flow(
    kafka: str, topics: MakeTopic, packed: bool
) -> None:
    """A missing partition stops whoever reads it, and nobody else."""
    impatient = KafkaSettings({"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 1000})
    topic = topics("two", partitions=2)
    fill(impatient, topic, {0: 5, 1: 5})
    pool = ReaderPool(impatient, topic, partitions=2, packed=packed)
    with pool.open(0, 0) as there, pool.open(7, 0) as missing, pool.open(1, 0) as too:
        assert read(there, 5)[0] == read(too, 5)[0] == [0, 1, 2, 3, 4]
        error = raises_within(TopicMissing, lambda: [reader.read(1, 0.02) for reader in (there, too, missing)])
        assert f"{topic} partition 7" in str(error)
        fill(impatient, topic, {0: 2})
        assert read(there, 2)[0] == [5, 6]


def test_brokers_out_of_reach_are_said_once_to_whoever_reads_first(packed: bool) -> None:
    """Where nobody listens one of the readers says so, with the address, and later another one."""
    settings = KafkaSettings({"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.max.ms": 300})
    pool = ReaderPool(settings, "any", partitions=2, packed=packed)
    with pool.open(0, 0) as one, pool.open(1, 0) as other:
        for reader in (one, other):
            error = raises_within(BrokerUnreachable, lambda reader=reader: reader.read(1, 0.05))  # type: ignore[misc]
            assert "127.0.0.1:1" in str(error)


def test_brokers_that_went_behind_the_last_records_are_said_after_them(
    kafka_settings: KafkaSettings, full: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tells of it once, in the call that gives the records that were fetched before."""
    pool = ReaderPool(kafka_settings, full, packed=packed)
    consume = pool._consume

    def consume_last(count: int, timeout_s: float) -> Iterator[Run]:
        found = list(consume(count, timeout_s))
        if any(run.records is not None for run in found):
            monkeypatch.setattr(pool, "_consume", lambda count, timeout_s: iter(()))
            pool._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all brokers are down"))
        return iter(found)

    monkeypatch.setattr(pool, "_consume", consume_last)
    with pool.open(0, 0) as reader:
        assert until(lambda: reader.read(10_000, 0.05)) is not None
        raises_within(BrokerUnreachable, lambda: reader.read(10_000, 0.05))


def test_records_wake_a_thread_that_waits(kafka_settings: KafkaSettings, topics: MakeTopic) -> None:
    """Each time the queue was found empty and something comes; through the ordinary client nothing wakes it."""
    topic, wake = topics("wakes", partitions=2), Wake()
    pools = ReaderPools(2, packed=True, wake=wake)
    with pools.open(kafka_settings, topic, 0, 0) as reader, pools.open(kafka_settings, topic, 1, 0) as other:
        assert pools.wakes
        for number in range(4):
            until(lambda: not pools.poll() and reader.read(9) is None and other.read(9) is None)
            append(kafka_settings, topic, number % 2, [b"one", b"two"])
            found: list[bytes | None] = []
            while len(found) < 2:
                assert wake.wait(patience()), "nobody woke the thread"
                if pools.poll():
                    batches = [batch for batch in (reader.read(9), other.read(9)) if batch is not None]
                    found += [value for batch in batches for value in batch.values]
            assert found == [b"one", b"two"]
    with ReaderPool(kafka_settings, topic, wake=wake).open(0, 0) as reader:
        assert not reader._pool.wakes  # type: ignore[attr-defined]


def test_a_partition_is_opened_once(kafka_settings: KafkaSettings, full: str, packed: bool) -> None:
    """Two readers of a partition would take records from each other; closed, it may be opened again, and by others
    closing twice does no harm."""
    pool = ReaderPool(kafka_settings, full, partitions=4, packed=packed)
    first = pool.open(0, 10)
    with pytest.raises(ValueError, match="open already"):
        pool.open(0, 0)
    first.close()
    second = pool.open(0, 3)
    first.close()
    assert read(second, 2)[0] == [3, 4]
    second.close()


def test_readers_of_all_topics_take_a_consumer_each_topic(
    kafka_settings: KafkaSettings, topics: MakeTopic, packed: bool
) -> None:
    """Sixty partitions take as many threads and files as six; closed, they give all of them back."""
    few, many = topics("few", partitions=3), topics("many", partitions=30)
    for topic in (few, many):
        fill(kafka_settings, topic, dict.fromkeys(range(3), 1))
    taken = []
    for topic, partitions in ((few, 3), (many, 30), (many, 30)):
        before = threads_and_files()
        pools = ReaderPools(partitions, packed=packed)
        with ExitStack() as stack:
            for isolation in ("read_committed", READ_UNCOMMITTED):
                opened = [
                    stack.enter_context(pools.open(kafka_settings, topic, partition, 0, isolation=isolation))
                    for partition in range(partitions)
                ]
                for reader in opened[:3]:
                    read(reader, 1)
            now = threads_and_files()
            taken.append([now[0] - before[0], now[1] - before[1]])
        until(lambda before=before: threads_and_files() <= before)  # type: ignore[misc]
    # A broker thread or connection may be on its way out or in.
    assert taken[1][0] <= taken[0][0] + 2
    assert taken[1][1] <= taken[0][1] + 6


def threads_and_files() -> tuple[int, int]:
    """The threads and open files that this process has now."""
    own = Path("/proc/self")
    return len(list((own / "task").iterdir())), len(list((own / "fd").iterdir()))


def test_changed_credentials_lose_and_repeat_nothing(
    full: str, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """A pool whose secrets have changed on disk goes on with a new consumer where each partition was."""
    settings = KafkaSettings({"bootstrap.servers": kafka})
    pool = ReaderPool(settings, full, partitions=4, packed=packed)
    with ExitStack() as stack:
        followed = [Followed(pool, partition, 0) for partition in range(4)]
        for one in followed:
            stack.enter_context(one.reader)
        until(lambda: followed[0].read(100), 0.0)
        until(lambda: followed[1].read(1), 0.0)
        monkeypatch.setattr(settings, "credentials_version", lambda: 7)

        def all_read() -> bool:
            for one in followed:
                one.read(700)
            return all(one.next == 6_000 for one in followed)

        until(all_read, 0.0)


def test_records_that_wait_for_another_topic_are_no_news(
    kafka_settings: KafkaSettings, topics: MakeTopic, packed: bool
) -> None:
    """Whoever waits for news need not look again and again while nobody reads what is held. What comes besides is."""
    topic = topics("waits", 2)
    pools = ReaderPools(2, packed=packed)
    with pools.open(kafka_settings, topic, 0, 0) as waits, pools.open(kafka_settings, topic, 1, 0) as reads:
        append(kafka_settings, topic, 0, [b"a", b"b"])
        until(lambda: pools.poll() and waits.held_bytes > 0)  # an end that was reached before is no record
        until(lambda: not pools.poll())
        assert waits.held_bytes > 0 and pools.poll(held=True)
        append(kafka_settings, topic, 1, [b"c"])
        until(lambda: pools.poll() and reads.held_bytes > 0)
        assert read(reads, 1)[1] == [b"c"] and read(waits, 2)[1] == [b"a", b"b"]


def test_a_renewal_that_fails_leaves_the_consumer_that_was_there(
    full: str, kafka: str, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """The role gets an error; whatever it does next, such as closing, finds a consumer. The next try renews."""
    settings = KafkaSettings({"bootstrap.servers": kafka})
    monkeypatch.setattr(clients, "PAUSE_S", 0.0)
    pool = ReaderPool(settings, full, partitions=2, packed=packed)
    with pool.open(0, 0) as reader, pool.open(1, 0):
        until(lambda: reader.read(100))
        old = pool.consumer
        monkeypatch.setattr(settings, "credentials_version", lambda: 7)
        monkeypatch.setattr(pool, "_properties", lambda: {"group.id": "g", "no.such.property": "1"})
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"no\.such\.property"):
                reader.read(100)
            pool.poll(0.0)
        assert pool.consumer is old
        monkeypatch.undo()
        monkeypatch.setattr(settings, "credentials_version", lambda: 7)
        position = reader.position
        batch = until(lambda: reader.read(100))
        assert pool.consumer is not old and batch.offsets[0] == position


def test_a_pool_that_is_dropped_closes_its_consumer(full: str, kafka_settings: KafkaSettings, packed: bool) -> None:
    """No thread of it and no file is left, although nobody has closed the readers."""
    gc.collect()
    threads, files = threads_and_files()
    readers = [ReaderPool(kafka_settings, full, partitions=1, packed=packed).open(0, 0)]
    until(lambda: readers[0].read(100))
    assert threads_and_files()[0] > threads
    readers.clear()
    gc.collect()
    until(lambda: threads_and_files() <= (threads, files))


def test_a_shared_reader_is_what_a_pool_opens(kafka_settings: KafkaSettings, full: str, packed: bool) -> None:
    """A negative offset, one of librdkafka's logical ones, is no position; and nothing is left open by it."""
    pool = ReaderPool(kafka_settings, full, partitions=4, packed=packed)
    with pytest.raises(ValueError, match="negative"):
        pool.open(0, -2)
    with pool.open(0, 0) as reader:
        assert isinstance(reader, SharedReader)
