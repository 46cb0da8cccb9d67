"""The accepted ticks of one partition of a training log, from its beginning to its end as it is now.

In: a partition. Out: its accepted ticks in order, one at a time.
This file must never hold more than one batch of records and what rule R keeps of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from stream_learner.core.errors import BrokenLog, RecordError
from stream_learner.core.mark_codec import decode_mark
from stream_learner.core.marks import Mark
from stream_learner.core.record_header import Kind, open_record
from stream_learner.core.training_log import AcceptedTick, RuleR, find_chain
from stream_learner.edges.kafka import READ_UNCOMMITTED, KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.errors import LogTrimmed
from stream_learner.roles.records import damaged

READ_RECORDS = 200
WAIT_S = 0.5


def take(rule: RuleR, topic: str, partition: int, offset: int, value: bytes | None) -> AcceptedTick | None:
    """`rule.take`, its errors as those of an operator: LogTrimmed, DamagedLog, NewerFormat."""
    try:
        return rule.take(offset, value)
    except BrokenLog as error:
        raise LogTrimmed(
            f"{topic} partition {partition} offset {offset}: {error.what}",
            action="Ticks before this offset are missing. Restore the log, or begin again with an empty state "
            "directory under another model name.",
        ) from error
    except RecordError as error:
        raise damaged(error, topic, partition, offset) from error


def accepted_ticks(
    settings: KafkaSettings,
    queries: OffsetQueries,
    topic: str,
    partition: int,
    *,
    new_reader: Callable[..., Reader] = PartitionReader,
) -> Generator[AcceptedTick, None, None]:
    """The accepted ticks up to the high watermark of now.

    Where the log has lost its beginning they are those after the earliest mark of the longest chain in sight, which
    takes one more reading of it. Raises LogTrimmed, DamagedLog, NewerFormat, BrokerUnreachable.
    """
    place = (topic, partition)
    end, earliest = queries.high_watermarks([place])[place], queries.earliest([place])[place]
    with new_reader(
        settings, topic, partition, earliest, isolation=READ_UNCOMMITTED, name=f"ticks-{partition}"
    ) as reader:
        rule: RuleR | None = RuleR(partition=partition)
        if earliest > 0:
            rule = _rule_within(reader, end)
        if rule is None:
            return
        for offset, value in records_up_to(reader, end):
            tick = take(rule, topic, partition, offset, value)
            if tick is not None:
                yield tick


def _rule_within(reader: Reader, end: int) -> RuleR | None:
    """Rule R after the first mark that surely counts, and the reader there; None where no mark is in sight."""
    first = find_chain(list(_marks(reader, end)))
    if first is None:
        return None
    reader.seek(first[0] + 1)
    return RuleR(first[1].id, partition=reader.partition)


def _marks(reader: Reader, end: int) -> Iterator[tuple[int, Mark]]:
    for offset, value in records_up_to(reader, end):
        try:
            record = open_record(value or b"")
            if record.header.kind is Kind.MARK:
                yield offset, decode_mark(record)
        except RecordError as error:
            raise damaged(error, reader.topic, reader.partition, offset) from error


def records_up_to(reader: Reader, end: int) -> Iterator[tuple[int, bytes | None]]:
    """Offsets and values from the reader's position to before `end`."""
    while reader.position < end:
        batch = reader.read(READ_RECORDS, WAIT_S)
        for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True) if batch else ():
            if offset < end:
                yield offset, value
