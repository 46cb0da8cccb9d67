"""Reads a bounded sample of both topics: it joins no group, commits nothing, changes nothing.

Of each partition the newest records are read. Clicks are fewer than impressions, and later: the newest ones reach
further back. So a second block of impressions is read from the moment on at which the clicks of the sample begin. Their
clicks are in the sample, as far as it reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_learner.adapters.kafka import (
    BEYOND_END,
    Admin,
    KafkaSettings,
    ReaderPool,
    Retention,
    TopicAndPartition,
    TopicInfo,
)
from stream_learner.errors import NotAuthorised
from stream_learner.wording import count_of

READ_RECORDS = 2_000
FIRSTS = 50
"""So many of the first records of each partition tell when a topic begins."""
WAIT_S = 0.2
Show = Callable[[str], None]
Range = tuple[int, int]
"""Offsets of a partition: the first, and the one after the last."""


class Limits(NamedTuple):
    """records: of a topic. size_bytes: of a block. seconds: for the reading of both topics."""

    records: int = 20_000
    size_bytes: int = 16 << 20
    seconds: float = 40.0


class Record(NamedTuple):
    """A record as it was read. time_ms: its Kafka timestamp, -1 without one."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class TopicSample:
    """What was read of a topic.

    blocks: the newest records and, if there is one, an older block; each by partition, in the order of offsets. whole:
    whether the newest block holds all records that there ever were. held: how many offsets the topic has. retention:
    None if it may not be asked for. firsts: the first records of each partition, where the sample is not whole.
    deleted: whether older ones are deleted. cut_short: whether a limit was reached before the newest records.
    read_at_ms: the wall clock then, None where it was not asked.
    """

    topic: str
    partitions: int
    blocks: tuple[Mapping[int, list[Record]], ...]
    whole: bool
    held: int
    retention: Retention | None
    firsts: Mapping[int, list[Record]] = field(default_factory=dict)
    deleted: bool = False
    cut_short: bool = False
    read_at_ms: int | None = None


def read_samples(
    settings: KafkaSettings, impressions: str, clicks: str, limits: Limits, show: Show
) -> tuple[TopicSample, TopicSample]:
    """The samples of impressions and clicks.

    Raises TopicMissing, BrokerUnreachable, RetryLater, NotAuthorised, AuthenticationFailed.
    """
    admin = Admin(settings)
    reading = _Reading(settings, admin, limits, show)
    infos = admin.require([impressions, clicks])
    of_clicks = reading.sample(infos[clicks])
    of_impressions = reading.sample(infos[impressions], around_ms=_begin_ms(of_clicks))
    return of_impressions, of_clicks


def _begin_ms(sample: TopicSample) -> int | None:
    """The moment from which on every partition is sampled; None if no record has a time."""
    firsts = [records[0].time_ms for records in sample.blocks[0].values() if records]
    return max((first for first in firsts if first >= 0), default=None)


class _Reading:
    """The reading of both samples, within the limits."""

    def __init__(self, settings: KafkaSettings, admin: Admin, limits: Limits, show: Show) -> None:
        self._settings, self._admin, self._limits, self._show = settings, admin, limits, show
        self._until_s = time.monotonic() + limits.seconds
        self._cut_short = False

    def sample(self, info: TopicInfo, around_ms: int | None = None) -> TopicSample:
        """around_ms: an older block begins at the first records of this time; None for no such block."""
        queries, places = self._admin.offsets, [(info.name, p) for p in range(info.partitions)]
        ends, earliest = queries.last_stable_offsets(places), queries.earliest(places)
        each = max(self._limits.records // (len(places) * (1 if around_ms is None else 2)), 1)
        newest = {place[1]: (max(earliest[place], ends[place] - each), ends[place]) for place in places}
        older = {} if around_ms is None else self._older(places, newest, around_ms, each)
        if older and all(end == newest[partition][0] for partition, (_, end) in older.items()):
            newest, older = {p: (older[p][0], end) for p, (_, end) in newest.items()}, {}
        blocks = [self._read(info.name, ranges) for ranges in (newest, older) if ranges]
        read_at_ms = int(time.time() * 1000)
        whole = all(begin == 0 for begin, _ in newest.values()) and not self._cut_short
        held = sum(ends[place] - earliest[place] for place in places)
        begins = {place[1]: (earliest[place], min(earliest[place] + FIRSTS, ends[place])) for place in places}
        firsts, deleted = {} if whole else self._read(info.name, begins), any(earliest.values())
        retention = self._retention(info.name)
        shape = info.name, info.partitions, tuple(blocks), whole, held, retention
        return TopicSample(*shape, firsts, deleted, self._cut_short, read_at_ms)

    def _older(
        self, places: list[TopicAndPartition], newest: Mapping[int, Range], around_ms: int, each: int
    ) -> dict[int, Range]:
        """Ranges before the newest ones, from a moment on; empty if no partition has records there."""
        begins = self._admin.offsets.at_time(places, around_ms)
        found = {}
        for (_, partition), begin in begins.items():
            newest_begin = newest[partition][0]
            first = newest_begin if begin == BEYOND_END else min(begin, newest_begin)
            found[partition] = first, min(first + each, newest_begin)
        return found if any(begin < end for begin, end in found.values()) else {}

    def _read(self, topic: str, ranges: Mapping[int, Range]) -> dict[int, list[Record]]:
        """The records of these ranges; the newest of a range are left out where a limit is reached."""
        pool = ReaderPool(self._settings, topic, partitions=len(ranges), name="doctor", with_keys=True)
        wanted = {partition: ends for partition, ends in ranges.items() if ends[0] < ends[1]}
        left_bytes = dict.fromkeys(wanted, self._limits.size_bytes // max(len(wanted), 1))
        found: dict[int, list[Record]] = {partition: [] for partition in ranges}
        readers = {partition: pool.open(partition, begin) for partition, (begin, _) in wanted.items()}
        try:
            while readers and time.monotonic() < self._until_s:
                for partition, reader in list(readers.items()):
                    end = ranges[partition][1]
                    batch = reader.read(READ_RECORDS, WAIT_S)
                    if batch is not None and batch.keys is not None:
                        columns = (batch.offsets.tolist(), batch.record_times_ms.tolist(), batch.keys, batch.values)
                        of_batch = [Record(partition, *columns_of) for columns_of in zip(*columns, strict=True)]
                        found[partition] += [record for record in of_batch if record.offset < end]
                        left_bytes[partition] -= batch.size_bytes
                    if reader.position >= end:
                        readers.pop(partition).close()
                    elif left_bytes[partition] <= 0:
                        readers.pop(partition).close()
                        self._cut_short = True
                self._show(f"{topic}: {count_of(sum(map(len, found.values())), 'record')} read")
        finally:
            self._cut_short |= bool(readers)
            for reader in readers.values():
                reader.close()
        return found

    def _retention(self, topic: str) -> Retention | None:
        try:
            return Retention.of(self._admin.describe([topic], with_configs=True)[topic].configs)
        except NotAuthorised:
            return None
