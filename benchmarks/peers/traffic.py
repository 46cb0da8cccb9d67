"""The impressions and clicks that every program is measured on, and what is right about them.

The events are those of `stream_learner.traffic.benchmark`: 39 features, about 600 bytes of JSON, clicks on 2 %. They
cover a minute of event time, however many there are, and the click window is half of it. A click follows its impression
by up to 20 s; every tenth follows by 40 s, so it does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from stream_learner.traffic.benchmark import benchmark_clicks, benchmark_impressions

PARTITIONS = 2
WINDOW_MS = 30_000
START_MS = 1_700_000_000_000
SPAN_MS = 60_000
LATE_EVERY, LATE_MS, SLOWEST_MS = 10, 40_000, 20_000
ENDS = 16
"""Records that close all windows, for each partition of each topic."""
END = b"end-"
"""The ids of the records that close the windows begin so; no result counts them."""

Records = list[tuple[int, bytes, bytes, int]]
"""Time in epoch ms, key, value, partition; by time."""


@dataclass(frozen=True)
class Traffic:
    """So many impressions, and the clicks on them."""

    count: int
    impressions: Records
    clicks: Records
    positives: int
    """The impressions that have a click in the window: the oracle's count."""


def traffic(count: int) -> Traffic:
    """The events and how many of the impressions are clicked in time."""
    times = START_MS + np.arange(count, dtype=np.int64) * SPAN_MS // count
    data, bounds = benchmark_impressions(count)
    impressions = _records(data, bounds, times, np.arange(count))
    data, bounds, clicked = benchmark_clicks(count)
    delays = _delays(len(clicked))
    order = np.argsort(times[clicked] + delays, kind="stable")
    clicks = _records(data, bounds, times[clicked] + delays, clicked)
    return Traffic(count, impressions, [clicks[i] for i in order], int((delays <= WINDOW_MS).sum()))


def end_ms(late: int = 0) -> int:
    """A time at which every window has closed; each further one is a second later."""
    return START_MS + SPAN_MS + 2 * WINDOW_MS + 1000 * late


def send(producer: Producer, topic: str, records: Records) -> None:
    """Send the records, then those that close the windows, and wait until the brokers have them."""
    closing = [
        (end_ms(), END + b"%d-%d" % (partition, number), partition)
        for partition in range(PARTITIONS)
        for number in range(ENDS)
    ]
    ends = [(time_ms, key, b'{"id":"%s"}' % key, partition) for time_ms, key, partition in closing]
    for time_ms, key, value, partition in [*records, *ends]:
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=time_ms)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError(f"{topic}: not everything could be sent")


def _delays(count: int) -> NDArray[np.int64]:
    """Milliseconds from an impression to its click, for each click."""
    numbers = np.arange(count, dtype=np.int64)
    return np.where(numbers % LATE_EVERY == LATE_EVERY - 1, LATE_MS, 1 + numbers * 7919 % SLOWEST_MS)


def _records(data: bytes, bounds: NDArray[np.int64], times: NDArray[np.int64], numbers: NDArray[np.int64]) -> Records:
    """Record i has the time `times[i]` and is about the impression `numbers[i]`, which tells its partition."""
    edges, partitions = bounds.tolist(), (numbers % PARTITIONS).tolist()
    values = [data[edges[i] : edges[i + 1]] for i in range(len(partitions))]
    keys = [value.split(b'"', 4)[3] for value in values]
    return list(zip(times.tolist(), keys, values, partitions, strict=True))
