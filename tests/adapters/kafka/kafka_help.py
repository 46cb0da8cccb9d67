"""Small helpers of the Kafka tests: wait for something, read to an end, run a member of a group as a process."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Producer

from stream_learner.adapters.kafka import (
    Appender,
    EndWatch,
    KafkaSettings,
    OffsetQueries,
    Reader,
    Record,
    TopicAndPartition,
    TransactionalPublisher,
)
from tests.waiting import patience, wait_for

T = TypeVar("T")


@contextmanager
def running_module(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m module arguments` while the block lasts; killed at its end at the latest."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def watching(ends: EndWatch) -> Iterator[EndWatch]:
    """The watch, started, while the block lasts."""
    try:
        yield ends.start()
    finally:
        ends.stop()


def until(look: Callable[[], T | None], look_s: float = 0.01) -> T:
    """Call `look` until its result is true, and return that."""
    return wait_for(lambda: look() or None, look_s=look_s)


def raises_within(kind: type[Exception], call: Callable[[], object]) -> Exception:
    """The error of this kind that `call` raises sooner or later; others pass through."""

    def look() -> Exception | None:
        try:
            call()
        except kind as error:
            return error
        return None

    return until(look)


def without_waiting(call: Callable[[], T]) -> T:
    """Return the result of a call that could wait for an hour but should not wait: fails when the patience is over."""
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:  # noqa: BLE001 -- raised by `result`
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended.result(patience())


class VisiblePublisher(TransactionalPublisher):
    """A publisher whose `publish` returns once readers of committed records see the records.

    A commit is answered once it is certain; the markers that make it visible follow, milliseconds later as a rule.
    """

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        super().__init__(settings, transactional_id)
        self._queries = OffsetQueries(settings)

    def publish(
        self, records: Iterable[Record | tuple[str, int, bytes | None, bytes | None]]
    ) -> dict[tuple[str, int], int]:
        offsets = super().publish(records)
        until(lambda: self._are_seen(offsets))
        return offsets

    def _are_seen(self, offsets: dict[TopicAndPartition, int]) -> bool:
        ends = self._queries.last_stable_offsets(offsets)
        return all(ends[place] > offset for place, offset in offsets.items())


def append(settings: KafkaSettings, topic: str, partition: int, values: list[bytes | None]) -> list[int]:
    """Append plain values and return their offsets."""
    appender = Appender(settings)
    for value in values:
        appender.append(topic, partition, value)
    offsets = [delivery.offset for delivery in appender.flush(patience())]
    appender.close()
    return offsets


def read(reader: Reader, count: int) -> tuple[list[int], list[bytes | None]]:
    """Offsets and values of the next `count` records."""
    offsets: list[int] = []
    values: list[bytes | None] = []

    def look() -> bool:
        batch = reader.read(count - len(values), 0.05)
        if batch is not None:
            offsets.extend(batch.offsets.tolist())
            values.extend(batch.values)
        return len(values) >= count

    until(look, 0.0)
    return offsets, values


def read_to(reader: Reader, end: int) -> list[int]:
    """Offsets of the records met until the reader's position has reached `end`."""
    offsets: list[int] = []

    def look() -> bool:
        batch = reader.read(1000, 0.02)
        if batch is not None:
            offsets.extend(batch.offsets.tolist())
        return reader.position >= end

    until(look, 0.0)
    return offsets


def transaction(settings: KafkaSettings, topic: str, count: int, *, commit: bool, partition: int = 0) -> Producer:
    """Write a transaction of some records with a producer of its own, and commit or abort it."""
    producer = open_transaction(settings, topic, count, partition=partition)
    if commit:
        producer.commit_transaction(patience())
    else:
        producer.abort_transaction(patience())
    return producer


def open_transaction(
    settings: KafkaSettings, topic: str, count: int, *, partition: int = 0, transactional_id: str = ""
) -> Producer:
    """Write a transaction of some records, and leave it open."""
    name = transactional_id or f"open-{topic}-{uuid.uuid4().hex}"
    producer = Producer(settings.producer(transactional__id=name))
    producer.init_transactions(patience())
    producer.begin_transaction()
    for i in range(count):
        producer.produce(topic, b"t%d" % i, partition=partition)
    producer.flush(patience())
    return producer
