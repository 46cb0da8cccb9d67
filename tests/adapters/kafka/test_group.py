"""Group membership on a real Kafka: whole pairs through joins, leaves and kills; static members; twins; offsets."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import Assigned, Committed, KafkaSettings, Lost, Membership, Revoked, ToCommit
from stream_learner.errors import AssignmentRefused, Fenced, PartitionCountsDiffer, TopicMissing
from tests.adapters.kafka.group_member import QUICK
from tests.adapters.kafka.kafka_help import append, raises_within, running_module, until
from tests.conftest import MakeTopic
from tests.waiting import patience

Join = Callable[..., Membership]
ALL = frozenset(range(4))


class Group:
    """A group with topics of its own, and its members of this process."""

    def __init__(self, bootstrap: str, impressions: str, clicks: str) -> None:
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap, **QUICK}, group=uuid.uuid4().hex)
        self.impressions = impressions
        self.clicks = clicks
        self.members: list[Membership] = []
        self.events: dict[int, list[Any]] = {}

    def join(self, instance_id: str | None = None) -> Membership:
        """A new member of this process."""
        member = Membership(self.settings, self.impressions, self.clicks, instance_id=instance_id)
        self.members.append(member)
        self.events[id(member)] = []
        return member

    def poll(self) -> None:
        """Let every member take part."""
        for member in self.members:
            self.events[id(member)] += member.poll(0.01)

    def shared(self) -> bool:
        """Whether the members of this process have every partition exactly once between them."""
        self.poll()
        held = sorted(p for member in self.members for p in member.partitions)
        return held == sorted(ALL) and all(member.partitions for member in self.members)

    def half_is_elsewhere(self) -> bool:
        """Whether the one member of this process shares with another one."""
        self.poll()
        return len(self.members[0].partitions) == len(ALL) // 2

    def settle(self, seconds: float) -> None:
        """Poll for a while in which nothing more should happen."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.poll()

    def leave(self, member: Membership) -> None:
        """Close a member."""
        self.members.remove(member)
        member.close()

    def process(self, instance_id: str = "") -> AbstractContextManager[subprocess.Popen[str]]:
        """A member in a process of its own."""
        where = (self.settings.bootstrap, self.settings.group, self.impressions, self.clicks)
        return running_module("tests.adapters.kafka.group_member", *where, instance_id)


@pytest.fixture
def group(kafka: str, topics: MakeTopic) -> Iterator[Group]:
    """A group over two topics of four partitions."""
    group = Group(kafka, topics("impressions", 4), topics("clicks", 4))
    yield group
    for member in list(group.members):
        group.leave(member)


def test_one_member_gets_all_pairs_and_reads_nothing(group: Group) -> None:
    """The only member is assigned every partition number once; records are not fetched."""
    append(group.settings, group.impressions, 0, [b"x"] * 10)
    member = group.join()
    until(group.shared)
    assert group.events[id(member)] == [Assigned(ALL)]
    group.settle(0.5)
    assert group.events[id(member)] == [Assigned(ALL)]


def test_partitions_whose_beginning_was_trimmed_are_no_matter(group: Group) -> None:
    """The member is assigned offset 0 and paused; a fetch that goes out before the pause finds nothing there, often."""
    places = [TopicPartition(topic, partition, 2) for topic in (group.impressions, group.clicks) for partition in ALL]
    for place in places:
        append(group.settings, place.topic, place.partition, [b"x"] * 3)
    admin = AdminClient({"bootstrap.servers": group.settings.bootstrap})
    for trimmed in admin.delete_records(places).values():
        trimmed.result()
    for _ in range(15):
        member = group.join()
        until(group.shared)
        group.settle(0.1)
        assert group.events[id(member)] == [Assigned(ALL)]
        group.leave(member)


def test_joining_and_leaving_moves_only_what_must_move(group: Group) -> None:
    """A partition that a member keeps through a rebalance is not reported; every other one is, once."""
    first = group.join()
    until(group.shared)
    second = group.join()
    until(group.shared)
    gone = second.partitions
    assert group.events[id(first)] == [Assigned(ALL), Revoked(gone)]
    assert group.events[id(second)] == [Assigned(gone)]
    third = group.join()
    until(group.shared)
    group.leave(second)
    group.leave(third)
    until(group.shared)
    assert first.partitions == ALL
    held: set[int] = set()
    for event in group.events[id(first)]:
        if isinstance(event, Assigned):
            assert not held & event.partitions
            held |= event.partitions
        else:
            assert event.partitions <= held
            held -= event.partitions
    assert held == ALL


def test_a_killed_members_pairs_go_to_the_others(group: Group) -> None:
    """After `kill -9` and the session time-out the rest have everything, in whole pairs."""
    group.join()
    until(group.shared)
    with group.process() as other:
        until(group.half_is_elsewhere)
        other.kill()
    until(group.shared)


def test_a_static_member_comes_back_to_its_partitions(group: Group) -> None:
    """Closing a static member and joining again within the session time-out moves nothing for the others."""
    first, second = group.join("a"), group.join("b")
    until(group.shared)
    group.settle(0.3)
    before = first.partitions, second.partitions
    seen = len(group.events[id(first)])
    group.leave(second)
    group.settle(0.5)
    second = group.join("b")
    until(group.shared)
    assert (first.partitions, second.partitions) == before
    assert len(group.events[id(first)]) == seen


def test_a_killed_static_member_comes_back_to_its_partitions(group: Group) -> None:
    """A static member that is killed and starts again has its partitions; nothing moves for the others."""
    group.join("a")
    with group.process("b") as other:
        until(group.half_is_elsewhere)
        mine = group.members[0].partitions
        other.kill()
    again = group.join("b")
    until(group.shared)
    assert again.partitions == ALL - mine


def test_a_twin_with_the_same_instance_id_ends_the_older_one(group: Group) -> None:
    """The older member raises Fenced, again and again, instead of falling silent; the newer one has everything."""
    older = group.join("same")
    until(group.shared)
    newer = group.join("same")
    group.members.remove(older)
    error = raises_within(Fenced, lambda: (older.poll(0.01), newer.poll(0.01)))
    assert group.settings.group in str(error)
    with pytest.raises(Fenced):
        older.poll(0.01)
    until(group.shared)
    older.close()


def test_unequal_partition_counts_are_refused(kafka: str, topics: MakeTopic) -> None:
    """Topics of different partition counts stop every member with both counts in the message."""
    group = Group(kafka, topics("impressions", 4), topics("clicks", 3))
    member = group.join()
    error = raises_within(PartitionCountsDiffer, lambda: member.poll(0.05))
    assert "has 4 partitions" in str(error)
    assert "has 3" in str(error)
    member.close()


def test_a_member_with_another_subscription_parts_the_pairs_and_is_noticed(group: Group) -> None:
    """When a stranger in the group takes partitions of one topic only, the assignment is refused."""
    member = group.join()
    until(group.shared)
    stranger = Consumer(group.settings.consumer())
    stranger.subscribe([group.impressions])
    error = raises_within(AssignmentRefused, lambda: (stranger.poll(0.01), member.poll(0.01)))
    assert group.impressions in str(error)
    stranger.close()


def test_a_missing_topic_is_named(kafka: str, topics: MakeTopic) -> None:
    """Subscribing to a topic that does not exist stops with its name."""
    settings = {"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 1000, **QUICK}
    group = Group(kafka, topics("impressions", 4), "no-such-clicks")
    group.settings = KafkaSettings(settings, group=uuid.uuid4().hex)
    member = group.join()
    assert "no-such-clicks" in str(raises_within(TopicMissing, lambda: member.poll(0.05)))
    member.close()


def test_being_silent_for_too_long_loses_everything(kafka: str, topics: MakeTopic) -> None:
    """A member that does not poll within `max.poll.interval.ms` is told that its partitions are lost, then rejoins."""
    group = Group(kafka, topics("impressions", 4), topics("clicks", 4))
    slow = {"bootstrap.servers": kafka, **QUICK, "max.poll.interval.ms": 2000}
    group.settings = KafkaSettings(slow, group=uuid.uuid4().hex)
    member = group.join()
    until(group.shared)
    admin = AdminClient({"bootstrap.servers": kafka})
    until(lambda: not admin.describe_consumer_groups([group.settings.group])[group.settings.group].result().members)
    until(lambda: group.poll() or Lost(ALL) in group.events[id(member)])
    until(group.shared)
    assert group.events[id(member)] == [Assigned(ALL), Lost(ALL), Assigned(ALL)]
    group.leave(member)


def test_offsets_and_note_are_stored_and_found_again(group: Group) -> None:
    """Committed offsets and the note come back, also to the next member; nothing stored is None."""
    member = group.join()
    until(group.shared)
    member.commit({2: ToCommit(17, 5, "attempt 7 at 1234")})
    stored = until(lambda: (group.poll(), member.committed(2))[1].metadata and member.committed(2))
    assert (stored.impressions_offset, stored.clicks_offset) == (17, 5)
    assert stored.metadata == "attempt 7 at 1234"
    nothing = member.committed(3)
    assert (nothing.impressions_offset, nothing.clicks_offset, nothing.metadata) == (None, None, "")
    assert member.commit_errors == 0


def test_a_commit_that_fails_is_counted_and_harmless(group: Group) -> None:
    """A note that is too long for the brokers is no error of the member."""
    member = group.join()
    until(group.shared)
    member.commit({0: ToCommit(1, 1, "x" * 5000)})
    until(lambda: group.poll() or member.commit_errors == 1)
    assert member.poll(0.01) == []


def test_offsets_are_sent_when_they_have_changed_and_after_a_failure(group: Group) -> None:
    """What the group has is not sent again, as long as every request succeeds."""
    member = group.join()
    until(group.shared)
    first, other, long = ToCommit(8, 3, "note"), ToCommit(5, 5, "other"), ToCommit(1, 1, "x" * 5000)
    member.commit({1: first, 2: first})
    until(lambda: (group.poll(), member.committed(2))[1] == Committed(*first[:3]))
    assert member.committed(1) == Committed(*first[:3])
    by_hand = member._places(1, other)
    member._consumer.commit(offsets=by_hand, asynchronous=False)
    member.commit({1: first, 2: other})
    until(lambda: (group.poll(), member.committed(2))[1] == Committed(*other[:3]))
    assert member.committed(1) == Committed(*other[:3])
    member.commit({0: long})
    until(lambda: group.poll() or member.commit_errors == 1)
    member.commit({1: first})
    until(lambda: (group.poll(), member.committed(1))[1] == Committed(*first[:3]))


def test_a_static_member_that_leaves_gives_its_partitions_away_at_once(kafka: str, topics: MakeTopic) -> None:
    """By its close alone it keeps them for the session, here five minutes; by leaving, the other has them, and it is no
    longer in the group when `leave` returns.
    """
    group = Group(kafka, topics("impressions", partitions=4), topics("clicks", partitions=4))
    group.settings = KafkaSettings({"bootstrap.servers": kafka, "session.timeout.ms": 300_000}, group=uuid.uuid4().hex)
    leaver, other = group.join("leaver"), group.join("other")
    until(group.shared)
    admin = AdminClient({"bootstrap.servers": kafka})

    def members() -> list[str]:
        found = admin.describe_consumer_groups([group.settings.group])[group.settings.group].result().members
        return sorted(member.group_instance_id for member in found)

    assert members() == ["leaver", "other"]
    group.members.remove(leaver)
    leaver.leave(patience())
    assert members() == ["other"]
    leaver.close()
    until(group.shared)
    assert other.partitions == ALL
    other.leave(patience())
    other.close()
