"""A lease: at most one member of a consumer group holds it at a time; it reads no record.

This file must never fetch a record or commit an offset. Correctness must not depend on it: a holder that was stopped
learns late that it has lost the lease, so what it then writes must be refused for another reason.

The lease is the assignment of a topic's one partition. The sticky assignor leaves it where it is when a member joins.
The lease ends when

- the holder closes;
- no heartbeat of the holder was answered for `timeout_ms`. The others learn it by the brokers' clock, the holder by
  librdkafka's own clock, even if no broker can be reached;
- the holder did not poll for `max.poll.interval.ms`.

A lease without a holder goes to the member whose id comes first in the alphabet. An id begins with the client's name,
so that a name can be preferred.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as NoAnswerInTime
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka.clients import new_client
from stream_learner.adapters.kafka.faults import LATER, MISSING, TRIMMED, UNREACHABLE, fault, refuses_certificate
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import ConfigError, Fenced, RetryLater, StreamLearnerError

HEARTBEAT_MS = 500
MAX_SILENCE_MS = 60_000
"""A holder that does not poll for this time counts as hung, as it does for the liveness probe."""
ASK_TIMEOUT_S = 5.0
HARMLESS = MISSING | UNREACHABLE | TRIMMED | LATER | {KafkaError._MAX_POLL_EXCEEDED}
"""Errors that pass by themselves: the client goes on joining. Whether the topic exists is checked elsewhere."""


class Lease:
    """One candidate for a lease, or its holder; used by one thread, which calls `poll` again and again.

    `held`: the group last said that we have the lease. `elsewhere`: it said that another member has it. Both are False
    while the group has not answered, or may have taken the lease away.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        timeout_ms: int,
        name: str,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """settings: with the lease's group. topic: it has one partition. name: this member's id begins with it."""
        self.topic = topic
        self.held = False
        self.elsewhere = False
        self.silent_s = 0.0
        """If the lease ended, or may have ended, because the holder did not poll: for how long it had not; else 0."""
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._name = name
        self._clock_s = clock_s
        self._polled_s = clock_s()
        self._slept_s: tuple[float, float] | None = None
        self._operation = settings.operation("hold the lease", topic, group=settings.group, right="Read")
        self._failure: StreamLearnerError | None = None
        self._join(self._settings.credentials_version(), self._new_member())

    def _new_member(self) -> Consumer:
        who = f"lease-{self._name}-{socket.gethostname()}-{os.getpid()}"
        return new_client(
            Consumer,
            self._settings.consumer(
                client__id=self._settings.client_id(who),
                client__rack="",  # another rack than the partition's would come before the order of names
                partition__assignment__strategy="cooperative-sticky",
                session__timeout__ms=str(self._timeout_ms),
                heartbeat__interval__ms=str(min(HEARTBEAT_MS, self._timeout_ms // 3)),
                max__poll__interval__ms=str(max(MAX_SILENCE_MS, self._timeout_ms)),
                enable__partition__eof="false",
                queued__max__messages__kbytes="1",
                fetch__message__max__bytes="1024",
                error_cb=self._on_error,
            ),
        )

    def _join(self, version: int, member: Consumer) -> None:
        self._credentials, self._consumer = version, member
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self) -> None:
        """Bring `held` and `elsewhere` up to date. Never waits.

        Raises ConfigError where the brokers do not allow the time-out, NotAuthorised, AuthenticationFailed,
        AssignmentRefused where others than this program are in the group.
        """
        if self._settings.credentials_version() != self._credentials:
            with suppress(RetryLater):  # then the client that is there goes on
                self._join_anew()
        self._note_silence()
        try:
            message = self._consumer.poll(0.0)
        except KafkaException as error:
            raise fault(error, self._operation) from error
        if message is not None:
            self._on_message(message)
        failure, self._failure = self._failure, None
        if failure is not None:
            self.held = self.held and not isinstance(failure, Fenced)
            raise failure

    def awake(self) -> None:
        """Say that the time since the last poll was spent waiting for brokers, so it does not count as silence."""
        self._polled_s = self._clock_s()

    def _note_silence(self) -> None:
        """Remember a long gap between two polls: it may have ended the lease, and the group tells so later.

        The time of the lease runs from the last heartbeat before the gap, so half of the time-out counts as long.
        """
        now_s = self._clock_s()
        gap_s, self._polled_s = now_s - self._polled_s, now_s
        if self.held and 2 * gap_s * 1000 > self._timeout_ms:
            self._slept_s = (gap_s, now_s + self._timeout_ms / 1000)
        elif self._slept_s is not None and self.held and now_s > self._slept_s[1]:
            self._slept_s = None

    def _join_anew(self) -> None:
        """Give up the lease, and join with the credentials that are on disk now. Another member may get the lease."""
        version, member = self._settings.credentials_version(), self._new_member()
        self._consumer.close()
        self.held = self.elsewhere = False
        self._join(version, member)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Assign the partition with a position, so that none is looked up, and pause it, so that nothing is read."""
        given = [TopicPartition(p.topic, p.partition, 0) for p in partitions]
        consumer.incremental_assign(given)
        if given:
            consumer.pause(given)
            self.held, self._slept_s, self.silent_s = True, None, 0.0
        self.elsewhere = not self.held

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._end()

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self._end()

    def _end(self) -> None:
        self.silent_s = self._slept_s[0] if self._slept_s is not None else 0.0
        self.held = self.elsewhere = False
        self._slept_s = None

    def _on_message(self, message: Message) -> None:
        """Take an error. No record comes: nothing is read here."""
        error = message.error()
        if error is not None:
            self._on_error(error)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in HARMLESS and not refuses_certificate(error):
            return
        found = fault(error, self._operation)
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            found = ConfigError(
                f"{found}: learner.lease_timeout is {self._timeout_ms} ms",
                action="Set learner.lease_timeout within group.min.session.timeout.ms and "
                "group.max.session.timeout.ms of the brokers.",
            )
        self._failure = self._failure or found

    def close(self) -> None:
        """Leave the group. A candidate that waits gets the lease within a heartbeat."""
        self._consumer.close()
        self.held = self.elsewhere = False


def holder_of(settings: KafkaSettings, topic: str) -> str:
    """The holder of a lease, as "client id at address"; "" if nobody holds it, or the brokers do not tell in time."""
    try:
        admin = new_client(AdminClient, settings.admin())
        answer = admin.describe_consumer_groups([settings.group], request_timeout=ASK_TIMEOUT_S)[settings.group]
        members = answer.result(ASK_TIMEOUT_S).members
    except (KafkaException, NoAnswerInTime, ConfigError, RetryLater):
        return ""
    for member in members:
        if any(held.topic == topic for held in (member.assignment.topic_partitions if member.assignment else ())):
            return f"{member.client_id} at {member.host.lstrip('/')}"
    return ""
