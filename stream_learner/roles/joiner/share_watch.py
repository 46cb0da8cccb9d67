"""Lines in the log of a joiner for what begins and is over later: shares of records that tell of a producer that is
wrong, and partitions that are behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.log.marks import TickCounts

LEAST_RECORDS = 1_000
"""The shares of an input are judged, and counted anew, after so many of its records."""


@dataclass(frozen=True)
class _Bound:
    """More than `limit` of an input's records with these outcomes is worth a line."""

    event: str
    side: Literal["impressions", "clicks"]
    outcome: str
    limit: float


_BOUNDS = (
    _Bound("many_duplicates", "impressions", "duplicates", 0.1),
    _Bound("many_duplicates", "clicks", "duplicates", 0.1),
    _Bound("many_dead_letters", "impressions", "dead", 0.01),
    _Bound("many_dead_letters", "clicks", "dead", 0.01),
    _Bound("many_late", "impressions", "late", 0.01),
    _Bound("many_late", "clicks", "late", 0.05),
)


class ShareWatch:
    """Logs it when a share is above its bound, and with the next records when it is not any more."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._counts: dict[str, Counter[str]] = {"impressions": Counter(), "clicks": Counter()}
        self._said: set[_Bound] = set()

    def note(self, counts: TickCounts) -> None:
        """Take the counts of a mark."""
        impressions, clicks = counts.impressions, counts.clicks
        known = clicks.matched + clicks.duplicates + clicks.orphans + clicks.late + clicks.dead
        for side, found, records in (("impressions", impressions, impressions.read), ("clicks", clicks, known)):
            total = self._counts[side]
            total.update(records=records, duplicates=found.duplicates, dead=found.dead, late=found.late)
            if total["records"] >= LEAST_RECORDS:
                self._judge(side, total)
                total.clear()

    def _judge(self, side: str, total: Counter[str]) -> None:
        for bound in _BOUNDS:
            if bound.side != side:
                continue
            share = total[bound.outcome] / total["records"]
            if (share > bound.limit) == (bound in self._said):
                continue
            if share > bound.limit:
                self._said.add(bound)
                self._log.warning(bound.event, input=side, share=round(share, 3))
            else:
                self._said.discard(bound)
                self._log.info(f"{bound.event}_no_more", input=side, share=round(share, 3))


class BehindWatch:
    """Logs it when a partition is behind for more than `LIMIT_S`, and when all have caught up to half of that."""

    LIMIT_S = 60.0

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._said = False

    def note(self, lag_s: Mapping[int, float]) -> None:
        """lag_s: the lag beyond the window of each partition."""
        worst = max(lag_s, key=lambda partition: lag_s[partition], default=-1)
        most_s = lag_s.get(worst, 0.0)
        if not self._said and most_s > self.LIMIT_S:
            self._said = True
            self._log.warning("behind", partition=worst, seconds=round(most_s, 1))
        elif self._said and most_s <= self.LIMIT_S / 2:
            self._said = False
            self._log.info("caught_up")
