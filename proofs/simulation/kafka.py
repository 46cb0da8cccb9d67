"""A model of Kafka as the roles see it: logs with gaps, transactions and retention, and the clients of
`stream_learner.adapters.kafka` with the same calls, answers and errors. A `Client` decides what goes wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np

from stream_learner.adapters.kafka import READ_COMMITTED, Delivery, RawBatch, Record, TopicAndPartition
from stream_learner.errors import BrokerUnreachable, Fenced, LogTrimmed, RetryLater, StreamLearnerError

PARTIAL_READS = 3
"""One read in so many returns only a part of the records that are there."""


class Entry(NamedTuple):
    """A record in a log.

    at: when it was appended, by the world's clock. order: its number among all records of all logs. transaction: 0 for
    none.
    """

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    at: int
    order: int
    transaction: int = 0


class Log:
    """One partition. entries: the records held now. archive: all records that there have ever been.

    start, end: the offsets held; `end` is the high watermark. An offset without an entry is a control marker, or that
    of a record that compaction took.
    """

    def __init__(self, order: Iterator[int], first_offset: int = 0) -> None:
        self._order = order
        self.start = self.end = first_offset
        self.entries: list[Entry] = []
        self.archive: list[Entry] = []
        self.aborted: set[int] = set()
        self.open: dict[int, int] = {}

    def append(
        self, value: bytes | None, *, at: int, key: bytes | None = None, time_ms: int = 0, transaction: int = 0
    ) -> int:
        """Append a record; returns its offset."""
        offset, self.end = self.end, self.end + 1
        if transaction:
            self.open.setdefault(transaction, offset)
        entry = Entry(offset, time_ms, key, value, at, next(self._order), transaction)
        self.entries.append(entry)
        self.archive.append(entry)
        return offset

    def finish(self, transaction: int, *, commit: bool) -> None:
        """End a transaction in this log by a marker; does nothing where it has no record here."""
        if transaction in self.open:
            del self.open[transaction]
            self.end += 1
            if not commit:
                self.aborted.add(transaction)

    def skip(self, offsets: int) -> None:
        """Leave offsets without a record."""
        self.end += offsets

    def lose_end_of(self, transaction: int, below: Callable[[int], int]) -> None:
        """Tear a transaction: of its records here keep a first part only, all of them at most."""
        mine = [entry for entry in self.entries if entry.transaction == transaction]
        for entry in mine[below(len(mine) + 1) :]:
            self.entries.remove(entry)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def trim(self, offset: int) -> None:
        """Let retention take the records before an offset."""
        self.start = max(self.start, min(offset, self.end))
        self.entries = [entry for entry in self.entries if entry.offset >= self.start]

    def recreate(self) -> None:
        """Delete the topic and make it again, empty."""
        self.start = self.end = 0
        self.entries, self.aborted, self.open = [], set(), {}

    def compact(self, upto: int) -> None:
        """Keep only the last record of each key before `upto`, and no tombstone: the worst case of compaction."""
        last = {entry.key: entry.offset for entry in self.visible(self.stable)}
        self.entries = [
            entry
            for entry in self.entries
            if entry.offset >= min(upto, self.stable)
            or (last.get(entry.key) == entry.offset and entry.value is not None)
        ]

    def visible(self, end: int) -> list[Entry]:
        """The records before `end`, a stable offset, that a reader of committed records sees."""
        aborted = self.aborted
        if not aborted:
            return self.entries if end >= self.end else self.entries[: bisect_left(self.entries, (end,))]
        return [entry for entry in self.entries if entry.offset < end and entry.transaction not in aborted]


class Died(BaseException):
    """kill -9: no code of the process may catch it."""


class Client(Protocol):
    """A process as its Kafka clients see it: it decides what goes wrong, and when it dies."""

    logs: dict[TopicAndPartition, Log]

    def edge(self, name: str) -> None:
        """Called at every call to a broker: time may pass, an error may be raised, the process may die."""

    def below(self, limit: int) -> int:
        """A random number below `limit`."""

    def stale_end(self, place: TopicAndPartition, end: int) -> int:
        """The end that a broker tells of."""


class PublishingClient(Client, Protocol):
    """A client that also decides how commits end."""

    def commit_fate(self) -> str:
        """`done`, `aborted`, `torn`, or `unknown` with what it is."""


@dataclass
class Calm:
    """A client for which nothing goes wrong."""

    logs: dict[TopicAndPartition, Log]

    def edge(self, name: str) -> None:
        """Do nothing."""

    def below(self, limit: int) -> int:
        """The largest number: all records that are there come at once."""
        return limit - 1

    def stale_end(self, place: TopicAndPartition, end: int) -> int:
        """The end as it is."""
        return end


class Reader:
    """Models `PartitionReader`: reads in order, some records at a time, and knows its position."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: str = READ_COMMITTED,
        buffer_bytes: int = 0,
        name: str = "",
        with_keys: bool = False,
        with_headers: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.position = offset
        self._client = client
        self._log = client.logs[topic, partition]
        self._committed = isolation == READ_COMMITTED
        self._with_keys = with_keys

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        """Some of the records from the position on; at the end the position also passes offsets without a record."""
        self._client.edge("read")
        log = self._log
        if not log.start <= self.position <= log.end:
            raise LogTrimmed(f"{self.topic} has no offset {self.position}: it holds {log.start} to {log.end}")
        end = log.stable if self._committed else log.end
        seen = log.visible(end) if self._committed else log.entries
        first = bisect_left(seen, (self.position,))
        count = min(len(seen) - first, max_records)
        if self._client.below(PARTIAL_READS) == 0:
            count = self._client.below(count + 1)
        entries = seen[first : first + count]
        if first + count == len(seen) and self._client.below(4):
            self.position = max(self.position, end)
        elif entries:
            self.position = entries[-1].offset + 1
        return _batch(entries, self._with_keys) if entries else None

    def seek(self, offset: int) -> None:
        """Go on from another offset."""
        self.position = offset

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _batch(entries: list[Entry], with_keys: bool) -> RawBatch:
    count = len(entries)
    return RawBatch(
        np.fromiter((entry.offset for entry in entries), np.int64, count),
        np.fromiter((entry.time_ms for entry in entries), np.int64, count),
        [entry.value for entry in entries],
        [entry.key for entry in entries] if with_keys else None,
    )


class Queries:
    """Models `OffsetQueries`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def high_watermarks(self, places: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The ends, as far as the broker that answers knows them."""
        self._client.edge("ask")
        return {place: self._client.stale_end(place, self._client.logs[place].end) for place in places}

    def last_stable_offsets(self, places: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The ends for readers of committed records."""
        self._client.edge("ask")
        return {place: self._client.logs[place].stable for place in places}

    def earliest(self, places: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The first offsets held."""
        self._client.edge("ask")
        return {place: self._client.logs[place].start for place in places}

    def at_time(self, places: Iterable[TopicAndPartition], time_ms: int) -> dict[TopicAndPartition, int]:
        """The first offsets at or after a time, -1 where there is none."""
        found = {}
        for place in places:
            later = [entry.offset for entry in self._client.logs[place].entries if entry.time_ms >= time_ms]
            found[place] = later[0] if later else -1
        return found

    def first_times(self, places: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """One time for all partitions: here a log that begins behind offset 0 has lost nothing."""
        return dict.fromkeys(places, 0)

    def high_watermarks_known(
        self, places: Iterable[TopicAndPartition]
    ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, StreamLearnerError]]:
        """The ends of the partitions for which an answer comes, and the errors of the others."""
        known: dict[TopicAndPartition, int] = {}
        failed: dict[TopicAndPartition, StreamLearnerError] = {}
        for place in sorted(places):
            try:
                self._client.edge("end")
                known[place] = self._client.logs[place].end
            except RetryLater as error:
                failed[place] = error
        return known, failed


@dataclass
class Waiting:
    """A record in flight. told: its delivery has been reported as an error already, though it may still land."""

    place: TopicAndPartition
    key: bytes | None
    value: bytes | None
    tag: Any
    told: bool = False


@dataclass
class Appender:
    """Models `Appender`: records of a partition land in their order, one by one, when the world lets them."""

    client: Client
    dead: bool = False
    queues: dict[TopicAndPartition, deque[Waiting]] = field(default_factory=dict)
    done: deque[Delivery] = field(default_factory=deque)
    broken: RetryLater | None = None

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: object = None,
        tag: Any = None,
    ) -> None:
        """Put one record in flight."""
        self.client.edge("append")
        place = (topic, max(partition, 0))
        self.queues.setdefault(place, deque()).append(Waiting(place, key, value, tag))

    def poll(self) -> list[Delivery]:
        """The deliveries since the last call; raises the error that has ended this appender."""
        if not self.done and self.broken is not None:
            raise self.broken
        count = len(self.done) if self.client.below(3) else self.client.below(len(self.done) + 1)
        return [self.done.popleft() for _ in range(count)]

    def land(self, place: TopicAndPartition, at: int, time_ms: int) -> None:
        """Append the next record of a partition to its log; its delivery follows. time_ms: by the broker's clock."""
        record = self.queues[place].popleft()
        offset = self.client.logs[place].append(record.value, at=at, time_ms=time_ms, key=record.key)
        if not record.told:
            self.done.append(Delivery(record.tag, *place, offset, time_ms=time_ms))

    def fail(self, place: TopicAndPartition, fate: str, at: int) -> None:
        """Report the next record of a partition as an error. fate: it is in the log already, never will be, or later.

        Later means before the records behind it: a broker takes those of an idempotent producer in their order only.
        """
        record = self.queues[place][0]
        if record.told:
            return
        if fate != "later":
            self.queues[place].popleft()
        if fate == "already":
            self.client.logs[place].append(record.value, at=at, key=record.key)
        record.told = True
        self.done.append(Delivery(record.tag, *place, -1, BrokerUnreachable("the outcome is not known"), True))


@dataclass
class Coordinator:
    """Hands out epochs for one transactional id: a producer with an older one is fenced."""

    logs: dict[TopicAndPartition, Log]
    epoch: int = 0
    open: int = 0
    made: int = 0

    def begin_epoch(self) -> int:
        """Let a producer initialise its transactions: the open transaction of another is aborted."""
        self.end(commit=False)
        self.epoch += 1
        return self.epoch

    def end(self, *, commit: bool) -> None:
        """End the open transaction."""
        for log in self.logs.values():
            log.finish(self.open, commit=commit)
        self.open = 0


class TransactionalPublisher:
    """Models `TransactionalPublisher`: all records of a publication become visible at once, or none."""

    def __init__(self, client: PublishingClient, coordinator: Coordinator) -> None:
        self._client = client
        self._coordinator = coordinator
        self._epoch = 0
        self.outdated = False
        self.transactional_id = "publisher"

    def init(self) -> None:
        """Fence every earlier publisher."""
        self._client.edge("init")
        self._epoch = self._coordinator.begin_epoch()

    def publish(self, records: Iterable[Record]) -> None:
        """Append and commit; the client decides how the commit ends."""
        coordinator = self._coordinator
        self._check()
        self._client.edge("begin")
        coordinator.made += 1
        mine = coordinator.open = coordinator.made
        try:
            for record in records:
                self._client.edge("publish")
                self._check(mine)
                log = self._client.logs[record.topic, record.partition]
                log.append(record.value, at=0, key=record.key, transaction=mine)
            self._client.edge("commit")
            self._check(mine)
        except RetryLater:
            if coordinator.open == mine:
                coordinator.end(commit=False)
            raise
        self._commit(mine, self._client.commit_fate())
        self._client.edge("committed")

    def _commit(self, transaction: int, fate: str) -> None:
        """End the transaction by its fate; a publisher that does not know the outcome cannot be used afterwards."""
        coordinator = self._coordinator
        if fate == "torn":
            for log in self._client.logs.values():
                log.lose_end_of(transaction, self._client.below)
        if fate != "unknown, open":
            coordinator.end(commit=fate != "aborted")
        if fate == "done":
            return
        if fate != "aborted":
            self._epoch = -1
        raise RetryLater(f"the commit: {fate}")

    def _check(self, transaction: int = 0) -> None:
        fenced = self._epoch != self._coordinator.epoch
        if fenced or (transaction and self._coordinator.open != transaction):
            raise Fenced("another process has taken over")

    def close(self) -> None:
        """Do nothing: the coordinator ends an open transaction."""
