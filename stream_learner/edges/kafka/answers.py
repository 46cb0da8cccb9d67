"""Answers of an admin client that are still to come.

In: a client, a question. Out: futures. This file must never let go of a client whose answers somebody waits for: one
that is dropped, as when credentials have changed, never gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerInTime
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

GRACE_S = 5.0
"""How much longer than the time-out of a request it waits for the answer: the client itself ends it before."""

K = TypeVar("K")
T = TypeVar("T")


class Answers(dict[K, Future[T]]):
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
