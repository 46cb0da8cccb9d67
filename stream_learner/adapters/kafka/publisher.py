"""Publishes records of several partitions as one transaction: `read_committed` readers see all of them, or none.

While brokers are away, a commit or an abort has no outcome. The call then stays open: every later `publish` repeats it
for a moment, so that the caller is never held up for long. Once it is answered, the publisher is `outdated`: only the
topic tells what has become visible.

This file must never begin a transaction while the outcome of the one before is unknown. A publisher that was fenced
stays fenced: it never takes over from another process silently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream_learner.adapters.kafka.appender import MAX_RECORD_BYTES
from stream_learner.adapters.kafka.clients import log, new_client
from stream_learner.adapters.kafka.faults import Operation, Reports, fault, kafka_error
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import Fenced, RetryLater, Stop, StreamLearnerError

PAUSE_S = 0.01
OUTCOME_S = 10.0
"""How long `publish` waits for the outcome of its transaction."""
AGAIN_S = 1.0
"""How long a later `publish` waits for an outcome that did not come in time."""
CALL_TIMEOUT_S = 10.0
CONNECT_S = 1.0
TRANSACTION_TIMEOUT_MS = "60000"


class Record(NamedTuple):
    """A record to publish; a null value deletes its key from a compacted topic."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


class TransactionalPublisher:
    """The one producer with this transactional id; used by one thread.

    Call `init` once before the first `publish`. After Fenced it is of no use: another process has initialised the same
    id, or a transaction outlived `transaction.timeout.ms`. To go on then, or when it is `outdated`, make a new
    publisher, call `init`, and read what was published last before you publish again.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        pause_s: float = PAUSE_S,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.transactional_id = transactional_id
        self._settings = settings
        self._credentials = settings.credentials_version()
        self._pause_s = pause_s
        self._clock_s = clock_s
        self._sleep = sleep
        self._ready = False
        self._not_before_s = 0.0
        self._lost: StreamLearnerError | None = None
        self._open: tuple[Callable[..., Any], str] | None = None
        """The commit or abort that has no outcome yet: the call, and the words for it."""
        self._was_open = False
        self._begun_s = 0.0
        self._topic = ""
        """The topic of the transaction's last record; "" outside of a transaction."""
        self._reports = Reports(self._operation("publish"))
        self._refused: KafkaError | None = None
        self._offsets: dict[tuple[str, int], int] = {}
        ours = settings.producer(
            transactional__id=transactional_id,
            client__id=settings.client_id("publisher"),
            message__max__bytes=settings.get("message.max.bytes", str(MAX_RECORD_BYTES)),
            on_delivery=self._on_delivery,
            error_cb=self._on_error,
        )
        self._producer = new_client(Producer, {"linger.ms": "5", **ours})

    @property
    def outdated(self) -> bool:
        """Whether to go on with a new publisher of the same id.

        It is so when the credentials have changed on disk, or after a transaction whose outcome came late.
        """
        return self._was_open or self._settings.credentials_version() != self._credentials

    def init(self, timeout_s: float = OUTCOME_S) -> None:
        """Fence every earlier publisher of this id and end its open transaction. Does nothing if that is done already.

        Raises BrokerUnreachable or RetryLater (call again), NotAuthorised, AuthenticationFailed, ConfigError.
        """
        if self._ready:
            return
        self._connect()
        try:
            self._retry(self._producer.init_transactions, "initialise transactions", timeout_s)
        except _AgainError as again:
            raise again.error from again
        self._ready = True

    def _connect(self) -> None:
        """Wait a moment for a connection. Without one, librdkafka asks for the coordinator only every half second."""
        with suppress(KafkaException):
            self._producer.list_topics(timeout=CONNECT_S)

    def publish(
        self, records: Iterable[Record | tuple[str, int, bytes | None, bytes | None]]
    ) -> dict[tuple[str, int], int]:
        """Publish all records in one transaction. Returns the offset of the last record of each topic and partition.

        Raises Fenced; RetryLater or BrokerUnreachable if the transaction was aborted (publish again: nothing is
        visible), or if its outcome is not known yet (publish again until it is `outdated`); other kinds of Stop if the
        brokers refuse.
        """
        self._raise_lost()
        self._settle()
        self._wait_for_turn()
        self._begun_s = self._clock_s()
        self._refused = None
        self._offsets = {}
        self._begin()
        try:
            for topic, partition, key, value in records:
                self._produce(topic, partition, key, value)
            self._commit()
        except Exception as error:
            if not self._waits:
                self._abort(error)
            raise
        finally:
            self._topic = ""
            self._not_before_s = self._clock_s() + self._pause_s
        return self._offsets

    def close(self) -> None:
        """Close the client. No transaction stays open, unless its outcome is unknown."""
        try:
            self._producer.purge()
            self._producer.poll(0)
            if self._ready and self._lost is None and not self._waits:
                self._producer.close()
        except (KafkaException, SystemError) as error:
            log.debug("closing the publisher: %s", error)

    def _wait_for_turn(self) -> None:
        """Pause, since the coordinator needs some milliseconds to finish the transaction before."""
        wait_s = self._not_before_s - self._clock_s()
        if wait_s > 0:
            self._sleep(wait_s)

    def _produce(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        self._topic = topic
        deadline_s = self._clock_s() + CALL_TIMEOUT_S
        while True:
            self._raise_lost()
            try:
                self._producer.produce(topic, value, key, partition)
                return
            except BufferError:
                if self._clock_s() > deadline_s:
                    raise RetryLater(f"could not publish to {topic}: the queue stays full") from None
                self._serve(0.05)
            except KafkaException as error:
                reported = kafka_error(error)
                if reported is not None and reported.code() == KafkaError._STATE:
                    self._commit()  # raises: the transaction has failed, and only a commit is told why
                raise self._found(error, "publish records") from error

    def _begin(self) -> None:
        try:
            self._retry(lambda _timeout_s: self._producer.begin_transaction(), "begin a transaction", CALL_TIMEOUT_S)
        except _AgainError as again:
            raise again.error from again

    def _commit(self) -> None:
        """Commit, again and again while the outcome is unknown: the broker takes a repeated commit as the first one."""
        self._end(self._producer.commit_transaction, "commit a transaction", OUTCOME_S)
        if self._refused is not None:
            raise fault(self._refused, self._operation("publish"))

    def _end(self, call: Callable[..., Any], what: str, timeout_s: float) -> None:
        """Commit or abort. If no answer comes in time, the call stays open."""
        self._open = (call, what)
        try:
            self._retry(call, what, timeout_s)
        except _AgainError as again:
            raise again.error from again
        except BaseException:
            self._open = None
            raise
        self._open = None

    def _settle(self) -> None:
        """Repeat the call that has no outcome. Only the topic tells what it did.

        Raises BrokerUnreachable or RetryLater while there is no outcome, and once when there is one; Fenced if another
        process has taken over. A publisher whose transaction has outlived its time-out is fenced by the brokers, which
        does not mean that there is another process.
        """
        if self._open is None:
            return
        try:
            self._end(*self._open, AGAIN_S)
        except StreamLearnerError as error:
            if self._waits or (self._lost is not None and not self._outlived):
                raise
            self._abort(error)
            if self._waits:
                raise
        self._was_open, self._lost = True, None
        raise RetryLater(f"{self._operation('publish')}: an earlier transaction was without an outcome; now it has one")

    @property
    def _waits(self) -> bool:
        """Whether a commit or abort has no outcome yet."""
        return self._open is not None

    @property
    def _outlived(self) -> bool:
        limit_ms = self._settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        return (self._clock_s() - self._begun_s) * 1000 > int(limit_ms)

    def _retry(self, call: Callable[..., Any], what: str, timeout_s: float) -> None:
        """Call until there is an outcome. Raises _AgainError if the time is up."""
        deadline_s = self._clock_s() + timeout_s
        while True:
            try:
                self._call(lambda: call(min(CALL_TIMEOUT_S, timeout_s)), what)
                return
            except _AgainError:
                if self._clock_s() > deadline_s:
                    raise
                self._sleep(0.02)

    def _call(self, call: Callable[[], Any], what: str) -> None:
        """Make one call of the transaction API. Raises _AgainError if the same call may be repeated as it is."""
        self._raise_lost()
        try:
            call()
        except KafkaException as error:
            self._serve(0.0)
            reported = kafka_error(error)
            found = self._found(error, what)
            retriable = reported is not None and reported.retriable() and not reported.fatal()
            if retriable and isinstance(found, RetryLater):
                raise _AgainError(found) from error
            raise found from error

    def _found(self, error: KafkaException | SystemError, what: str) -> StreamLearnerError:
        reported = kafka_error(error)
        found = self._reports.instead_of(fault(error, self._operation(what)))
        if reported is not None and reported.fatal():
            self._lost = found if isinstance(found, Stop) else Fenced(str(found))
            return self._lost
        if reported is not None and reported.txn_requires_abort() and isinstance(found, Fenced):
            return RetryLater(str(found))
        return found

    def _abort(self, error: Exception) -> None:
        """Abort a transaction that failed. If that is impossible, this publisher is of no use any more."""
        if self._lost is not None:
            return
        try:
            self._end(self._producer.abort_transaction, "abort a transaction", OUTCOME_S)
        except StreamLearnerError as failed:
            if self._waits:
                return
            self._lost = self._lost or Fenced(
                f"publisher {self.transactional_id} cannot know the outcome of its last transaction: {failed}"
            )
            log.warning("%s; before that: %s", self._lost, error)

    def _serve(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except (KafkaException, SystemError) as error:
            self._found(error, "publish")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused = self._refused or error
        else:
            self._offsets[message.topic() or "", message.partition() or 0] = message.offset() or 0

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._lost = self._lost or fault(error, self._operation("publish"))
        else:
            self._reports(error)

    def _raise_lost(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _operation(self, what: str) -> Operation:
        about = f"{what} of" if self._topic else what
        return self._settings.operation(about, self._topic, transactional_id=self.transactional_id, right="Write")


class _AgainError(Exception):
    """A call had no outcome, and may be repeated as it is."""

    def __init__(self, error: StreamLearnerError) -> None:
        super().__init__(str(error))
        self.error = error
