"""The topics as the brokers keep them: replicas and settings of the inputs, and of the model's own topics that exist.

What must be so, and why, is in `docs/reliability.md`; how the model's own topics should be, in `operations/topics.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo, TopicPlan, differences
from stream_learner.config import Config
from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.topics import as_shared, control_plan, plans
from stream_learner.wording import count_of

UNUSABLE = ("partitions", "cleanup.policy")
"""Roles refuse a topic of which one of these is not as it should be, or lose what is in it."""
SETTING = "min.insync.replicas"


@dataclass(frozen=True)
class Cluster:
    """What the brokers tell. brokers: how many there are. topics: those that exist, as of `Admin.look`. groups: what is
    allowed on them, as of `Admin.group_operations`. principal, bootstrap: who asks whom.
    """

    brokers: int = 1
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    principal: str = ""
    bootstrap: str = ""

    def known(self, names: Iterable[str]) -> list[TopicInfo]:
        """Those of these topics that exist and may be described."""
        return [info for name in names if (info := self.topics.get(name)) is not None and info.in_sync]


def look_at(settings: KafkaSettings, config: Config) -> Cluster:
    """Ask the brokers. Raises what `Admin.look` raises.

    Of groups only once one of the model's own topics exists or may not be described: a new cluster makes its topic of
    groups when it is asked for the first one.
    """
    admin, own = Admin(settings), [plan.name for plan in _own(config, 1)]
    topics = admin.look([*_inputs(config), *own])
    asked = (config.group, config.lease_group) if topics.keys() & own else ()
    groups = {group: admin.group_operations(group) for group in asked}
    return Cluster(admin.brokers, topics, groups, settings.principal, settings.bootstrap)


def _inputs(config: Config) -> tuple[str, str]:
    return config.input.impressions.topic, config.input.clicks.topic


def _own(config: Config, partitions: int) -> list[TopicPlan]:
    """How the model's own topics should be, where they exist."""
    return [*plans(config, partitions), as_shared(control_plan(config))]


def check_cluster(cluster: Cluster, config: Config, by_id: Collection[str]) -> Iterable[Finding]:
    """Replicas and settings. Where there is one broker nothing is said of copies, but of those that are away.

    by_id: the input topics whose records have the id as their key.
    """
    inputs = cluster.known(_inputs(config))
    planned = {plan.name: plan for plan in _own(config, inputs[0].partitions)} if inputs else {}
    own = cluster.known(planned)
    yield from _check_away(inputs, own)
    if cluster.brokers > 1:
        yield from _check_copies([*inputs, *own], own)
    differ = [one for info in own for one in differences(planned[info.name], info) if not one.enough]
    if differ:
        seen = (f"{one.topic} has {one.setting} {one.found}, and should have {one.planned}" for one in differ)
        means = "the brokers delete what is still needed, or refuse or keep what they should not"
        change = "`stream-learner topics ensure --apply` sets what can be set, and says what cannot"
        unusable = any(one.setting in UNUSABLE for one in differ)
        yield Finding("stops" if unusable else "warns", "topic_settings", "; ".join(seen), means, change)
    for info in inputs:
        yield from _check_compacted(info, is_by_id=info.name in by_id)


def _check_away(inputs: Sequence[TopicInfo], own: Sequence[TopicInfo]) -> Iterable[Finding]:
    """Replicas that are out of sync. It stops where a partition has no leader, or one of ours takes no record."""
    behind = [info for info in (*inputs, *own) if min(info.in_sync) < info.replication]
    if not behind:
        return
    dead = [info for info in inputs if min(info.in_sync) == 0]
    dead += [info for info in own if min(info.in_sync) < min(max(_least(info), 1), info.replication)]
    seen = (
        f"{info.name}: {count_of(sum(count < info.replication for count in info.in_sync), 'partition')} of "
        f"{info.partitions} have fewer than {info.replication} replicas in sync, at the least {min(info.in_sync)}"
        for info in behind
    )
    means = "with one more broker away they may take no records"
    if dead:
        means = f"nothing can be read from, or written to, some of {', '.join(info.name for info in dead)}"
    change = "the brokers: one is away, or too slow (`kafka-topics.sh --describe --under-replicated-partitions`)"
    yield Finding("stops" if dead else "warns", "replicas_away", "; ".join(seen), means, change)


def _check_copies(infos: Sequence[TopicInfo], own: Sequence[TopicInfo]) -> Iterable[Finding]:
    """How many replicas there are, and how many of them must have a record."""
    alone = [info.name for info in infos if info.replication == 1]
    if alone:
        seen = f"one replica: {', '.join(alone)}"
        means = "they stop with the broker that has it, and what it had is lost with its disk"
        change = "topics.replication: 3, before topics are made; else more replicas by `kafka-reassign-partitions.sh`"
        yield Finding("warns", "replication", seen, means, change)
    rigid = [info for info in infos if 1 < info.replication <= _least(info)]
    if rigid:
        means = "with one broker away nobody can write to them"
        yield _in_sync(rigid, means, str(rigid[0].replication - 1))
    loose = [info for info in own if info.replication >= 3 and _least(info) == 1]
    if loose:
        means = "a record that was acknowledged may be on one disk only, and is lost with it"
        yield _in_sync(loose, means, "2")


def _in_sync(infos: Sequence[TopicInfo], means: str, better: str) -> Finding:
    seen = (f"{info.name} has {SETTING} {_least(info)} of {info.replication} replicas" for info in infos)
    change = f"topics.min_insync_replicas: {better}, and `stream-learner topics ensure --apply`; of inputs {SETTING}"
    return Finding("warns", "insync_replicas", "; ".join(seen), means, change)


def _least(info: TopicInfo) -> int:
    """How many replicas must be in sync to write; 0 where that may not be asked for."""
    return int(info.configs.get(SETTING, 0))


def _check_compacted(info: TopicInfo, *, is_by_id: bool) -> Iterable[Finding]:
    policy = info.configs.get("cleanup.policy", "")
    if "compact" in policy:
        seen = f"{info.name} has cleanup.policy {policy}" + (", and the id as its key" if is_by_id else "")
        means = "the brokers delete each event whose key comes again, a user's earlier impressions for example"
        yield Finding(
            "warns" if is_by_id else "stops", "compacted", seen, means, f"cleanup.policy of {info.name}: delete"
        )
