"""The offsets at which a partition without a training log begins: by `join.start`, and by the clicks that are held.

A partition never begins with impressions whose clicks the topic has lost: all of them would count as not clicked.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple

from stream_learner.adapters.kafka import OffsetQueries, TopicAndPartition
from stream_learner.adapters.telemetry.logs import Logger

LONG_MS = 86_400_000
"""Clicks that begin later than impressions by more than this, none deleted, were not collected before."""


class StartOffsets(NamedTuple):
    """The first offset of each input. left_out: the number of offsets of impressions that are skipped for want of
    clicks. clicks_from_ms: the time of the first click held, -1 for none.
    """

    impression: int
    click: int
    left_out: int = 0
    clicks_from_ms: int = -1

    def say(self, log: Logger) -> None:
        """Log a warning if impressions are left out."""
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
    """`join.start`: `earliest`, `latest`, or a time in ms."""

    def __init__(self, queries: OffsetQueries, where: str | int) -> None:
        self._queries = queries
        self._where = where

    def of(
        self, impressions_topic: str, clicks_topic: str, partition: int, *, clicks_lost: bool = False
    ) -> StartOffsets:
        """The offsets at which a partition begins, as the brokers answer now.

        clicks_lost: whether clicks are known to be lost, although the topic lacks none at its beginning: it was made
        anew.
        """
        shown, clicked = (impressions_topic, partition), (clicks_topic, partition)
        impression, click = self._offset(shown), self._offset(clicked)
        if self._where == "latest":
            return StartOffsets(impression, click)
        times = self._queries.first_times([shown, clicked])
        begun_ms = max(times[shown], self._where) if isinstance(self._where, int) else times[shown]
        if self._has_clicks(clicked, begun_ms, times[clicked], clicks_lost):
            return StartOffsets(impression, click)
        first = max(impression, self._at_time(shown, times[clicked]))
        return StartOffsets(first, click, first - impression, times[clicked])

    def _has_clicks(self, clicked: TopicAndPartition, begun_ms: int, clicks_from_ms: int, lost: bool) -> bool:
        """Whether the topic holds the clicks for impressions of a time. clicks_from_ms: -1 where it holds none."""
        if 0 <= clicks_from_ms <= begun_ms:
            return True
        lost = lost or self._queries.earliest([clicked])[clicked] > 0
        return not lost and clicks_from_ms - begun_ms <= LONG_MS

    def _offset(self, place: TopicAndPartition) -> int:
        if self._where == "earliest":
            return self._queries.earliest([place])[place]
        return self._at_time(place, self._where if isinstance(self._where, int) else -1)

    def _at_time(self, place: TopicAndPartition, time_ms: int) -> int:
        """The first offset at or after a time; the end of the partition where no record is so late, and for -1."""
        found = self._queries.at_time([place], time_ms)[place] if time_ms >= 0 else -1
        return found if found >= 0 else self._queries.high_watermarks([place])[place]
