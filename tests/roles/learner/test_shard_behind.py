"""If one shard loses all of a publication, the next publication makes up for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries, Record
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.core.snapshots.records import MODEL_KEY, VERSION_KEY, ModelRecord, VersionRecord, decode
from stream_learner.core.snapshots.replica import Replica
from stream_learner.roles.common.last_publication import LastPublication
from stream_learner.roles.learner.publication import Publication
from tests.core.model.example_records import Example, as_record

SHARDS = 2
CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "inputs": {}, "metrics": {}}
NOTHING = LastPublication((None,) * SHARDS, None)
LOW, HIGH = range(1, 30), range(1 << 63, (1 << 63) + 30)
"""Keys of the first shard, and of the second."""
Entry = tuple[int, bytes, bytes | None]


class Writes:
    """Stands in for a transactional publisher: keeps what is written to the shards that have a broker."""

    outdated = False
    transactional_id = "m.publisher"

    def __init__(self, kept: list[Entry], shards: Iterable[int]) -> None:
        self._kept, self._shards = kept, set(shards)

    def init(self) -> None:
        """Do nothing: nobody else publishes."""

    def publish(self, records: Iterable[Record]) -> None:
        """Keep them, each with its partition."""
        self._kept += [(r.partition, r.key or b"", r.value) for r in records if r.partition in self._shards]

    def close(self) -> None:
        """Do nothing: nothing is open."""


def publication(learner: Learner, kept: list[Entry], last: LastPublication, shards: Iterable[int]) -> Publication:
    """A publisher that goes on from `last`, and whose records arrive in these shards only."""
    one = Publication(
        cast(KafkaSettings, None),
        cast(OffsetQueries, None),
        topic="m.snapshots",
        transactional_id="m.publisher",
        shards=SHARDS,
        policy=PagePolicy(ring=64),
        learner=learner,
        new_publisher=cast(Any, lambda *_: Writes(kept, shards)),
        read_last=lambda *_: last,
    )
    one.begin()
    return one


def last_in(kept: list[Entry]) -> LastPublication:
    """The last version record of each shard, and the last model record."""
    versions: dict[int, VersionRecord] = {}
    model = None
    for shard, key, value in kept:
        record = decode(key, value) if key in (VERSION_KEY, MODEL_KEY) and value is not None else None
        if isinstance(record, VersionRecord):
            versions[shard] = record
        elif isinstance(record, ModelRecord):
            model = record
    return LastPublication(tuple(versions.get(shard) for shard in range(SHARDS)), model)


def test_rows_that_a_shard_has_missed_are_published_with_the_next_version() -> None:
    """A scorer that has followed all along serves the learner's weights of the next version, in every shard."""
    learner, kept = Learner(FtrlProximal(l1=0.0)), list[Entry]()
    first = publication(learner, kept, NOTHING, range(SHARDS))
    for tick, shards in enumerate((range(SHARDS), range(1), range(SHARDS))):
        for keys in (LOW, HIGH):
            row = tuple((key, 1.0) for key in keys[8 * tick : 8 * tick + 8])
            learner.fold(as_record([Example(row, 1.0, 1.0, tick)], tick=tick), tick)
        one = first if tick == 0 else publication(learner, kept, last_in(kept), shards)
        assert one.may_publish(tick)
        one.publish(tick, -1, {**CONTENT, **learner.kind()})
    replica = Replica([0] * SHARDS)
    for offset, (shard, key, value) in enumerate(kept):
        replica.take(shard, offset, key, value)
    assert (replica.version, replica.why_not_ready) == (2, "")
    rows = learner.table.rows_with_prefix(0, 0)
    weights = learner.weights(rows.columns).astype("f4").tolist()
    assert {key: replica.weight(key) for key in rows.keys.tolist()} == dict(
        zip(rows.keys.tolist(), weights, strict=True)
    )
    assert len(rows) == 48 and all(weights)
