"""Reads one partition, in order, from a given offset on.

In: a topic, a partition, an offset. Out: batches of raw records, and the position in the log they lead to.
This file must never skip a record silently, never commit anything, and never look into a record.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream_learner.edges.kafka.clients import new_client
from stream_learner.edges.kafka.faults import fault
from stream_learner.edges.kafka.raw_batch import Headers, RawBatch
from stream_learner.edges.kafka.settings import KafkaSettings
from stream_learner.errors import BrokerUnreachable, LogTrimmed, StreamLearnerError, TopicMissing

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
DEFAULT_BUFFER_BYTES = 8 << 20
RANGE_TIMEOUT_S = 5.0
SILENCE_S = 3.0


class PartitionReader:
    """A consumer of its own for one partition, outside any group; used by one thread.

    Prefetches about `buffer_bytes` and one fetch more. Under `read_committed` records of open and aborted
    transactions are not seen. Making one never blocks; a wrong offset, topic or right shows in `read`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: str = READ_COMMITTED,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        name: str = "reader",
        with_keys: bool = False,
        with_headers: bool = False,
    ) -> None:
        if offset < 0:
            raise ValueError(f"offset {offset} of {topic} partition {partition} is negative")
        self.topic = topic
        self.partition = partition
        self._with_keys = with_keys
        self._with_headers = with_headers
        self._doing = settings.doing("read", topic, partition, right="Read")
        self._ask_at_s: float | None = None
        self._held: list[Message] = []
        self._pending: StreamLearnerError | None = None
        self._unreachable: KafkaError | None = None
        self._position = offset
        self._settings = settings
        self._properties = lambda: self._consumer_properties(isolation, buffer_bytes, name)
        self._connect()
        self.seek(offset)

    def _connect(self) -> None:
        self._credentials = self._settings.credentials_version()
        self._consumer = new_client(Consumer, self._properties())

    def _renew(self) -> None:
        """Go on at the position with a consumer of the credentials that are on disk now."""
        self._consumer.close()
        self._connect()
        self.seek(self._position)

    def _consumer_properties(self, isolation: str, buffer_bytes: int, name: str) -> dict[str, Any]:
        fetch_bytes = min(max(buffer_bytes // 2, 64 << 10), 4 << 20)
        defaults = {
            "fetch.queue.backoff.ms": "20",
            "fetch.wait.max.ms": "100",
            "fetch.message.max.bytes": str(fetch_bytes),
        }
        ours = self._settings.consumer(
            client__id=self._settings.client_id(name),
            isolation__level=isolation,
            queued__min__messages="10000000",
            queued__max__messages__kbytes=str(max(buffer_bytes >> 10, 1)),
            max__poll__interval__ms="86400000",
            error_cb=self._on_error,
        )
        return {**defaults, **ours}

    @property
    def position(self) -> int:
        """The next offset: behind the last record returned, or behind the transaction markers and gaps after it.

        It passes markers, aborted records and compacted gaps at the end of the log when a `read` has
        reached that end; it then equals the high watermark (`read_uncommitted`, or no transaction open) or the last
        stable offset.
        """
        return self._position

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        """At most so many records, or None when there is none.

        Waits for the first record, at most `timeout_s`, and not beyond the moment in which `position` reaches the
        end of the partition. Records in front of an error are returned before it is raised.

        Raises LogTrimmed when the position is outside what the partition holds (`seek` is the way on), TopicMissing,
        TopicRecreated, NotAuthorised, AuthenticationFailed; or BrokerUnreachable and RetryLater: the client
        goes on connecting by itself, `read` may be called again, nothing was skipped.
        """
        if self._settings.credentials_version() != self._credentials:
            self._renew()
        if self._pending is not None:
            self._raise_pending()
        messages = self._next_messages(max_records, timeout_s)
        records = self._without_events(messages) if any(map(Message.error, messages)) else messages
        if records:
            self._unreachable = None
            return self._batch(records)
        self._raise_pending()
        if not messages:
            self._break_silence()
        return None

    def _next_messages(self, count: int, timeout_s: float) -> list[Message]:
        """Records and events in order; waits only for the first."""
        if self._held:
            messages, self._held = self._held[:count], self._held[count:]
            return messages
        messages = self._consume(count, 0.0)
        if messages or timeout_s <= 0:
            return messages
        messages = self._consume(1, timeout_s)
        return messages + self._consume(count - 1, 0.0) if messages and count > 1 else messages

    def _consume(self, count: int, timeout_s: float) -> list[Message]:
        try:
            return self._consumer.consume(count, timeout_s)
        except KafkaException as error:
            raise fault(error, self._doing) from error

    def _without_events(self, messages: list[Message]) -> list[Message]:
        """The records in front of the first error; notes the end of the partition, keeps what is behind an error.

        librdkafka looks for the group's coordinator even here, where it is of no use: rights on the group, which we
        then do not need, are no matter.
        """
        records: list[Message] = []
        end = -1
        for i, message in enumerate(messages):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                end = message.offset() or 0
                self._ask_at_s = None
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                self._pending = self._fault(error)
                self._held = messages[i + 1 :] + self._held
                break
        self._position = max(self._position, end)
        return records

    def _batch(self, records: list[Message]) -> RawBatch:
        self._ask_at_s = None
        count = len(records)
        values = list(map(Message.value, records))
        offsets = np.fromiter(map(Message.offset, records), np.int64, count)
        times = np.fromiter((stamp for _, stamp in map(Message.timestamp, records)), np.int64, count)
        self._position = max(self._position, int(offsets[-1]) + 1)
        keys = list(map(Message.key, records)) if self._with_keys else None
        headers = list(map(_headers, records)) if self._with_headers else None
        return RawBatch(offsets, times, values, keys, headers)

    def _raise_pending(self) -> None:
        """Raise what is known to be wrong, now that no record is left in front of it."""
        error, self._pending = self._pending, None
        if error is not None:
            raise error
        if self._unreachable is not None:
            reported, self._unreachable = self._unreachable, None
            raise fault(reported, self._doing)

    def _break_silence(self) -> None:
        """Ask why neither a record nor the end of the partition has come since `seek`.

        librdkafka says nothing about a topic that we may not even describe.
        """
        if self._ask_at_s is None or time.monotonic() < self._ask_at_s:
            return
        self._ask_at_s = time.monotonic() + SILENCE_S
        try:
            found = self._consumer.list_topics(self.topic, SILENCE_S / 3).topics[self.topic]
        except KafkaException as error:
            raise fault(error, self._doing) from error
        if found.error is not None:
            raise fault(found.error, self._doing)

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka's own reports, which come with no record. Single connections that break are not errors."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._unreachable = error
            return
        found = self._pending or fault(error, self._doing)
        if not isinstance(found, BrokerUnreachable):
            self._pending = found

    def _fault(self, error: KafkaError) -> StreamLearnerError:
        found = fault(error, self._doing)
        return self._out_of_range() if isinstance(found, LogTrimmed) else found

    def _out_of_range(self) -> StreamLearnerError:
        """The error for a position that the partition does not hold, with the range it does hold."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, self.partition), timeout=RANGE_TIMEOUT_S
            )
            held = f"it holds offsets {low} to {high}"
        except KafkaException as error:
            found = fault(error, self._doing)
            if isinstance(found, TopicMissing):
                return found
            held = "the range it holds is not known"
        return LogTrimmed(f"{self.topic} partition {self.partition} has no offset {self._position}: {held}")

    def seek(self, offset: int) -> None:
        """Go on from another offset; what was prefetched is dropped, and an error with it."""
        self._held = []
        self._pending = None
        self._position = offset
        self._ask_at_s = time.monotonic() + SILENCE_S
        self._consumer.assign([TopicPartition(self.topic, self.partition, offset)])

    def close(self) -> None:
        """Give the consumer and its memory back. May be called twice."""
        self._consumer.close()

    def __enter__(self) -> PartitionReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _headers(message: Message) -> Headers:
    """A record's headers in order, repeated names included."""
    found = message.headers() or []
    return list(found.items()) if isinstance(found, dict) else [(name, value) for name, value in found]
