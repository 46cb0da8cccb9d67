"""Hands out every accepted tick of every partition of the training log once, in the order (tick, partition).

It hands out a tick only when every partition has passed it, and it bounds how far a fast partition is read ahead.

The log itself says that it was given partitions: each of the old ones begins anew with a mark whose resume point counts
the partitions, and no added partition has an example up to the first of these marks' ticks (`operations.begin_anew`).
So whoever reads such a mark before it folds its tick reads the added partitions in time.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, RawBatch, ReaderPool, SharedReader
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.core.log.marks import GENESIS, Mark, MarkId
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.errors import InputsChanged, RetryLater
from stream_learner.roles.common.log_reader import READ_RECORDS, accepted, records_of
from stream_learner.roles.common.unusable_records import UnusableRecords

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger

MOST_FETCHED_BYTES = 64 << 20
"""Bounds the bytes fetched ahead for all partitions together; half of the buffer bounds them too."""
LOOK_S = 1.0
"""Without news, every partition is looked at so often."""
GATHER_S = 0.005
"""A joiner writes the marks of its partitions at one time; they come one after another."""
AFTER_S = 30.0
"""How long the fold waits before it is logged; three ticks, if that is longer."""
MOST_NAMED = 20
WAITS = "no tick is folded before every partition of the training log has passed it"
UNKNOWN = 0
"""The fingerprint of features where a mark does not say."""


class LogPosition(NamedTuple):
    """A position in a partition: `offset` is the next to read, `mark` the last one accepted before it."""

    offset: int
    mark: MarkId


LOG_BEGINNING = LogPosition(0, GENESIS)


class _PartitionLog:
    """One partition: its reader, rule R, and the accepted ticks that wait to be folded."""

    def __init__(self, reader: SharedReader, start: LogPosition, unusable: UnusableRecords) -> None:
        self._unusable = unusable
        self.partition = reader.partition
        self.folded = start
        self.waiting: deque[AcceptedTick] = deque()
        self.waiting_bytes = 0
        self.read_bytes = 0
        known = None if start.mark == GENESIS else start.mark
        self.rule = RuleR(known, partition=self.partition)
        self.partitions = 0
        """How many partitions the log has, by the resume points that were read; 0 before the first."""
        self._sizes: deque[int] = deque()
        self._reader = reader
        self._topic_and_partition = (reader.topic, reader.partition)

    @property
    def passed(self) -> int:
        """The last tick of the last accepted mark, folded or not."""
        return self.rule.last.last_tick

    @property
    def next_offset(self) -> int:
        return self._reader.position

    @property
    def is_fetched(self) -> bool:
        """Whether something of it waits to be read."""
        return self._reader.is_held

    def read(self) -> bool:
        """Read once; whether anything came."""
        batch = self._reader.read(READ_RECORDS)
        if batch is None:
            return False
        self.read_bytes += batch.size_bytes
        try:
            self._take(batch)
        except RetryLater:
            self._reader.seek(int(batch.offsets[0]) if self.rule.position is None else self.rule.position)
            raise
        return True

    def _take(self, batch: RawBatch) -> None:
        for tick in accepted(self.rule, self._topic_and_partition, records_of(batch), self._unusable):
            if tick.mark.resume is not None:
                self.partitions = max(self.partitions, tick.mark.resume.partitions)
            size = sum(record.keys.nbytes + record.indices.nbytes for _, record in tick.records)
            self.waiting.append(tick)
            self._sizes.append(size)
            self.waiting_bytes += size

    def next_examples(self) -> int | None:
        """The tick of the first examples that wait."""
        return next((tick.mark.last_tick for tick in self.waiting if tick.records), None)

    def look_up_to(self, tick: int) -> list[AcceptedTick]:
        """The accepted ticks up to `tick`; they go on waiting."""
        return list(takewhile(lambda waiting: waiting.mark.last_tick <= tick, self.waiting))

    def take_up_to(self, tick: int) -> Iterator[AcceptedTick]:
        """The accepted ticks up to `tick`. One counts as folded when the next one is asked for."""
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
        folded_tick: int = -1,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """start: a position for every partition; partitions that the log was given later may be missing.

        until_tick: the last tick to hand out, None for no end. folded_tick: the model of the positions has folded all
        examples up to it.
        """
        self._settings, self._topic = settings, topic
        self._unusable = UnusableRecords(settings)
        self._buffer_bytes = buffer_bytes
        self._until_tick = sys.maxsize if until_tick is None else until_tick
        self._taken = folded_tick
        self._logs: list[_PartitionLog] = []
        self._pools: list[ReaderPool] = []
        self._clock_s = clock_s
        self._look_at_s = 0.0
        self._open(start)

    def _open(self, start: Mapping[int, LogPosition]) -> None:
        """Begin to read some partitions, with a consumer of their own: an older one may not know of them."""
        pool = ReaderPool(
            self._settings,
            self._topic,
            isolation=READ_UNCOMMITTED,
            buffer_bytes=min(self._buffer_bytes // 2, MOST_FETCHED_BYTES),
            partitions=len(start),
            name="log",
        )
        self._pools.append(pool)
        self._logs += [
            _PartitionLog(pool.open(partition, start[partition].offset), start[partition], self._unusable)
            for partition in sorted(start)
        ]
        self._limit_bytes = max(self._buffer_bytes // (2 * len(self._logs)), 1 << 20)
        self._passed = min(log.passed for log in self._logs)

    def read(self) -> bool:
        """Read once from every partition whose buffer has room or that others wait for; whether anything came.

        Does nothing while no record has come, but for a look at all partitions every `LOOK_S`.
        """
        news = [pool.has_news() for pool in self._pools]
        now_s = self._clock_s()
        if not (any(news) or now_s >= self._look_at_s):
            return False
        self._look_at_s = 0.0  # after an error, which may be the news of another partition
        came = self._read_each()
        if not any(pool.set_aside for pool in self._pools):  # else reading brings one back
            self._look_at_s = now_s + LOOK_S
        self._open_added()
        return came

    def _read_each(self) -> bool:
        # Nobody waits for more while there is a tick to hand out: a fold that is held must not fill the memory.
        awaited = self.passed if self.next_tick() <= self._taken else GENESIS.last_tick - 1
        wanted = [
            log
            for log in self._logs
            if log.passed < self._until_tick and (log.waiting_bytes < self._limit_bytes or log.passed <= awaited)
        ]
        try:
            came = [log.read() for log in wanted if log.is_fetched]
            return any(came) or any([log.read() for log in wanted])  # noqa: C419 -- each of them
        finally:
            self._passed = min(log.passed for log in self._logs)

    def wait(self, timeout_s: float) -> None:
        """Wait for a record, at most `timeout_s`, and for those that come with it.

        Of a log that was given partitions, wait for one of the last ones.
        """
        with suppress(RetryLater):  # raised again by `read`
            if self._pools[-1].poll(timeout_s):
                time.sleep(GATHER_S)

    def _open_added(self) -> None:
        """Begin to read added partitions. No tick is handed out before they have passed it."""
        there = max(log.partitions for log in self._logs)
        if there > len(self._logs):
            known = {log.partition for log in self._logs}
            self._open({partition: LOG_BEGINNING for partition in range(there) if partition not in known})

    @property
    def passed(self) -> int:
        """The last tick that every partition has passed, -1 before the first."""
        return self._passed

    def holding_back(self) -> list[int]:
        """The partitions that others are ahead of; all of them while the whole log is empty; else none."""
        passed = self.passed
        if passed >= 0 and all(log.passed == passed for log in self._logs):
            return []
        return [log.partition for log in self._logs if log.passed == passed and passed < self._until_tick]

    def next_tick(self) -> int:
        """The first tick with examples that may be folded; if there is none, the last tick that may be folded.

        A mark of empty ticks may go beyond the last tick wanted. Then only the ticks up to that one count as folded,
        and the position stays before the mark.

        Raises InputsChanged where a partition has examples of a tick that was handed out without them.
        """
        waiting = [
            (tick, log.partition) for log in self._logs if log.waiting and (tick := log.next_examples()) is not None
        ]
        if waiting and min(waiting)[0] <= self._taken:
            tick, partition = min(waiting)
            raise InputsChanged(
                f"{self._topic} partition {partition} has examples of tick {tick}, and the model has folded all up to "
                f"{self._taken} without them: the partition was begun as that of a new log, or the model learned by a "
                "version that did not know of it",
                action="Learn the model from the whole log: with an empty state directory and `topics.checkpoints`, or "
                "under another name.",
            )
        return min([*(tick for tick, _ in waiting), self.passed, self._until_tick])

    def look(self, tick: int) -> list[AcceptedTick]:
        """The ticks that `take` would hand out; they go on waiting. In the order (tick, partition)."""
        found = [accepted for log in self._logs for accepted in log.look_up_to(tick)]
        return sorted(found, key=lambda accepted: (accepted.mark.last_tick, accepted.mark.partition))

    def take(self, tick: int) -> Iterator[AcceptedTick]:
        """The accepted ticks up to `tick` of every partition, in the order of partitions."""
        self._taken = max(self._taken, tick)
        for log in self._logs:
            yield from log.take_up_to(tick)

    @property
    def positions(self) -> dict[int, LogPosition]:
        """The position of each partition after the ticks that were taken."""
        return {log.partition: log.folded for log in self._logs}

    @property
    def read_up_to(self) -> dict[int, int]:
        """The offset up to which each partition is read; it passes transaction markers at the end too."""
        return {log.partition: log.next_offset for log in self._logs}

    @property
    def ignored(self) -> int:
        """How many records and marks rule R ignored."""
        return sum(log.rule.ignored_marks + log.rule.ignored_records for log in self._logs)

    @property
    def foreign(self) -> int:
        """How many records were passed over as no part of the log."""
        return self._unusable.foreign

    @property
    def left_out(self) -> int:
        """How many damaged records were passed over because a skip names them."""
        return sum(log.rule.skipped_records for log in self._logs)

    @property
    def read_bytes(self) -> int:
        return sum(log.read_bytes for log in self._logs)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of accepted ticks that wait to be folded."""
        return sum(log.waiting_bytes for log in self._logs)

    def close(self) -> None:
        for log in self._logs:
            log.close()


class LogWait:
    """Logs once for which partitions of the training log the fold has been waiting. Ask it in every turn."""

    def __init__(self, log: Logger, tick_ms: int, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._episode = Episode(log, "waiting_for_log", "log_goes_on", reason=WAITS)
        self._after_s = max(AFTER_S, 3 * tick_ms / 1000)
        self._clock_s = clock_s
        self._passed: int | None = None
        self._since_s = clock_s()
        self.partitions: list[int] = []
        """The partitions that were logged, empty while the fold goes on."""

    def look(self, follower: LogFollower) -> None:
        """Note how far the log has been passed."""
        if follower.passed != self._passed:
            self._passed, self._since_s = follower.passed, self._clock_s()
            self._episode.end(tick=follower.passed, partitions=self.partitions)
            self.partitions = []
        elif not self.partitions and self._clock_s() - self._since_s >= self._after_s:
            self.partitions = follower.holding_back()[:MOST_NAMED]
            if self.partitions:
                self._episode.begin(tick=follower.passed + 1, partitions=self.partitions)


class LogFeatures:
    """Whether the examples a model was learned from have the features that it would be published with: by the newest
    folded mark of each partition. A log that does not say with which features it was made holds back no model.

    `by_partition` has their fingerprints, 0 where the mark does not say.
    """

    def __init__(self, own: int) -> None:
        """own: the fingerprint of the features that the model is published with."""
        self._own = own
        self.by_partition: dict[int, int] = {}

    def restore(self, by_partition: Mapping[int, int]) -> None:
        """Begin with the fingerprints in a checkpoint."""
        self.by_partition = dict(by_partition)

    def take(self, mark: Mark) -> None:
        """Note the next mark of a partition."""
        self.by_partition[mark.partition] = mark.features

    @property
    def differing(self) -> list[int]:
        """The partitions whose newest mark has other features."""
        return sorted(p for p, found in self.by_partition.items() if found not in (UNKNOWN, self._own))

    def trouble(self, log_topic: str) -> str:
        """The reason why the model must not be published, "" if it may be."""
        partitions = ", ".join(map(str, self.differing))
        if not partitions:
            return ""
        return f"{log_topic} partition {partitions} was made with other settings of features than this learner has"
