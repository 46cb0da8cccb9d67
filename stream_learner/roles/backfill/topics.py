"""What a backfill asks of its topics before it begins: do they answer, and what do they still hold of the span.

In: topics, a moment. Out: the time of the first impression; warnings. This file must never move where a backfill
begins: it only looks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from stream_learner.edges.kafka import Admin, KafkaSettings, PartitionReader
from stream_learner.edges.telemetry import Logger

WAIT_S = 2.0
LEADERS_S = 15.0


def await_leaders(admin: Admin, topics: Sequence[str]) -> None:
    """Wait until every partition answers: the leaders of new ones refuse questions for a moment.

    Raises the error of a partition that does not answer in time, TopicMissing.
    """
    places = [(info.name, partition) for info in admin.require(topics).values() for partition in range(info.partitions)]
    until_s = time.monotonic() + LEADERS_S
    while True:
        _, failed = admin.offsets.high_watermarks_known(places)
        if not failed:
            return
        if time.monotonic() > until_s:
            raise next(iter(failed.values()))
        time.sleep(0.05)


def first_time_ms(settings: KafkaSettings, admin: Admin, topic: str) -> int | None:
    """The earliest time of the first records that the partitions hold; None where none came in time."""
    partitions = admin.require([topic])[topic].partitions
    places = [(topic, partition) for partition in range(partitions)]
    ends = admin.offsets.high_watermarks(places)
    times = []
    for (_, partition), earliest in admin.offsets.earliest(places).items():
        if earliest < ends[topic, partition]:
            with PartitionReader(settings, topic, partition, earliest, name="first-time") as reader:
                batch = reader.read(1, WAIT_S)
            if batch is not None:
                times.append(int(batch.record_times_ms[0]))
    return min(times, default=None)


def warn_of_late_beginning(admin: Admin, topics: Sequence[str], partitions: int, start_ms: int, log: Logger) -> None:
    """Say which partitions may have lost records of the span: they were trimmed, and all that is left is younger."""
    for topic in topics:
        places = [(topic, partition) for partition in range(partitions)]
        earliest, begins = admin.offsets.earliest(places), admin.offsets.at_time(places, start_ms)
        trimmed = [partition for (_, partition), at in earliest.items() if at > 0 and begins[topic, partition] == at]
        if trimmed:
            log.warning(
                "inputs_begin_later",
                topic=topic,
                partitions=trimmed,
                note="their oldest records were deleted, perhaps also some of the span asked for: the backfill begins "
                "with what is left",
            )
