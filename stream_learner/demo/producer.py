"""Sends the generated events when their time has come.

In: a traffic model, two topics. Out: records on the topics, and counts of those the broker has acknowledged.
This file must never send an event before the wall clock has reached its arrival, nor count one that may be lost.
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
"""The traffic begins at a multiple of this, so that its chunks and the ticks begin together."""


class TrafficProducer:
    """Paces a traffic model. `run` belongs to a thread of its own; the counts may be read from any."""

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
        """Impressions on the topic."""
        return self._acknowledged[self._impressions_topic]

    @property
    def clicks(self) -> int:
        """Clicks on the topic."""
        return self._acknowledged[self._clicks_topic]

    def run(self, stopping: Stopping) -> None:
        """Send until told to stop, then wait for what is under way. Raises what the broker refused."""
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
        """By the id, so that a click meets its impression."""
        return zlib.crc32(event[1]) % self._partitions

    def _count(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.error is not None:
                raise delivery.error
            self._acknowledged[delivery.topic] += 1
