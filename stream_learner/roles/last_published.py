"""What was published last: the end of each partition of the snapshot topic.

In: the snapshot topic. Out: the last version record of every shard, and the last model record.
This file must never take an uncommitted record for a published one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots import (
    MODEL_KEY,
    MODEL_SHARD,
    VERSION_KEY,
    ModelRecord,
    VersionRecord,
    decode,
)
from stream_learner.edges.kafka import KafkaSettings, OffsetQueries, PartitionReader
from stream_learner.errors import StateOfAnotherModel
from stream_learner.roles.records import damaged

FIRST_LOOK_RECORDS = 64
LOOK_FURTHER = 8
READ_RECORDS = 1000


@dataclass(frozen=True)
class LastPublished:
    """The last version record of each shard, None where a shard has none; the last model record."""

    versions: tuple[VersionRecord | None, ...]
    model: ModelRecord | None

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


def last_published(
    settings: KafkaSettings,
    queries: OffsetQueries,
    topic: str,
    shards: int,
    *,
    new_reader: Callable[..., PartitionReader] = PartitionReader,
) -> LastPublished:
    """Read the end of every partition. Raises DamagedLog, NewerFormat, StateOfAnotherModel (another shard count)."""
    places = [(topic, shard) for shard in range(shards)]
    ends, starts = queries.last_stable_offsets(places), queries.earliest(places)
    open_at = partial(new_reader, settings, topic, with_keys=True, name="last-published")
    found = [_last_records(open_at, topic, shard, starts[topic, shard], ends[topic, shard]) for shard in range(shards)]
    versions = [records.get(VERSION_KEY) for records in found]
    for version in versions:
        if isinstance(version, VersionRecord) and version.stamp.shards != shards:
            raise StateOfAnotherModel(
                f"{topic} was published with {version.stamp.shards} shards, snapshots.shards is {shards}"
            )
    model = found[MODEL_SHARD].get(MODEL_KEY)
    return LastPublished(
        tuple(v if isinstance(v, VersionRecord) else None for v in versions),
        model if isinstance(model, ModelRecord) else None,
    )


def _last_records(
    open_at: Callable[[int, int], PartitionReader], topic: str, shard: int, earliest: int, end: int
) -> dict[bytes, VersionRecord | ModelRecord]:
    """The last version record of a partition, and in the first one the last model record: looking back further and
    further, since markers take offsets and compaction leaves gaps."""
    wanted = {VERSION_KEY, MODEL_KEY} if shard == MODEL_SHARD else {VERSION_KEY}
    look = FIRST_LOOK_RECORDS
    while True:
        start = max(end - look, earliest)
        found = _read(open_at, topic, shard, start, end, wanted)
        if len(found) == len(wanted) or start <= earliest:
            return found
        look *= LOOK_FURTHER


def _read(
    open_at: Callable[[int, int], PartitionReader], topic: str, shard: int, start: int, end: int, wanted: set[bytes]
) -> dict[bytes, VersionRecord | ModelRecord]:
    raw: dict[bytes, tuple[int, bytes]] = {}
    with open_at(shard, start) as reader:
        while reader.position < end:
            batch = reader.read(READ_RECORDS, 0.5)
            if batch is None:
                continue
            for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
                if key in wanted and value is not None:
                    raw[key] = (offset, value)
    found: dict[bytes, VersionRecord | ModelRecord] = {}
    for key, (offset, value) in raw.items():
        try:
            record = decode(key, value)
        except RecordError as error:
            raise damaged(error, topic, shard, offset) from error
        assert isinstance(record, VersionRecord | ModelRecord)  # decode checks the key
        found[key] = record
    return found
