"""Makes librdkafka's clients, and keeps an admin client for as long as somebody waits for its answers.

In: a class of confluent-kafka, properties; a question. Out: a client; futures. This file must never keep properties,
which hold secrets, nor let go of a client whose answers are awaited: one that is dropped, as when credentials have
changed, never gives them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerInTime
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka.client_log import log
from stream_learner.adapters.kafka.faults import kafka_error
from stream_learner.errors import ConfigError

T = TypeVar("T")
ATTEMPTS = 5
PAUSE_S = 0.3


def new_client(kind: Callable[..., T], properties: dict[str, Any]) -> T:
    """A client of these properties, which logs where the others do.

    Tries again for a moment: certificate and key may just be on their way to the disk, one after the other. Raises
    ConfigError with librdkafka's words when that does not help.
    """
    for attempt in range(ATTEMPTS):
        try:
            return kind(properties, logger=log)
        except KafkaException as error:
            if attempt == ATTEMPTS - 1:
                found = kafka_error(error)
                words = found.str() if found is not None else str(error)
                raise ConfigError(f"kafka: a client cannot be made any more: {words.strip()}") from error
        time.sleep(PAUSE_S)
    raise AssertionError("unreachable")


GRACE_S = 5.0
"""How much longer than the time-out of a request it waits for the answer: the client itself ends it before."""

K = TypeVar("K")


class PendingAnswers(dict[K, Future[T]]):
    """Futures by what was asked for. They are given only while this lives: hold it until the last one is taken."""

    def __init__(self, client: AdminClient, ask: Callable[[AdminClient], Any]) -> None:
        super().__init__(ask(client))
        self._client = client


def answered(answer: Future[T], timeout_s: float) -> T:
    """An answer, waited for. timeout_s: that of the request, after which the client gives an error for an answer.

    Raises KafkaException; also where not even that comes, since a role that waits for good shows nobody that it does.
    """
    try:
        return answer.result(timeout_s + GRACE_S)
    except NoAnswerInTime:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client gave no answer")) from None
