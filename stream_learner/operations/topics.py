"""`topics`: make the model's own topics, and report settings that are not as they should be.

An existing topic is only changed when that is asked for, and never deleted. A topic may have more than is asked for of
what never hurts, such as retention: that is reported, and neither a failure nor taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_learner.adapters.kafka import Admin, Difference, KafkaSettings, TopicInfo, TopicPlan
from stream_learner.config import Config
from stream_learner.errors import PartitionCountsDiffer, TopicMissing

MAX_MESSAGE_BYTES = 16 << 20
"""Limit of a record in the model's own topics; `join.record_bytes` and pages stay well below it."""
TIMESTAMP_AFTER_MS = 300_000
AT_LEAST = ("replication", "retention.ms", "max.message.bytes", "min.insync.replicas")
"""What a topic may have more of. More partitions would hurt: the log has those of the inputs, snapshots those of the
shards. Only dead letters may lie in any number."""


def plans(config: Config, partitions: int) -> list[TopicPlan]:
    """The topics that a model needs for inputs of `partitions` partitions; with that of the copies if it has copies."""
    topics = config.topics
    common = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
    if topics.min_insync_replicas is not None:
        common["min.insync.replicas"] = str(topics.min_insync_replicas)
    log = {
        "cleanup.policy": "delete",
        "retention.ms": str(topics.retention_ms),
        "message.timestamp.type": "LogAppendTime",
    }
    dead = {"cleanup.policy": "delete", "retention.ms": str(topics.dead_letters_retention_ms)}
    snapshots = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.bytes": str(64 << 20),
        "max.compaction.lag.ms": "3600000",
    }
    # Compaction should not delete a copy while it is read. A reader begins anew if that happens all the same.
    checkpoints = {**snapshots, "min.compaction.lag.ms": "600000"}
    shards = config.snapshots.shards
    copies = [TopicPlan(config.checkpoints_topic, shards, topics.replication, {**common, **checkpoints}, AT_LEAST)]
    letters = (*AT_LEAST, "partitions")
    return [
        TopicPlan(config.examples_topic, partitions, topics.replication, {**common, **log}, AT_LEAST),
        TopicPlan(config.dead_letters_topic, partitions, topics.replication, {**common, **dead}, letters),
        TopicPlan(config.snapshots_topic, shards, topics.replication, {**common, **snapshots}, AT_LEAST),
        *(copies if config.learner.copies else ()),
    ]


def control_plan(config: Config) -> TopicPlan:
    """The control topic, which the models of a site share."""
    in_sync = config.topics.min_insync_replicas
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "max.compaction.lag.ms": "86400000"}
    if in_sync is not None:
        configs["min.insync.replicas"] = str(in_sync)
    return TopicPlan(config.control_topic, 1, config.topics.replication, configs)


def as_shared(plan: TopicPlan) -> TopicPlan:
    """How a control topic that exists should be. It may be another model's, with other replicas: it need only be
    compacted, and have one partition."""
    return TopicPlan(plan.name, plan.partitions, configs={"cleanup.policy": "compact"})


def input_plans(config: Config, partitions: int) -> list[TopicPlan]:
    """Input topics as this program makes them. They refuse timestamps that are far ahead."""
    guard = {"message.timestamp.after.max.ms": str(TIMESTAMP_AFTER_MS)}
    names = (config.input.impressions.topic, config.input.clicks.topic)
    return [TopicPlan(name, partitions, config.topics.replication, guard) for name in names]


def ensure_topics(
    config: Config, *, partitions: int | None = None, apply: bool = False, dry_run: bool = False
) -> list[dict[str, Any]]:
    """Make what is missing, and return a row for everything that was or is not as it should be.

    partitions: make missing input topics too, with this number. apply: change settings that differ, unless the topic
    has more than is asked for (`enough` in its row). dry_run: change nothing. Raises TopicMissing or
    PartitionCountsDiffer, before anything is made, if the input topics do not fit.
    """
    admin = Admin(KafkaSettings(config.kafka_options(), group=config.group))
    found = admin.describe((config.input.impressions.topic, config.input.clicks.topic))
    count = _input_partitions(config, found, partitions)
    inputs = [plan for plan in input_plans(config, count) if plan.name not in found]
    differences = admin.ensure(inputs, create=not dry_run)
    differences += admin.ensure(plans(config, count), create=not dry_run, change=apply and not dry_run)
    differences += _ensure_control(admin, control_plan(config), create=not dry_run, change=apply and not dry_run)
    return [_row(difference) for difference in differences]


def _ensure_control(admin: Admin, plan: TopicPlan, *, create: bool, change: bool) -> list[Difference]:
    """Make the control topic, or check it."""
    return admin.ensure([as_shared(plan) if admin.describe([plan.name]) else plan], create=create, change=change)


def _input_partitions(config: Config, found: Mapping[str, TopicInfo], asked: int | None) -> int:
    """How many partitions the input topics have, or will have once the missing ones are made as asked."""
    names = (config.input.impressions.topic, config.input.clicks.topic)
    missing = [name for name in names if name not in found]
    if missing and asked is None:
        raise TopicMissing(
            f"missing: {', '.join(missing)}",
            action="Create the input topics with the same number of partitions each; "
            "`stream-learner topics ensure --partitions N` does it.",
        )
    counts = {name: found[name].partitions for name in names if name in found}
    text = ", ".join(f"{name} has {count}" for name, count in counts.items())
    if asked is not None and not {asked}.issuperset(counts.values()):
        raise PartitionCountsDiffer(
            f"--partitions is {asked}, {text}",
            action="Give the number that the topics have, or leave --partitions out; a partition count is never "
            "changed here, since ids would go elsewhere than before.",
        )
    if len(set(counts.values())) > 1:
        raise PartitionCountsDiffer(f"the input topics must have the same number of partitions: {text}")
    return asked if asked is not None else next(iter(counts.values()))


def _row(difference: Difference) -> dict[str, Any]:
    return {
        "topic": difference.topic,
        "setting": difference.setting,
        "should_be": difference.planned,
        "is": difference.found,
        "done": difference.done,
        "enough": difference.enough,
        "note": difference.note,
    }
