"""Clients on a Kafka with SASL and ACLs: what is refused is said by name, and stops."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest

from stream_learner.adapters.kafka import (
    Admin,
    Appender,
    KafkaSettings,
    Membership,
    PartitionReader,
    TopicPlan,
    TransactionalPublisher,
)
from stream_learner.errors import AuthenticationFailed, NotAuthorised
from tests.adapters.kafka.kafka_help import append, raises_within, until
from tests.security.broker import SPARE, Secured
from tests.waiting import patience

ALICE, BOB = SPARE[:2]
MAY = [("topic", "readable", "Read"), ("topic", "readable", "Describe"), ("topic", "writable", "Write")]


@pytest.fixture(scope="module")
def topics(secured: Secured) -> None:
    """Three of them, one with a record."""
    settings = KafkaSettings(secured.super_client)
    Admin(settings).create([TopicPlan("secret", 1), TopicPlan("readable", 1), TopicPlan("writable", 1)])
    append(settings, "readable", 0, [b"x"])


@pytest.fixture
def alice(secured: Secured, topics: None) -> KafkaSettings:
    """Settings of a user who may read `readable` and write `writable`."""
    secured.allow_all(ALICE, MAY)
    return KafkaSettings(secured.options("PLAIN", ALICE), group="alices")


def test_wrong_credentials_stop_every_client(secured: Secured, topics: None) -> None:
    """A wrong password is AuthenticationFailed, and does not appear in the message."""
    settings = KafkaSettings(secured.options("PLAIN", ALICE, **{"sasl.password": "wrong-password"}))
    with PartitionReader(settings, "readable", 0, 0) as reader:
        errors = [raises_within(AuthenticationFailed, lambda: reader.read(1, 0.1))]
    with closing(Membership(settings, "readable", "secret")) as member:
        errors.append(raises_within(AuthenticationFailed, lambda: member.poll(0.1)))
    admin = Admin(settings, request_timeout_s=2.0)
    errors.append(raises_within(AuthenticationFailed, lambda: admin.describe(["readable"])))
    publisher = TransactionalPublisher(settings, "id")
    errors.append(raises_within(AuthenticationFailed, lambda: publisher.init(2.0)))
    publisher.close()
    appender = Appender(settings)
    appender.append("readable", 0, b"x")
    errors.append(raises_within(AuthenticationFailed, lambda: appender.flush(0.5)))
    appender.close()
    assert not [e for e in errors if "wrong-password" in str(e)]


def test_reading_without_the_right_names_user_topic_and_right(alice: KafkaSettings) -> None:
    """The message says who lacks what on which topic; reading with the right works."""
    with PartitionReader(alice, "secret", 0, 0) as reader:
        error = raises_within(NotAuthorised, lambda: reader.read(1, 0.1))
    assert f"{ALICE} lacks the right: Read on topic secret" in str(error)
    with PartitionReader(alice, "readable", 0, 0) as reader:
        batch = until(lambda: reader.read(1, 0.5))
        assert batch.values == [b"x"]


def test_appending_without_the_right_is_a_result(alice: KafkaSettings) -> None:
    """A record that must not be written comes back with NotAuthorised; others are written."""
    appender = Appender(alice)
    appender.append("readable", 0, b"x", tag="refused")
    appender.append("writable", 0, b"x", tag="written")
    results = {result.tag: result for result in appender.flush(patience())}
    appender.close()
    assert results["written"].offset == 0
    error = results["refused"].error
    assert isinstance(error, NotAuthorised)
    assert f"{ALICE} lacks the right: Write on topic readable" in str(error)


def test_appending_without_any_right_is_fatal(secured: Secured, topics: None) -> None:
    """A user who may write nowhere gets no producer id: the records are refused, and so is the next append."""
    settings = KafkaSettings(secured.options("PLAIN", BOB))
    appender = Appender(settings)
    appender.append("readable", 0, b"x")
    assert isinstance(appender.flush(patience())[0].error, NotAuthorised)
    with pytest.raises(NotAuthorised, match=f"{BOB} lacks the right"):
        appender.append("readable", 0, b"x")
    appender.close()


def test_joining_a_group_without_the_right_names_the_group(alice: KafkaSettings) -> None:
    """The group's name is in the message."""
    with closing(Membership(alice, "readable", "secret")) as member:
        error = raises_within(NotAuthorised, lambda: member.poll(0.1))
    assert "Read on group alices" in str(error)


def test_publishing_without_the_right_names_the_transactional_id(alice: KafkaSettings) -> None:
    """The transactional id is in the message."""
    publisher = TransactionalPublisher(alice, "alices-model")
    with pytest.raises(NotAuthorised, match="Write on transactional id alices-model"):
        publisher.init(patience())
    publisher.close()


def test_describing_and_creating_without_the_right_names_the_topic(alice: KafkaSettings) -> None:
    """Rights on topics are asked for by name: Describe, DescribeConfigs, Create."""
    admin = Admin(alice)
    with pytest.raises(NotAuthorised, match="Describe on topic secret"):
        admin.describe(["secret"])
    assert admin.describe(["readable"])["readable"].partitions == 1
    with pytest.raises(NotAuthorised, match="DescribeConfigs on topic readable"):
        admin.describe(["readable"], with_configs=True)
    with pytest.raises(NotAuthorised, match="Create"):
        admin.create([TopicPlan("new", 1)])


def test_publishing_to_a_topic_without_the_right_names_it_however_early_the_refusal_comes(
    secured: Secured, alice: KafkaSettings
) -> None:
    """The brokers may refuse the first record while others are still handed over: the client takes no more then."""
    secured.allow_all(ALICE, [("transactional-id", "alices-model", "Write"), ("topic", "secret", "Describe")])
    publisher = TransactionalPublisher(alice, "alices-model")
    publisher.init(patience())
    with pytest.raises(NotAuthorised, match=f"{ALICE} lacks the right: Write on topic secret"):
        publisher.publish(itertools.repeat(("secret", 0, b"key", b"value")))
    publisher.close()
