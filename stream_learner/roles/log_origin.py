"""With how many partitions a training log began.

In: a training log, how many partitions it has now. Out: what its first mark in sight says of that.
This file must never take a log that was given partitions for one that began with them.

A partition without a mark is begun as new only where the log began with as many partitions as there are: an example of
a partition that was added must not belong to a tick that may be folded already. Partitions are added behind the others,
so the first partition that has a mark has been there longest, and its first mark tells.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from stream_learner.core.errors import RecordError
from stream_learner.core.mark_codec import decode_mark
from stream_learner.core.marks import Mark
from stream_learner.core.record_header import Kind, peek
from stream_learner.edges.kafka import READ_UNCOMMITTED, KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.roles.records import damaged

READ_RECORDS = 200
WAIT_S = 0.05


@dataclass(frozen=True)
class Origin:
    """Of the first partition that has marks: how many partitions the first resume point in sight names, 0 where none is
    in sight; whether the partition still has its beginning."""

    partition: int
    partitions: int
    has_beginning: bool

    def is_of(self, partitions: int) -> bool:
        """Whether the log surely began with that many."""
        return self.has_beginning and self.partitions == partitions


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
        self._known: Origin | None = None

    def find(self) -> Generator[bool, None, Origin | None]:
        """Yields True after every piece of work; returns the origin, None for a log that has not begun.

        Raises DamagedLog, NewerFormat, BrokerUnreachable, RetryLater.
        """
        if self._known is None:
            places = [(self._topic, partition) for partition in range(self._partitions)]
            ends, earliest = self._queries.high_watermarks(places), self._queries.earliest(places)
            for place in places:
                self._known = yield from self._of(place[1], earliest[place], ends[place])
                if self._known is not None:
                    break
        return self._known

    def _of(self, partition: int, earliest: int, end: int) -> Generator[bool, None, Origin | None]:
        """What a partition says of the origin; None where it has no mark."""
        found = None
        if earliest < end:
            with self._new_reader(
                self._settings, self._topic, partition, earliest, isolation=READ_UNCOMMITTED, name="log-origin"
            ) as reader:
                while found is None and reader.position < end:
                    found = self._read(reader)
                    yield True
        if found is not None and found.resume is not None:
            return Origin(partition, found.resume.partitions, earliest == 0)
        return Origin(partition, 0, has_beginning=False) if earliest > 0 else None

    def _read(self, reader: Reader) -> Mark | None:
        """The first mark with a resume point among what comes next."""
        batch = reader.read(READ_RECORDS, WAIT_S)
        for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True) if batch else ():
            try:
                header = peek(value or b"")
                mark = decode_mark(header, value or b"") if header.kind is Kind.MARK else None
            except RecordError as error:
                raise damaged(error, self._topic, reader.partition, offset) from error
            if mark is not None and mark.resume is not None:
                return mark
        return None


def drained(steps: Generator[bool, None, Origin | None]) -> Origin | None:
    """What `LogOrigin.find` returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            origin: Origin | None = end.value
            return origin
