"""Reads known records with both consumers and compares: are messages laid out as `core/machine/records` reads them?

Another layout would give wrong bytes, not an error. `stream-learner compile` asks, so the build of an image does, and
so do the tests. The broker is the one inside librdkafka: nothing outside the process is needed.
"""

from __future__ import annotations

import time

from confluent_kafka import Producer

from stream_learner.adapters.kafka.clients import log
from stream_learner.adapters.kafka.mock_broker import EmbeddedBroker
from stream_learner.adapters.kafka.reader_pool import ReaderPool
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.wording import count_of

TOPIC = "canary"
PARTITIONS = 2
PATIENCE_S = 30.0
VALUES = (b"one", None, b"", bytes(range(256)) * 40, b'{"id":"a"}', b"\x00")
"""Of each partition: short, null, empty, long, and bytes that end text."""
FIRST_MS = 1_700_000_000_000

Read = list[tuple[int, int, int, bytes | None]]
"""Partition, offset, time in ms and value of each record."""


def compare_consumers() -> str:
    """What the packed consumer reads otherwise than the ordinary one, in words; "" if nothing.

    Takes about a second. Raises RuntimeError if librdkafka makes no broker, ConfigError if it makes no client.
    """
    with EmbeddedBroker({TOPIC: PARTITIONS}) as broker:
        settings = KafkaSettings({"bootstrap.servers": broker.bootstrap}, group=TOPIC)
        _produce(settings)
        ordinary, packed = (_read(settings, packed=packed) for packed in (False, True))
    sent = PARTITIONS * len(VALUES)
    different = [f"{theirs} as {ours}" for theirs, ours in zip(ordinary, packed, strict=False) if theirs != ours]
    if len(ordinary) == len(packed) == sent and not different:
        return ""
    read = f"of {count_of(sent, 'record')} the ordinary consumer reads {len(ordinary)}, the packed one {len(packed)}"
    return f"{read}; otherwise {', '.join(different[:3]) or 'none'}"


def _produce(settings: KafkaSettings) -> None:
    producer = Producer(settings.producer(linger__ms="5"), logger=log)
    for partition in range(PARTITIONS):
        for number, value in enumerate(VALUES):
            producer.produce(TOPIC, value, partition=partition, timestamp=FIRST_MS + number)
    producer.flush(PATIENCE_S)


def _read(settings: KafkaSettings, *, packed: bool) -> Read:
    pool = ReaderPool(settings, TOPIC, packed=packed, partitions=PARTITIONS)
    found: Read = []
    for partition in range(PARTITIONS):
        until_s = time.monotonic() + PATIENCE_S
        with pool.open(partition, 0) as reader:
            while reader.position < len(VALUES) and time.monotonic() < until_s:
                batch = reader.read(len(VALUES), 0.1)
                if batch is not None:
                    columns = batch.offsets.tolist(), batch.record_times_ms.tolist(), batch.values
                    found += [(partition, *record) for record in zip(*columns, strict=True)]
    return found
