"""Asks the brokers where partitions begin and end, and what a consumer group has committed.

An answer never comes from a client's cache, and keeps the time of its question: `EndWatch` moves that time forward only
with a new answer. Nothing here joins a group or commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import MappingProxyType, TracebackType
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from stream_learner.adapters.kafka.client_log import log
from stream_learner.adapters.kafka.clients import PendingAnswers, answered, new_client
from stream_learner.adapters.kafka.faults import Operation, Reports, fault, kafka_error
from stream_learner.adapters.kafka.leaders import Leaders, TopicAndPartition
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import BrokenInvariant, RetryLater, Stop, StreamLearnerError

REQUEST_TIMEOUT_S = 5.0
LONGEST_PAUSE_S, SHORTEST_PAUSE_S = 1.0, 0.02
"""Between two questions of an `EndWatch` that asks at moments."""
BEYOND_END = -1


class OffsetQueries:
    """Asks the leaders for offsets of many partitions at once (1-2 ms for 16 on an idle cluster); thread-safe.

    Every method raises BrokerUnreachable, RetryLater or NotAuthorised for the first partition without an answer;
    `high_watermarks_known` returns these errors instead. A partition without a leader and one that does not exist both
    give RetryLater here; `Admin.require` and `TopicWatch` tell them apart.

    After a partition's leader has changed, librdkafka (2.16) goes on asking the old one and is refused each time. So
    after a failure `Leaders` has the topic described anew, which makes librdkafka learn the new leader.
    describes: whether the brokers describe topics. The mock cluster does not; librdkafka finds its leaders itself.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        describes: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings
        self._timeout_s = request_timeout_s
        self._describes = describes
        self._reports = Reports(self._operation())
        self._connect()

    def _connect(self) -> None:
        self._credentials = self._settings.credentials_version()
        client = new_client(AdminClient, self._settings.admin(error_cb=self._reports))
        self._leaders = Leaders(client, self._timeout_s)

    def high_watermarks(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The offset after the last replicated record, transaction markers and open transactions included."""
        return self._all(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def last_stable_offsets(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The offset of the first record of an open transaction, or the high watermark if none is open."""
        return self._all(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def earliest(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The first offset that the partition still has; equal to the high watermark if the partition is empty."""
        return self._all(partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def at_time(self, partitions: Iterable[TopicAndPartition], time_ms: int) -> dict[TopicAndPartition, int]:
        """The first offset whose record time is at or after `time_ms`; `BEYOND_END` if there is none."""
        return self._all(partitions, OffsetSpec.for_timestamp(time_ms), IsolationLevel.READ_UNCOMMITTED)

    def at_times(self, times_ms: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """`at_time`, with a time of its own for each partition."""
        specs = {partition: OffsetSpec.for_timestamp(time_ms) for partition, time_ms in times_ms.items()}
        answers = self._ask(specs, IsolationLevel.READ_UNCOMMITTED)
        return {partition: self._offset(partition, answer) for partition, answer in answers.items()}

    def first_times(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The time in ms of the first record, of those still there, that has a time; -1 if there is none."""
        answers = self._ask(dict.fromkeys(partitions, OffsetSpec.for_timestamp(0)), IsolationLevel.READ_UNCOMMITTED)
        found = {partition: self._answer(partition, answer) for partition, answer in answers.items()}
        return {partition: info.timestamp if info.offset >= 0 else -1 for partition, info in found.items()}

    def high_watermarks_known(
        self, partitions: Iterable[TopicAndPartition]
    ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, StreamLearnerError]]:
        """The high watermarks that are known, and the error for each partition without an answer in time."""
        known: dict[TopicAndPartition, int] = {}
        failed: dict[TopicAndPartition, StreamLearnerError] = {}
        specs = dict.fromkeys(partitions, OffsetSpec.latest())
        for partition, answer in self._ask(specs, IsolationLevel.READ_UNCOMMITTED).items():
            try:
                known[partition] = self._offset(partition, answer)
            except StreamLearnerError as error:
                failed[partition] = error
        return known, failed

    def _all(
        self, partitions: Iterable[TopicAndPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicAndPartition, int]:
        return {
            partition: self._offset(partition, answer)
            for partition, answer in self._ask(dict.fromkeys(partitions, spec), isolation).items()
        }

    def _offset(self, partition: TopicAndPartition, answer: Future[ListOffsetsResultInfo]) -> int:
        return self._answer(partition, answer).offset

    def _answer(self, partition: TopicAndPartition, answer: Future[ListOffsetsResultInfo]) -> ListOffsetsResultInfo:
        """Wait for an answer.

        Raises RetryLater if it has no valid offset, for example because the connection broke.
        """
        try:
            found = answered(answer, self._timeout_s)
        except KafkaException as error:
            self._leaders.failed(partition, error)
            raise self._fault(error, partition) from error
        if found.offset < BEYOND_END:
            self._leaders.failed(partition)
            raise RetryLater(f"{self._operation(partition)}: no answer")
        return found

    def _ask(
        self, specs: Mapping[TopicAndPartition, OffsetSpec], isolation: IsolationLevel
    ) -> PendingAnswers[TopicAndPartition, ListOffsetsResultInfo]:
        if self._settings.credentials_version() != self._credentials:
            self._connect()
        leaders = self._leaders
        leaders.client.poll(0)  # takes librdkafka's log lines, which would pile up
        missing = leaders.missing(list(specs)) if self._describes() else {}
        request = {TopicPartition(*partition): spec for partition, spec in specs.items() if partition not in missing}
        answers: PendingAnswers[TopicAndPartition, ListOffsetsResultInfo] = PendingAnswers(
            leaders.client, lambda client: self._list(client, request, isolation)
        )
        answers.update((partition, _failed(reason)) for partition, reason in missing.items())
        return answers

    def _list(
        self, client: AdminClient, request: dict[TopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[TopicAndPartition, Future[ListOffsetsResultInfo]]:
        if not request:
            return {}
        answers = client.list_offsets(request, isolation_level=isolation, request_timeout=self._timeout_s)
        return {(partition.topic, partition.partition): answer for partition, answer in answers.items()}

    def _fault(self, error: KafkaException, partition: TopicAndPartition) -> StreamLearnerError:
        self._leaders.client.poll(0)
        return self._reports.instead_of(fault(error, self._operation(partition)))

    def _operation(self, partition: TopicAndPartition = ("", -1)) -> Operation:
        return self._settings.operation("ask for offsets of", *partition, right="Describe")


def _failed(reason: KafkaException) -> Future[ListOffsetsResultInfo]:
    answer: Future[ListOffsetsResultInfo] = Future()
    answer.set_exception(reason)
    return answer


class End(NamedTuple):
    """The end of a partition. All records that were visible at `asked_at_ms` lie before `high_watermark`."""

    asked_at_ms: int
    high_watermark: int


class Moments(NamedTuple):
    """The moments k * every_ms + after_ms of a clock, for every whole k."""

    every_ms: int
    after_ms: int

    def next_in_s(self, now_ms: int) -> float:
        """Seconds until the next one after `now_ms`."""
        return (self.every_ms - (now_ms - self.after_ms) % self.every_ms) / 1000


class EndWatch:
    """Keeps asking for the ends of some partitions, in a thread of its own.

    `snapshot` is replaced as a whole and never changed in place. A partition without a new answer keeps its old entry
    with its old time, so a reader that goes by that time stands still. `clock_ms` is read before each question, and
    besides only to wait for a moment. `check` raises errors that will not pass by themselves, and a defect that has
    ended the thread: a partition would stand still for good.
    """

    def __init__(
        self,
        queries: OffsetQueries,
        clock_ms: Callable[[], int],
        partitions: Iterable[TopicAndPartition] = (),
        *,
        period_s: float = 0.2,
        moments: Callable[[], Moments] | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """moments: those of `clock_ms` at which an answer says most: the thread asks then instead of every `period_s`,
        while every partition is answered. told: called in the thread of this object after each new snapshot.
        """
        self._moments = moments
        self._unanswered = False
        self._told = told
        self._queries = queries
        self._clock_ms = clock_ms
        self._period_s = period_s
        self._partitions: frozenset[TopicAndPartition] = frozenset(partitions)
        self._asking = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._stops: list[StreamLearnerError] = []
        self._defect: BrokenInvariant | None = None
        self._thread: threading.Thread | None = None
        self.snapshot: Mapping[TopicAndPartition, End] = MappingProxyType({})

    def watch(self, partitions: Iterable[TopicAndPartition]) -> None:
        """Watch these partitions from now on. Entries of other partitions disappear with the next question."""
        self._partitions = frozenset(partitions)
        self._wake.set()

    def start(self) -> EndWatch:
        """Ask in the background, again and again, and at once when the partitions change."""
        self._thread = threading.Thread(target=self._run, name="end-watch", daemon=True)
        self._thread.start()
        return self

    def ask(self) -> Mapping[TopicAndPartition, End]:
        """Ask now, in the calling thread, and return the new snapshot."""
        with self._asking:
            partitions = self._partitions
            asked_at_ms = self._clock_ms()
            known, failed = self._queries.high_watermarks_known(partitions)
            self._unanswered = bool(failed)
            self._stops = [error for error in failed.values() if isinstance(error, Stop)]
            fresh = {partition: End(asked_at_ms, offset) for partition, offset in known.items()}
            kept = {partition: end for partition, end in self.snapshot.items() if partition in partitions}
            self.snapshot = MappingProxyType({**kept, **fresh})
            return self.snapshot

    def check(self) -> None:
        """Raise an error of the last question that needs a person, such as NotAuthorised.

        Raises BrokenInvariant if an error of the program has ended the thread.
        """
        if self._defect is not None:
            raise self._defect
        if self._stops:
            raise self._stops[0]

    def _run(self) -> None:
        while not self._stopped:
            try:
                self.ask()
                self._told()
            except KafkaException as error:
                log.info("no ends of partitions: %s", error)
            except Exception as error:  # noqa: BLE001 -- a defect; `check` raises it in the role's thread
                self._defect = BrokenInvariant(f"asking for the ends failed: {type(error).__name__}: {error}")
                self._defect.__cause__ = error
                return
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _pause_s(self) -> float:
        if self._moments is None or self._unanswered:
            return self._period_s
        return min(max(self._moments().next_in_s(self._clock_ms()), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def stop(self) -> None:
        """End the thread; the last snapshot stays. May be called twice."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> EndWatch:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for a partition, and the text stored with it."""

    offset: int
    metadata: str


def committed_offsets(
    settings: KafkaSettings, partitions: Iterable[TopicAndPartition]
) -> dict[TopicAndPartition, CommittedOffset]:
    """Ask for the committed offsets of the settings' group. Partitions without a committed offset are left out.

    Raises BrokerUnreachable, RetryLater, NotAuthorised.
    """
    operation = settings.operation("look up committed offsets", group=settings.group, right="Describe")
    reports = Reports(operation)
    admin = new_client(AdminClient, settings.admin(error_cb=reports))
    asked = ConsumerGroupTopicPartitions(settings.group, [TopicPartition(*partition) for partition in partitions])
    try:
        answers = admin.list_consumer_group_offsets([asked], request_timeout=REQUEST_TIMEOUT_S)
        found = answered(answers[settings.group], REQUEST_TIMEOUT_S).topic_partitions
    except KafkaException as error:
        admin.poll(0)
        raise reports.instead_of(fault(error, operation)) from error
    return {
        (partition.topic, partition.partition): CommittedOffset(partition.offset, partition.metadata or "")
        for partition in found
        if partition.offset >= 0
    }


def group_members(settings: KafkaSettings) -> int:
    """How many members the group of the settings has. Raises BrokerUnreachable, RetryLater, NotAuthorised."""
    operation = settings.operation("look up members", group=settings.group, right="Describe")
    reports = Reports(operation)
    admin = new_client(AdminClient, settings.admin(error_cb=reports))
    answers = admin.describe_consumer_groups([settings.group], request_timeout=REQUEST_TIMEOUT_S)
    try:
        return len(answered(answers[settings.group], REQUEST_TIMEOUT_S).members)
    except KafkaException as error:
        reported = kafka_error(error)
        if reported is not None and reported.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        admin.poll(0)
        raise reports.instead_of(fault(error, operation)) from error
