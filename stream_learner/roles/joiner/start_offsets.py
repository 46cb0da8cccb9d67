"""Where a partition without a training log begins: by `join.start`, and where there are clicks.

In: what the brokers say of both input partitions. Out: the offsets to begin at, and how much is left out.
This file must never begin with impressions whose clicks the topic has lost: all of them would count as not clicked.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple

from stream_learner.adapters.kafka import OffsetQueries, TopicAndPartition
from stream_learner.adapters.telemetry.logs import Logger

LONG_MS = 86_400_000
"""Clicks that begin so much later than impressions, though none were deleted, were not collected before."""


class StartOffsets(NamedTuple):
    """Offsets to begin at. left_out: offsets of impressions before them without clicks. clicks_from_ms: the time of the
    first click that there is, -1 for none.
    """

    impression: int
    click: int
    left_out: int = 0
    clicks_from_ms: int = -1

    def say(self, log: Logger) -> None:
        """A warning if impressions are left out."""
        if self.left_out:
            since = datetime.fromtimestamp(self.clicks_from_ms / 1000, timezone.utc).isoformat(timespec="seconds")
            log.warning(
                "impressions_left_out",
                offsets=self.left_out,
                clicks_since=since if self.clicks_from_ms >= 0 else "none is left",
                note="the click topic reaches back less far than the impression topic: these impressions would all "
                "count as not clicked. Keep clicks at least as long as impressions",
            )


class StartRule:
    """Where a partition without a training log begins: `earliest`, `latest`, or a time in ms."""

    def __init__(self, queries: OffsetQueries, where: str | int) -> None:
        self._queries = queries
        self._where = where

    def of(self, impressions_topic: str, clicks_topic: str, partition: int) -> StartOffsets:
        """The offsets to begin at, asked of the brokers."""
        shown, clicked = (impressions_topic, partition), (clicks_topic, partition)
        impression, click = self._offset(shown), self._offset(clicked)
        if self._where == "latest":
            return StartOffsets(impression, click)
        times = self._queries.first_times([shown, clicked])
        begun_ms = max(times[shown], self._where) if isinstance(self._where, int) else times[shown]
        if self._has_clicks(clicked, begun_ms, times[clicked]):
            return StartOffsets(impression, click)
        first = max(impression, self._at_time(shown, times[clicked]))
        return StartOffsets(first, click, first - impression, times[clicked])

    def _has_clicks(self, clicked: TopicAndPartition, begun_ms: int, clicks_from_ms: int) -> bool:
        """Whether there are clicks for the impressions of that time; -1 for the first click: there is none at all."""
        if 0 <= clicks_from_ms <= begun_ms:
            return True
        deleted = self._queries.earliest([clicked])[clicked] > 0
        return not deleted and clicks_from_ms - begun_ms <= LONG_MS

    def _offset(self, place: TopicAndPartition) -> int:
        if self._where == "earliest":
            return self._queries.earliest([place])[place]
        return self._at_time(place, self._where if isinstance(self._where, int) else -1)

    def _at_time(self, place: TopicAndPartition, time_ms: int) -> int:
        """The first offset at or after a time; the end of the partition where there is none, and for -1."""
        found = self._queries.at_time([place], time_ms)[place] if time_ms >= 0 else -1
        return found if found >= 0 else self._queries.high_watermarks([place])[place]
