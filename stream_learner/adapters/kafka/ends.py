"""Asks the brokers where partitions begin and end, and what a consumer group has committed.

An answer never comes from a client's cache, and keeps the time of its question: `EndWatch` moves that time forward only
with a new answer. Nothing here joins a group or commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConsumerGroupDescription,
)

from stream_learner.adapters.kafka.clients import answered, log, new_client
from stream_learner.adapters.kafka.faults import MISSING, Operation, Reports, fault, kafka_error
from stream_learner.adapters.kafka.reader_pool import READ_COMMITTED, READ_UNCOMMITTED
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import BrokenInvariant, RetryLater, Stop, StreamLearnerError

REQUEST_TIMEOUT_S = 5.0
LEADERS_TIMEOUT_S = 1.0
"""How long a broker may take to tell the leaders of a topic: another may be asked the next time."""
LONGEST_PAUSE_S, SHORTEST_PAUSE_S = 1.0, 0.02
"""Between two questions of an `EndWatch` that asks at moments."""
BEYOND_END = -1
LATEST_MS = 1 << 42
"""In the year 2109: a later time of a record counts as this one."""
REPORTS = 100
"""Most reports that are taken from a client at once."""

TopicAndPartition = tuple[str, int]
"""A topic and a partition."""
Answer: TypeAlias = "int | KafkaException"
"""An offset, or why there is none."""


class OffsetQueries:
    """Asks the leaders for offsets of many partitions at once (about 1 ms for 64 on an idle cluster); thread-safe.

    Every method raises BrokerUnreachable, RetryLater or NotAuthorised for the first partition without an answer;
    `high_watermarks_known` returns these errors instead. A partition without a leader and one that does not exist both
    give RetryLater here; `Admin.require` and `TopicWatch` tell them apart.

    All leaders are asked at once. One that refuses or does not answer spoils the question for the others too. Then, and
    until every partition is answered, the leaders are looked up and each is asked for itself. This must never use
    `list_offsets`, which can end the process (docs/adr/0025-offsets-are-asked-by-a-consumer.md).
    """

    def __init__(self, settings: KafkaSettings, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = request_timeout_s
        self._reports = Reports(self._operation())
        self._credentials = settings.credentials_version()
        self._clients: dict[str, Consumer] = {}
        """By isolation, which is a property of a client; both in no group."""
        self._unsure: set[str] = set()
        """Topics with a partition that was not answered when last asked for."""

    def _client(self, isolation: str) -> Consumer:
        version = self._settings.credentials_version()
        clients = self._clients if version == self._credentials else {}
        if isolation not in clients:
            properties = self._settings.consumer(isolation__level=isolation, error_cb=self._reports)
            clients[isolation] = new_client(Consumer, properties)
        self._clients, self._credentials = clients, version
        client = clients[isolation]
        client.consume(REPORTS, 0)  # takes librdkafka's log lines and reports, which would pile up
        return client

    def high_watermarks(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The offset after the last replicated record, transaction markers and open transactions included."""
        return self._offsets(dict.fromkeys(partitions, OFFSET_END))

    def last_stable_offsets(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The offset of the first record of an open transaction, or the high watermark if none is open."""
        return self._offsets(dict.fromkeys(partitions, OFFSET_END), READ_COMMITTED)

    def earliest(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The first offset that the partition still has; equal to the high watermark if the partition is empty."""
        return self._offsets(dict.fromkeys(partitions, OFFSET_BEGINNING))

    def at_time(self, partitions: Iterable[TopicAndPartition], time_ms: int) -> dict[TopicAndPartition, int]:
        """The first offset whose record time is at or after `time_ms` (>= 0); `BEYOND_END` if there is none."""
        return self._offsets(dict.fromkeys(partitions, time_ms))

    def at_times(self, times_ms: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """`at_time`, with a time of its own for each partition."""
        return self._offsets(times_ms)

    def first_times(self, partitions: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """The time in ms of the first record, of those still there, that has a time; -1 if there is none.

        Brokers tell only offsets of times, so bisect: this is the latest time whose first offset is that of time 0.
        """
        first = self.at_time(partitions, 0)
        low = {partition: 0 for partition, offset in first.items() if offset >= 0}
        high = dict.fromkeys(low, LATEST_MS + 1)
        while open_still := {p: (low[p] + high[p]) // 2 for p in low if high[p] - low[p] > 1}:
            for partition, offset in self.at_times(open_still).items():
                (low if offset == first[partition] else high)[partition] = open_still[partition]
        return {partition: low.get(partition, -1) for partition in first}

    def high_watermarks_known(
        self, partitions: Iterable[TopicAndPartition]
    ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, StreamLearnerError]]:
        """The high watermarks that are known, and the error for each partition without an answer in time."""
        known: dict[TopicAndPartition, int] = {}
        failed: dict[TopicAndPartition, StreamLearnerError] = {}
        for partition, answer in self._ask(dict.fromkeys(partitions, OFFSET_END), READ_UNCOMMITTED).items():
            try:
                known[partition] = self._offset(partition, answer)
            except StreamLearnerError as error:
                failed[partition] = error
        return known, failed

    def _offsets(
        self, asked: Mapping[TopicAndPartition, int], isolation: str = READ_UNCOMMITTED
    ) -> dict[TopicAndPartition, int]:
        return {partition: self._offset(partition, answer) for partition, answer in self._ask(asked, isolation).items()}

    def _offset(self, partition: TopicAndPartition, answer: int | KafkaException) -> int:
        if isinstance(answer, int):
            return answer
        error = kafka_error(answer)
        if error is not None and error.code() in MISSING:
            answer = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no leader is known"))
        raise self._reports.instead_of(fault(answer, self._operation(partition))) from answer

    def _ask(self, asked: Mapping[TopicAndPartition, int], isolation: str) -> Mapping[TopicAndPartition, Answer]:
        """The answer, or the error, for each partition. asked: a time in ms, OFFSET_BEGINNING or OFFSET_END."""
        if not asked:
            return {}
        client = self._client(isolation)
        topics = {topic for topic, _ in asked}
        answers = {} if self._unsure & topics else self._together(client, asked)
        if not any(isinstance(answer, int) for answer in answers.values()):
            answers = self._one_by_one(client, topics, asked)
        client.consume(REPORTS, 0)  # what was wrong with the connection is reported by now
        self._unsure = self._unsure - topics | {p[0] for p, answer in answers.items() if not isinstance(answer, int)}
        return answers

    def _together(self, client: Consumer, asked: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, Answer]:
        """Ask all leaders of these partitions at once. If one fails, there is an error for each partition."""
        request = [TopicPartition(*partition, offset) for partition, offset in asked.items()]
        try:
            found = client.offsets_for_times(request, self._timeout_s)
        except KafkaException as error:
            return dict.fromkeys(asked, error)
        return {(one.topic, one.partition): _answer(one, asked[one.topic, one.partition]) for one in found}

    def _one_by_one(
        self, client: Consumer, topics: Collection[str], asked: Mapping[TopicAndPartition, int]
    ) -> dict[TopicAndPartition, Answer]:
        """Look the leaders up, and ask each for itself. Partitions without a leader are not asked for."""
        leaders = {topic: self._leaders(client, topic) for topic in topics}
        answers: dict[TopicAndPartition, Answer] = {}
        of_leader: dict[int, dict[TopicAndPartition, int]] = {}
        for (topic, partition), offset in asked.items():
            found = leaders[topic]
            if isinstance(found, KafkaException):
                answers[topic, partition] = found
            elif found.get(partition, -1) < 0:
                answers[topic, partition] = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
            else:
                of_leader.setdefault(found[partition], {})[topic, partition] = offset
        for partitions in of_leader.values():
            answers.update(self._together(client, partitions))
        return answers

    def _leaders(self, client: Consumer, topic: str) -> dict[int, int] | KafkaException:
        """The leader of each partition of a topic, -1 for none, as a broker says now; the client learns them, too."""
        try:
            found = client.list_topics(topic, min(self._timeout_s, LEADERS_TIMEOUT_S)).topics[topic]
        except KafkaException as error:
            return error
        return KafkaException(found.error) if found.error else {p.id: p.leader for p in found.partitions.values()}

    def _operation(self, partition: TopicAndPartition = ("", -1)) -> Operation:
        return self._settings.operation("ask for offsets of", *partition, right="Describe")


def _answer(found: TopicPartition, asked: int) -> Answer:
    """An answer of librdkafka: an end or a beginning that is no offset is none, and no error tells why."""
    if found.error:
        return KafkaException(found.error)
    if found.offset < (BEYOND_END if asked >= 0 else 0):
        return KafkaException(KafkaError(KafkaError._NO_OFFSET, "no answer"))
    return found.offset


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
            except (KafkaException, RetryLater) as error:
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
    found = _described_group(settings)
    return 0 if found is None else len(found.members)


def group_exists(settings: KafkaSettings) -> bool:
    """Whether the brokers know the group of the settings, with members or with offsets. Raises as `group_members`."""
    found = _described_group(settings)
    return found is not None and found.state != ConsumerGroupState.DEAD


def _described_group(settings: KafkaSettings) -> ConsumerGroupDescription | None:
    operation = settings.operation("look up members", group=settings.group, right="Describe")
    reports = Reports(operation)
    admin = new_client(AdminClient, settings.admin(error_cb=reports))
    answers = admin.describe_consumer_groups([settings.group], request_timeout=REQUEST_TIMEOUT_S)
    try:
        found: ConsumerGroupDescription = answered(answers[settings.group], REQUEST_TIMEOUT_S)
        return found
    except KafkaException as error:
        reported = kafka_error(error)
        if reported is not None and reported.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        admin.poll(0)
        raise reports.instead_of(fault(error, operation)) from error
