"""`inspect`: look into a model, a tick, a record, a snapshot.

In: a configuration, and what to look at. Out: rows and fields of plain values. This file must never change anything,
nor join a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from stream_learner.config import Config
from stream_learner.core.errors import RecordError
from stream_learner.core.examples import ExampleRecord, decode
from stream_learner.core.hashing import xxh64
from stream_learner.core.learner import Learner
from stream_learner.core.marks import Mark
from stream_learner.core.optimizers import make_optimizer
from stream_learner.core.snapshots import VersionRecord
from stream_learner.edges.kafka import READ_UNCOMMITTED, Admin, KafkaSettings, PartitionReader
from stream_learner.errors import ConfigError, NotFound, StateInUse
from stream_learner.roles.checkpoints import open_store
from stream_learner.roles.last_published import LastPublished, last_published
from stream_learner.roles.records import damaged
from stream_learner.roles.scorer import Scorer

SHOWN_EXAMPLES = 10
READ_RECORDS = 500


def inspect_weights(config: Config, limit: int) -> list[dict[str, Any]]:
    """The published weights of largest magnitude: key as hex, weight."""
    with _scorer(config) as scorer:
        scorer.wait_ready(config.scorer.ready_timeout_ms / 1000)
        keys, weights = scorer.largest_weights(limit)
    return [
        {"key": f"0x{key:016x}", "weight": weight} for key, weight in zip(keys.tolist(), weights.tolist(), strict=True)
    ]


def inspect_feature(config: Config, name: str) -> dict[str, Any]:
    """One feature: its key, its published weight, and its state where the state directory is here and free."""
    key = _key(name)
    with _scorer(config) as scorer:
        scorer.wait_ready(config.scorer.ready_timeout_ms / 1000)
        fields = {"feature": name, "key": f"0x{key:016x}", "weight": scorer.weight(key), "version": scorer.version}
    return {**fields, **_state_of(config, key)}


def inspect_tick(config: Config, partition: int, number: int) -> dict[str, Any]:
    """The mark that covers a tick of a partition. Where several attempts wrote one, the last in the log."""
    found: tuple[int, Mark] | None = None
    for offset, record in _log(config, partition):
        if isinstance(record, Mark) and record.first_tick <= number <= record.last_tick:
            found = (offset, record)
    if found is None:
        raise NotFound(f"partition {partition} of {config.examples_topic} holds no mark of tick {number}")
    return {"offset": found[0], **_mark_fields(found[1])}


def inspect_record(config: Config, partition: int, offset: int) -> dict[str, Any]:
    """One record of the training log: a mark, or examples."""
    for at, record in _log(config, partition, offset):
        if at > offset:
            break
        if at == offset:
            return {"offset": offset, **_record_fields(record)}
    raise NotFound(f"partition {partition} of {config.examples_topic} holds no record at offset {offset}")


def inspect_snapshot(config: Config) -> dict[str, Any]:
    """What is published: version, digest, metrics, and the shards' sequence numbers and pages."""
    last = _last(config)
    if last.model is None:
        raise NotFound(f"{config.snapshots_topic} holds no published version yet")
    content = last.model.content
    shards = [_shard_fields(version) for version in last.versions if version is not None]
    return {
        "model": content["name"],
        "version": last.complete_up_to,
        "digest": content["digest"],
        "optimizer": content["optimizer"],
        "metrics": content["metrics"],
        "shards": shards,
    }


def _settings(config: Config) -> KafkaSettings:
    return KafkaSettings(config.kafka_options(), group=f"{config.model}.inspect")


def _scorer(config: Config) -> Scorer:
    return Scorer(model=config.model, kafka=config.kafka_options(), topic=config.snapshots_topic, max_staleness_ms=None)


def _last(config: Config) -> LastPublished:
    settings = _settings(config)
    admin = Admin(settings)
    shards = admin.require([config.snapshots_topic])[config.snapshots_topic].partitions
    return last_published(settings, admin.offsets, config.snapshots_topic, shards)


def _key(name: str) -> int:
    if name.startswith("0x"):
        try:
            return int(name, 16)
        except ValueError as error:
            raise ConfigError(f"{name} is no key", action="Write a key as 0x and 16 hex digits.") from error
    return xxh64(name.encode())


def _state_of(config: Config, key: int) -> dict[str, Any]:
    """The learner's columns of a key, where the state directory exists and no learner has it open."""
    if not config.state_dir.exists():
        return {"state": f"not here ({config.state_dir})"}
    learner = Learner(make_optimizer(config.learner.optimizer.model_dump()))
    try:
        store = open_store(config, learner, _log_partitions(config))
    except StateInUse as error:
        return {"state": str(error)}
    fields: dict[str, Any] = {"state": "no example had it"}
    with store:
        loaded = store.load()
        for rows in loaded.rows if loaded is not None else ():
            found = rows.where(rows.keys == key)
            if len(found):
                fields = dict(zip(learner.optimizer.columns, found.columns[0].tolist(), strict=True))
                fields["touched_tick"] = int(found.touched[0])
    return {**fields, "checkpoint_tick": loaded.version if loaded is not None else -1}


def _log_partitions(config: Config) -> int:
    return Admin(_settings(config)).require([config.examples_topic])[config.examples_topic].partitions


def _log(config: Config, partition: int, start: int | None = None) -> Iterator[tuple[int, ExampleRecord | Mark]]:
    """The records of a partition of the training log with their offsets, from `start` or the earliest on."""
    settings = _settings(config)
    admin = Admin(settings)
    topic, place = config.examples_topic, (config.examples_topic, partition)
    if partition >= admin.require([topic])[topic].partitions:
        raise NotFound(f"{topic} has no partition {partition}")
    end = admin.offsets.high_watermarks([place])[place]
    earliest = admin.offsets.earliest([place])[place]
    begin = max(earliest, start or 0)
    if begin >= end:
        return
    with PartitionReader(settings, topic, partition, begin, isolation=READ_UNCOMMITTED) as reader:
        while reader.position < end:
            batch = reader.read(READ_RECORDS, 0.5)
            for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True) if batch else ():
                try:
                    record = decode(value or b"")
                except RecordError as error:
                    raise damaged(error, topic, partition, offset) from error
                if isinstance(record, ExampleRecord | Mark):
                    yield offset, record


def _record_fields(record: ExampleRecord | Mark) -> dict[str, Any]:
    if isinstance(record, Mark):
        return _mark_fields(record)
    return {
        "kind": "examples",
        "tick": record.tick,
        "attempt": f"{record.attempt:016x}",
        "sequence": record.sequence,
        "examples": len(record),
        "positives": int((record.label > 0).sum()),
        "distinct_features": len(record.keys),
        "features": len(record.indices),
        "first_examples": [_example_fields(record, i) for i in range(min(len(record), SHOWN_EXAMPLES))],
    }


def _example_fields(record: ExampleRecord, i: int) -> dict[str, Any]:
    start = int(record.row_len[:i].sum())
    stop = start + int(record.row_len[i])
    keys = record.keys[record.indices[start:stop]].tolist()
    return {
        "id_hash": f"0x{int(record.id_hash[i]):016x}",
        "log_time_ms": int(record.log_time_ms[i]),
        "label": float(record.label[i]),
        "weight": float(record.weight[i]),
        "keys": [f"0x{key:016x}" for key in keys],
    }


def _mark_fields(mark: Mark) -> dict[str, Any]:
    return {
        "kind": "mark",
        "first_tick": mark.first_tick,
        "last_tick": mark.last_tick,
        "attempt": f"{mark.attempt:016x}",
        "follows": f"{mark.pred_attempt:016x}:{mark.pred_tick}",
        "records": mark.records,
        "next_impression": mark.next_impression,
        "first_click": mark.first_click,
        "click_cursor": mark.click_cursor,
        "impressions": asdict(mark.counts.impressions),
        "clicks": asdict(mark.counts.clicks),
        "resume_point": mark.resume is not None,
    }


def _shard_fields(version: VersionRecord) -> dict[str, Any]:
    return {
        "shard": version.stamp.shard,
        "sequence": version.stamp.sequence,
        "version": version.stamp.version,
        "pages": len(version.state.pages),
        "oldest_page": version.state.oldest,
        "delta_records": int(version.state.slot_parts.sum()),
    }
