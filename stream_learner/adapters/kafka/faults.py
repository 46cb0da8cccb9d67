"""Turns what librdkafka reports into errors that say what happens next.

The package's docstring has the table of them. An unknown code is never taken as harmless: what is not known to be
retriable stops. Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

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

E = KafkaError

UNREACHABLE = {
    E._TRANSPORT,
    E._ALL_BROKERS_DOWN,
    E._TIMED_OUT,
    E._TIMED_OUT_QUEUE,
    E._MSG_TIMED_OUT,
    E._RESOLVE,
    E._UNKNOWN_BROKER,
    E._DESTROY_BROKER,
    E.REQUEST_TIMED_OUT,
    E.NETWORK_EXCEPTION,
    E.BROKER_NOT_AVAILABLE,
}
LATER = {
    E._WAIT_COORD,
    E._WAIT_CACHE,
    E._RETRY,
    E._IN_PROGRESS,
    E._PREV_IN_PROGRESS,
    E._QUEUE_FULL,
    E._PURGE_QUEUE,
    E._PURGE_INFLIGHT,
    E._NO_OFFSET,
    E._NOENT,
    E._ASSIGNMENT_LOST,
    E.LEADER_NOT_AVAILABLE,
    E.NOT_LEADER_FOR_PARTITION,
    E.REPLICA_NOT_AVAILABLE,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.KAFKA_STORAGE_ERROR,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.NOT_CONTROLLER,
    E.OFFSET_NOT_AVAILABLE,
    E.UNSTABLE_OFFSET_COMMIT,
    E.CONCURRENT_TRANSACTIONS,
    E.REBALANCE_IN_PROGRESS,
    E.ILLEGAL_GENERATION,
    E.UNKNOWN_MEMBER_ID,
    E.THROTTLING_QUOTA_EXCEEDED,
    E.TRANSACTION_ABORTABLE,
}
RIGHTS = {
    E.TOPIC_AUTHORIZATION_FAILED: "topic",
    E.GROUP_AUTHORIZATION_FAILED: "group",
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    E.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
CREDENTIALS = {
    E._AUTHENTICATION,
    E.SASL_AUTHENTICATION_FAILED,
    E.UNSUPPORTED_SASL_MECHANISM,
    E.ILLEGAL_SASL_STATE,
}
MISSING = {E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_TOPIC, E._UNKNOWN_PARTITION}
RECREATED = {E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID}
TRIMMED = {E.OFFSET_OUT_OF_RANGE, E._AUTO_OFFSET_RESET}
FENCED = {
    E._FENCED,
    E.PRODUCER_FENCED,
    E.INVALID_PRODUCER_EPOCH,
    E.FENCED_INSTANCE_ID,
    E.UNRELEASED_INSTANCE_ID,
    E.TRANSACTION_COORDINATOR_FENCED,
}
TOO_LARGE = {E.MSG_SIZE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE, E.INVALID_MSG_SIZE}
CONFIGURATION = {
    E._INVALID_ARG,
    E._NOT_CONFIGURED,
    E.INVALID_SESSION_TIMEOUT,
    E.INVALID_GROUP_ID,
    E.INVALID_TRANSACTION_TIMEOUT,
    E.INVALID_CONFIG,
    E.INVALID_PARTITIONS,
    E.INVALID_REPLICATION_FACTOR,
    E.POLICY_VIOLATION,
    E.TOPIC_EXCEPTION,
    E.UNSUPPORTED_VERSION,
    E._UNSUPPORTED_FEATURE,
}


TOKEN = "Failed to acquire SASL OAUTHBEARER token"
TOKEN_DENIED = ("invalid_", "unauthorized", "access_denied", "unsupported_", "forbidden")
"""Words of a provider that refuses to give a token (RFC 6749, section 5.2). Any other failure may pass."""
TOKEN_SHOWN = "SASL OAUTHBEARER"
TOKEN_REFUSED = "invalid_token"
TOKEN_OUTLIVED = ("not valid in current SASL state", TOKEN_REFUSED)
"""Words of a broker about a token that has expired or nearly: it allows no second authentication within a second."""
LOCAL = "Local: "
"""Begins the words of an error that the client found, not a broker.

A connection broke during authentication, or a request was made on a connection that had been refused. The reason of the
refusal comes in another report.
"""
OLD_TOKEN = "None, if it passes; else let tokens live for longer, and see that the listener wants SASL."


@dataclass(frozen=True)
class Operation:
    """The operation during which Kafka reported an error; it gives the error's message its words.

    what: continues "could not", for example "read". right: the right that it needs. principal: who the brokers see.
    explain: may tell more about a connection that failed; it is given librdkafka's words.
    """

    what: str
    topic: str = ""
    partition: int = -1
    group: str = ""
    transactional_id: str = ""
    right: str = ""
    principal: str = "this client"
    bootstrap: str = ""
    explain: Callable[[str], str] = lambda words: ""

    def __str__(self) -> str:
        place = f" {self.topic}" if self.topic else ""
        place += f" partition {self.partition}" if self.partition >= 0 else ""
        place += f" (group {self.group})" if self.group else ""
        place += f" (transactional id {self.transactional_id})" if self.transactional_id else ""
        return f"could not {self.what}{place}"


def kafka_error(caught: object) -> KafkaError | None:
    """The `KafkaError` that was caught: itself, or the argument of a `KafkaException`; else None."""
    if isinstance(caught, KafkaError):
        return caught
    if isinstance(caught, KafkaException) and caught.args and isinstance(caught.args[0], KafkaError):
        return caught.args[0]
    return None


def fault(caught: object, operation: Operation) -> StreamLearnerError:
    """The error to raise for a `KafkaError`, a `KafkaException`, or anything else that a client raised.

    A fatal error of a group member or a publisher means that another process took its place: Fenced.
    """
    error = kafka_error(caught)
    if error is None:
        return Stop(f"{operation}: the Kafka client failed: {caught}", action="Report this with the log.")
    text = f"{operation}: {error.str()} ({error.name()})"
    return _certain(error, operation, text) or _by_retriability(error, text)


def _certain(error: KafkaError, operation: Operation, text: str) -> StreamLearnerError | None:
    """The error for a code that says by itself what happens next; None for any other."""
    code = error.code()
    if code in RIGHTS:
        return _not_authorised(code, operation, text)
    if code in CREDENTIALS or refuses_certificate(error):
        return _refused_credentials(error, operation, text)
    if code == E._SSL:
        return BrokerUnreachable(text)
    if code == E._FATAL:
        return _fatal(error, operation, text)
    table: list[tuple[set[int], type[StreamLearnerError]]] = [
        (FENCED, Fenced),
        (UNREACHABLE, BrokerUnreachable),
        (MISSING, TopicMissing),
        (RECREATED, TopicRecreated),
        (TRIMMED, LogTrimmed),
        (CONFIGURATION, ConfigError),
        ({E.INCONSISTENT_GROUP_PROTOCOL, E.GROUP_SUBSCRIBED_TO_TOPIC}, AssignmentRefused),
        (LATER, RetryLater),
    ]
    if code in TOO_LARGE:
        return Stop(text, action="Raise `max.message.bytes` of the topic, and `message.max.bytes` under `kafka:`.")
    kind = next((kind for codes, kind in table if code in codes), None)
    if kind is BrokerUnreachable and operation.bootstrap:
        text = f"{text}; brokers asked: {operation.bootstrap}"
    return kind(text) if kind is not None else None


def refuses_certificate(error: KafkaError) -> bool:
    """Whether an error is about certificates or versions of TLS, and not only about a broken connection.

    Under TLS 1.3 a broker refuses a certificate after the handshake; librdkafka reports that as a broken connection.
    """
    text = error.str().lower()
    if error.code() == E._TRANSPORT:
        return "tls alert" in text and ("certificate" in text or "unknown ca" in text)
    words = ("certificate", "verif", "alert", "protocol version", "wrong version", "key")
    return error.code() == E._SSL and any(word in text for word in words)


def _refused_credentials(error: KafkaError, operation: Operation, text: str) -> StreamLearnerError:
    """AuthenticationFailed, with who was refused and why; BrokerUnreachable if it may pass by itself.

    For example, a provider of tokens may not answer now.
    """
    words = error.str()
    if TOKEN in words and not any(word in words for word in TOKEN_DENIED):
        return BrokerUnreachable(
            f"{text}; no token for {operation.principal}", action="Check kafka.sasl.oauthbearer.token.endpoint.url."
        )
    if TOKEN_SHOWN in words and any(word in words for word in TOKEN_OUTLIVED):
        return BrokerUnreachable(f"{text}; the token of {operation.principal} was too old", action=OLD_TOKEN)
    if LOCAL in words:
        return BrokerUnreachable(text)
    if not refuses_certificate(error):
        return AuthenticationFailed(f"{text}; the brokers do not accept {operation.principal}")
    why = operation.explain(words)
    return AuthenticationFailed(f"{text}; {why}" if why else text)


def _fatal(error: KafkaError, operation: Operation, text: str) -> StreamLearnerError:
    """The error for a client that has failed for good.

    The cause is only in its words; mostly another process took over.
    """
    if "authorization failed" in error.str().lower():
        return NotAuthorised(f"{text}; {operation.principal} lacks the right: {operation.right or operation.what}")
    if operation.group or operation.transactional_id or "fenced" in error.str().lower():
        return Fenced(text)
    return RetryLater(f"{text}; the client must be made anew")


def _not_authorised(code: int, operation: Operation, text: str) -> NotAuthorised:
    """NotAuthorised, with the right that is missing.

    The cluster refuses an idempotent producer that may not write to any topic.
    """
    kind = RIGHTS[code]
    if kind == "cluster" and operation.right == "Write":
        where = f"topic {operation.topic}" if operation.topic else "any of its topics"
        return NotAuthorised(f"{text}; {operation.principal} lacks the right: Write on {where}")
    names = {"topic": operation.topic, "group": operation.group, "transactional id": operation.transactional_id}
    right = f"{operation.right or operation.what} on {kind} {names.get(kind, '')}".rstrip()
    return NotAuthorised(f"{text}; {operation.principal} lacks the right: {right}")


def _by_retriability(error: KafkaError, text: str) -> StreamLearnerError:
    if error.retriable() or error.txn_requires_abort():
        return RetryLater(text)
    return Stop(text, action=f"Look up {error.name()} in the documentation of librdkafka and of the brokers.")


class Reports:
    """The callback for errors that librdkafka reports apart from the results of calls.

    Wrong credentials are reported only here; the calls themselves say that no broker answered.
    """

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._stop: StreamLearnerError | None = None
        self._no_token: StreamLearnerError | None = None

    def __call__(self, error: KafkaError, operation: Operation | None = None) -> None:
        """Keep a report, unless it may pass by itself."""
        if self._stop is not None:
            return
        found = fault(error, operation or self._operation)
        if isinstance(found, (AuthenticationFailed, NotAuthorised)):
            self._stop = found
        elif error.code() in CREDENTIALS:
            self._no_token = found

    def take(self) -> StreamLearnerError | None:
        """A report that needs a person, once; None if there is none."""
        stop, self._stop = self._stop, None
        return stop

    def at_last(self, found: StreamLearnerError) -> StreamLearnerError:
        """The error of `instead_of` after the last attempt: a token that is still refused is not merely too old."""
        cause = self.instead_of(found)
        refused = isinstance(cause, BrokerUnreachable) and TOKEN_REFUSED in cause.message
        return AuthenticationFailed(cause.message) if refused else cause

    def instead_of(self, found: StreamLearnerError) -> StreamLearnerError:
        """The reported cause, if `found` says only that no broker answered; else `found` itself."""
        if not isinstance(found, RetryLater):
            return found
        return self.take() or (self._no_token if isinstance(found, BrokerUnreachable) else None) or found
