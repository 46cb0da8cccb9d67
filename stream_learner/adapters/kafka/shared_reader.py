"""One partition of a pool: what is held of it, and how it is handed out.

This file must never skip a record silently, never hand out a record before an earlier one, and never look into one.
"""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from stream_learner.adapters.kafka.faults import fault
from stream_learner.adapters.kafka.packed_consumer import PackedConsumer
from stream_learner.adapters.kafka.raw_batch import RawBatch, joined
from stream_learner.adapters.kafka.runs import Run
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import LogTrimmed, StreamLearnerError, TopicMissing

RANGE_TIMEOUT_S = 5.0
SILENCE_S = 3.0
POLLS = 4
"""How often one `read` looks into the common queue, at most."""
RECORD_BYTES = 100
"""About how many bytes a held record takes besides its value: a Python object, and an entry in three columns."""


class Reader(Protocol):
    """Reads one partition in order; used by one thread. `SharedReader` documents the methods."""

    topic: str
    partition: int

    @property
    def position(self) -> int:
        """The next offset."""

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        """At most `max_records` records, or None if there are none."""

    def seek(self, offset: int) -> None:
        """Go on from another offset."""

    def close(self) -> None:
        """Give back what this reader has. May be called twice."""

    def __enter__(self) -> Reader: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""


class Pool(Protocol):
    """The pool as one of its partitions sees it. `ReaderPool` documents the methods."""

    settings: KafkaSettings
    topic: str

    @property
    def has_room(self) -> bool:
        """Whether there is memory for more records than the caller needs now."""

    @property
    def is_reported(self) -> bool:
        """Whether there is an error that concerns all partitions."""

    @property
    def consumer(self) -> Consumer | PackedConsumer:
        """The consumer."""

    def add(self, reader: SharedReader) -> None:
        """Fetch a partition from now on."""

    def remove(self, reader: SharedReader) -> None:
        """Drop a partition and what is held of it."""

    def assign(self, readers: list[SharedReader]) -> None:
        """Fetch these partitions."""

    def unassign(self, readers: list[SharedReader]) -> None:
        """Fetch no more of these partitions."""

    def poll(self, timeout_s: float) -> bool:
        """Take records from the common queue and give them to their readers. Returns whether anything came."""

    def bring_back(self, reader: SharedReader) -> None:
        """Fetch a partition that was set aside again, if enough of it is read."""

    def dropped(self, size: int) -> None:
        """Record that `size` bytes are no longer held."""

    def take_report(self) -> KafkaError | None:
        """The error that concerns all partitions, once."""

    def ask_about_topic(self, reader: SharedReader) -> None:
        """Ask about the topic if nothing has come of a partition."""

    def renew_if_outdated(self) -> None:
        """If the credentials have changed, go on with a new consumer."""


class SharedReader:
    """A partition of a pool. Made by `ReaderPool.open`; used by the pool's thread."""

    def __init__(self, pool: Pool, partition: int, offset: int) -> None:
        if offset < 0:
            raise ValueError(f"offset {offset} of {pool.topic} partition {partition} is negative")
        self.topic = pool.topic
        self.partition = partition
        self.assigned = False
        self.fetched = offset
        """The offset that is fetched next: after the last record held."""
        self.held_bytes = 0
        self.operation = pool.settings.operation("read", pool.topic, partition, right="Read")
        self._pool = pool
        self._position = offset
        self._pieces: deque[RawBatch | int | KafkaError] = deque()
        """The pieces that are held, in order: records, ends of the partition (offsets), errors."""
        self._records = 0
        self._ask_at_s: float | None = time.monotonic() + SILENCE_S
        pool.add(self)

    @property
    def position(self) -> int:
        """The next offset: after the last record returned, or after the transaction markers and gaps that follow it.

        It passes markers, aborted records and compacted gaps at the end of the log once a `read` has reached that end.
        Then it equals the high watermark (`read_uncommitted`, or no transaction open) or the last stable offset.
        """
        return self._position

    @property
    def is_held(self) -> bool:
        """Whether records, an end or an error of this partition wait to be read."""
        return bool(self._pieces)

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        """At most `max_records` records, or None if there are none.

        Waits at most `timeout_s` for the first record, and no longer once `position` reaches the end of the partition.
        Records before an error are returned before it is raised.

        Raises LogTrimmed if the partition does not have the position (`seek` helps), TopicMissing, TopicRecreated,
        NotAuthorised, AuthenticationFailed; BrokerUnreachable and RetryLater: the client goes on connecting by itself,
        `read` may be called again, nothing was skipped. An error that concerns all partitions of a pool is raised once,
        by the first reader without a record.
        """
        self._pool.renew_if_outdated()
        self._pool.bring_back(self)
        came = self._gather(max_records, timeout_s)
        batch = self._take(max_records)
        if batch is not None:
            return batch
        self._raise_what_is_wrong()
        if not came and self._ask_at_s is not None and time.monotonic() >= self._ask_at_s:
            self._pool.ask_about_topic(self)
        return None

    def _gather(self, max_records: int, timeout_s: float) -> bool:
        """Look for at least one record of this partition, and for all that are wanted while the pool has room."""
        came = bool(self._pieces)
        for _ in range(POLLS):
            enough = self._records >= max_records if self._pool.has_room else bool(self._pieces)
            if enough or not self._pool.poll(0.0):
                break
        if timeout_s > 0:
            self._wait(timeout_s)
        return came or bool(self._pieces)

    def _wait(self, timeout_s: float) -> None:
        """Wait for the first record, or until the position moves."""
        position, until_s = self._position, time.monotonic() + timeout_s
        while not self._pieces and self._position == position and (left_s := until_s - time.monotonic()) > 0:
            self._pool.poll(left_s)
            if self._pool.is_reported:
                break
            self._pass_ends()

    def take_in(self, run: Run) -> int:
        """Hold what came of this partition. Returns how many bytes that takes."""
        if run.records is not None:
            return self._hold(run.records)
        assert run.error is not None
        if run.error.code() == KafkaError._PARTITION_EOF:
            self.fetched = max(self.fetched, run.offset)
            self._pieces.append(run.offset)
        elif run.error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            self.take_error(run.error)
        return 0

    def take_error(self, error: KafkaError) -> None:
        """Keep an error, to be raised once the records before it are read."""
        self._pieces.append(error)

    def _hold(self, batch: RawBatch) -> int:
        size = _held_bytes(batch)
        self.fetched = int(batch.offsets[-1]) + 1
        self._pieces.append(batch)
        self._records += len(batch)
        self.held_bytes += size
        return size

    def _take(self, max_records: int) -> RawBatch | None:
        """The next records, up to an error. Ends of the partition on the way move the position.

        Joining copies every value. So pieces are joined only until half of `max_records` is there, and only whole ones.
        """
        parts: list[RawBatch] = []
        taken = 0
        self._pass_ends()
        while 2 * taken < max_records and self._pieces and isinstance(piece := self._pieces[0], RawBatch):
            if taken + len(piece) > max_records:
                if not parts:
                    parts.append(piece.part(0, max_records))
                    self._pieces[0] = piece.part(max_records, len(piece))
                break
            parts.append(piece)
            taken += len(piece)
            self._pieces.popleft()
            self._pass_ends()
        return self._handed_out(joined(parts)) if parts else None

    def _handed_out(self, batch: RawBatch) -> RawBatch:
        """Stop holding a batch, and move the position after it."""
        self._ask_at_s = None
        self._position = max(self._position, int(batch.offsets[-1]) + 1)
        size = _held_bytes(batch)
        self._records -= len(batch)
        self.held_bytes -= size
        self._pool.dropped(size)
        return batch

    def _pass_ends(self) -> None:
        """Move the position to an end of the partition, if no record lies before it."""
        while self._pieces and isinstance(self._pieces[0], int):
            self._ask_at_s = None
            self._position = max(self._position, self._pieces[0])
            self._pieces.popleft()

    def _raise_what_is_wrong(self) -> None:
        """Raise an error that is known, now that no record is left before it."""
        if self._pieces and isinstance(self._pieces[0], KafkaError):
            error = self._pieces.popleft()
            found = fault(error, self.operation)
            raise self._out_of_range() if isinstance(found, LogTrimmed) else found
        reported = self._pool.take_report()
        if reported is not None:
            raise fault(reported, self.operation)

    def _out_of_range(self) -> StreamLearnerError:
        """The error for a position that the partition does not have, with the range that it has."""
        try:
            low, high = self._pool.consumer.get_watermark_offsets(
                TopicPartition(self.topic, self.partition), timeout=RANGE_TIMEOUT_S
            )
            held = f"it holds offsets {low} to {high}"
        except KafkaException as error:
            found = fault(error, self.operation)
            if isinstance(found, TopicMissing):
                return found
            held = "the range it holds is not known"
        return LogTrimmed(f"{self.topic} partition {self.partition} has no offset {self._position}: {held}")

    def seek(self, offset: int) -> None:
        """Go on from another offset. What was fetched before is dropped, errors too."""
        self._pool.unassign([self])
        self.forget(offset)
        self._pool.assign([self])

    def forget(self, offset: int) -> None:
        """Drop what is held, and fetch from `offset` next."""
        self._pool.dropped(self.held_bytes)
        self._pieces.clear()
        self._records = self.held_bytes = 0
        self._position = self.fetched = offset
        self._ask_at_s = time.monotonic() + SILENCE_S

    def close(self) -> None:
        """Give the partition back, and with the pool's last one its consumer. May be called twice."""
        self._pool.remove(self)

    def __enter__(self) -> SharedReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _held_bytes(batch: RawBatch) -> int:
    return batch.size_bytes + RECORD_BYTES * len(batch)
