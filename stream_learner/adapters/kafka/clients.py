"""Makes librdkafka's clients, and keeps an admin client alive while its answers are awaited.

An admin client that is dropped, for example because credentials have changed, never gives its answers. Properties hold
secrets, so they are not kept.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerInTime
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka.faults import kafka_error
from stream_learner.errors import ConfigError, RetryLater

T = TypeVar("T")
ATTEMPTS = 5
PAUSE_S = 0.3
THREADS, FILES = 8, 16
"""More than librdkafka starts and opens while it makes a client and connects it to a few brokers."""
NO_ROOM = "Raise the limit of threads or of open files of this process, or of its container, if it does not pass."
PERIOD_S = 30.0
REPEATED = frozenset(
    {"FAIL", "ERROR", "REQTMOUT", "GETPID", "FETCHERR", "FETCH", "COORD", "METADATA", "PARTCNT", "SSL", "OIDC"}
)
"""Facilities that log hundreds of lines while a broker is away. The roles report that as an error anyway."""


class RepeatFilter(logging.Filter):
    """Thins out what librdkafka logs: shows a line of a repeated kind if there was none of that kind for `period_s`,
    and every other line.
    """

    def __init__(self, period_s: float = PERIOD_S, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._period_s = period_s
        self._clock_s = clock_s
        self._last_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is shown. Its first word is librdkafka's facility."""
        facility = record.getMessage().partition(" ")[0]
        if facility not in REPEATED:
            return True
        now_s = self._clock_s()
        if now_s - self._last_s.get(facility, -self._period_s) < self._period_s:
            return False
        self._last_s[facility] = now_s
        return True


log = logging.getLogger("stream_learner.kafka")
log.addFilter(RepeatFilter())


def new_client(kind: Callable[..., T], properties: dict[str, Any]) -> T:
    """Make a client with these properties; it logs to `log`.

    Tries for a moment: certificate and key may be in the middle of being replaced, one file after the other. Raises
    ConfigError with librdkafka's words if that does not help, and what `require_room` raises.
    """
    require_room()
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


def require_room() -> None:
    """Raise RetryLater if this process may not start the threads or open the files of one more client.

    librdkafka (seen with 2.16.0) does not bear it where a thread cannot be started: a consumer ends the process by an
    assertion or waits for good, an admin client ends it by a segmentation fault. Without files it makes a client that
    cannot connect.
    """
    end, threads, files = threading.Event(), [], []
    try:
        for _ in range(THREADS):
            thread = threading.Thread(target=end.wait, name="room-for-a-client")
            thread.start()
            threads.append(thread)
        for _ in range(FILES):
            files.append(os.open(os.devnull, os.O_RDONLY))
    except (OSError, RuntimeError) as error:  # Python raises RuntimeError for a thread that does not start
        raise RetryLater(f"kafka: a client cannot be made now: {error}", action=NO_ROOM) from error
    finally:
        end.set()
        for thread in threads:
            thread.join()
        for file in files:
            os.close(file)


GRACE_S = 5.0
"""How much longer than the request's time-out `answered` waits. Normally the client ends the request before."""

K = TypeVar("K")


class PendingAnswers(dict[K, Future[T]]):
    """Futures, by what was asked for. Hold this object until the last answer is taken: it keeps the client alive."""

    def __init__(self, client: AdminClient, ask: Callable[[AdminClient], Any]) -> None:
        super().__init__(ask(client))
        self._client = client


def answered(answer: Future[T], timeout_s: float) -> T:
    """Wait for an answer. timeout_s: the request's time-out, after which the client answers with an error.

    Raises KafkaException; also if not even that error comes, so that no role waits for good without a word.
    """
    try:
        return answer.result(timeout_s + GRACE_S)
    except NoAnswerInTime:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client gave no answer")) from None
