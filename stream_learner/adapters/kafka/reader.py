"""Reads one partition, in order, from a given offset on, with a consumer of its own.

Use it where a process reads few partitions; for many partitions of a topic `reader_pool` needs only one consumer.
"""

from __future__ import annotations

from stream_learner.adapters.kafka.reader_pool import DEFAULT_BUFFER_BYTES, READ_COMMITTED, ReaderPool
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.adapters.kafka.shared_reader import SharedReader


class PartitionReader(SharedReader):
    """A pool of one partition; used by one thread. Needs `buffer_bytes` of memory, and that of one fetch."""

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
        pool = ReaderPool(
            settings,
            topic,
            isolation=isolation,
            buffer_bytes=buffer_bytes,
            name=name,
            with_keys=with_keys,
            with_headers=with_headers,
        )
        super().__init__(pool, partition, offset)
