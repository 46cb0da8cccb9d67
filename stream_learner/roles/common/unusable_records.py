"""Handles records of the training log that cannot be used, in one place for all readers.

Foreign ones are passed over by rule R; here they are counted, and said in the log. Where a reader is stopped by a
damaged one, the rest of the partition is read for a skip (`core.log.skips`) that names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    Admin,
    KafkaSettings,
    OffsetQueries,
    PartitionReader,
    Reader,
    TopicAndPartition,
)
from stream_learner.adapters.telemetry.logs import Logger, get_logger
from stream_learner.core.errors import RecordError
from stream_learner.core.log.header import Kind, open_record
from stream_learner.core.log.skips import decode_skip

READ_RECORDS = 500
WAIT_S = 0.5


class UnusableRecords:
    """One for each role or command, over all partitions that it reads. Used by one thread.

    foreign: how many foreign records were found, each counted once however often it is read.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        queries: OffsetQueries | None = None,
        *,
        log: Logger | None = None,
        new_reader: Callable[..., Reader] = PartitionReader,
    ) -> None:
        """queries: asked where a log ends; without, a client of its own is made if that is ever needed."""
        self._settings = settings
        self._queries = queries
        self._log = get_logger("log") if log is None else log
        self._new_reader = new_reader
        self._counted_to: dict[TopicAndPartition, int] = {}
        self._found: Counter[TopicAndPartition] = Counter()

    @property
    def foreign(self) -> int:
        return self._found.total()

    def note_foreign(self, place: TopicAndPartition, offset: int, error: RecordError) -> None:
        """Count a record that is no part of the log. Said are the first of a partition, the second, the fourth and so
        on, so that a flood of them does not fill the log.
        """
        if offset < self._counted_to.get(place, 0):
            return
        self._counted_to[place] = offset + 1
        self._found[place] += 1
        count = self._found[place]
        if count & (count - 1) == 0:
            self._log.warning(
                "foreign_record_passed_over",
                topic=place[0],
                partition=place[1],
                offset=offset,
                reason=error.what,
                records=count,
            )

    def skips_behind(self, place: TopicAndPartition, offset: int) -> Mapping[int, int]:
        """The records up to `offset` that skips behind it name, each with its checksum; reads the log to its end.

        Raises BrokerUnreachable, RetryLater, LogTrimmed.
        """
        if self._queries is None:
            self._queries = Admin(self._settings).offsets
        end = self._queries.high_watermarks([place])[place]
        found: dict[int, int] = {}
        with self._new_reader(
            self._settings, *place, offset + 1, isolation=READ_UNCOMMITTED, name=f"skips-{place[1]}"
        ) as reader:
            while reader.position < end:
                batch = reader.read(READ_RECORDS, WAIT_S)
                for value in () if batch is None else batch.values:
                    named = _skip_in(value or b"", place[1])
                    if named is not None and named[0] <= offset:
                        found[named[0]] = named[1]
        return found


def _skip_in(value: bytes, partition: int) -> tuple[int, int] | None:
    """The offset and the checksum that a skip of this partition names; None for any other record."""
    try:
        record = open_record(value)
        if record.header.kind is not Kind.SKIP or record.header.partition != partition:
            return None
        skip = decode_skip(record)
    except RecordError:
        return None
    return skip.offset, skip.checksum
