"""What was published last: the end of each partition of the snapshot topic.

In: the snapshot topic. Out: the last version record of every shard, the last model record, and what
a torn publication left.
This file must never take an uncommitted record for a published one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.adapters.record_errors import error_in_topic
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots.records import (
    MODEL_KEY,
    MODEL_SHARD,
    VERSION_KEY,
    ModelRecord,
    VersionRecord,
    decode,
    stamp_of,
)
from stream_learner.errors import StateOfAnotherModel
from stream_learner.wording import count_of

OpenAt: TypeAlias = Callable[[int, int], Reader]
Records: TypeAlias = dict[bytes, VersionRecord | ModelRecord]

FIRST_LOOK_RECORDS = 64
LOOK_FURTHER = 8
READ_RECORDS = 1000
AT_ONCE = 8
"""So many partitions are opened before the first of them is read: each waits for its own connection."""


@dataclass(frozen=True)
class LastPublication:
    """The last version record of each shard, None where a shard has none; the last model record.

    torn: by shard, the number of the publication of which visible records lie behind the last version record: such a
    record is the last of its publication, so the rest of this one is lost. Shards without are not in it.
    """

    versions: tuple[VersionRecord | None, ...]
    model: ModelRecord | None
    torn: Mapping[int, int] = field(default_factory=dict)

    @property
    def complete_up_to(self) -> int:
        """The version up to which every shard is published, -1 if one has nothing."""
        return min((-1 if v is None else v.stamp.version for v in self.versions), default=-1)

    @property
    def is_whole(self) -> bool:
        """Whether the shards and the model record are of one version; the next one may be on its way."""
        return self.model is not None and self.complete_up_to == self.latest == self.model.stamp.version

    @property
    def latest(self) -> int:
        """The latest version of any shard, -1 without one."""
        return max((-1 if v is None else v.stamp.version for v in self.versions), default=-1)


def read_last_publication(
    settings: KafkaSettings,
    queries: OffsetQueries,
    topic: str,
    shards: int,
    *,
    new_reader: Callable[..., Reader] = PartitionReader,
) -> LastPublication:
    """Read the end of every partition. Raises DamagedLog, NewerFormat, StateOfAnotherModel (another shard count)."""
    places = [(topic, shard) for shard in range(shards)]
    ends, starts = queries.last_stable_offsets(places), queries.earliest(places)
    open_at = partial(new_reader, settings, topic, with_keys=True, name="last-published")
    spans = [(shard, starts[topic, shard], ends[topic, shard]) for shard in range(shards)]
    found = [one for first in range(0, shards, AT_ONCE) for one in _several(open_at, topic, spans[first:][:AT_ONCE])]
    versions = [records.get(VERSION_KEY) for records, _ in found]
    for version in versions:
        if isinstance(version, VersionRecord) and version.stamp.shards != shards:
            raise StateOfAnotherModel(
                f"{topic} was published with {count_of(version.stamp.shards, 'shard')}, snapshots.shards is {shards}"
            )
    model = found[MODEL_SHARD][0].get(MODEL_KEY)
    return LastPublication(
        tuple(v if isinstance(v, VersionRecord) else None for v in versions),
        model if isinstance(model, ModelRecord) else None,
        {shard: torn for shard, (_, torn) in enumerate(found) if torn},
    )


def _several(open_at: OpenAt, topic: str, spans: Sequence[tuple[int, int, int]]) -> list[tuple[Records, int]]:
    """`_last_records` of some partitions, each given with its earliest offset and its end."""
    with ExitStack() as stack:
        readers = {
            shard: stack.enter_context(open_at(shard, max(end - FIRST_LOOK_RECORDS, earliest)))
            for shard, earliest, end in spans
            if earliest < end
        }
        return [_last_records(open_at, topic, *span, readers.get(span[0])) for span in spans]


def _last_records(
    open_at: OpenAt, topic: str, shard: int, earliest: int, end: int, reader: Reader | None
) -> tuple[Records, int]:
    """The last version record of a partition, and in the first one the last model record: looking back further and
    further, since markers take offsets and compaction leaves gaps. And the number of a torn publication, 0 for none.

    reader: stands where the first look begins; None for an empty partition.
    """
    wanted = {VERSION_KEY, MODEL_KEY} if shard == MODEL_SHARD else {VERSION_KEY}
    if reader is None:
        return {}, 0
    found, torn = _read(reader, topic, shard, end, wanted)
    look = FIRST_LOOK_RECORDS
    while len(found) < len(wanted) and end - look > earliest:
        look *= LOOK_FURTHER
        with open_at(shard, max(end - look, earliest)) as further:
            found, torn = _read(further, topic, shard, end, wanted)
    return found, torn


def _read(reader: Reader, topic: str, shard: int, end: int, wanted: set[bytes]) -> tuple[Records, int]:
    raw: dict[bytes, tuple[int, bytes]] = {}
    torn = 0
    while reader.position < end:
        batch = reader.read(READ_RECORDS, 0.5)
        if batch is None:
            continue
        for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
            if value is None:
                continue
            if key in wanted:
                raw[key] = (offset, value)
            if offset < end:
                torn = 0 if key == VERSION_KEY else max(torn, _number(value))
    found: Records = {}
    for key, (offset, value) in raw.items():
        try:
            record = decode(key, value)
        except RecordError as error:
            raise error_in_topic(error, topic, shard, offset) from error
        assert isinstance(record, VersionRecord | ModelRecord)  # decode checks the key
        found[key] = record
    return found, torn


def _number(value: bytes) -> int:
    """Of which publication a record is; 0 for one that no reader can use."""
    try:
        return stamp_of(value).sequence
    except RecordError:
        return 0
