"""Reads one partition of the training log: its records, its marks, the ticks that rule R accepts.

Every reader of the training log uses these functions, at its own pace. A foreign record is passed over and counted. A
damaged one that counts becomes an error for an operator, by the table of `adapters.record_errors`, unless a skip names
it (`roles.common.unusable_records`). No more than one batch of records is in memory, and what rule R keeps of earlier
ones.

| reader                                              | reads                                        |
|-----------------------------------------------------|----------------------------------------------|
| the joiner before it writes (`roles.joiner.log_tail`) | accepted ticks, a piece at a time            |
| the learner (`roles.learner.log_follower`)          | accepted ticks of what has come, for ever    |
| whoever reads a log once (`accepted_ticks` below)   | accepted ticks from one end to the other     |
| `inspect` (`operations.inspect_log`)                | marks and records, accepted or not           |
| `audit` (`operations.audit.log_walk`)               | records and marks; it drives rule R itself   |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    KafkaSettings,
    OffsetQueries,
    PartitionReader,
    RawBatch,
    Reader,
    TopicAndPartition,
)
from stream_learner.adapters.record_errors import error_in_topic
from stream_learner.core.errors import BrokenLog, DamagedHeader, DamagedRecord, ForeignRecord, RecordError
from stream_learner.core.log.header import Kind, open_record
from stream_learner.core.log.marks import Mark, decode_mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR, find_chain
from stream_learner.core.log.skips import checksum_of
from stream_learner.errors import DamagedLog, Stop
from stream_learner.roles.common.unusable_records import UnusableRecords

READ_RECORDS = 200
WAIT_S = 0.5

RawRecords = Iterable[tuple[int, bytes | None]]
"""Offsets and values, in the order of the log."""


class Beginning(NamedTuple):
    """The place to begin in a log whose first records are gone: after `mark`, with the record at `offset`."""

    offset: int
    mark: Mark

    def rule(self, partition: int) -> RuleR:
        """Rule R, to be given the records from `offset` on."""
        return RuleR(self.mark.id, partition=partition)


def records_of(batch: RawBatch | None) -> RawRecords:
    """The records of a batch; none for None."""
    return () if batch is None else zip(batch.offsets.tolist(), batch.values, strict=True)


def pieces(reader: Reader, end: int, most: int = READ_RECORDS, wait_s: float = WAIT_S) -> Iterator[RawRecords]:
    """The records from the reader's position to `end`, a batch at a time; the last batch may reach beyond `end`."""
    while reader.position < end:
        yield records_of(reader.read(most, wait_s))


def records(reader: Reader, end: int) -> Iterator[tuple[int, bytes | None]]:
    """The records from the reader's position to before `end`."""
    for piece in pieces(reader, end):
        for offset, value in piece:
            if offset < end:
                yield offset, value


def marks(
    place: TopicAndPartition,
    found: RawRecords,
    *,
    skip_damaged: bool = False,
    unusable: UnusableRecords | None = None,
) -> Iterator[tuple[int, Mark]]:
    """The marks among records of a partition, accepted or not, with their offsets. Foreign records are passed over.

    skip_damaged: skip records that cannot be used; else DamagedLog and NewerFormat are raised for them. unusable:
    counts the foreign records, and looks for the skips of damaged ones; None if nobody does.
    """
    for offset, value in found:
        try:
            record = open_record(value or b"")
            if record.header.kind is not Kind.MARK:
                continue
            if record.header.partition != place[1]:
                raise ForeignRecord(f"a record of partition {record.header.partition}")
            yield offset, decode_mark(record)
        except (ForeignRecord, DamagedHeader) as error:
            if unusable is not None:
                unusable.note_foreign(place, offset, error)
        except RecordError as error:
            if not (skip_damaged or _is_skipped(place, offset, value, error, unusable)):
                raise error_in_log(error, place, offset) from error


def accepted(
    rule: RuleR, place: TopicAndPartition, found: RawRecords, unusable: UnusableRecords | None = None
) -> Iterator[AcceptedTick]:
    """The ticks that records of a partition complete by rule R.

    unusable: as `marks` says. Raises LogTrimmed, DamagedLog, NewerFormat, and what `UnusableRecords` raises; the record
    at `rule.position` is the next one to take then.
    """
    for offset, value in found:
        foreign = rule.foreign_records
        try:
            tick = _take(rule, place, offset, value, unusable)
        except RecordError as error:
            raise error_in_log(error, place, offset) from error
        if rule.foreign_records > foreign and unusable is not None and rule.last_foreign is not None:
            unusable.note_foreign(place, offset, rule.last_foreign)
        if tick is not None:
            yield tick


def _take(
    rule: RuleR, place: TopicAndPartition, offset: int, value: bytes | None, unusable: UnusableRecords | None
) -> AcceptedTick | None:
    """Give a record to rule R; where that stops, once more with the skips that lie behind the record."""
    try:
        return rule.take(offset, value)
    except (DamagedRecord, BrokenLog):
        skips = {} if unusable is None else unusable.skips_behind(place, offset)
        if not skips:
            raise
    for named, checksum in skips.items():
        rule.note_skip(named, checksum)
    return rule.take(offset, value)


def _is_skipped(
    place: TopicAndPartition, offset: int, value: bytes | None, error: RecordError, unusable: UnusableRecords | None
) -> bool:
    if unusable is None or not isinstance(error, DamagedRecord):
        return False
    return unusable.skips_behind(place, offset).get(offset) == checksum_of(value)


def error_in_log(error: RecordError, place: TopicAndPartition, offset: int) -> Stop:
    """The error to stop with for a record of the training log; `offset` as in `error_in_topic`."""
    found = error_in_topic(error, *place, offset)
    if not isinstance(found, DamagedLog):
        return found
    at = offset if error.offset is None else error.offset
    return DamagedLog(
        found.message,
        action="Find out who writes to the topic. To let every reader pass this record over: `stream-learner log skip "
        f"{at} --partition {place[1]} --reason WHY`, with --dry-run to see what is lost (docs/operations.md, "
        '"A damaged record").',
    )


def beginning_in_sight(found: Iterable[tuple[int, Mark]]) -> Beginning | None:
    """The place to begin by the marks that are left: after the first of their longest chain; None without a mark."""
    first = find_chain(list(found))
    return None if first is None else Beginning(first[0] + 1, first[1])


def accepted_ticks(
    settings: KafkaSettings,
    queries: OffsetQueries,
    topic: str,
    partition: int,
    *,
    new_reader: Callable[..., Reader] = PartitionReader,
    unusable: UnusableRecords | None = None,
) -> Generator[AcceptedTick, None, None]:
    """The accepted ticks of a partition up to the present high watermark.

    Where the log has lost its beginning they are those after the earliest mark of the longest chain in sight; to find
    that, the log is read once more. Raises LogTrimmed, DamagedLog, NewerFormat, BrokerUnreachable.
    """
    place = (topic, partition)
    unusable = unusable or UnusableRecords(settings, queries, new_reader=new_reader)
    end, earliest = queries.high_watermarks([place])[place], queries.earliest([place])[place]
    with new_reader(
        settings, topic, partition, earliest, isolation=READ_UNCOMMITTED, name=f"ticks-{partition}"
    ) as reader:
        rule = RuleR(partition=partition)
        if earliest > 0:
            begin = beginning_in_sight(marks(place, records(reader, end), unusable=unusable))
            if begin is None:
                return
            rule = begin.rule(partition)
            reader.seek(begin.offset)
        yield from accepted(rule, place, records(reader, end), unusable)
