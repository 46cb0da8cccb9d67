"""Publishers that are connected before they are needed: quick, and without a fence until they are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings, Record, TopicPlan, TransactionalPublisher
from stream_learner.errors import Fenced
from stream_learner.roles.learner.leadership import WarmPublishers

ID = "warm-publishers"
TOPIC = "warm-publishers"


@pytest.fixture
def settings(kafka: str) -> KafkaSettings:
    found = KafkaSettings({"bootstrap.servers": kafka})
    admin = Admin(found)
    if TOPIC not in admin.describe([TOPIC]):
        admin.create([TopicPlan(TOPIC, 1)])
    return found


@pytest.fixture
def warm() -> Iterator[WarmPublishers]:
    made = WarmPublishers()
    yield made
    made.close()


def publish(publisher: TransactionalPublisher) -> None:
    publisher.publish([Record(TOPIC, 0, b"key", b"value")])


def test_a_publisher_that_is_connected_ahead_fences_only_when_it_is_initialised(
    settings: KafkaSettings, warm: WarmPublishers
) -> None:
    """So a learner may connect while it loads, and a leader goes on should the load fail."""
    leader = TransactionalPublisher(settings, ID)
    leader.init()
    warm.connect(settings, ID)
    publish(leader)
    taken = warm.take(settings, ID)
    publish(leader)
    taken.init()
    publish(taken)
    with pytest.raises(Fenced):
        publish(leader)
    for publisher in (leader, taken):
        publisher.close()


def test_what_is_taken_is_of_the_settings_that_are_asked_for(settings: KafkaSettings, warm: WarmPublishers) -> None:
    """The connected one once; a new one after that, and where the topic takes other batches than before."""
    warm.connect(settings, ID)
    connected = warm._waiting[ID][1]
    taken = warm.take(settings, ID)
    assert taken is connected
    another = warm.take(settings, ID)
    assert another is not connected
    warm.connect(settings, ID)
    connected = warm._waiting[ID][1]
    smaller = warm.take(settings.with_batches(20_000), ID)
    assert smaller is not connected
    for publisher in (taken, another, smaller):
        publisher.close()
