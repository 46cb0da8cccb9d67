"""Reads many partitions of one topic with one consumer.

This file must never hand one partition's records or errors to another, never skip a record silently, and never commit
anything. The package's docstring shows how partitions share the consumer.

When more is held than the pool may hold, the partitions with more than an equal share are *set aside*: taken out of the
consumer's assignment. Once all but a quarter of its share is read, a partition is put back, at the offset up to which
it was fetched.

Why not `pause` and `resume`: they leave outdated records in the shared queue, and the first record after `resume` can
take a second. `incremental_unassign` and `incremental_assign` take effect before they return, and no record of an
earlier assignment comes after them (tried with 24,000 changes and 13 million records). The first record came after 4 ms
in the median, and after 100 ms if another fetch was waiting for records.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from stream_learner.adapters.kafka.clients import new_client
from stream_learner.adapters.kafka.faults import fault
from stream_learner.adapters.kafka.packed_consumer import PackedConsumer, can_make
from stream_learner.adapters.kafka.runs import Run, packed_runs_of, runs_of
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.adapters.kafka.shared_reader import RECORD_BYTES, SILENCE_S, SharedReader
from stream_learner.adapters.kafka.wake import Wake
from stream_learner.errors import BrokerUnreachable, RetryLater

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
DEFAULT_BUFFER_BYTES = 8 << 20
MIN_BUFFER_BYTES = 1 << 20
POLL_RECORDS, FEWEST_RECORDS = 4_000, 16
"""Most and fewest records taken from the common queue at once; between them, as many as there is memory for."""
LEAST_WAIT_S = 0.001
"""librdkafka waits whole milliseconds: for less than one it does not wait at all."""
EMPTY_S = 0.001
"""How long a common queue that was found empty counts as empty: a joiner reads its partitions one after another."""
MESSAGE_BYTES = "1000000"
"""librdkafka's default of `message.max.bytes`; it refuses a smaller `fetch.max.bytes`."""
MIN_FETCH_BYTES, MAX_FETCH_BYTES = 16 << 10, 4 << 20


class ReaderPool:
    """One consumer, outside any group, for the open partitions of a topic; used by one thread.

    Memory: about `buffer_bytes`, however many partitions are open, and one fetch from each broker. partitions: how many
    there may be; the more, the less is fetched of each at a time. Under `read_committed` records of open and aborted
    transactions are not seen. The consumer is made with the first open partition, and closed with the last one.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        isolation: str = READ_COMMITTED,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        partitions: int = 1,
        name: str = "reader",
        with_keys: bool = False,
        with_headers: bool = False,
        packed: bool = False,
        wake: Wake | None = None,
    ) -> None:
        """packed: whether to read with a `PackedConsumer` where one can be made; it has no keys and headers. wake: the
        thread that such a consumer wakes when records come.
        """
        self.settings = settings
        self.topic = topic
        self._parts = {"with_keys": with_keys, "with_headers": with_headers}
        self._wake = wake
        self._packed = packed and not (with_keys or with_headers)
        self.held_bytes = 0
        """Bytes of the records that are held until their partitions are read."""
        buffer_bytes = max(buffer_bytes, MIN_BUFFER_BYTES)
        self._limit_bytes = buffer_bytes // 2
        self._properties = lambda: self._consumer_properties(isolation, buffer_bytes, partitions, name)
        self._operation = settings.operation("read", topic, right="Read")
        self._mean_bytes = 1_000
        self._readers: dict[int, SharedReader] = {}
        self._consumer: Consumer | PackedConsumer | None = None
        self._credentials = 0
        self._reported: KafkaError | None = None
        self._unreachable: KafkaError | None = None
        self._asked_s = 0.0
        self._empty_until_s = 0.0
        self._came = False
        self._error_of_partition = re.compile(rf"{re.escape(topic)} \[(\d+)\]: ")
        self._errors: list[tuple[int, KafkaError]] = []

    def open(self, partition: int, offset: int) -> SharedReader:
        """Open a partition that is not open, from this offset on.

        Never blocks. Errors of the offset, the topic or rights are raised by `read`.
        """
        return SharedReader(self, partition, offset)

    @property
    def is_open(self) -> bool:
        """Whether a partition is open."""
        return self._consumer is not None

    @property
    def wakes(self) -> bool:
        """Whether the consumer wakes the thread that waits for records; True while there is none."""
        return self._consumer is None or (self._wake is not None and isinstance(self._consumer, PackedConsumer))

    @property
    def set_aside(self) -> frozenset[int]:
        """The partitions of which nothing is fetched now, because too much of them is held."""
        return frozenset(partition for partition, reader in self._readers.items() if not reader.assigned)

    @property
    def has_room(self) -> bool:
        """Whether there is memory for more records than the caller needs now."""
        return self.held_bytes < self._limit_bytes // 2

    @property
    def consumer(self) -> Consumer | PackedConsumer:
        """The consumer. It exists while a partition is open."""
        assert self._consumer is not None  # nobody reads a closed reader
        return self._consumer

    def _connect(self) -> None:
        """Make a consumer. If that fails, everything is as it was before."""
        version = self.settings.credentials_version()
        properties = self._properties()
        if self._packed and can_make(properties):
            self._consumer = new_client(PackedConsumer, properties)
            if self._wake is not None:
                self._consumer.wakes(self._wake)
        else:
            self._consumer = new_client(Consumer, properties)
        self._credentials = version
        self._reported = self._unreachable = None

    def _consumer_properties(self, isolation: str, buffer_bytes: int, partitions: int, name: str) -> dict[str, Any]:
        """Three quarters of the memory are for held records, an eighth for librdkafka's queue, an eighth for a fetch.

        A fetch takes at most an eighth of a partition's share: what is on its way when the partition is set aside is
        fetched again later. A fetch that waits for records holds up a partition that is assigned meanwhile, and whoever
        reads up to an end hears of it after such a wait, so it waits for less than librdkafka's half second; a shorter
        wait costs more while nothing happens.
        """
        of_each = buffer_bytes // (16 * max(partitions, 1))
        defaults = {
            "fetch.queue.backoff.ms": "20",
            "fetch.wait.max.ms": "250",
            "fetch.message.max.bytes": str(min(max(of_each, MIN_FETCH_BYTES), MAX_FETCH_BYTES)),
            "fetch.max.bytes": str(max(buffer_bytes // 8, int(self.settings.get("message.max.bytes", MESSAGE_BYTES)))),
        }
        ours = self.settings.consumer(
            client__id=self.settings.client_id(name),
            isolation__level=isolation,
            queued__min__messages="10000000",
            queued__max__messages__kbytes=str(buffer_bytes >> 13),
            max__poll__interval__ms="86400000",
            error_cb=self._on_error,
        )
        return {**defaults, **ours}

    def renew_if_outdated(self) -> None:
        """If the credentials have changed, make a new consumer and go on at the positions.

        Raises ConfigError, or RetryLater for want of threads or files, if none can be made; the old one stays then.
        """
        if self.settings.credentials_version() == self._credentials:
            return
        old = self.consumer
        self._connect()
        old.close()
        for reader in self._readers.values():
            reader.forget(reader.position)
        self.assign(list(self._readers.values()))

    def add(self, reader: SharedReader) -> None:
        """Fetch a partition from now on."""
        if reader.partition in self._readers:
            raise ValueError(f"{self.topic} partition {reader.partition} is open already")
        if self._consumer is None:
            self._connect()
        self.assign([reader])
        self._readers[reader.partition] = reader

    def remove(self, reader: SharedReader) -> None:
        """Drop a partition and what is held of it; close the consumer with the last one."""
        if self._readers.get(reader.partition) is not reader:
            return
        del self._readers[reader.partition]
        if self._readers:
            self.unassign([reader])
        else:
            self.consumer.close()
            self._consumer = None
        reader.forget(reader.position)

    def assign(self, readers: list[SharedReader]) -> None:
        """Fetch these partitions, each on from the offset up to which it was fetched."""
        starts = [TopicPartition(self.topic, reader.partition, reader.fetched) for reader in readers]
        try:
            self.consumer.incremental_assign(starts)
        except KafkaException as error:
            raise fault(error, self._operation) from error
        for reader in readers:
            reader.assigned = True

    def unassign(self, readers: list[SharedReader]) -> None:
        """Stop fetching these partitions. librdkafka drops their records from its queue."""
        fetching = [reader for reader in readers if reader.assigned]
        if not fetching:
            return
        try:
            self.consumer.incremental_unassign([TopicPartition(self.topic, reader.partition) for reader in fetching])
        except KafkaException as error:
            raise fault(error, self._operation) from error
        for reader in fetching:
            reader.assigned = False

    def poll(self, timeout_s: float) -> bool:
        """Take records from the common queue and give them to their readers. Returns whether anything came.

        Waits only for the first record. Without a time-out it does nothing within `EMPTY_S` of an empty queue.
        """
        if timeout_s <= 0 and time.monotonic() < self._empty_until_s:
            return False
        came = self._take(self._fitting(self._limit_bytes), 0.0)
        if not came and timeout_s > 0:
            came = self._take(1, max(timeout_s, LEAST_WAIT_S))
            if came:
                self._take(self._fitting(self._limit_bytes), 0.0)
        self._empty_until_s = 0.0 if came else time.monotonic() + EMPTY_S
        if self.held_bytes > self._limit_bytes:
            self._set_aside()
        for partition, error in self._errors:
            if partition in self._readers:
                self._readers[partition].take_error(error)
        self._errors.clear()
        return came

    def has_news(self) -> bool:
        """Whether records are held, or anything has come since the last look. Never waits."""
        return self.held_bytes > 0 or self.look()

    def look(self) -> bool:
        """Look whether anything has come since the last look. Never waits."""
        self._empty_until_s = 0.0  # a thread that was woken must look
        try:
            self.poll(0.0)
        except RetryLater:  # raised again by a reader
            return True
        came, self._came = self._came, False
        return came

    def _fitting(self, limit_bytes: int) -> int:
        """How many records of mean size fit below a limit."""
        return min(max((limit_bytes - self.held_bytes) // self._mean_bytes, FEWEST_RECORDS), POLL_RECORDS)

    def _take(self, count: int, timeout_s: float) -> bool:
        """Take at most `count` messages from the common queue. Returns whether any came."""
        before_bytes, records = self.held_bytes, 0
        came, unreachable = False, self._unreachable
        for run in self._consume(count, timeout_s):
            came = True
            self._share_out(run)
            records += len(run.records or ())
        if self.held_bytes > before_bytes:
            if self._unreachable is unreachable:  # else it was reported behind these records
                self._unreachable = None
            self._mean_bytes = max((self.held_bytes - before_bytes) // records, RECORD_BYTES)
        self._came |= came
        return came

    def _consume(self, count: int, timeout_s: float) -> Iterator[Run]:
        consumer = self.consumer
        try:
            if isinstance(consumer, PackedConsumer):
                packed = consumer.consume(count, timeout_s)
                return iter(()) if packed is None else packed_runs_of(packed)
            return runs_of(consumer.consume(count, timeout_s), **self._parts)
        except KafkaException as error:
            raise fault(error, self._operation) from error

    def _share_out(self, run: Run) -> None:
        """Give a run to the reader of its partition.

        Missing rights on the group are ignored: librdkafka looks for the group's coordinator even without need.
        """
        reader = self._readers.get(run.partition)
        if reader is not None:
            self.held_bytes += reader.take_in(run)
        elif run.partition < 0 and run.error is not None and run.error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._reported = run.error

    def _set_aside(self) -> None:
        """Stop fetching the partitions of which more than an equal share is held.

        Their records in the common queue would be fetched again, so they are taken first, as far as memory allows.
        """
        most_bytes = self._limit_bytes * 3 // 2
        while self.held_bytes < most_bytes and self._take(self._fitting(most_bytes), 0.0):
            pass
        share = self._limit_bytes // len(self._readers)
        self.unassign([reader for reader in self._readers.values() if reader.held_bytes > share])

    def bring_back(self, reader: SharedReader) -> None:
        """Fetch a partition that was set aside again, if most of what was held of it is read."""
        if not reader.assigned and reader.held_bytes <= self._limit_bytes // (4 * len(self._readers)):
            self.assign([reader])

    def dropped(self, size: int) -> None:
        """Record that `size` bytes are no longer held."""
        self.held_bytes -= size

    @property
    def is_reported(self) -> bool:
        """Whether there is an error that concerns all partitions."""
        return self._reported is not None or self._unreachable is not None

    def take_report(self) -> KafkaError | None:
        """The error that concerns all partitions, once."""
        error = self._reported or self._unreachable
        self._reported = self._unreachable = None
        return error

    def ask_about_topic(self, reader: SharedReader) -> None:
        """Ask about the topic if neither a record nor the end of a partition has come.

        librdkafka reports nothing about a topic that we may not describe. All partitions together ask at most once
        every `SILENCE_S`.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s < SILENCE_S:
            return
        self._asked_s = now_s
        try:
            found = self._topic_error(SILENCE_S / 3)
        except KafkaException as error:
            raise fault(error, reader.operation) from error
        if found is not None:
            raise fault(found, reader.operation)

    def _topic_error(self, timeout_s: float) -> KafkaError | None:
        consumer = self.consumer
        if isinstance(consumer, PackedConsumer):
            return consumer.topic_error(self.topic, timeout_s)
        found: KafkaError | None = consumer.list_topics(self.topic, timeout_s).topics[self.topic].error
        return found

    def _on_error(self, error: KafkaError) -> None:
        """Keep an error that librdkafka reports apart from records. A single broken connection is not an error.

        Some errors concern one partition; only their words tell which: "topic [7]: ...".
        """
        named = self._error_of_partition.match(error.str())
        if named is not None:
            self._errors.append((int(named[1]), error))
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._unreachable = error
        elif not isinstance(fault(error, self._operation), BrokerUnreachable):
            self._reported = self._reported or error


class ReaderPools:
    """Opens readers as `PartitionReader` does, but with one pool for each topic and isolation. Used by one thread.

    partitions: roughly how many each topic has. buffer_bytes: the memory of the pool of a topic; without an entry
    `DEFAULT_BUFFER_BYTES`. packed, wake: as of `ReaderPool`.
    """

    def __init__(
        self,
        partitions: int,
        buffer_bytes: Mapping[str, int] | None = None,
        *,
        packed: bool = False,
        wake: Wake | None = None,
    ) -> None:
        self._partitions = partitions
        self._wake = wake
        self._packed = packed
        self._buffer_bytes = dict(buffer_bytes or {})
        self._pools: dict[tuple[str, str], ReaderPool] = {}

    def open(
        self,
        settings: KafkaSettings,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: str = READ_COMMITTED,
        name: str = "reader",
    ) -> SharedReader:
        """Open a partition that is not open, from this offset on."""
        pool = self._pools.get((topic, isolation))
        if pool is None:
            pool = self._pools[topic, isolation] = ReaderPool(
                settings,
                topic,
                isolation=isolation,
                buffer_bytes=self._buffer_bytes.get(topic, DEFAULT_BUFFER_BYTES),
                partitions=self._partitions,
                name=name,
                packed=self._packed,
                wake=self._wake,
            )
        return pool.open(partition, offset)

    @property
    def wakes(self) -> bool:
        """Whether every pool wakes the thread that waits for records."""
        return all(pool.wakes for pool in self._pools.values())

    def poll(self, *, held: bool = False) -> bool:
        """Whether anything has come since the last call, or there is something to raise. Never waits.

        Records may be held for long, while their readers wait for another topic. held: whether they count, too.
        """
        news = [pool.has_news() if held else pool.look() for pool in self._pools.values() if pool.is_open]
        return any(news)


class PartitionReader(SharedReader):
    """Reads one partition with a consumer of its own: a pool of one partition; used by one thread.

    Needs `buffer_bytes` of memory, and that of one fetch. For many partitions of a topic use a `ReaderPool`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: str = READ_COMMITTED,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        name: str = "reader",
        with_keys: bool = False,
        with_headers: bool = False,
    ) -> None:
        pool = ReaderPool(
            settings,
            topic,
            isolation=isolation,
            buffer_bytes=buffer_bytes,
            name=name,
            with_keys=with_keys,
            with_headers=with_headers,
        )
        super().__init__(pool, partition, offset)
