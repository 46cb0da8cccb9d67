"""Copies of a sound model's topics, each damaged in one way, for the audit to find.

It must never damage the site's own topics.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.config import Config
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.header import Kind, open_record
from stream_learner.core.log.marks import Mark, encode_mark
from tests.e2e.site import COMPACTED, Site
from tests.e2e.variants import make_topics

Log = list[bytes | None]
"""The values of a partition, by offset."""
Damage = Callable[[Log], Log]


class Model:
    """A site's model as it is in its topics, and the place in the middle of partition 0 where damage is done.

    tick: an accepted one with several examples, one of them positive and one negative, and no resume point.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.log: Log = [value for _, _, value, _ in site.records(site.config.examples_topic, 0)]
        self.ticks = site.log(0).ticks
        self.tick = next(
            tick
            for tick in self.ticks[len(self.ticks) // 3 :]
            if tick.mark.resume is None and tick.records and 0 < tick.mark.counts.impressions.positives < tick.examples
        )
        self.place = self.ticks.index(self.tick)

    @property
    def at(self) -> int:
        """Offset of the mark to be damaged."""
        return self.tick.mark_offset

    @property
    def first(self) -> int:
        """Offset of the first record of examples of its tick."""
        return self.tick.records[0][0]

    @property
    def mark(self) -> Mark:
        """The mark itself."""
        return self.tick.mark

    def with_mark(self, **changes: Any) -> Damage:
        """The mark with other fields, its checksums right; or other counts, as `impressions` and `clicks`."""
        counts = self.mark.counts
        for side in ("impressions", "clicks"):
            if side in changes:
                counts = counts._replace(**{side: getattr(counts, side)._replace(**changes.pop(side))})
        return self.put(self.at, encode_mark(replace(self.mark, counts=counts, **changes)))

    def with_examples(self, change: Callable[[ExampleBatch], None]) -> Damage:
        """The first record of the tick with other examples, its checksums right."""
        value = self.log[self.first] or b""
        header, record = open_record(value).header, decode(value)
        assert header.kind is Kind.EXAMPLES
        assert isinstance(record, ExampleRecord)
        batch = to_batch(record)
        batch = ExampleBatch(*(getattr(batch, name).copy() for name in ExampleBatch.__slots__))
        change(batch)
        (changed,) = encode_examples(header.partition, header.tick, header.attempt, batch)
        return self.put(self.first, changed)

    def put(self, offset: int, *values: bytes | None) -> Damage:
        """Other values, or none, in the place of one."""
        return lambda log: [*log[:offset], *values, *log[offset + 1 :]]

    def flipped(self, offset: int, byte: int) -> Damage:
        """A bit of one byte turned."""
        value = bytearray(self.log[offset] or b"")
        value[byte] ^= 1
        return self.put(offset, bytes(value))

    def damaged(self, damage: Damage) -> Config:
        """The configuration with a training log that is a damaged copy, and without snapshots and copies of it."""
        topic = f"{self.site.model}-log-{uuid.uuid4().hex[:8]}"
        make_topics(self.site, TopicPlan(topic, self.site.partitions))
        self.site.append(topic, 0, *damage(list(self.log)))
        missing = {name: f"{topic}-no-{name}" for name in ("snapshots", "checkpoints")}
        return self.site.changed(topics={"examples": topic, **missing})


def copy_topic(
    site: Site, topic: str, partitions: int, edit: Callable[[int, bytes, bytes | None], Iterable[tuple[bytes, Any]]]
) -> str:
    """A copy of a topic with keys; edit: what takes the place of a record, by its partition, key and value."""
    copy = f"{topic}-{uuid.uuid4().hex[:8]}"
    make_topics(site, TopicPlan(copy, partitions, configs=COMPACTED))
    site.append_all(
        copy,
        (
            (partition, new_key, new_value)
            for partition in range(partitions)
            for _, key, value, _ in site.records(topic, partition, headers=False)
            for new_key, new_value in edit(partition, key, value)
        ),
    )
    return copy
