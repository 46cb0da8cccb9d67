"""A consumer that hands out records as columns and one buffer, with no Python object for any of them.

It does what `ReaderPool` needs of `confluent_kafka.Consumer`, with the same properties, messages and errors. The client
is made by librdkafka's C functions. `can_make` says where the ordinary consumer must be used.

This file must never let a message be used after it was given back, nor a callback be collected before its client.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from itertools import pairwise
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING, Logger
from typing import Any, NamedTuple

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from stream_learner.adapters.kafka.library import (
    CONF_OK,
    CONSUMER,
    LIVES_ON,
    ErrorCallback,
    LogCallback,
    Metadata,
    address_of_function,
    library,
)
from stream_learner.adapters.kafka.wake import Wake
from stream_learner.core.machine import records
from stream_learner.core.machine.memory import address_of

MOST_MESSAGES = 4_000
TEXT_BYTES = 512
LEVELS = (CRITICAL, CRITICAL, CRITICAL, ERROR, WARNING, INFO, INFO, DEBUG)
"""Levels of syslog as those of `logging`."""


class Messages(NamedTuple):
    """Messages as they came, n >= 1: records, and errors in their place.

    errors: i32[n], 0 for a record. texts: what the errors say, by index. is_null: bool[n], None if no record's value is
    null. starts: where each run begins, and n: records of one partition that follow each other, or an error. The values
    of a run that begins with record s lie back to back in its `data`: that of record i from `bounds[i] - bounds[s]` to
    before `bounds[i + 1] - bounds[s]`.
    """

    errors: npt.NDArray[np.int32]
    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]
    starts: list[int]
    data: list[npt.NDArray[np.uint8]]
    is_null: npt.NDArray[np.bool_] | None
    texts: Mapping[int, str]

    def error(self, i: int) -> KafkaError:
        """The error at an index."""
        return KafkaError(int(self.errors[i]), self.texts[i])


def can_make(properties: Mapping[str, Any]) -> bool:
    """Whether a `PackedConsumer` can be made with these properties: tokens are fetched by the ordinary client only."""
    mechanism = str(properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "")
    return mechanism.upper() != "OAUTHBEARER" and library() is not None


class PackedConsumer:
    """A consumer outside any group; used by one thread. Its methods are those of the ordinary consumer.

    Callbacks run within its methods, as the ordinary client's do. Once it is closed, every method but `close` raises
    RuntimeError. One that is dropped is closed.
    """

    def __init__(self, properties: Mapping[str, Any], *, logger: Logger) -> None:
        """Raises KafkaException where librdkafka refuses the properties."""
        self._library = library()
        self._logger = logger
        self._report = properties.get("error_cb", lambda error: None)
        self._callbacks = ErrorCallback(self._on_error), LogCallback(self._on_log)
        self._client: int | None = None
        self._client = self._made({name: value for name, value in properties.items() if name != "error_cb"})
        self._library.rd_kafka_set_log_queue(self._client, None)
        self._library.rd_kafka_poll_set_consumer(self._client)
        self._queue = self._library.rd_kafka_queue_get_consumer(self._client)
        self._time_of = address_of_function("rd_kafka_message_timestamp")
        self._destroy = address_of_function("rd_kafka_message_destroy")
        self._addresses = np.zeros(MOST_MESSAGES, np.int64)
        self._at = address_of(self._addresses)
        self._wake: Wake | None = None

    def _made(self, properties: Mapping[str, Any]) -> int:
        """A client of librdkafka; the name and version that brokers see are those of the ordinary one."""
        version = f"{confluent_kafka.version()[0]}-rdkafka-{confluent_kafka.libversion()[0]}"
        named = {"client.software.name": "confluent-kafka-python", "client.software.version": version}
        text = ctypes.create_string_buffer(TEXT_BYTES)
        settings = self._library.rd_kafka_conf_new()
        try:
            for name, value in {**named, **properties, "log.queue": "true"}.items():
                given = name.encode(), str(value).encode()
                if self._library.rd_kafka_conf_set(settings, *given, text, TEXT_BYTES) != CONF_OK:
                    raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode()))
            self._library.rd_kafka_conf_set_error_cb(settings, self._callbacks[0])
            self._library.rd_kafka_conf_set_log_cb(settings, self._callbacks[1])
            client = self._library.rd_kafka_new(CONSUMER, settings, text, TEXT_BYTES)
            if not client:
                code = self._library.rd_kafka_last_error()
                raise KafkaException(KafkaError(code, f"Failed to create consumer: {text.value.decode()}"))
        except KafkaException:
            self._library.rd_kafka_conf_destroy(settings)
            raise
        return int(client)

    def __del__(self) -> None:
        self.close()

    @property
    def _open_client(self) -> int:
        """The client. librdkafka does not notice that it is given none, and ends the process."""
        if self._client is None:
            raise RuntimeError("Consumer closed")
        return self._client

    def _on_error(self, client: int, code: int, reason: bytes, opaque: int) -> None:
        self._report(KafkaError(code, reason.decode("utf-8", "replace")))

    def _on_log(self, client: int, level: int, facility: bytes, text: bytes) -> None:
        name = self._library.rd_kafka_name(client).decode("utf-8", "replace")
        words = facility.decode(), name, text.decode("utf-8", "replace")
        self._logger.log(LEVELS[level], "%s [%s] %s", *words)

    def wakes(self, wake: Wake) -> None:
        """Wake a thread whenever messages come into the queue that was empty at the last `consume`."""
        assert self._open_client
        self._wake = wake  # its file must stay open as long as the client
        self._library.rd_kafka_queue_io_event_enable(self._queue, wake.fd, b"1", 1)

    def consume(self, most: int, timeout_s: float) -> Messages | None:
        """At most `most` messages, and no more than `MOST_MESSAGES`; None if there are none.

        Waits at most `timeout_s` for the first.
        """
        assert self._open_client
        found = self._library.rd_kafka_consume_batch_queue(
            self._queue, int(timeout_s * 1000), self._at, min(most, MOST_MESSAGES)
        )
        if found < 0:
            code = self._library.rd_kafka_last_error()
            raise KafkaException(KafkaError(code))
        if found == 0:
            return None
        try:
            return self._copied(found)
        finally:
            records.release(self._addresses, found, self._destroy)

    def _copied(self, n: int) -> Messages:
        errors, partitions = np.empty(n, np.int32), np.empty(n, np.int32)
        offsets, times_ms, bounds = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n + 1, np.int64)
        is_null = np.empty(n, np.bool_)
        columns = errors, partitions, offsets, times_ms, bounds, is_null
        nulls = records.describe(self._addresses, n, self._time_of, *columns)
        starts = np.empty(n + 1, np.int64)
        starts_list = starts[: records.find_runs(errors, partitions, n, starts) + 1].tolist()
        data = [self._values(first, end, bounds) for first, end in pairwise(starts_list)]
        texts = {int(i): self._text_of(int(self._addresses[i])) for i in np.flatnonzero(errors)} if nulls else {}
        return Messages(
            errors, partitions, offsets, times_ms, bounds, starts_list, data, is_null if nulls else None, texts
        )

    def _values(self, first: int, end: int, bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """The values of messages first to end - 1, in memory of their own: a run may be held for long."""
        values = np.empty(int(bounds[end] - bounds[first]), np.uint8)
        if len(values):
            records.copy_values(self._addresses, first, end, bounds, address_of(values))
        return values

    def _text_of(self, message: int) -> str:
        return str(self._library.rd_kafka_message_errstr(message).decode("utf-8", "replace"))

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions too, from their offsets on."""
        self._change(self._library.rd_kafka_incremental_assign, partitions)

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions no more."""
        self._change(self._library.rd_kafka_incremental_unassign, partitions)

    def _change(self, call: Any, partitions: Iterable[TopicPartition]) -> None:
        client = self._open_client
        places = [(each.topic.encode(), each.partition, each.offset) for each in partitions]
        changed = self._library.rd_kafka_topic_partition_list_new(len(places))
        try:
            for topic, partition, offset in places:
                self._library.rd_kafka_topic_partition_list_add(changed, topic, partition)
                self._library.rd_kafka_topic_partition_list_set_offset(changed, topic, partition, offset)
            self._raise_if(call(client, changed))
        finally:
            self._library.rd_kafka_topic_partition_list_destroy(changed)

    def _raise_if(self, error: int | None) -> None:
        """Raise KafkaException for an error object of librdkafka."""
        if error:
            code, text = self._library.rd_kafka_error_code(error), self._library.rd_kafka_error_string(error)
            found = KafkaError(code, text.decode("utf-8", "replace"))
            self._library.rd_kafka_error_destroy(error)
            raise KafkaException(found)

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """The first offset that a partition has, and the one after its last."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = self._library.rd_kafka_query_watermark_offsets(
            self._open_client,
            partition.topic.encode(),
            partition.partition,
            ctypes.byref(low),
            ctypes.byref(high),
            int(timeout * 1000),
        )
        if code:
            raise KafkaException(KafkaError(code))
        return low.value, high.value

    def topic_error(self, topic: str, timeout_s: float) -> KafkaError | None:
        """What the brokers say is wrong with a topic, None for nothing. Raises KafkaException without an answer."""
        client = self._open_client
        named = self._library.rd_kafka_topic_new(client, topic.encode(), None)
        found = ctypes.POINTER(Metadata)()
        try:
            code = self._library.rd_kafka_metadata(client, 0, named, ctypes.byref(found), int(timeout_s * 1000))
            if code:
                raise KafkaException(KafkaError(code))
            codes = [found.contents.topics[i].err for i in range(found.contents.topic_cnt)]
            self._library.rd_kafka_metadata_destroy(found)
            return next((KafkaError(code) for code in codes if code), None)
        finally:
            self._library.rd_kafka_topic_destroy(named)

    def close(self) -> None:
        """Close the connections. May be called twice."""
        if self._client is not None:
            client, self._client = self._client, None
            self._library.rd_kafka_consumer_close(client)
            self._library.rd_kafka_queue_destroy(self._queue)
            self._library.rd_kafka_destroy_flags(client, LIVES_ON)
