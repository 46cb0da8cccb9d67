"""Deletes topics and consumer groups. This is the only place of the program that does.

It deletes exactly what it is given, by name, and nothing by a pattern; what is gone already is no error, so that an
interrupted deletion can be repeated. `operations.delete` decides what is given. Kafka deletes no transactional id when
asked: it forgets one by itself (`transactional.id.expiration.ms`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka.admin import Admin
from stream_learner.adapters.kafka.clients import answered, new_client
from stream_learner.adapters.kafka.faults import MISSING, Operation, Reports, fault, kafka_error
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import ModelInUse, RetryLater

REQUEST_TIMEOUT_S = 15.0
GONE_TIMEOUT_S = 30.0
LOOK_S = 0.1
NO_GROUP = {KafkaError.GROUP_ID_NOT_FOUND}
HAS_MEMBERS = {KafkaError.NON_EMPTY_GROUP}


def delete_topic(settings: KafkaSettings, admin: Admin, name: str) -> None:
    """Delete a topic, and wait until the brokers do not show it any more.

    Raises BrokerUnreachable, RetryLater, NotAuthorised.
    """
    operation = settings.operation("delete", name, right="Delete")
    client, reports = _client(settings, operation)
    answers = client.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)
    _take(client, reports, answers[name], operation, MISSING)
    deadline_s = time.monotonic() + GONE_TIMEOUT_S
    while admin.describe([name]):
        if time.monotonic() > deadline_s:
            raise RetryLater(f"{name} is deleted, and the brokers still show it")
        time.sleep(LOOK_S)


def delete_group(settings: KafkaSettings) -> None:
    """Delete the consumer group of the settings, with its committed offsets.

    Raises ModelInUse if it has members, BrokerUnreachable, RetryLater, NotAuthorised.
    """
    group = settings.group
    operation = settings.operation("delete", group=group, right="Delete")
    client, reports = _client(settings, operation)
    answers = client.delete_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)
    _take(client, reports, answers[group], operation, NO_GROUP)


def _client(settings: KafkaSettings, operation: Operation) -> tuple[AdminClient, Reports]:
    reports = Reports(operation)
    return new_client(AdminClient, settings.admin(error_cb=reports)), reports


def _take(client: AdminClient, reports: Reports, answer: Future[Any], operation: Operation, gone: set[int]) -> None:
    """Wait for the answer; what is gone already is as it should be."""
    try:
        answered(answer, REQUEST_TIMEOUT_S)
    except KafkaException as error:
        reported = kafka_error(error)
        code = None if reported is None else reported.code()
        if code in gone:
            return
        if code in HAS_MEMBERS:
            raise ModelInUse(
                f"the group {operation.group} has members: a role was started. What was removed before is gone"
            ) from error
        client.poll(0)
        raise reports.instead_of(fault(error, operation)) from error
