"""The training log as the learner reads it: every accepted tick of every partition, once, in the order of the fold.

In: positions in all partitions. Out: ticks in the order (tick, partition), and the positions they lead to.
This file must never hand out a tick before every partition has passed it, nor let a fast partition run ahead
without bound.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stream_learner.core.marks import GENESIS, MarkId
from stream_learner.core.training_log import AcceptedTick, RuleR
from stream_learner.edges.kafka import READ_UNCOMMITTED, KafkaSettings, Reader, ReaderPool
from stream_learner.roles.log_reader import READ_RECORDS, accepted, records_of

MOST_FETCHED_BYTES = 64 << 20
"""What may be fetched ahead, all partitions together; no more than half of the buffer."""


class LogPosition(NamedTuple):
    """Where to go on in a partition: `offset` is the next to read, `mark` the last one accepted before it."""

    offset: int
    mark: MarkId


LOG_BEGINNING = LogPosition(0, GENESIS)


class _PartitionLog:
    """One partition: its reader, rule R, and the accepted ticks that are not folded yet."""

    def __init__(self, reader: Reader, start: LogPosition) -> None:
        self.partition = reader.partition
        self.folded = start
        self.waiting: deque[AcceptedTick] = deque()
        self.waiting_bytes = 0
        self.read_bytes = 0
        known = None if start.mark == GENESIS else start.mark
        self.rule = RuleR(known, partition=self.partition)
        self._sizes: deque[int] = deque()
        self._reader = reader
        self._place = (reader.topic, reader.partition)

    @property
    def passed(self) -> int:
        """The last tick of the last accepted mark, folded or not."""
        return self.rule.last.last_tick

    @property
    def next_offset(self) -> int:
        """The next offset to read."""
        return self._reader.position

    def read(self) -> bool:
        """Read once; whether anything came."""
        batch = self._reader.read(READ_RECORDS)
        if batch is None:
            return False
        self.read_bytes += batch.size_bytes
        for tick in accepted(self.rule, self._place, records_of(batch)):
            size = sum(record.keys.nbytes + record.indices.nbytes for _, record in tick.records)
            self.waiting.append(tick)
            self._sizes.append(size)
            self.waiting_bytes += size
        return True

    def next_examples(self) -> int | None:
        """The tick of the first examples that wait."""
        return next((tick.mark.last_tick for tick in self.waiting if tick.records), None)

    def take_up_to(self, tick: int) -> Iterator[AcceptedTick]:
        """The accepted ticks up to `tick`, which count as folded when the next one is asked for."""
        while self.waiting and self.waiting[0].mark.last_tick <= tick:
            taken = self.waiting.popleft()
            self.waiting_bytes -= self._sizes.popleft()
            yield taken
            self.folded = LogPosition(taken.mark_offset + 1, taken.mark.id)

    def close(self) -> None:
        self._reader.close()


class LogFollower:
    """Reads all partitions of a training log. Used by one thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        start: Mapping[int, LogPosition],
        *,
        buffer_bytes: int,
        until_tick: int | None = None,
    ) -> None:
        """start: a position for every partition. until_tick: hand out no tick beyond it, None for all."""
        share = max(buffer_bytes // (2 * len(start)), 1 << 20)
        self._limit_bytes = share
        self._until_tick = sys.maxsize if until_tick is None else until_tick
        pool = ReaderPool(
            settings,
            topic,
            isolation=READ_UNCOMMITTED,
            buffer_bytes=min(buffer_bytes // 2, MOST_FETCHED_BYTES),
            partitions=len(start),
            name="log",
        )
        self._logs = [
            _PartitionLog(pool.open(partition, start[partition].offset), start[partition])
            for partition in sorted(start)
        ]

    def read(self) -> bool:
        """Read once from every partition that others wait for, or whose buffer has room; whether anything came."""
        passed = self.passed
        came = False
        for log in self._logs:
            has_room = log.waiting_bytes < self._limit_bytes or log.passed <= passed
            if has_room and log.passed < self._until_tick:
                came |= log.read()
        return came

    @property
    def passed(self) -> int:
        """The last tick that every partition has passed, -1 before the first."""
        return min(log.passed for log in self._logs)

    def next_tick(self) -> int:
        """The first tick with examples that may be folded, or, without one, the last that may.

        Of a run of empty ticks that goes beyond the last tick wanted, only the ticks up to it count as folded: the
        position stays in front of the run's mark.
        """
        passed = self.passed
        waiting = [tick for log in self._logs if (tick := log.next_examples()) is not None]
        return min([*waiting, passed, self._until_tick])

    def take(self, tick: int) -> Iterator[AcceptedTick]:
        """The accepted ticks up to `tick` of every partition, in the order of partitions."""
        for log in self._logs:
            yield from log.take_up_to(tick)

    @property
    def positions(self) -> dict[int, LogPosition]:
        """Where each partition goes on after what was taken."""
        return {log.partition: log.folded for log in self._logs}

    @property
    def read_up_to(self) -> dict[int, int]:
        """The offset up to which each partition is read, markers at its end included."""
        return {log.partition: log.next_offset for log in self._logs}

    @property
    def ignored(self) -> int:
        """Records and marks that rule R ignored."""
        return sum(log.rule.ignored_marks + log.rule.ignored_records for log in self._logs)

    @property
    def read_bytes(self) -> int:
        """Bytes read."""
        return sum(log.read_bytes for log in self._logs)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of accepted ticks that wait."""
        return sum(log.waiting_bytes for log in self._logs)

    def close(self) -> None:
        """Give the consumer back."""
        for log in self._logs:
            log.close()
