"""Finds the clicks of certain ids in parts of the click topic.

Each id, a hash, comes with the offsets between which its clicks may lie. A part that several ids ask for is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries, PartitionReader
from stream_learner.core.events.decoders import ClickDecoder

READ_RECORDS = 2_000
WAIT_S = 0.5
NEAR = 10_000
"""Parts that lie closer than this many offsets are read as one."""

Click = dict[str, Any]


class WantedClicks(NamedTuple):
    """The clicks of an id at the offsets `begin` to before `end` of a topic."""

    topic: str
    id_hash: int
    begin: int
    end: int

    def covers(self, click: Click) -> bool:
        """Whether a click of this id is one of them."""
        return bool(self.topic == click["topic"] and self.begin <= click["offset"] < self.end)


class ClickSearch:
    """Reads parts of click partitions. Used by one thread."""

    def __init__(self, settings: KafkaSettings, queries: OffsetQueries, decoder: ClickDecoder) -> None:
        self._settings = settings
        self._queries = queries
        self._decoder = decoder

    def find(self, partition: int, wanted: Sequence[Sequence[WantedClicks]]) -> list[list[Click]]:
        """The clicks for each list in `wanted`, with topic, partition, offset, time_ms and value.

        Clicks that the topic does not hold any more are not found. Raises BrokerUnreachable, NotAuthorised.
        """
        found: dict[int, list[Click]] = {}
        every = [w for several in wanted for w in several]
        for topic in sorted({w.topic for w in every}):
            of_topic = [w for w in every if w.topic == topic]
            ids = np.unique(np.array([w.id_hash for w in of_topic], np.uint64))
            for begin, end in self._parts(topic, partition, of_topic):
                for id_hash, click in self._clicks(topic, partition, begin, end, ids):
                    found.setdefault(id_hash, []).append(click)
        return [[c for w in several for c in found.get(w.id_hash, ()) if w.covers(c)] for several in wanted]

    def _parts(self, topic: str, partition: int, wanted: list[WantedClicks]) -> list[tuple[int, int]]:
        """The offsets to read, within what the topic holds; parts that overlap or lie near each other are merged."""
        place = (topic, partition)
        earliest, last = self._queries.earliest([place])[place], self._queries.last_stable_offsets([place])[place]
        parts: list[tuple[int, int]] = []
        for begin, end in sorted((max(w.begin, earliest), min(w.end, last)) for w in wanted):
            if parts and begin <= parts[-1][1] + NEAR:
                parts[-1] = (parts[-1][0], max(parts[-1][1], end))
            elif begin < end:
                parts.append((begin, end))
        return parts

    def _clicks(self, topic: str, partition: int, begin: int, end: int, ids: np.ndarray) -> Iterator[tuple[int, Click]]:
        with PartitionReader(self._settings, topic, partition, begin, name=f"clicks-{partition}") as reader:
            while reader.position < end:
                batch = reader.read(READ_RECORDS, WAIT_S)
                if batch is None:
                    continue
                clicks = self._decoder.decode(batch.data, batch.bounds, batch.record_times_ms)
                there = (clicks.status == 0) & np.isin(clicks.id_hash, ids) & (batch.offsets < end)
                for row in np.flatnonzero(there).tolist():
                    yield (
                        int(clicks.id_hash[row]),
                        {
                            "topic": topic,
                            "partition": partition,
                            "offset": int(batch.offsets[row]),
                            "time_ms": int(clicks.time_ms[row]),
                            "value": float(clicks.value[row]),
                        },
                    )
