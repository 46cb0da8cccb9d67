"""Appends records to partitions, in order, and tells the offset of each.

A record is never appended twice or out of order, and its offset is told only when all in-sync replicas have it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from stream_learner.adapters.kafka.clients import log, new_client
from stream_learner.adapters.kafka.faults import Operation, Reports, fault
from stream_learner.adapters.kafka.mock_broker import APPENDED_MS
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import RetryLater, StreamLearnerError
from stream_learner.wording import count_of

MAX_RECORD_BYTES = 16 << 20
QUEUE_WAIT_S = 30.0
NO_TIMEOUT = "0"

HeaderList = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class Delivery:
    """The result of appending one record. `offset` is -1 if `error` is set.

    time_ms: when the broker appended the record; -1 where it does not tell: with an error, of the mock broker, and
    where the topic lacks `message.timestamp.type=LogAppendTime`. maybe_written: after this error the record may be in
    the log or not.
    """

    tag: Any
    topic: str
    partition: int
    offset: int
    error: StreamLearnerError | None = None
    maybe_written: bool = False
    time_ms: int = -1


class Appender:
    """An idempotent producer, `acks=all`, for any number of partitions; used by one thread.

    A record is retried without end, unless `message.timeout.ms` is given: brokers may be away for minutes, and after
    giving up nobody knows what is in the log. The time of a record is the wall clock. Results of one partition come in
    the order of `append`. After an error, later records of the same partition may still be written: drop the attempt
    and read the log.
    linger_ms: how long a record may wait for others to be sent with it.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        name: str = "appender",
        linger_ms: float = 0.0,
        max_record_bytes: int = MAX_RECORD_BYTES,
        queue_bytes: int = 64 << 20,
    ) -> None:
        self._settings = settings
        self._credentials = settings.credentials_version()
        self._was_outdated = False
        self._operation = settings.operation("append", right="Write")
        self._reports = Reports(self._operation)
        self._done: deque[Delivery] = deque()
        self._fatal: StreamLearnerError | None = None
        self._waiting = self._waiting_bytes = 0
        self._queue_bytes = queue_bytes
        self._first_topic = ""
        largest = settings.get("message.max.bytes", str(max_record_bytes))
        ours = settings.producer(
            client__id=settings.client_id(name),
            message__max__bytes=largest,
            queue__buffering__max__kbytes=str(max(queue_bytes, 2 * int(largest)) >> 10),
            queue__buffering__max__messages="0",
            message__timeout__ms=settings.get("message.timeout.ms") or settings.get("delivery.timeout.ms", NO_TIMEOUT),
            error_cb=self._on_error,
        )
        self._producer = new_client(Producer, {"linger.ms": str(linger_ms), **ours})

    @property
    def waiting(self) -> int:
        """How many records have no result yet."""
        return self._waiting

    @property
    def is_filling(self) -> bool:
        """Whether waiting records take half of the queue, as when brokers are away: better append no more now."""
        return 2 * self._waiting_bytes >= self._queue_bytes

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderList | None = None,
        tag: Any = None,
    ) -> None:
        """Append one record. `poll` gives its result, with the same `tag`.

        Waits up to 30 s while the queue is full. Raises RetryLater if it stays full, Stop for a record larger than
        permitted, and the client's fatal error if it has one: make a new Appender then.
        """
        self._raise_fatal()
        deadline = time.monotonic() + QUEUE_WAIT_S
        self._first_topic = self._first_topic or topic
        size = len(value or b"")
        callback = self._callback(tag, size)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, callback, headers=headers or [])
                self._waiting += 1
                self._waiting_bytes += size
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise RetryLater(
                        f"could not append to {topic} partition {partition}: the queue stays full"
                    ) from None
                self._serve(0.05)
            except KafkaException as error:
                raise fault(error, self._at(topic, partition)) from error

    def poll(self, timeout_s: float = 0.0) -> list[Delivery]:
        """The results that have come since the last call. Waits at most `timeout_s` for the first.

        Once all results are handed out, raises the client's fatal error if there is one, RetryLater if the credentials
        have changed on disk (make a new Appender for either), or AuthenticationFailed while the brokers refuse our
        credentials. If results keep coming, RetryLater is raised at the second call after the change all the same; the
        results that have come by then are lost, as with `close`.
        """
        if not self._done:
            self._serve(timeout_s if self._waiting else 0.0)
        done = list(self._done)
        self._done.clear()
        if not done or self._was_outdated:
            self._raise_fatal()
            self._raise_outdated()
            stop = self._reports.take()
            if stop is not None:
                raise stop
        self._was_outdated = self._outdated
        return done

    def flush(self, timeout_s: float) -> list[Delivery]:
        """Wait at most `timeout_s` until every record has its result. Returns the results not yet handed out.

        Raises BrokerUnreachable or AuthenticationFailed if records are left without a result. They stay queued;
        `waiting` says how many.
        """
        deadline = time.monotonic() + timeout_s
        while self._waiting and self._fatal is None and time.monotonic() < deadline:
            self._serve(min(max(deadline - time.monotonic(), 0.0), 0.1))
        if self._waiting and self._fatal is None:
            left = f"left over: {count_of(self._waiting, 'record')}"
            raise self._reports.instead_of(fault(KafkaError(KafkaError._TIMED_OUT, left), self._operation))
        return self.poll()

    def close(self, timeout_s: float = 0.0) -> None:
        """Wait at most `timeout_s` for results, then drop the other records; those may be in the log or not.

        Results that `poll` has not handed out are lost. The Appender is of no use afterwards.
        """
        if timeout_s > 0 and self._waiting and self._fatal is None:
            try:
                self.flush(timeout_s)
            except StreamLearnerError as error:
                log.warning("closing with %d records under way: %s", self._waiting, error)
        try:
            self._producer.purge()
            self._serve(0.0)
            self._producer.close()
        except (KafkaException, SystemError) as error:
            log.debug("closing the appender: %s", error)

    def _serve(self, timeout_s: float) -> None:
        """Let librdkafka run its callbacks. It has been seen to raise SystemError here after fatal errors."""
        try:
            self._producer.poll(timeout_s)
        except (KafkaException, SystemError) as error:
            self._fatal = self._fatal or fault(error, self._of_first())

    def _callback(self, tag: Any, size_bytes: int) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._waiting -= 1
            self._waiting_bytes -= size_bytes
            topic, partition = message.topic() or "", message.partition() or 0
            if error is None:
                kind, time_ms = message.timestamp()
                is_told = kind == TIMESTAMP_LOG_APPEND_TIME and time_ms != APPENDED_MS
                told_ms = time_ms if is_told else -1
                self._done.append(Delivery(tag, topic, partition, message.offset() or 0, time_ms=told_ms))
                return
            maybe = error.code() not in {KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE}
            purged = error.code() in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
            found = (self._fatal if purged else None) or fault(error, self._at(topic, partition))
            self._done.append(Delivery(tag, topic, partition, -1, found, maybe))

        return on_delivery

    def _on_error(self, error: KafkaError) -> None:
        """Keep fatal errors and refused credentials. Anything else shows in the result of a record."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = fault(error, self._of_first())
        else:
            self._reports(error, self._of_first())

    @property
    def _outdated(self) -> bool:
        return self._settings.credentials_version() != self._credentials

    def _raise_outdated(self) -> None:
        """Raise RetryLater if the credentials have changed; at every call, so that it cannot be missed."""
        if self._outdated:
            raise RetryLater("the credentials have changed: the producer must be made anew")

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    def _of_first(self) -> Operation:
        """The operation for an error of the whole client: it names the first topic, since no other is known."""
        return replace(self._operation, topic=self._first_topic)

    def _at(self, topic: str, partition: int) -> Operation:
        return replace(self._operation, what="append to", topic=topic, partition=partition)
