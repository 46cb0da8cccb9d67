"""With how many partitions a training log began.

In: a training log. Out: what its first mark in sight says of that.
This file must never take a log that was given partitions for one that began with them, as long as it still has its
beginning.

A partition without a mark is begun as new only where the log began with as many partitions as there are: an example of
a partition that was added must not belong to a tick that may be folded already. Partitions are added behind the others,
so the first partition that has a mark has been there longest, and its first mark tells. What retention has taken tells
nothing: where a partition was then begun that should not have been, the learner stops (`roles.learner.log_follower`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.roles.common.log_reader import READ_RECORDS, marks, records_of

WAIT_S = 0.05


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
    ) -> None:
        """partitions: how many the log has now."""
        self._settings, self._queries, self._topic = settings, queries, topic
        self._partitions = partitions
        self._new_reader = new_reader
        self._known: int | None = None

    def find(self) -> Generator[bool, None, int | None]:
        """Yields True after every piece of work; returns with how many partitions the log began, None where it has not
        begun or nothing tells.

        Raises DamagedLog, NewerFormat, LogTrimmed, BrokerUnreachable, RetryLater.
        """
        if self._known is None:
            places = [(self._topic, partition) for partition in range(self._partitions)]
            ends, earliest = self._queries.high_watermarks(places), self._queries.earliest(places)
            for place in places:
                self._known = yield from self._first_count(place[1], earliest[place], ends[place])
                if self._known is not None:
                    break
        return self._known

    def _first_count(self, partition: int, start: int, end: int) -> Generator[bool, None, int | None]:
        """How many partitions the first resume point of one names, None where it has none."""
        found = None
        if start < end:
            with self._new_reader(
                self._settings, self._topic, partition, start, isolation=READ_UNCOMMITTED, name="log-origin"
            ) as reader:
                while found is None and reader.position < end:
                    found = self._read(reader)
                    yield True
        return found

    def _read(self, reader: Reader) -> int | None:
        """The count that the first resume point of the records that come next names; None where they have none."""
        batch = reader.read(READ_RECORDS, WAIT_S)
        for _, mark in marks((self._topic, reader.partition), records_of(batch)):
            if mark.resume is not None:
                return mark.resume.partitions
        return None


def drained(steps: Generator[bool, None, int | None]) -> int | None:
    """What `LogOrigin.find` returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: int | None = end.value
            return found
