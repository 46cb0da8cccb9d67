"""A torn publication in the snapshot topic of a real Kafka: no later version is made of what it left.

A transaction is torn when Kafka has lost a part of it: here the first records are committed and the others never sent.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader, Record
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.core.snapshots.replica import Replica
from stream_learner.errors import Fenced
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.learner.publication import Publication
from tests.adapters.kafka.kafka_help import VisiblePublisher
from tests.conftest import MakeTopic
from tests.core.model.example_records import as_record, random_examples

PER_TICK = 3
TICKS = 5
EXAMPLES = [e for e in random_examples(40, 5) if e.features][: PER_TICK * TICKS]
CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "inputs": {}, "metrics": {}}
Entry = tuple[int, bytes, bytes | None]


def _record(tick: int) -> ExampleRecord:
    return as_record(EXAMPLES[PER_TICK * tick : PER_TICK * (tick + 1)], tick=tick)


class Tearing(VisiblePublisher):
    """A publisher whose broker loses a transaction but for its first two records: model record and delta."""

    def publish(self, records: Iterable[Record]) -> dict[tuple[str, int], int]:
        """Commit the first two records, and come back without an outcome."""
        super().publish(list(records)[:2])
        raise Fenced("the outcome stayed unknown")


def read_all(settings: KafkaSettings, admin: Admin, topic: str) -> list[Entry]:
    """Every record that a reader of committed records sees."""
    end = admin.offsets.last_stable_offsets([(topic, 0)])[topic, 0]
    found: list[Entry] = []
    with PartitionReader(settings, topic, 0, 0, with_keys=True) as reader:
        while reader.position < end:
            batch = reader.read(100, 0.5)
            if batch is not None:
                found += zip(
                    batch.offsets.tolist(), (key or b"" for key in batch.keys or ()), batch.values, strict=True
                )
    return found


def compacted(log: list[Entry]) -> list[Entry]:
    """The last record of each key."""
    last = {key: offset for offset, key, _ in log}
    return [(offset, key, value) for offset, key, value in log if last[key] == offset and value is not None]


class Site:
    """A topic of one shard, and learners that publish to it one after the other."""

    def __init__(self, settings: KafkaSettings, admin: Admin, topic: str) -> None:
        self.settings, self.admin, self.topic = settings, admin, topic
        self.name = f"{topic}.publisher"
        self.learner = Learner(FtrlProximal())
        self.weights: dict[int, dict[int, float]] = {}
        self.keys = sorted({key for tick in range(TICKS) for key in _record(tick).keys.tolist()})

    def fold(self, tick: int) -> None:
        """One tick, and the weights after it."""
        self.learner.fold(_record(tick), tick)
        self.weights[tick] = self.now()

    def now(self) -> dict[int, float]:
        """The learner's weights."""
        rows = self.learner.table.rows_with_prefix(0, 0)
        found = dict(zip(rows.keys.tolist(), self.learner.weights(rows.columns).astype("f4").tolist(), strict=True))
        return {key: found.get(key, 0.0) for key in self.keys}

    def publication(self, kind: type[VisiblePublisher] = VisiblePublisher) -> Publication:
        """The publication of a learner that has just started."""
        publication = Publication(
            self.settings,
            self.admin.offsets,
            topic=self.topic,
            transactional_id=self.name,
            shards=1,
            policy=PagePolicy(ring=8),
            learner=self.learner,
            new_publisher=kind,
        )
        publication.begin()
        return publication

    def publish(self, publication: Publication, tick: int) -> None:
        """Publish the learner as it is after a tick."""
        publication.publish(tick, -1, {**CONTENT, **self.learner.kind()})

    def torn(self) -> dict[int, int]:
        """The torn number of each shard, as `read_last_publication` finds it."""
        return dict(read_last_publication(self.settings, self.admin.offsets, self.topic, 1).torn)


def test_no_version_is_made_of_a_torn_publication(
    kafka_settings: KafkaSettings, admin: Admin, topics: MakeTopic
) -> None:
    """A reader that took in the torn delta serves exactly the model when the right delta is gone; so does a new one."""
    site = Site(kafka_settings, admin, topics("torn"))
    site.fold(0)
    first = site.publication()
    site.publish(first, 0)
    first.close()
    assert site.torn() == {}
    site.fold(1)
    tearing = site.publication(Tearing)
    with pytest.raises(Fenced):
        site.publish(tearing, 1)
    tearing.close()
    assert site.torn() == {0: 2}
    seen = read_all(kafka_settings, admin, site.topic)
    assert sum(key.startswith(b"delta/") for _, key, _ in seen) == 2
    second = site.publication()
    for tick in range(2, TICKS):
        site.fold(tick)
        site.publish(second, tick)
        log = read_all(kafka_settings, admin, site.topic)
        lagging = [*seen, *(entry for entry in compacted(log) if entry[0] > seen[-1][0])]
        for what in (log, compacted(log), lagging):
            replica = Replica([0])
            for entry in what:
                if replica.take(0, *entry) is not None:
                    assert {key: replica.weight(key) for key in site.keys} == site.weights[replica.version]
            assert replica.ready and replica.version == tick
    second.close()
    assert site.torn() == {}
