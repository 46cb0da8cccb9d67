"""Each code of Kafka becomes the class of error that says what a role does next."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from stream_learner import errors
from stream_learner.adapters.kafka.faults import Operation, fault

DOING = Operation("publish", "ctr.snapshots", transactional_id="ctr.publisher", right="Write")


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (errors.Fenced, ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID")),
        (errors.NotAuthorised, ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")),
        (errors.NotAuthorised, ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")),
        (errors.AuthenticationFailed, ("SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")),
        (errors.TopicMissing, ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")),
        (errors.TopicRecreated, ("UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")),
        (errors.LogTrimmed, ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET")),
        (errors.ConfigError, ("INVALID_SESSION_TIMEOUT", "INVALID_REPLICATION_FACTOR", "POLICY_VIOLATION")),
        (errors.BrokerUnreachable, ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER", "REQUEST_TIMED_OUT")),
        (errors.RetryLater, ("NOT_LEADER_FOR_PARTITION", "COORDINATOR_LOAD_IN_PROGRESS")),
        (errors.Stop, ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_code_says_what_happens_next(kind: type[errors.StreamLearnerError], codes: tuple[str, ...]) -> None:
    """The message names the operation and the code."""
    for name in codes:
        found = fault(KafkaError(getattr(KafkaError, name)), DOING)
        assert type(found) is kind, name
        assert name in found.message and "could not publish ctr.snapshots" in found.message
