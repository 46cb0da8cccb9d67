"""The topics of a model, as they are made."""

from __future__ import annotations

from stream_learner.config import Config
from stream_learner.operations.topics import control_plan, input_plans, plans

TREE = {
    "model": "ctr",
    "kafka": {"bootstrap.servers": "localhost:9092"},
    "input": {"impressions": {"topic": "imps"}, "clicks": {"topic": "clicks"}},
}


def config(**sections: object) -> Config:
    """A configuration with these sections."""
    return Config.model_validate({**TREE, **sections})


def test_the_topics_of_a_model() -> None:
    """As many partitions as the inputs for the log, as shards for snapshots and copies; only those are compacted."""
    log, dead, snapshots, checkpoints = found = plans(config(snapshots={"shards": 8}), 5)
    assert [(plan.name, plan.partitions) for plan in found] == [
        ("ctr.examples", 5),
        ("ctr.dead-letters", 5),
        ("ctr.snapshots", 8),
        ("ctr.checkpoints", 8),
    ]
    assert {plan.replication for plan in found} == {None}
    assert log.configs["cleanup.policy"] == dead.configs["cleanup.policy"] == "delete"
    assert snapshots.configs["cleanup.policy"] == checkpoints.configs["cleanup.policy"] == "compact"
    assert log.configs["message.timestamp.type"] == "LogAppendTime"
    assert log.configs["retention.ms"] == str(7 * 86_400_000)
    assert "retention.ms" not in {*snapshots.configs, *checkpoints.configs}
    assert {plan.configs["max.message.bytes"] for plan in found} == {str(16 << 20)}


def test_settings_reach_the_topics() -> None:
    """Names, replicas and retention are as configured; nothing is said about what is not."""
    topics = {
        "examples": "log",
        "snapshots": "snap",
        "checkpoints": "copy",
        "dead_letters": "dead",
        "replication": 3,
        "min_insync_replicas": 2,
        "retention": "1d",
        "dead_letters_retention": "2d",
    }
    log, dead, *_ = found = plans(config(topics=topics), 4)
    assert [plan.name for plan in found] == ["log", "dead", "snap", "copy"]
    assert {(plan.replication, plan.configs["min.insync.replicas"]) for plan in found} == {(3, "2")}
    assert (log.configs["retention.ms"], dead.configs["retention.ms"]) == ("86400000", "172800000")
    assert "min.insync.replicas" not in plans(config(), 4)[0].configs


def test_the_control_topic() -> None:
    """One partition, compacted, under the name that the models of a site share."""
    plan = control_plan(config(topics={"replication": 3, "min_insync_replicas": 2}))
    assert (plan.name, plan.partitions, plan.replication) == ("stream-learner.control", 1, 3)
    assert plan.configs["cleanup.policy"] == "compact" and plan.configs["min.insync.replicas"] == "2"
    assert control_plan(config(topics={"control": "aliases"})).name == "aliases"


def test_the_input_topics_guard_their_timestamps() -> None:
    """Input topics that this program makes refuse records from the future."""
    impressions, clicks = input_plans(config(), 6)
    assert [(plan.name, plan.partitions) for plan in (impressions, clicks)] == [("imps", 6), ("clicks", 6)]
    assert impressions.configs == clicks.configs == {"message.timestamp.after.max.ms": "300000"}
