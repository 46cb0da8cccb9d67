"""What the brokers tell of the topics: the healthy cluster without a finding, and each way to be unsafe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest

from stream_learner.adapters.kafka import TopicInfo
from stream_learner.operations.doctor.allowed import check_rights
from stream_learner.operations.doctor.cluster import Cluster, check_cluster
from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.rights import GROUP, TOPIC, TRANSACTIONAL_ID, Right, commands, rights_of
from stream_learner.operations.topics import control_plan, plans
from tests.operations.doctor.site import Site, configuration

CONFIG = configuration(Site())
INPUTS = ("impressions", "clicks")
OWN = {plan.name: plan for plan in (*plans(CONFIG, 4), control_plan(CONFIG))}
WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000"}
Change = Callable[[TopicInfo], TopicInfo]


def cluster(brokers: int = 3, replication: int = 3, least: str = "2", **changes: Change) -> Cluster:
    """A cluster as `topics ensure` leaves it. changes: of a topic, by its name with _ for what no name may have."""
    planned = dict.fromkeys(INPUTS, (4, WEEK)) | {name: (one.partitions, one.configs) for name, one in OWN.items()}
    found: dict[str, TopicInfo] = {}
    for name, (partitions, configs) in planned.items():
        settings = {**configs, "min.insync.replicas": least}
        info = TopicInfo(name, bytes(16), partitions, replication, settings, (replication,) * partitions)
        found[name] = changes.get(name.replace(".", "_").replace("-", "_"), lambda one: one)(info)
    return Cluster(brokers, found)


def check(found: Cluster, by_id: tuple[str, ...] = ()) -> list[Finding]:
    """What is found."""
    return [*check_cluster(found, CONFIG, by_id)]


def with_settings(**settings: str) -> Change:
    """A topic with other settings, their dots written as _."""
    return lambda one: replace(one, configs={**one.configs, **{n.replace("_", "."): v for n, v in settings.items()}})


@pytest.mark.parametrize(("brokers", "replication", "least"), [(3, 3, "2"), (1, 1, "1"), (5, 2, "1"), (4, 4, "3")])
def test_nothing_is_found_where_topics_are_as_they_should_be(brokers: int, replication: int, least: str) -> None:
    """Three replicas of which two must have a record; or one broker, where there is no choice."""
    assert check(cluster(brokers, replication, least)) == []
    only_inputs = Cluster(brokers, {name: cluster(brokers, replication, least).topics[name] for name in INPUTS})
    assert check(only_inputs) == [], "before the model's own topics are made"
    assert check(Cluster()) == [] and check(cluster(ctr_examples=lambda one: replace(one, configs={}))) == []


CASES: Mapping[str, tuple[Cluster, str, str, tuple[str, ...]]] = {
    "one replica of three brokers": (
        cluster(replication=1, least="1"),
        "warns",
        "replication",
        ("one replica: impressions, clicks, ctr.examples", "stream-learner.control"),
    ),
    "one input with one replica": (
        cluster(clicks=lambda one: replace(one, replication=1, in_sync=(1,) * 4)),
        "warns",
        "replication",
        ("one replica: clicks",),
    ),
    "every replica must have a record": (
        cluster(least="3"),
        "warns",
        "insync_replicas",
        ("ctr.snapshots has min.insync.replicas 3 of 3", "topics.min_insync_replicas: 2"),
    ),
    "one replica must have a record": (
        cluster(least="1"),
        "warns",
        "insync_replicas",
        ("ctr.examples has min.insync.replicas 1 of 3", "topics.min_insync_replicas: 2"),
    ),
    "a replica of an input is away": (
        cluster(impressions=lambda one: replace(one, in_sync=(3, 2, 2, 3))),
        "warns",
        "replicas_away",
        ("impressions: 2 partitions of 4 have fewer than 3", "at the least 2"),
    ),
    "a partition of an input has no leader": (
        cluster(impressions=lambda one: replace(one, in_sync=(3, 0, 3, 3))),
        "stops",
        "replicas_away",
        ("1 partition of 4", "nothing can be read from"),
    ),
    "the log takes no record": (
        cluster(ctr_examples=lambda one: replace(one, in_sync=(3, 1, 3, 3))),
        "stops",
        "replicas_away",
        ("ctr.examples: 1 partition", "written to, some of ctr.examples"),
    ),
    "an input that is compacted": (
        cluster(impressions=with_settings(cleanup_policy="compact,delete")),
        "stops",
        "compacted",
        ("impressions has cleanup.policy compact,delete", "cleanup.policy of impressions: delete"),
    ),
    "snapshots that are deleted by age": (
        cluster(ctr_snapshots=with_settings(cleanup_policy="delete")),
        "stops",
        "topic_settings",
        ("ctr.snapshots has cleanup.policy delete, and should have compact", "topics ensure --apply"),
    ),
    "a log of other partitions": (
        cluster(ctr_examples=lambda one: replace(one, partitions=2, in_sync=(3, 3))),
        "stops",
        "topic_settings",
        ("ctr.examples has partitions 2, and should have 4",),
    ),
    "a log that the broker made": (
        cluster(ctr_examples=with_settings(max_message_bytes="1048588", message_timestamp_type="CreateTime")),
        "warns",
        "topic_settings",
        ("max.message.bytes 1048588", "message.timestamp.type CreateTime"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_way_to_be_unsafe_is_told(case: str) -> None:
    """One finding, with the topics it is about and what to change."""
    found, severity, name, words = CASES[case]
    (one,) = check(found)
    assert (one.severity, one.name) == (severity, name)
    assert [word for word in words if word not in f"{one.seen} {one.means} {one.change}"] == [], one


def test_compaction_by_the_id_deletes_repeats_only() -> None:
    """So it is told, and does not stand in the way. More than is asked for of a topic is no finding."""
    assert check(cluster(impressions=with_settings(cleanup_policy="compact")), ("impressions",))[0].severity == "warns"
    assert check(cluster(ctr_examples=with_settings(retention_ms="-1", max_message_bytes="99999999"))) == []


ALL = frozenset(("Read", "Write", "Describe", "DescribeConfigs", "Create", "Delete", "Alter", "AlterConfigs"))
NONE = frozenset[str]()


def allowed(*roles: str, without: tuple[str, str] | None = None, missing: Collection[str] = ()) -> Cluster:
    """A cluster where a user has the rights of these roles. without: operation and name of one that it lacks.
    missing: topics that do not exist."""
    names = (*INPUTS, *OWN)
    found: dict[str, frozenset[str]] = dict.fromkeys((*names, CONFIG.group, CONFIG.lease_group), NONE)
    for role in roles:
        for right in rights_of(CONFIG, role):
            if right.name in found and (right.operation, right.name) != without:
                found[right.name] |= {right.operation, "Describe"}
    topics = {name: replace(info, operations=found[name]) for name, info in cluster().topics.items()}
    kept = {name: info for name, info in topics.items() if name not in missing or not found[name]}
    groups = {name: found[name] for name in (CONFIG.group, CONFIG.lease_group)}
    return Cluster(3, kept, groups, "ann", "kafka:9092")


@pytest.mark.parametrize("roles", [("joiner",), ("learner",), ("joiner", "learner")])
def test_a_role_with_its_least_rights_lacks_nothing(roles: tuple[str, ...]) -> None:
    """A joiner's user is not asked for what a learner needs, nor the other way round; also before topics are made."""
    assert [*check_rights(allowed(*roles), CONFIG)] == []
    assert [*check_rights(allowed(*roles, missing=OWN), CONFIG)] == []


def test_nothing_is_said_of_rights_where_brokers_do_not_tell() -> None:
    """Without an authorizer everything is allowed; old ones say nothing."""
    everything = {name: replace(info, operations=ALL) for name, info in cluster().topics.items()}
    groups = dict.fromkeys((CONFIG.group, CONFIG.lease_group), ALL)
    assert [*check_rights(Cluster(3, everything, groups), CONFIG)] == []
    assert [*check_rights(cluster(), CONFIG)] == []


@pytest.mark.parametrize(
    ("operation", "name", "role"),
    [
        (right.operation, right.name, role)
        for role in ("joiner", "learner")
        for right in rights_of(CONFIG, role)
        if right.kind != TRANSACTIONAL_ID and not right.without
    ],
)
def test_each_right_that_is_missing_is_told(operation: str, name: str, role: str) -> None:
    """With who lacks it, and the command that gives it, which is that of `stream-learner rights`."""
    found = [*check_rights(allowed("joiner", "learner", without=(operation, name)), CONFIG)]
    assert role in [one.means.split()[1] for one in found]
    kind = GROUP if name in (CONFIG.group, CONFIG.lease_group) else TOPIC
    for one in found:
        assert (one.severity, one.name) == ("stops", "rights")
        assert f"ann lacks what a {one.means.split()[1]} needs: {operation} on {kind} {name}" in one.seen
        assert one.change == commands([Right(operation, kind, name, "")], "User:ann", "kafka:9092")[0]


def test_who_may_write_nothing_is_judged_as_a_joiner() -> None:
    """Doctor reads what a joiner reads."""
    (one,) = check_rights(allowed(), CONFIG)
    needed = [right for right in rights_of(CONFIG, "joiner") if not right.without]
    assert all(f"{right.operation} on {right.kind} {right.name}" in one.seen for right in needed)


def test_copies_are_not_asked_of_one_broker() -> None:
    """What one broker cannot have is not told; what was made for more and is away is."""
    assert check(cluster(brokers=1, replication=1, least="2")) == []
    assert [one.name for one in check(cluster(brokers=1, clicks=lambda one: replace(one, in_sync=(1,) * 4)))] == [
        "replicas_away"
    ]
