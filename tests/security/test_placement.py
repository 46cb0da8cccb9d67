"""Where and who a client is: racks and client ids reach the brokers."""

from __future__ import annotations

import pytest

from stream_learner.edges.kafka import Admin, KafkaSettings, PartitionReader, TopicPlan
from tests.edges.kafka_help import append, read
from tests.kafka_broker.broker import Broker

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def test_records_are_fetched_from_the_replica_in_ones_own_rack(caplog: pytest.LogCaptureFixture) -> None:
    """A reader with `client.rack` leaves the leader for the follower in that rack, and reads the same records."""
    with Broker(
        3,
        properties={"replica.selector.class": RACK_AWARE},
        node_properties=lambda node: {"broker.rack": f"rack-{node}"},
    ) as broker:
        plain = KafkaSettings({"bootstrap.servers": broker.bootstrap})
        admin = Admin(plain)
        admin.create([TopicPlan("topic", 1, 3)])
        values = [b"%d" % i for i in range(100)]
        append(plain, "topic", 0, list(values))
        leader = admin.ask(["topic"])["topic"].result().partitions[0].leader
        assert leader is not None
        other = next(node for node in (1, 2, 3) if node != leader.id)
        here = {"client.rack": f"rack-{other}", "client.id": "ctr", "debug": "fetch"}
        settings = KafkaSettings({"bootstrap.servers": broker.bootstrap, **here})
        with caplog.at_level("DEBUG", "stream_learner"), PartitionReader(settings, "topic", 0, 0) as reader:
            assert read(reader, len(values))[1] == values
            append(plain, "topic", 0, [b"more"])
            assert read(reader, 1)[1] == [b"more"]
        said = [record.getMessage() for record in caplog.records]
    moved = f"migrating from broker {leader.id} to {other} (leader is {leader.id}): preferred replica updated"
    assert [line for line in said if moved in line], said[-20:]
    assert [line for line in said if "[ctr-reader#consumer" in line]
