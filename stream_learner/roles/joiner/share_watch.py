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
"""A share is judged, and counted anew, after so many records of its input."""
LEAST_FOUND = 50
"""To be over, a share is judged by so many records that those of a share at the bound would be this many."""


@dataclass(frozen=True)
class _Bound:
    """More than `limit` of an input's records with these outcomes is worth a line."""

    event: str
    side: Literal["impressions", "clicks"]
    outcome: str
    limit: float

    @property
    def least_to_end(self) -> float:
        """A share that was said is judged, and counted anew, after so many records of its input."""
        return max(LEAST_RECORDS, LEAST_FOUND / self.limit)


_BOUNDS = (
    _Bound("many_duplicates", "impressions", "duplicates", 0.1),
    _Bound("many_duplicates", "clicks", "duplicates", 0.1),
    _Bound("many_dead_letters", "impressions", "dead", 0.01),
    _Bound("many_dead_letters", "clicks", "dead", 0.01),
    _Bound("many_late", "impressions", "late", 0.01),
    _Bound("many_late", "clicks", "late", 0.05),
)


class ShareWatch:
    """Logs it when a share is above its bound, and when it is at most half of that: a share near its bound is above and
    below it by chance.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._counts = {bound: Counter[str]() for bound in _BOUNDS}
        self._said: set[_Bound] = set()

    def note(self, counts: TickCounts) -> None:
        """Take the counts of a mark."""
        impressions, clicks = counts.impressions, counts.clicks
        known = clicks.matched + clicks.duplicates + clicks.orphans + clicks.late + clicks.dead
        for bound, total in self._counts.items():
            is_click = bound.side == "clicks"
            found = getattr(clicks if is_click else impressions, bound.outcome)
            total.update(records=known if is_click else impressions.read, found=found)
            if total["records"] >= (bound.least_to_end if bound in self._said else LEAST_RECORDS):
                self._judge(bound, total["found"] / total["records"])
                total.clear()

    def _judge(self, bound: _Bound, share: float) -> None:
        if bound not in self._said and share > bound.limit:
            self._said.add(bound)
            self._log.warning(bound.event, input=bound.side, share=round(share, 3))
        elif bound in self._said and share <= bound.limit / 2:
            self._said.discard(bound)
            self._log.info(f"{bound.event}_no_more", input=bound.side, share=round(share, 3))


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
