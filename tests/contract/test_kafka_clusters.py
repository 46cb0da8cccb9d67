"""What the roles count on of any cluster: the same tests on the embedded broker and on a real Kafka.

Whatever is tested here holds in the demo as it does in production; everything about exactly-once, trimming,
compaction and speed is tested on the real one only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from stream_learner.adapters.kafka import (
    NO_TOPIC_ID,
    Admin,
    Appender,
    Assigned,
    EmbeddedBroker,
    EndWatch,
    KafkaSettings,
    Membership,
    PartitionReader,
    ToCommit,
    TopicPlan,
    TopicWatch,
    TransactionalPublisher,
)
from stream_learner.errors import TopicMissing
from tests.adapters.kafka.kafka_help import append, read, read_to, until

QUICK = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}


@dataclass
class Cluster:
    """A cluster under test: settings for its clients, a maker of topics, and whether it is the embedded one."""

    settings: KafkaSettings
    make_topic: Callable[[str, int], str]
    embedded: bool


@pytest.fixture(scope="module", params=["embedded", "real"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Both clusters, one after the other."""
    if request.param == "real":
        topics = request.getfixturevalue("topics")
        bootstrap = request.getfixturevalue("kafka")
        yield Cluster(_settings(bootstrap), lambda label, n: topics(label, n), embedded=False)
        return
    with EmbeddedBroker() as broker:

        def make(label: str, partitions: int) -> str:
            name = f"{label}-{uuid.uuid4().hex[:8]}"
            broker.create_topic(name, partitions)
            return name

        yield Cluster(_settings(broker.bootstrap), make, embedded=True)


def _settings(bootstrap: str) -> KafkaSettings:
    return KafkaSettings({"bootstrap.servers": bootstrap, **QUICK}, group=uuid.uuid4().hex)


def test_topics_have_the_partitions_asked_for(cluster: Cluster) -> None:
    """Described as made; an id only on the real cluster; a missing topic is missing."""
    topic = cluster.make_topic("described", 7)
    admin = Admin(cluster.settings)
    assert admin.is_mock() == cluster.embedded
    info = admin.require([topic])[topic]
    assert info.partitions == 7
    assert (info.id == NO_TOPIC_ID) == cluster.embedded
    with pytest.raises(TopicMissing, match=f"{topic}s; there is {topic}$"):
        admin.require([f"{topic}s"])
    with pytest.raises(TopicMissing, match="no-such-topic"):
        admin.require([topic, "no-such-topic"])


def test_plans_are_compared(cluster: Cluster) -> None:
    """A topic that is as planned shows no difference, one with other partitions does."""
    topic = cluster.make_topic("planned", 2)
    admin = Admin(cluster.settings)
    assert admin.ensure([TopicPlan(topic, 2)]) == []
    assert [d.setting for d in admin.ensure([TopicPlan(topic, 3)])] == ["partitions"]


def test_what_is_appended_is_read_in_order(cluster: Cluster) -> None:
    """Offsets count up from 0, per partition; values, keys, nulls, headers and times come back; nobody tells when
    he appended them, unless the topic asks for it."""
    topic = cluster.make_topic("order", 3)
    appender = Appender(cluster.settings, linger_ms=5)
    for i in range(300):
        appender.append(topic, i % 3, b"%d" % i, key=b"k%d" % i, headers=[("h", b"%d" % i)], tag=i)
    appender.append(topic, 1, None, key=b"null")
    results = appender.flush(10.0)
    appender.close()
    assert [r.offset for r in results if r.partition == 1] == list(range(101))
    assert {r.time_ms for r in results} == {-1}
    with PartitionReader(cluster.settings, topic, 1, 0, with_keys=True, with_headers=True) as reader:
        batch = until(lambda: reader.read(1000, 1.0))
        assert batch.offsets[0] == 0
        assert batch.keys is not None
        assert batch.headers is not None
        assert (batch.values[0], batch.keys[0], batch.headers[0]) == (b"1", b"k1", [("h", b"1")])
        assert batch.record_times_ms[0] > 1_600_000_000_000
        rest = 101 - len(batch)
        values = [*batch.values, *(read(reader, rest)[1] if rest else [])]
        assert values == [*(b"%d" % i for i in range(1, 300, 3)), None]


def test_seeking_and_reaching_the_end(cluster: Cluster) -> None:
    """A reader goes where it is told, and its position reaches the high watermark."""
    topic = cluster.make_topic("seek", 1)
    append(cluster.settings, topic, 0, [b"%d" % i for i in range(50)])
    end = Admin(cluster.settings).offsets.high_watermarks([(topic, 0)])[topic, 0]
    assert end == 50
    with PartitionReader(cluster.settings, topic, 0, 20) as reader:
        assert read_to(reader, end) == list(range(20, 50))
        reader.seek(45)
        assert read_to(reader, end) == list(range(45, 50))


def test_ends_of_many_partitions_at_once(cluster: Cluster) -> None:
    """Earliest and high watermark of each partition; the watch carries the clock read before the question."""
    topic = cluster.make_topic("ends", 4)
    append(cluster.settings, topic, 2, [b"x", b"y"])
    offsets = Admin(cluster.settings).offsets
    places = [(topic, p) for p in range(4)]
    assert offsets.earliest(places) == dict.fromkeys(places, 0)
    assert offsets.high_watermarks(places) == {**dict.fromkeys(places, 0), (topic, 2): 2}
    watch = EndWatch(offsets, lambda: 77, places)
    assert watch.ask()[topic, 2] == (77, 2)


def test_members_share_the_partitions_in_pairs(cluster: Cluster) -> None:
    """Two members have every partition number once between them, and the first again after the second has left."""
    impressions, clicks = cluster.make_topic("impressions", 4), cluster.make_topic("clicks", 4)
    first = Membership(cluster.settings, impressions, clicks)
    events = until(lambda: first.poll(0.05))
    assert events == [Assigned(frozenset(range(4)))]
    second = Membership(cluster.settings, impressions, clicks)

    def shared() -> bool:
        first.poll(0.02)
        second.poll(0.02)
        return bool(second.partitions) and len(first.partitions) + len(second.partitions) == 4

    until(shared)
    assert not first.partitions & second.partitions
    second.close()
    until(lambda: first.poll(0.05) or len(first.partitions) == 4)
    first.close()


def test_the_groups_offsets_and_note_are_stored(cluster: Cluster) -> None:
    """Committed offsets and the note are found again."""
    impressions, clicks = cluster.make_topic("impressions", 2), cluster.make_topic("clicks", 2)
    with closing(Membership(cluster.settings, impressions, clicks)) as member:
        until(lambda: member.poll(0.05))
        member.commit({1: ToCommit(9, 4, "note")})
        found = until(lambda: (member.poll(0.05), member.committed(1))[1].metadata and member.committed(1))
        assert (found.impressions_offset, found.clicks_offset, found.metadata) == (9, 4, "note")


def test_a_publication_is_read(cluster: Cluster) -> None:
    """Publications succeed one after the other and are read in order by the committed reader."""
    topic = cluster.make_topic("published", 2)
    publisher = TransactionalPublisher(cluster.settings, "model-" + topic)
    publisher.init()
    for i in range(3):
        publisher.publish([(topic, p, b"version", b"%d" % i) for p in range(2)])
    publisher.close()
    with PartitionReader(cluster.settings, topic, 1, 0) as reader:
        assert read(reader, 3)[1] == [b"0", b"1", b"2"]


def test_the_topic_watch_is_quiet_while_nothing_changes(cluster: Cluster) -> None:
    """Asking the watch at any time raises nothing."""
    topic = cluster.make_topic("watched", 1)
    admin = Admin(cluster.settings)
    watch = TopicWatch(admin, admin.require([topic]).values(), period_s=0.0)
    for _ in range(50):
        watch.check()
