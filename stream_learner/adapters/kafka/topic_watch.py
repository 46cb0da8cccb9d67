"""Notices that a topic was deleted, was deleted and made again, or was given more partitions.

This file must never wait for an answer unless told to, and never take a single odd answer as the truth: a broker may be
behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka.admin import TopicDescription  # type: ignore[attr-defined]

from stream_learner.adapters.kafka.admin import Admin, TopicInfo
from stream_learner.errors import PartitionCountsDiffer, RetryLater, StreamLearnerError, TopicMissing, TopicRecreated

PERIOD_S = 5.0
ANSWERS = 2
"""A topic counts as missing after so many such answers in a row: a broker's metadata may be old."""

ADDED = (
    "Partitions cannot be taken away, and ids lie elsewhere from then on. Give both inputs and the training log as "
    "many, then begin the log anew from a moment since which every producer knows of them (`stream-learner begin-anew "
    "--from MOMENT`), or train a model under another name from then on (`stream-learner backfill`) and promote it."
)


class TopicWatch:
    """Compares topics with what they were, about every `period_s`; used by one thread.

    Without it, a reader would go on silently in a topic that was made again and has grown past the reader's position,
    where offsets of the old topic mean nothing. On the mock cluster, which has no topic ids, nothing is compared.
    counted: the topics whose number of partitions must stay. Others may be given more.
    """

    def __init__(
        self,
        admin: Admin,
        topics: Iterable[TopicInfo],
        *,
        counted: Iterable[str] = (),
        period_s: float = PERIOD_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._topics = {topic.name: topic for topic in topics}
        self._counted = frozenset(counted)
        self._period_s = period_s
        self._clock_s = clock_s
        self._next_s = clock_s() + period_s
        self._answers: Mapping[str, Future[TopicDescription]] = {}
        self._missing: dict[str, int] = {}
        self.answered_s = clock_s()
        """The time of the brokers' last answer."""

    def check(self) -> None:
        """Ask if it is time, and compare answers that have come. Never waits.

        Raises TopicMissing, TopicRecreated, PartitionCountsDiffer, NotAuthorised, AuthenticationFailed.
        """
        if self._answers:
            if all(answer.done() for answer in self._answers.values()):
                answers, self._answers = self._answers, {}
                self._compare(answers)
        elif self._topics and self._clock_s() >= self._next_s:
            self._next_s = self._clock_s() + self._period_s
            if self._admin.is_mock():
                self.answered_s = self._clock_s()
            else:
                self._answers = self._admin.ask(sorted(self._topics))

    def check_now(self) -> None:
        """Ask, wait for the answers and compare: for a caller that misses an offset. Raises what `check` raises."""
        if self._topics and not self._admin.is_mock():
            self._compare(self._admin.ask(sorted(self._topics)))

    def _compare(self, answers: Mapping[str, Future[TopicDescription]]) -> None:
        for name, answer in answers.items():
            try:
                found = self._admin.described(name, answer)
            except RetryLater:
                continue
            self.answered_s = self._clock_s()
            error = self._difference(self._topics[name], found)
            if error is not None:
                raise error

    def _difference(self, known: TopicInfo, found: TopicInfo | None) -> StreamLearnerError | None:
        self._missing[known.name] = self._missing.get(known.name, 0) + 1 if found is None else 0
        if self._missing[known.name] >= ANSWERS:
            return TopicMissing(f"topic {known.name} was deleted while in use")
        if found is not None and found.id != known.id:
            return TopicRecreated(
                f"topic {known.name} was deleted and made again: its id was {known.id.hex()}, it is {found.id.hex()}"
            )
        if found is not None and found.partitions != known.partitions and known.name in self._counted:
            return PartitionCountsDiffer(
                f"partitions were added to topic {known.name} while in use: it had {known.partitions}, now it has "
                f"{found.partitions}",
                action=ADDED,
            )
        return None
