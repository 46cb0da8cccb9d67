"""The number of partitions that a training log began with, as its first mark in sight tells it.

A partition without a mark is begun as new only where the log began with as many partitions as there are: an example of
a partition that was added must not belong to a tick that may be folded already. Partitions are added behind the others,
so the first partition that has a mark has been there longest, and its first mark tells. Where retention has taken that
mark nothing tells, and a partition may be begun that should not have been; the learner then stops
(`roles.learner.log_follower`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.core.log.marks import Mark
from stream_learner.roles.common.log_reader import marks, pieces
from stream_learner.roles.common.unusable_records import UnusableRecords

WAIT_S = 0.05
AGAIN_S = 1.0
"""A log that tells nothing is looked at again after this time. A joiner asks for each partition that it begins, and
each look is at all partitions.
"""


class LogOrigin:
    """Looks for the origin of a log; used by one thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        queries: OffsetQueries,
        topic: str,
        partitions: int,
        *,
        new_reader: Callable[..., Reader] = PartitionReader,
        unusable: UnusableRecords | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """partitions: how many the log has now. unusable: as in `LogTail`, with `new_reader`."""
        self._unusable = unusable or UnusableRecords(settings, queries, new_reader=new_reader)
        self._settings, self._queries, self._topic = settings, queries, topic
        self._partitions = partitions
        self._new_reader = new_reader
        self._clock_s = clock_s
        self._known: int | None = None
        self._again_at_s = float("-inf")

    def find(self) -> Generator[bool, None, int | None]:
        """Yields True after every piece of work; returns the number of partitions that the log began with, None where
        it has not begun or nothing tells.

        Raises DamagedLog, NewerFormat, LogTrimmed, BrokerUnreachable, RetryLater.
        """
        if self._known is None and self._clock_s() >= self._again_at_s:
            places = [(self._topic, partition) for partition in range(self._partitions)]
            ends, earliest = self._queries.high_watermarks(places), self._queries.earliest(places)
            for place in places:
                self._known = yield from self._first_count(place[1], earliest[place], ends[place])
                if self._known is not None:
                    break
            self._again_at_s = self._clock_s() + AGAIN_S
        return self._known

    def wait(self) -> int | None:
        """Wait for the result of `find`, for callers that have nothing else to do meanwhile."""
        steps = self.find()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: int | None = end.value
                return found

    def _first_count(self, partition: int, start: int, end: int) -> Generator[bool, None, int | None]:
        """The number of partitions in the first resume point of a partition, None where it has none."""
        if start >= end:
            return None
        with self._new_reader(
            self._settings, self._topic, partition, start, isolation=READ_UNCOMMITTED, name="log-origin"
        ) as reader:
            for piece in pieces(reader, end, wait_s=WAIT_S):
                count = _count_in(mark for _, mark in marks((self._topic, partition), piece, unusable=self._unusable))
                yield True
                if count is not None:
                    return count
        return None


def _count_in(found: Iterable[Mark]) -> int | None:
    return next((mark.resume.partitions for mark in found if mark.resume is not None), None)
