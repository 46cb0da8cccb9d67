"""Whether a partition of the training log may begin again with other settings, because no example was made by others.

A log without an example has taught nothing, so nothing is lost if its joiner begins again with the settings of now. It
may where the partition itself holds no example at all, and where no other partition holds a first one that was made
with other settings: else that log would go on in parts with each. Where retention has taken the beginning of a log
nobody knows what it held, and it counts as one with examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import RuleR
from stream_learner.roles.common.log_reader import accepted, pieces
from stream_learner.roles.common.unusable_records import UnusableRecords

WAIT_S = 0.05
AGAIN_S = 1.0
"""The other partitions are looked at again after this time: a joiner asks for each partition that it begins again."""


class FirstExamples:
    """Looks for the first examples of the partitions of a log; used by one thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        queries: OffsetQueries,
        topic: str,
        partitions: int,
        log: Logger,
        *,
        new_reader: Callable[..., Reader] = PartitionReader,
        unusable: UnusableRecords | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """partitions: how many the log has. unusable: as in `LogTail`, with `new_reader`."""
        self._settings, self._queries, self._topic, self._partitions = settings, queries, topic, partitions
        self._log = log
        self._new_reader = new_reader
        self._unusable = unusable or UnusableRecords(settings, queries, new_reader=new_reader)
        self._clock_s = clock_s
        self._others_fit_until_s = float("-inf")
        self._said = False

    def may_begin_again(self, partition: int, fits: Callable[[Mark], bool]) -> Generator[bool, None, bool]:
        """Yields True after every piece of work; returns whether the partition may begin again with the settings of
        now. fits: whether a resume point was made with them.

        Raises DamagedLog, NewerFormat, LogTrimmed, BrokerUnreachable, RetryLater.
        """
        may = yield from self._holds_none(partition, lambda mark: False)
        if not may or self._clock_s() < self._others_fit_until_s:
            return may
        for other in range(self._partitions):
            may = may and (other == partition or (yield from self._holds_none(other, fits)))
        if may:
            self._others_fit_until_s = self._clock_s() + AGAIN_S
        return may

    def say(self, reason: str) -> None:
        """Log, once, that the log begins again."""
        if not self._said:
            self._said = True
            self._log.warning("log_begins_again", reason=reason, note="it holds no example, so nothing is lost by it")

    def _holds_none(self, partition: int, fits: Callable[[Mark], bool]) -> Generator[bool, None, bool]:
        """Whether a partition holds no example, or a first one after a resume point that fits."""
        place = (self._topic, partition)
        end, earliest = self._queries.high_watermarks([place])[place], self._queries.earliest([place])[place]
        if earliest > 0:
            return False
        if end == 0:
            return True
        rule, resume = RuleR(partition=partition), None
        with self._new_reader(
            self._settings, self._topic, partition, 0, isolation=READ_UNCOMMITTED, name="first-examples"
        ) as reader:
            for piece in pieces(reader, end, wait_s=WAIT_S):
                for tick in accepted(rule, place, piece, self._unusable):
                    resume = resume if tick.mark.resume is None else tick.mark
                    if tick.mark.counts.impressions.examples:
                        return resume is not None and fits(resume)
                yield True
        return True
