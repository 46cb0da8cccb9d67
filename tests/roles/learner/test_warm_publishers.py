"""Publishers that are connected before they are needed fence nobody until they are initialised."""

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
    """So a learner may connect while it loads its state; if that fails, the leader goes on."""
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


def test_what_is_taken_is_of_the_settings_that_are_asked_for(settings: KafkaSettings) -> None:
    """The connected one is taken once; a new one is made after that, and if the topic takes other batches meanwhile."""
    made: list[TransactionalPublisher] = []

    def new_publisher(settings: KafkaSettings, transactional_id: str) -> TransactionalPublisher:
        made.append(TransactionalPublisher(settings, transactional_id))
        return made[-1]

    warm = WarmPublishers(new_publisher)
    warm.connect(settings, ID)
    assert warm.take(settings, ID) is made[0]
    assert warm.take(settings, ID) is made[1]
    warm.connect(settings, ID)
    assert warm.take(settings.with_batches(20_000), ID) is made[3]
    for publisher in made:
        publisher.close()
