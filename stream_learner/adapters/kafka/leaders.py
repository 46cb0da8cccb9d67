"""Keeps the partitions whose leader an admin client knows, so that offsets are asked only of those.

`list_offsets` of librdkafka (2.16) looks leaders up in the client's metadata cache, in the calling thread. If one is
missing, it registers its request to be resumed at the next change of the cache, releases the lock, and goes on using
the request. If the cache changes in that moment, the client's own thread resumes the request, answers and frees it; the
process then ends with a segmentation fault or a double free. The answer to a description of topics is such a change.

Therefore this module first has the brokers describe topics that are new or stale, waits until the answer is in the
cache, and lets nobody ask about a partition without a leader. It must never leave a description unawaited.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from stream_learner.adapters.kafka.clients import PendingAnswers, answered
from stream_learner.adapters.kafka.faults import MISSING, UNREACHABLE, kafka_error

STALE_TIMEOUT_S = 1.0
"""How long to wait for a description if an older one will do. Only the controller describes topics, and it may be the
broker that has just gone, while other leaders still answer."""
UNKNOWN_LEADER = MISSING | {
    KafkaError._NOENT,
    KafkaError._IN_PROGRESS,
    KafkaError._WAIT_CACHE,
    KafkaError.LEADER_NOT_AVAILABLE,
}

TopicAndPartition = tuple[str, int]
"""A topic and a partition."""


class Leaders:
    """The partitions that one client knows a leader of; thread-safe.

    timeout_s: how long the brokers may take to describe a topic that was never described before.
    """

    def __init__(self, client: AdminClient, timeout_s: float) -> None:
        self.client = client
        self._timeout_s = timeout_s
        self._led: dict[str, frozenset[int]] = {}
        self._stale: set[str] = set()

    def missing(self, partitions: Collection[TopicAndPartition]) -> dict[TopicAndPartition, KafkaException]:
        """The partitions not to ask about now, each with the reason.

        A topic that is new or stale is described first. If no broker describes a stale topic in time, its leaders are
        taken to be those known before.
        """
        topics = sorted({topic for topic, _ in partitions})
        reasons = self._describe([topic for topic in topics if topic not in self._led or topic in self._stale])
        return {
            (topic, partition): reasons.get(topic) or _no_leader()
            for topic, partition in partitions
            if partition not in self._led.get(topic, ())
        }

    def failed(self, failed: TopicAndPartition, reason: KafkaException | None = None) -> None:
        """Record that a question about a partition failed: its topic is described before the next question.

        If the reason is that the client knew no leader, nobody asks about the partition before that description.
        """
        topic, partition = failed
        led = self._led.get(topic)
        if led is not None and reason is not None and _code(reason) in UNKNOWN_LEADER:
            self._led[topic] = led - {partition}
        self._stale.add(topic)

    def _describe(self, topics: list[str]) -> dict[str, KafkaException]:
        """Have topics described. Returns the errors for those that were not, by topic."""
        if not topics:
            return {}
        all_known = all(topic in self._led for topic in topics)
        timeout_s = min(self._timeout_s, STALE_TIMEOUT_S) if all_known else self._timeout_s
        answers: PendingAnswers[str, TopicDescription] = PendingAnswers(
            self.client, lambda client: client.describe_topics(TopicCollection(topics), request_timeout=timeout_s)
        )
        reasons: dict[str, KafkaException] = {}
        for topic, answer in answers.items():
            try:
                self._led[topic] = _led(answered(answer, timeout_s))
            except KafkaException as error:
                code = _code(error)
                if code in UNREACHABLE:
                    reasons[topic] = error
                    continue
                self._led.pop(topic, None)
                reasons[topic] = _no_leader() if code in MISSING else error
            self._stale.discard(topic)
        return reasons


def _led(found: TopicDescription) -> frozenset[int]:
    return frozenset(p.id for p in found.partitions if p.leader is not None and p.leader.id >= 0)


def _no_leader() -> KafkaException:
    return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no leader is known"))


def _code(error: KafkaException) -> int | None:
    reported = kafka_error(error)
    return None if reported is None else reported.code()
