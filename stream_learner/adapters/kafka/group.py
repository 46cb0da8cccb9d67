"""Membership in the consumer group that shares the partitions of both inputs; it reads no record.

It tells which partition numbers this process has, and which it no longer has. This file must never fetch a record,
never hand out a partition of one input without the partition of the same number of the other, and never rejoin a group
after another process with the same instance id has taken its place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka.clients import answered, log, new_client
from stream_learner.adapters.kafka.faults import MISSING, TRIMMED, UNREACHABLE, fault, refuses_certificate
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import AssignmentRefused, Fenced, PartitionCountsDiffer, StreamLearnerError
from stream_learner.wording import count_of

QUERY_TIMEOUT_S = 10.0
SESSION_TIMEOUT_MS = "45000"
LEAVE_S = 3.0


@dataclass(frozen=True)
class Assigned:
    """These partitions are ours from now on; an empty set if all were lost and none came back."""

    partitions: frozenset[int]


@dataclass(frozen=True)
class Revoked:
    """These partitions are no longer ours; another member may have them already."""

    partitions: frozenset[int]


@dataclass(frozen=True)
class Lost:
    """The group took these partitions away without asking, because this member was silent for too long."""

    partitions: frozenset[int]


Event = Assigned | Revoked | Lost


@dataclass(frozen=True)
class Committed:
    """The offsets that the group has stored for a partition; None if it has stored none."""

    impressions_offset: int | None
    clicks_offset: int | None
    metadata: str


class ToCommit(NamedTuple):
    """The offsets that the group is to store for a partition. metadata, of_clicks: the texts stored with them, at most
    4,096 bytes each.
    """

    impressions_offset: int
    clicks_offset: int
    metadata: str
    of_clicks: str = ""


class Membership:
    """One member of the group; used by one thread, which must call `poll` at least every `max.poll.interval.ms`.

    With an `instance_id` the member is static: it can stop, come back within `session.timeout.ms`, and still has its
    partitions. A rebalance takes all partitions away and gives most of them back. Those that come back are not
    reported, so that work on them goes on. If none comes back within the session time-out, all are reported as revoked.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        impressions: str,
        clicks: str,
        *,
        instance_id: str | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.impressions = impressions
        self.clicks = clicks
        self.partitions: frozenset[int] = frozenset()
        self.commit_errors = 0
        self._sent: dict[int, ToCommit] = {}
        """What was sent last of each partition, as far as the group may have it."""
        self._commits_fail = False
        self._clock_s = clock_s
        self._settings = settings
        self._operation = settings.operation("take part in the consumer group", group=settings.group, right="Read")
        self._keep_s = int(settings.get("session.timeout.ms", SESSION_TIMEOUT_MS)) / 1000
        self._given: list[TopicPartition] | None = None
        self._in_doubt_since_s: float | None = None
        self._was_lost = False
        self._events: deque[Event] = deque()
        self._failure: StreamLearnerError | None = None
        self._final: Fenced | None = None
        self._static = {"group__instance__id": instance_id} if instance_id else {}
        self._join(self._settings.credentials_version(), self._new_member())

    def _new_member(self) -> Consumer:
        heartbeat_ms = self._settings.get("heartbeat.interval.ms", str(int(min(3.0, self._keep_s / 3) * 1000)))
        return new_client(
            Consumer,
            self._settings.consumer(
                client__id=self._settings.client_id("member"),
                heartbeat__interval__ms=heartbeat_ms,
                queued__max__messages__kbytes="1",
                fetch__message__max__bytes="1024",
                error_cb=self._on_error,
                on_commit=self._on_commit,
                **self._static,
            ),
        )

    def _join(self, version: int, member: Consumer) -> None:
        self._credentials, self._consumer = version, member
        self._consumer.subscribe(
            [self.impressions, self.clicks],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _join_anew(self) -> None:
        """Leave, and join with the credentials that are on disk now. For the partitions this is a rebalance."""
        version, member = self._settings.credentials_version(), self._new_member()
        self._consumer.close()
        self._in_doubt_since_s = self._clock_s()
        self._given = self._failure = None
        self._join(version, member)

    def poll(self, timeout_s: float = 0.0) -> list[Event]:
        """The changes since the last call, in order. Waits at most `timeout_s` for one.

        Raises Fenced if another process with the same instance id has taken our place (final), PartitionCountsDiffer
        and AssignmentRefused for an assignment with a partition of only one input, TopicMissing, NotAuthorised,
        AuthenticationFailed, BrokerUnreachable (the client goes on connecting by itself: poll again).
        """
        if self._final is None and self._settings.credentials_version() != self._credentials:
            self._join_anew()
        try:
            message = self._consumer.poll(timeout_s)
        except KafkaException as error:
            raise fault(error, self._operation) from error
        if message is not None:
            self._on_message(message)
        self._raise_failure()
        self._take_assignment()
        events = list(self._events)
        self._events.clear()
        return events

    def _raise_failure(self) -> None:
        """Raise what was reported since the last call.

        Fenced is raised at every call: librdkafka reports it only once.
        """
        failure, self._failure = self._failure, None
        if isinstance(failure, Fenced):
            self._final = failure
        if self._final is not None:
            raise self._final
        if failure is not None:
            raise failure

    def _take_assignment(self) -> None:
        """Turn an assignment into events, or stop waiting for one."""
        if self._given is not None:
            now = self._whole_pairs(self._given)
            self._given = self._in_doubt_since_s = None
            self._become(now)
        elif self._in_doubt_since_s is not None and self._clock_s() - self._in_doubt_since_s > self._keep_s:
            self._in_doubt_since_s = None
            self._become(frozenset())

    def _become(self, now: frozenset[int]) -> None:
        before, self.partitions = self.partitions, now
        self._sent.clear()  # another member may have stored others meanwhile
        if before - now:
            self._events.append(Revoked(before - now))
        if now - before or self._was_lost:
            self._events.append(Assigned(now - before))
        self._was_lost = False

    def _whole_pairs(self, given: list[TopicPartition]) -> frozenset[int]:
        """The partition numbers of an assignment. Raises an error unless each is given of both inputs."""
        counts = self._partition_counts()
        if counts[self.impressions] != counts[self.clicks]:
            raise PartitionCountsDiffer(
                f"{self.impressions} has {count_of(counts[self.impressions], 'partition')}, {self.clicks} has "
                f"{counts[self.clicks]}"
            )
        of = {topic: frozenset(p.partition for p in given if p.topic == topic) for topic in counts}
        if of[self.impressions] != of[self.clicks]:
            parted = sorted(of[self.impressions] ^ of[self.clicks])
            raise AssignmentRefused(f"the group gave out partitions {parted} of only one of {', '.join(counts)}")
        return of[self.impressions]

    def _partition_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic in (self.impressions, self.clicks):
            try:
                found = self._consumer.list_topics(topic, QUERY_TIMEOUT_S).topics[topic]
            except KafkaException as error:
                raise fault(error, self._operation) from error
            if found.error is not None:
                raise fault(found.error, self._settings.operation("find", topic, right="Describe"))
            counts[topic] = len(found.partitions)
        return counts

    def _check_topics(self) -> None:
        """librdkafka reported a missing topic: keep the error only if the brokers say so now."""
        try:
            self._partition_counts()
        except StreamLearnerError as error:
            self._failure = self._failure or error

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Assign the partitions with a position, so that none is looked up, and pause them, so that nothing is read."""
        held = [TopicPartition(p.topic, p.partition, 0) for p in partitions]
        consumer.assign(held)
        consumer.pause(held)
        self._given = list(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._in_doubt_since_s = self._clock_s()
        self._given = None

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._given = None
        self._in_doubt_since_s = None
        lost, self.partitions = self.partitions, frozenset()
        self._sent.clear()
        if lost:
            self._was_lost = True
            self._events.append(Lost(lost))

    def _on_message(self, message: Message) -> None:
        """Take an error. No record comes: nothing is read here."""
        error = message.error()
        if error is None:
            return
        if error.code() in MISSING:
            self._check_topics()
        self._on_error(error)

    def _on_error(self, error: KafkaError) -> None:
        # A fetch that was sent before the pause may fail because offset 0 is trimmed; nobody wants its records.
        harmless = MISSING | UNREACHABLE | TRIMMED | {KafkaError._MAX_POLL_EXCEEDED}
        all_down = error.code() == KafkaError._ALL_BROKERS_DOWN
        if all_down or error.code() not in harmless or refuses_certificate(error):
            self._failure = self._failure or fault(error, self._operation)

    def commit(self, progress: Mapping[int, ToCommit]) -> None:
        """Store the offsets of these partitions for the group, without waiting and in one request.

        Those that are as at the last call are left out. They are a hint for displays of lag and for the next owner.
        Failures are counted in `commit_errors` and logged; then the next call sends all.
        """
        changed = {partition: now for partition, now in progress.items() if self._sent.get(partition) != now}
        if not changed:
            return
        self._sent.update(changed)
        offsets = [place for partition, now in changed.items() for place in self._places(partition, now)]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._commit_failed(str(error))

    def _places(self, partition: int, now: ToCommit) -> list[TopicPartition]:
        impressions = TopicPartition(self.impressions, partition, now.impressions_offset, now.metadata)
        return [impressions, TopicPartition(self.clicks, partition, now.clicks_offset, now.of_clicks)]

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        failed = [p.error for p in partitions if p.error is not None]
        if error is not None or failed:
            self._commit_failed(str(error or failed[0]))
        else:
            self._commits_fail = False

    def _commit_failed(self, text: str) -> None:
        """Count a failure, and log the first of several in a row."""
        self.commit_errors += 1
        self._sent.clear()
        if not self._commits_fail:
            log.info("offsets of group %s were not stored: %s", self._operation.group, text)
        self._commits_fail = True

    def committed(self, partition: int, timeout_s: float = QUERY_TIMEOUT_S) -> Committed:
        """Ask for the offsets that the group has stored for a partition.

        Raises BrokerUnreachable, RetryLater, NotAuthorised.
        """
        asked = [TopicPartition(self.impressions, partition), TopicPartition(self.clicks, partition)]
        try:
            found = self._consumer.committed(asked, timeout=timeout_s)
        except KafkaException as error:
            raise fault(error, self._operation) from error
        offsets = {p.topic: p.offset if p.offset >= 0 else None for p in found}
        metadata = next((p.metadata or "" for p in found if p.topic == self.impressions), "")
        return Committed(offsets[self.impressions], offsets[self.clicks], metadata)

    def leave(self, timeout_s: float = LEAVE_S) -> None:
        """Leave the group at once, also as a static member. Only `close` may be called afterwards.

        A static member that closes does not tell the group; one that unsubscribes does. Waits at most `timeout_s` until
        the group has no such member. If brokers are away, its partitions move when the session ends.
        """
        if not self._static:
            return
        self._consumer.unsubscribe()
        admin = new_client(AdminClient, self._settings.admin())
        until_s = self._clock_s() + timeout_s
        while (left_s := until_s - self._clock_s()) > 0:
            with suppress(KafkaException):
                self._consumer.poll(0.05)
                if not self._is_listed(admin, left_s):
                    return
        log.warning("no answer from group %s: the partitions move when the session ends", self._operation.group)

    def _is_listed(self, admin: AdminClient, timeout_s: float) -> bool:
        """Whether the brokers list a member of the group with our instance id."""
        groups = admin.describe_consumer_groups([self._settings.group], request_timeout=timeout_s)
        members = answered(groups[self._settings.group], timeout_s).members
        return any(member.group_instance_id == self._static["group__instance__id"] for member in members)

    def close(self) -> None:
        """Leave the group. A static member only falls silent, and keeps its partitions for the session time-out."""
        self._consumer.close()
