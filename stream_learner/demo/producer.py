"""Sends the generated events: none before the wall clock has reached its arrival.

An event counts when the broker has acknowledged it.
"""

from __future__ import annotations

import zlib
from collections import Counter

from stream_learner.adapters.kafka import Appender, Delivery, KafkaSettings
from stream_learner.roles.common.lifecycle import Stopping, wall_clock_ms
from stream_learner.traffic import Chunk, Event, TrafficModel

LINGER_MS = 5.0
FLUSH_S = 15.0
ALIGNED_MS = 200
"""The traffic begins at a multiple of this, so that its chunks begin when ticks do."""


class TrafficProducer:
    """Sends the events of a traffic model in real time. `run` needs a thread of its own; any thread may read the
    counts."""

    def __init__(
        self,
        settings: KafkaSettings,
        traffic: TrafficModel,
        *,
        impressions_topic: str,
        clicks_topic: str,
        partitions: int,
        rate_per_s: float,
    ) -> None:
        self._settings = settings
        self._traffic = traffic
        self._impressions_topic = impressions_topic
        self._clicks_topic = clicks_topic
        self._partitions = partitions
        self._rate_per_s = rate_per_s
        self._acknowledged: Counter[str] = Counter()

    @property
    def impressions(self) -> int:
        """The number of impressions on the topic."""
        return self._acknowledged[self._impressions_topic]

    @property
    def clicks(self) -> int:
        """The number of clicks on the topic."""
        return self._acknowledged[self._clicks_topic]

    def run(self, stopping: Stopping) -> None:
        """Send until told to stop, then wait for the last acknowledgements. Raises the broker's error for a refused
        record."""
        begin_ms = (wall_clock_ms() // ALIGNED_MS + 1) * ALIGNED_MS
        appender = Appender(self._settings, name="traffic", linger_ms=LINGER_MS)
        try:
            for chunk in self._traffic.events(self._rate_per_s, begin_ms):
                if stopping.wait(max(chunk.end_ms - wall_clock_ms(), 0) / 1000):
                    break
                self._send(appender, chunk)
                self._count(appender.poll())
            self._count(appender.flush(FLUSH_S))
        finally:
            appender.close()

    def _send(self, appender: Appender, chunk: Chunk) -> None:
        for topic, events in ((self._impressions_topic, chunk.impressions), (self._clicks_topic, chunk.clicks)):
            for event in events:
                appender.append(topic, self._partition(event), event[2], key=event[1])

    def _partition(self, event: Event) -> int:
        """The partition of an event, by its id, so that a click is in the partition of its impression."""
        return zlib.crc32(event[1]) % self._partitions

    def _count(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.error is not None:
                raise delivery.error
            self._acknowledged[delivery.topic] += 1
