"""What a consumer group has committed, and how many members it has, asked without being one.

In: a group's name, partitions. Out: offsets and their metadata; a number. This file must never join a group or commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.edges.kafka.answers import answered
from stream_learner.edges.kafka.clients import new_client
from stream_learner.edges.kafka.ends import REQUEST_TIMEOUT_S
from stream_learner.edges.kafka.faults import Reports, fault, kafka_error
from stream_learner.edges.kafka.leaders import Place
from stream_learner.edges.kafka.settings import KafkaSettings


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition, and the text stored with it."""

    offset: int
    metadata: str


def committed_offsets(settings: KafkaSettings, places: Iterable[Place]) -> dict[Place, CommittedOffset]:
    """What the group of the settings has committed; partitions without anything are left out.

    Raises BrokerUnreachable, RetryLater, NotAuthorised.
    """
    doing = settings.doing("look up committed offsets", group=settings.group, right="Describe")
    reports = Reports(doing)
    admin = new_client(AdminClient, settings.admin(error_cb=reports))
    asked = ConsumerGroupTopicPartitions(settings.group, [TopicPartition(*place) for place in places])
    try:
        answers = admin.list_consumer_group_offsets([asked], request_timeout=REQUEST_TIMEOUT_S)
        found = answered(answers[settings.group], REQUEST_TIMEOUT_S).topic_partitions
    except KafkaException as error:
        admin.poll(0)
        raise reports.instead_of(fault(error, doing)) from error
    return {
        (place.topic, place.partition): CommittedOffset(place.offset, place.metadata or "")
        for place in found
        if place.offset >= 0
    }


def group_members(settings: KafkaSettings) -> int:
    """How many members the group of the settings has. Raises BrokerUnreachable, RetryLater, NotAuthorised."""
    doing = settings.doing("look up members", group=settings.group, right="Describe")
    reports = Reports(doing)
    admin = new_client(AdminClient, settings.admin(error_cb=reports))
    answers = admin.describe_consumer_groups([settings.group], request_timeout=REQUEST_TIMEOUT_S)
    try:
        return len(answered(answers[settings.group], REQUEST_TIMEOUT_S).members)
    except KafkaException as error:
        reported = kafka_error(error)
        if reported is not None and reported.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        admin.poll(0)
        raise reports.instead_of(fault(error, doing)) from error
