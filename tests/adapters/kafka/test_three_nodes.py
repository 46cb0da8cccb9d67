"""A cluster of three nodes: replicas, and racks and client ids that reach the brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader, TopicInfo, TopicPlan
from stream_learner.errors import TopicMissing
from tests.adapters.kafka.kafka_help import append, read
from tests.kafka_broker.broker import Broker
from tests.waiting import wait_for

pytestmark = pytest.mark.thorough

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    """Three nodes, each in a rack of its own; fetches go to the replica in the client's rack."""
    with Broker(
        3,
        properties={"replica.selector.class": RACK_AWARE},
        node_properties=lambda node: {"broker.rack": f"rack-{node}"},
    ) as broker:
        yield broker


def test_three_nodes_replicate(cluster: Broker) -> None:
    """A cluster of three has three replicas of a topic and needs two for an acknowledgement."""
    settings = KafkaSettings({"bootstrap.servers": cluster.bootstrap})
    admin = Admin(settings)
    admin.create([TopicPlan("replicated", 2)])
    info = wait_for(lambda: described(admin, "replicated"), "the nodes have heard of the topic")
    assert (info.replication, info.configs["min.insync.replicas"]) == (3, "2")
    assert append(settings, "replicated", 1, [b"x", b"y"]) == [0, 1]
    wait_for(lambda: admin.look(["replicated"])["replicated"].in_sync == (3, 3), "all replicas are in sync")
    assert admin.brokers == 3


def described(admin: Admin, topic: str) -> TopicInfo | None:
    """A topic with its settings; None while a node that is asked has not heard of it."""
    with suppress(TopicMissing):
        return admin.describe([topic], with_configs=True).get(topic)
    return None


def test_records_are_fetched_from_the_replica_in_ones_own_rack(
    cluster: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader with `client.rack` leaves the leader for the follower in that rack, and reads the same records."""
    plain = KafkaSettings({"bootstrap.servers": cluster.bootstrap})
    admin = Admin(plain)
    admin.create([TopicPlan("topic", 1, 3)])
    values = [b"%d" % i for i in range(100)]
    append(plain, "topic", 0, list(values))
    leader = admin.ask(["topic"])["topic"].result().partitions[0].leader
    assert leader is not None
    other = next(node for node in (1, 2, 3) if node != leader.id)
    here = {"client.rack": f"rack-{other}", "client.id": "ctr", "debug": "fetch"}
    settings = KafkaSettings({"bootstrap.servers": cluster.bootstrap, **here})
    with caplog.at_level("DEBUG", "stream_learner"), PartitionReader(settings, "topic", 0, 0) as reader:
        assert read(reader, len(values))[1] == values
        append(plain, "topic", 0, [b"more"])
        assert read(reader, 1)[1] == [b"more"]
    said = [record.getMessage() for record in caplog.records]
    moved = f"migrating from broker {leader.id} to {other} (leader is {leader.id}): preferred replica updated"
    assert [line for line in said if moved in line], said[-20:]
    assert [line for line in said if "[ctr-reader#consumer" in line]
