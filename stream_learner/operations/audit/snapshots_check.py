"""Checks of the snapshot topic: every record whole, every shard whole, all shards of one version and digest.

Rows are not kept: only which pages and deltas there are counts. A record that cannot be used is passed over with a
count, as scorers pass over it; it is a finding where its shard cannot be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader
from stream_learner.core.errors import RecordError, Where
from stream_learner.core.snapshots.follower import Follower
from stream_learner.core.snapshots.records import MODEL_SHARD, ModelRecord, VersionRecord, decode
from stream_learner.operations.audit.findings import SNAPSHOTS, Finding, Findings
from stream_learner.roles.common.log_reader import READ_RECORDS, WAIT_S

if TYPE_CHECKING:
    from stream_learner.config import Config

LOOKS = 20
"""How often to read on if some shards had a newer version than others when their ends were asked for."""


@dataclass
class Published:
    """The versions in the topic. digests: by version, of the version records that are still there. last: the last
    version that all shards have, -1 for none; content: that of the model record."""

    digests: dict[int, int] = field(default_factory=dict)
    last: int = -1
    content: dict[str, Any] | None = None


class _Shard:
    """One partition of the topic."""

    def __init__(self, settings: KafkaSettings, topic: str, shard: int, start: int, findings: Findings) -> None:
        self.shard = shard
        self.versions: dict[int, int] = {}
        self.last: VersionRecord | None = None
        self.model: ModelRecord | None = None
        self.follower = Follower(shard)
        self._first_unusable: tuple[str, int] | None = None
        self._topic = topic
        self._findings = findings
        self._reader = PartitionReader(settings, topic, shard, start, name=f"audit-shard-{shard}", with_keys=True)

    def read(self, end: int, progress: Callable[[int], None]) -> None:
        while self._reader.position < end:
            batch = self._reader.read(READ_RECORDS, WAIT_S)
            if batch is None:
                continue
            for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
                progress(1)
                if value is not None:
                    self._take(offset, key, value)

    def _take(self, offset: int, key: bytes | None, value: bytes) -> None:
        self._findings.held(SNAPSHOTS)
        try:
            record = decode(key, value, Where(offset, self.shard, self._topic))
            self.follower.take(key or b"", record, Where(offset, self.shard, self._topic))
        except RecordError as error:
            self._findings.pass_over(Finding(SNAPSHOTS, error.what, self._topic, self.shard, offset))
            self._first_unusable = self._first_unusable or (error.what, offset)
            return
        if isinstance(record, ModelRecord):
            self.model = record
        elif isinstance(record, VersionRecord):
            self._take_version(record, offset)

    def _take_version(self, record: VersionRecord, offset: int) -> None:
        version, last = record.stamp.version, self.last
        if last is not None and record.stamp.sequence <= last.stamp.sequence:
            what = f"publication {record.stamp.sequence} comes after {last.stamp.sequence}"
            self.fail(what, offset, version)
        if last is not None and version <= last.stamp.version:
            self.fail(f"version {version} comes after version {last.stamp.version}", offset, version)
        if self.versions.setdefault(version, record.digest) != record.digest:
            self.fail(f"version {version} was published with two digests", offset, version)
        self.last = record

    def finish(self) -> None:
        """Check that the shard can be loaded, as a scorer does."""
        self.follower.reach_end()
        if self.follower.current is not None:
            return
        if self.last is not None:
            self.fail(f"not whole at its last version: {self.follower.trouble}", tick=self.last.stamp.version)
        if self._first_unusable is not None:
            self.fail(*self._first_unusable)

    def fail(self, what: str, offset: int | None = None, tick: int | None = None) -> None:
        self._findings.fail(Finding(SNAPSHOTS, what, self._topic, self.shard, offset, tick))

    def close(self) -> None:
        self._reader.close()


def check_snapshots(
    config: Config, settings: KafkaSettings, admin: Admin, findings: Findings, progress: Callable[[int], None]
) -> Published:
    """Read the snapshot topic and check it. progress: is called with the number of records read.

    Raises BrokerUnreachable, NotAuthorised.
    """
    topic = config.snapshots_topic
    info = admin.describe([topic]).get(topic)
    if info is None:
        return Published()
    places = [(topic, shard) for shard in range(info.partitions)]
    earliest = admin.offsets.earliest(places)
    shards: list[_Shard] = []
    try:
        shards += [_Shard(settings, topic, shard, earliest[topic, shard], findings) for shard in range(info.partitions)]
        for _ in range(LOOKS):
            ends = admin.offsets.last_stable_offsets(places)
            for one in shards:
                one.read(ends[topic, one.shard], progress)
            if len({one.last and one.last.stamp.version for one in shards}) == 1:
                break
        return _compared(config, shards)
    finally:
        for one in shards:
            one.close()


def _compared(config: Config, shards: list[_Shard]) -> Published:
    """Check what only all shards together can tell."""
    for one in shards:
        one.finish()
    lasts = {one.shard: one.last.stamp.version if one.last else -1 for one in shards}
    found = Published(last=min(lasts.values()))
    if len(set(lasts.values())) > 1:
        behind = [one for one in shards if lasts[one.shard] < max(lasts.values())]
        for one in behind:
            one.fail(f"its last version is {lasts[one.shard]}, others have {max(lasts.values())}")
    for one in shards:
        for version, digest in one.versions.items():
            if found.digests.setdefault(version, digest) != digest:
                what = f"version {version} has digest {digest:016x}, in another shard {found.digests[version]:016x}"
                one.fail(what, tick=version)
    first = shards[MODEL_SHARD]
    if first.model is not None:
        found.content = first.model.content
        _check_model(config, first, first.model)
    return found


def _check_model(config: Config, shard: _Shard, model: ModelRecord) -> None:
    """Check the model record against its version and the configuration."""
    content, version = model.content, model.stamp.version
    digest = shard.versions.get(version)
    if digest is not None and content["digest"] != f"{digest:016x}":
        shard.fail(f"the model record has digest {content['digest']}, its version {digest:016x}", tick=version)
    if content.get("log", config.examples_topic) != config.examples_topic:
        shard.fail(f"it was made from {content['log']}, not from {config.examples_topic}", tick=version)
    if content["tick_ms"] != config.join.tick_ms:
        shard.fail(f"its ticks are of {content['tick_ms']} ms, join.tick is {config.join.tick_ms} ms", tick=version)
