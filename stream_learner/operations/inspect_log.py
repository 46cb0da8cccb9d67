"""`inspect tick` and `inspect record`: look into the training log. They change nothing, and join no group.

A mark that rule R ignores must never be shown as the one of its tick.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stream_learner.adapters.kafka import READ_UNCOMMITTED, Admin, KafkaSettings, PartitionReader
from stream_learner.config import Config
from stream_learner.core.errors import DamagedHeader, ForeignRecord, RecordError
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode_record, to_batch
from stream_learner.core.log.header import RecordHeader, open_record
from stream_learner.core.log.marks import Mark, MarkId
from stream_learner.core.log.skips import Skip
from stream_learner.errors import NotFound
from stream_learner.roles.common.log_reader import error_in_log, marks, records
from stream_learner.roles.common.unusable_records import UnusableRecords

SHOWN_EXAMPLES = 10
SHOWN_BYTES = 32


class _Link(NamedTuple):
    """A mark of the log; length: the number of marks in the chain that ends with it."""

    offset: int
    mark: MarkId
    predecessor: MarkId
    first_tick: int
    length: int

    def covers(self, tick: int) -> bool:
        return self.first_tick <= tick <= self.mark.last_tick


def inspect_tick(config: Config, partition: int, number: int) -> dict[str, Any]:
    """The accepted mark that covers a tick of a partition, and the offsets of others that claim it.

    Raises NotFound, TopicMissing, DamagedLog, NewerFormat.
    """
    links = _links(config, partition)
    claims = [link for link in links.values() if link.covers(number)]
    found = next((link for link in _accepted(links) if link.covers(number)), None)
    if found is None:
        raise NotFound(f"partition {partition} of {config.examples_topic} holds no accepted mark of tick {number}")
    ignored = [link.offset for link in claims if link is not found]
    return {**inspect_record(config, partition, found.offset), "ignored_marks_at": ignored}


def inspect_record(config: Config, partition: int, offset: int) -> dict[str, Any]:
    """One record of the training log: a mark, examples, the codes of a resume point, a skip, or one that is foreign.

    Raises NotFound, TopicMissing, DamagedLog, NewerFormat.
    """
    topic = config.examples_topic
    for at, value in _log(config, partition, offset):
        if at > offset:
            break
        try:
            record = open_record(value or b"")
            return {"offset": at, **_header_fields(record.header), **_body_fields(decode_record(record))}
        except (ForeignRecord, DamagedHeader) as error:
            return {"offset": at, **_foreign_fields(value, error)}
        except RecordError as error:
            raise error_in_log(error, (topic, partition), at) from error
    raise NotFound(f"partition {partition} of {topic} holds no record at offset {offset}")


def _links(config: Config, partition: int) -> dict[MarkId, _Link]:
    """Every mark of a partition, accepted or not, by its id, in the order of the log."""
    links: dict[MarkId, _Link] = {}
    place = (config.examples_topic, partition)
    unusable = UnusableRecords(_settings(config))
    for offset, mark in marks(place, _log(config, partition), unusable=unusable):
        if mark.id not in links:
            before = links.get(mark.predecessor) if mark.first_tick == mark.pred_tick + 1 else None
            length = 1 + (before.length if before is not None else 0)
            links[mark.id] = _Link(offset, mark.id, mark.predecessor, mark.first_tick, length)
    return links


def _accepted(links: dict[MarkId, _Link]) -> Iterator[_Link]:
    """The accepted marks, the last one first. They are the longest chain: an attempt that lost ends."""
    at = max(links.values(), key=lambda link: link.length, default=None)
    while at is not None:
        yield at
        at = links.get(at.predecessor) if at.length > 1 else None


def _log(config: Config, partition: int, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Offsets and values of a partition, from `start` or the earliest record on, to its present end."""
    settings = _settings(config)
    admin = Admin(settings)
    topic, place = config.examples_topic, (config.examples_topic, partition)
    if partition >= admin.require([topic])[topic].partitions:
        raise NotFound(f"{topic} has no partition {partition}")
    end = admin.offsets.high_watermarks([place])[place]
    begin = max(admin.offsets.earliest([place])[place], start)
    if begin >= end:
        return
    with PartitionReader(settings, topic, partition, begin, isolation=READ_UNCOMMITTED, name="inspect") as reader:
        yield from records(reader, end)


def _settings(config: Config) -> KafkaSettings:
    return KafkaSettings(config.kafka_options(), group=f"{config.model}.inspect")


def _foreign_fields(value: bytes | None, error: RecordError) -> dict[str, Any]:
    return {
        "kind": "foreign",
        "reason": error.what,
        "bytes": None if value is None else len(value),
        "first_bytes": (value or b"")[:SHOWN_BYTES].hex(),
    }


def _header_fields(header: RecordHeader) -> dict[str, Any]:
    return {"kind": header.kind.name.lower(), "tick": header.tick, "attempt": f"{header.attempt:016x}"}


def _body_fields(record: ExampleRecord | Mark | np.ndarray | Skip) -> dict[str, Any]:
    if isinstance(record, Mark):
        return _mark_fields(record)
    if isinstance(record, ExampleRecord):
        return _examples_fields(record)
    if isinstance(record, Skip):
        return {"named": record.offset, "said_at_ms": record.at_ms, "who": record.who, "why": record.why}
    return {"clicks": len(record)}


def _mark_fields(mark: Mark) -> dict[str, Any]:
    return {
        "first_tick": mark.first_tick,
        "last_tick": mark.last_tick,
        "stream_tick": mark.stream_tick,
        "labels_from_ms": mark.labels_from_ms,
        "follows": f"{mark.pred_attempt:016x}:{mark.pred_tick}",
        "records": mark.records,
        "next_impression": mark.next_impression,
        "first_click": mark.first_click,
        "click_cursor": mark.click_cursor,
        "impressions": mark.counts.impressions._asdict(),
        "clicks": mark.counts.clicks._asdict(),
        "resume_point": mark.resume is not None,
        "begins_anew": mark.begins_anew,
        "features_fingerprint": f"{mark.features:016x}",
    }


def _examples_fields(record: ExampleRecord) -> dict[str, Any]:
    batch = to_batch(record)
    return {
        "sequence": record.sequence,
        "examples": len(record),
        "positives": int((record.label > 0).sum()),
        "distinct_features": len(record.keys),
        "features": len(record.indices),
        "first_examples": [_example_fields(batch, i) for i in range(min(len(record), SHOWN_EXAMPLES))],
    }


def _example_fields(batch: ExampleBatch, i: int) -> dict[str, Any]:
    row = slice(batch.row_start[i], batch.row_start[i + 1])
    return {
        "id_hash": f"0x{int(batch.id_hash[i]):016x}",
        "log_time_ms": int(batch.log_time_ms[i]),
        "label": float(batch.label[i]),
        "weight": float(batch.weight[i]),
        "features": {
            f"0x{key:016x}": value
            for key, value in zip(batch.keys[row].tolist(), batch.values[row].tolist(), strict=True)
        },
    }
