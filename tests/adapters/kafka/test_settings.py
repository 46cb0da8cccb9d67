"""Settings, errors and log lines of the Kafka edge, without a broker."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.adapters.kafka.clients import RepeatFilter
from stream_learner.adapters.kafka.faults import Operation, Reports, fault
from stream_learner.adapters.kafka.properties import CONSUMER_ONLY, FIXED, OURS, PRODUCER_ONLY
from stream_learner.errors import (
    AssignmentRefused,
    AuthenticationFailed,
    BrokerUnreachable,
    ConfigError,
    Fenced,
    LogTrimmed,
    NotAuthorised,
    RetryLater,
    Stop,
    StreamLearnerError,
    TopicMissing,
    TopicRecreated,
)

BROKER = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"group.protocol": "consumer"}, "kafka.group.protocol: must be classic"),
        ({"partition.assignment.strategy": "cooperative-sticky"}, "kafka.partition.assignment.strategy: must be range"),
        ({"enable.auto.commit": True}, "kafka.enable.auto.commit: must be false"),
        ({"auto.offset.reset": "earliest"}, "kafka.auto.offset.reset: must be error"),
        ({"acks": 1}, "kafka.acks: must be all"),
        ({"request.required.acks": 1}, "kafka.acks: must be all"),
        ({"enable.idempotence": False}, "kafka.enable.idempotence: must be true"),
        ({"group.id": "x"}, "kafka.group.id: not settable here"),
        ({"transactional.id": "x"}, "kafka.transactional.id: not settable here"),
        ({"isolation.level": "read_committed"}, "kafka.isolation.level: not settable here"),
        ({"test.mock.num.brokers": 3}, "kafka.test.mock.num.brokers: not settable here"),
        ({"plugin.library.paths": "x"}, "kafka.plugin.library.paths: not settable here"),
        ({"ssl.engine.location": "/tmp/x.so"}, "kafka.ssl.engine.location: not settable here"),
        ({"ssl.engine.id": "x"}, "kafka.ssl.engine.id: not settable here"),
        ({"ssl.providers": "default,x"}, "kafka.ssl.providers: not settable here"),
        ({"sasl.kerberos.kinit.cmd": "touch /tmp/x"}, "kafka.sasl.kerberos.kinit.cmd: not settable here"),
        ({"sasl.kerberos.principal": "me; touch x"}, "kafka.sasl.kerberos.principal: may hold letters"),
        ({"sasl.kerberos.principal": "-x"}, "kafka.sasl.kerberos.principal: may hold letters"),
        ({"sasl.kerberos.keytab": '/k"$(touch x)'}, "kafka.sasl.kerberos.keytab: may hold letters"),
        ({"error_cb": "x"}, "kafka.error_cb: not a setting"),
        ({"fetch.wait.max": 5}, "did you mean fetch.wait.max.ms?"),
        ({"fetch.wait.max.ms": "soon"}, "kafka.fetch.wait.max.ms: Invalid value"),
        ({"socket.timeout.ms": 1}, "kafka.socket.timeout.ms: "),
        ({"max.in.flight": 10}, "kafka.max.in.flight: "),
        ({"bootstrap.servers": ""}, "kafka.bootstrap.servers: required"),
    ],
)
def test_what_breaks_a_protocol_or_is_unknown_is_refused_by_name(given: dict[str, Any], problem: str) -> None:
    """Each refused property is named in the error, with what it must be, why, or the nearest known one."""
    with pytest.raises(ConfigError) as caught:
        KafkaSettings({**BROKER, **given})
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]


def test_names_of_kerberos_are_let_through() -> None:
    """A principal and a keytab as they are usually written."""
    KafkaSettings(
        {**BROKER, "sasl.kerberos.principal": "ads/joiner-1@EXAMPLE.ORG", "sasl.kerberos.keytab": "/a/b.keytab"}
    )


def test_all_problems_are_told_at_once() -> None:
    """Two wrong properties are two problems."""
    with pytest.raises(ConfigError) as caught:
        KafkaSettings({**BROKER, "acks": 0, "group.id": "x"})
    assert len(caught.value.problems) == 2


def test_our_own_values_and_second_names_are_accepted() -> None:
    """Saying what is fixed anyway is no error; `metadata.broker.list` means `bootstrap.servers`."""
    same = {name: value for name, (value, _) in FIXED.items()}
    settings = KafkaSettings({"metadata.broker.list": "a:1", **same, "request.required.acks": "-1"})
    assert settings.bootstrap == "a:1"


def test_every_client_gets_what_concerns_it_and_what_is_fixed() -> None:
    """Consumer properties go to consumers only, producer properties to producers only, the rest to all."""
    given = {**BROKER, "fetch.min.bytes": 7, "linger.ms": 3, "socket.timeout.ms": 5000, "client.id": "me"}
    settings = KafkaSettings(given, group="g")
    consumer, producer, admin = (
        settings.consumer(isolation__level="read_committed"),
        settings.producer(),
        settings.admin(),
    )
    assert consumer["fetch.min.bytes"] == "7"
    assert consumer["group.id"] == "g"
    assert consumer["isolation.level"] == "read_committed"
    assert consumer["auto.offset.reset"] == "error"
    assert consumer["enable.auto.commit"] == "false"
    assert producer["linger.ms"] == "3"
    assert (producer["acks"], producer["enable.idempotence"]) == ("all", "true")
    assert not set(consumer) & {"linger.ms", "acks"}
    assert not set(producer) & {"fetch.min.bytes", "group.id"}
    assert not set(admin) & (PRODUCER_ONLY | CONSUMER_ONLY)
    assert {c["socket.timeout.ms"] for c in (consumer, producer, admin)} == {"5000"}
    assert settings.with_group("h").consumer()["group.id"] == "h"
    assert settings.group == "g"


def test_tables_do_not_contradict_each_other() -> None:
    """A property belongs to one kind of client, and is either fixed or ours."""
    assert not PRODUCER_ONLY & CONSUMER_ONLY
    assert not set(FIXED) & set(OURS)


def test_secrets_are_never_shown() -> None:
    """Neither the settings' text nor a refusal holds a password."""
    secret = {"sasl.password": "hunter2", "ssl.key.password": "hunter2", "sasl.username": "me"}
    assert "hunter2" not in repr(KafkaSettings({**BROKER, **secret}))
    assert "me" in repr(KafkaSettings({**BROKER, **secret}))
    with pytest.raises(ConfigError) as caught:
        KafkaSettings({**BROKER, **secret, "security.protocol": "hunter2"})
    assert "hunter2" not in str(caught.value)


CODES = [
    (KafkaError._TRANSPORT, BrokerUnreachable),
    (KafkaError._ALL_BROKERS_DOWN, BrokerUnreachable),
    (KafkaError._TIMED_OUT, BrokerUnreachable),
    (KafkaError._MSG_TIMED_OUT, BrokerUnreachable),
    (KafkaError.NOT_LEADER_FOR_PARTITION, RetryLater),
    (KafkaError.NOT_ENOUGH_REPLICAS, RetryLater),
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, RetryLater),
    (KafkaError.CONCURRENT_TRANSACTIONS, RetryLater),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorised),
    (KafkaError._AUTHENTICATION, BrokerUnreachable),
    (KafkaError.SASL_AUTHENTICATION_FAILED, AuthenticationFailed),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
    (KafkaError._UNKNOWN_PARTITION, TopicMissing),
    (KafkaError.UNKNOWN_TOPIC_ID, TopicRecreated),
    (KafkaError.OFFSET_OUT_OF_RANGE, LogTrimmed),
    (KafkaError._FENCED, Fenced),
    (KafkaError.FENCED_INSTANCE_ID, Fenced),
    (KafkaError.INCONSISTENT_GROUP_PROTOCOL, AssignmentRefused),
    (KafkaError.INVALID_SESSION_TIMEOUT, ConfigError),
    (KafkaError.MSG_SIZE_TOO_LARGE, Stop),
    (KafkaError._BAD_MSG, Stop),
]


@pytest.mark.parametrize(("code", "kind"), CODES)
def test_codes_say_what_happens_next(code: int, kind: type[StreamLearnerError]) -> None:
    """Each code maps to one class, alike for the error and its exception; topic and code are in the message."""
    operation = Operation("read", "clicks", 3)
    for caught in (KafkaError(code), KafkaException(KafkaError(code))):
        error = fault(caught, operation)
        assert type(error) is kind
        assert error.message.startswith("could not read clicks partition 3: ")
        assert KafkaError(code).name() in error.message
        assert error.action


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("SASL authentication error: Authentication failed: Invalid username or password", AuthenticationFailed),
        ('Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}', AuthenticationFailed),
        ("Failed to acquire SASL OAUTHBEARER token: Could not connect to server", BrokerUnreachable),
        ("SASL OAUTHBEARER mechanism handshake failed: Request not valid in current SASL state", BrokerUnreachable),
        ("SASL PLAIN mechanism handshake failed: Request not valid in current SASL state", AuthenticationFailed),
        ('SASL OAUTHBEARER authentication failed: {"status":"invalid_token"}', BrokerUnreachable),
        ("SASL PLAIN mechanism handshake failed: Local: Broker transport failure", BrokerUnreachable),
        ("FindCoordinator response error: Local: Authentication failure", BrokerUnreachable),
    ],
)
def test_only_credentials_that_a_person_must_change_stop(words: str, kind: type[StreamLearnerError]) -> None:
    """A provider of tokens that is away, a token that was just too old, a connection that broke: they pass."""
    assert type(fault(KafkaError(KafkaError._AUTHENTICATION, words), Operation("read", "clicks"))) is kind


def test_a_token_that_is_refused_to_the_end_is_no_matter_of_age() -> None:
    """While attempts are made it may pass; with the last one it is AuthenticationFailed."""
    words = 'SASL OAUTHBEARER authentication failed: {"status":"invalid_token"}'
    reports = Reports(Operation("reach the cluster"))
    reports(KafkaError(KafkaError._AUTHENTICATION, words))
    nobody = BrokerUnreachable("nobody answered")
    assert type(reports.instead_of(nobody)) is BrokerUnreachable
    assert type(reports.at_last(nobody)) is AuthenticationFailed


def test_rights_are_named() -> None:
    """Who lacks which right on what is in the message."""
    operation = Operation("read", "clicks", 3, group="g", right="Read", principal="alice")
    topic = fault(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), operation)
    group = fault(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), operation)
    assert "alice lacks the right: Read on topic clicks" in str(topic)
    assert "alice lacks the right: Read on group g" in str(group)


def test_tls_errors_about_certificates_stop_and_broken_connections_do_not() -> None:
    """A broker that goes away in the handshake is not a wrong certificate."""
    operation = Operation("read")
    bad = KafkaError(KafkaError._SSL, "SSL handshake failed: certificate verify failed")
    broken = KafkaError(KafkaError._SSL, "SSL handshake failed: Disconnected")
    assert type(fault(bad, operation)) is AuthenticationFailed
    assert type(fault(broken, operation)) is BrokerUnreachable


def test_a_fatal_error_of_a_member_is_a_twin_and_of_an_appender_a_new_start() -> None:
    """librdkafka's `_FATAL` hides its cause in words: fenced members stop, producers are made anew, rights are said."""
    fatal = KafkaError(KafkaError._FATAL, "Fatal consumer error: Broker: Static consumer fenced by other consumer")
    assert type(fault(fatal, Operation("join", group="g"))) is Fenced
    sequence = KafkaError(KafkaError._FATAL, "Fatal error: Broker: Broker received an out of order sequence number")
    assert type(fault(sequence, Operation("append"))) is RetryLater
    rights = KafkaError(KafkaError._FATAL, "Fatal error: Broker: Cluster authorization failed")
    assert type(fault(rights, Operation("append"))) is NotAuthorised


def test_what_is_no_kafka_error_stops_with_its_text() -> None:
    """A SystemError out of a callback, as fatal producers raise, does not pass as something to retry."""
    error = fault(SystemError("returned a result with an exception set"), Operation("append"))
    assert type(error) is Stop
    assert "with an exception set" in str(error)


def test_reports_replace_only_errors_that_say_nothing() -> None:
    """Refused credentials explain why nobody answered, once; other errors keep their own words."""
    reports = Reports(Operation("ask"))
    silence, missing = BrokerUnreachable("no answer"), TopicMissing("gone")
    assert reports.instead_of(silence) is silence
    reports(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    reports(KafkaError(KafkaError._TRANSPORT, "refused"))
    assert reports.instead_of(missing) is missing
    assert isinstance(reports.instead_of(silence), AuthenticationFailed)
    assert reports.instead_of(silence) is silence


def test_repeated_lines_come_once_in_a_while() -> None:
    """One line of each kind of trouble is logged in a period; lines of other kinds pass."""
    now_s = [0.0]
    seldom = RepeatFilter(30.0, lambda: now_s[0])

    def shown(text: str) -> bool:
        return seldom.filter(logging.LogRecord("x", logging.ERROR, "f", 1, text, None, None))

    assert shown("FAIL [a] Connection refused")
    assert not shown("FAIL [b] Connection refused")
    assert shown("REQTMOUT [a] timed out")
    assert shown("CONFWARN [a] one")
    assert shown("CONFWARN [a] two")
    now_s[0] = 31.0
    assert shown("FAIL [a] Connection refused")
