"""What tests of every area share: a real Kafka, and topics of their own on it.

It must never let a test pass or be skipped because there is no broker: it fails with what to install.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan
from stream_learner.adapters.telemetry.logs import configure_logging
from tests.kafka_broker.broker import PATIENT, Broker, NoKafka, delete_topics
from tests.kafka_broker.lender import borrow
from tests.suite.hooks import (
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_collectreport,
    pytest_configure,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    pytest_unconfigure,
    pytest_xdist_make_scheduler,
)

__all__ = [
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_collectreport",
    "pytest_configure",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_unconfigure",
    "pytest_xdist_make_scheduler",
]

# How long one example takes says nothing: the first one may compile kernels.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

MakeTopic = Callable[..., str]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """No test leaves a log's form, or a stream that is closed by then, to the next; the first finds the same form."""
    configure_logging(log_format="console", stream=io.StringIO())
    yield
    configure_logging(log_format="console", stream=io.StringIO())


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap address of a real broker that lasts for the run, and is shared by all its processes."""
    try:
        given = os.environ.get("KAFKA_BOOTSTRAP") or borrow()
        if given:
            yield given
            return
        broker = Broker(properties=PATIENT).start()
    except NoKafka as error:
        pytest.fail(str(error), pytrace=False)
    yield broker.bootstrap
    ended = [node.log() for node in broker.nodes if not node.running()]
    broker.stop()
    if ended:
        pytest.fail(f"the broker ended by itself during the tests:\n{ended[0]}", pytrace=False)


@pytest.fixture(scope="session")
def kafka_settings(kafka: str) -> KafkaSettings:
    """Settings of clients of the real broker, in a group of this session's own."""
    return KafkaSettings({"bootstrap.servers": kafka}, group=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def admin(kafka_settings: KafkaSettings) -> Admin:
    """An admin client of the real broker."""
    return Admin(kafka_settings)


@pytest.fixture(scope="session")
def topics(kafka: str, admin: Admin) -> Iterator[MakeTopic]:
    """Makes a topic: `topics("clicks", partitions=2, **{"cleanup.policy": "compact"})` gives its unique name."""
    made: list[str] = []

    def make(label: str = "topic", partitions: int = 1, **configs: str) -> str:
        name = f"{label}-{uuid.uuid4().hex[:12]}"
        admin.create([TopicPlan(name, partitions, configs=configs)])
        made.append(name)
        return name

    yield make
    if os.environ.get("KAFKA_BOOTSTRAP"):
        delete_topics(kafka, made)
