"""The balance: every input record ends in exactly one counted outcome, and the marks alone prove it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Final

from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark

PRINTED: Final = MappingProxyType({"dead": "dead_lettered"})
"""The counts that are printed under another name than that of their field."""


class Balance:
    """Sums the counts of marks and checks them.

    For impressions `read = examples + duplicates + late + sampled_out + dead`. For clicks `read = matched + duplicates
    + orphans + late + dead + waiting + given_up`: `waiting` are those that wait after the last mark of each partition,
    `given_up` those that waited before a mark that begins anew. Both equations hold for every mark by itself as well,
    where the clicks that waited before it count as read.
    """

    def __init__(self) -> None:
        self._impressions: Counter[str] = Counter()
        self._clicks: Counter[str] = Counter()
        self._waiting: dict[int, int] = {}
        self._opening = 0
        self.given_up = 0
        """Clicks that waited before marks that begin anew."""
        self._problems: list[str] = []

    def open(self, mark: Mark) -> None:
        """Begin a partition after `mark`: clicks that wait there count as read. Not needed after `GENESIS`."""
        if mark.partition in self._waiting:
            raise ValueError(f"partition {mark.partition} has begun already")
        self._waiting[mark.partition] = mark.counts.clicks.waiting
        self._opening += mark.counts.clicks.waiting

    def add(self, mark: Mark) -> None:
        """Count the next accepted mark of its partition."""
        impressions, clicks = mark.counts.impressions, mark.counts.clicks
        before = self._waiting.get(mark.partition, 0)
        self._check(mark, "impressions", impressions.read, impressions.settled)
        given_up = before if mark.begins_anew else 0
        self._check(mark, "clicks", before + clicks.read, clicks.settled + given_up + clicks.waiting)
        self.given_up += given_up
        self._impressions.update(impressions._asdict())
        self._clicks.update(clicks._replace(waiting=0)._asdict())
        self._waiting[mark.partition] = clicks.waiting

    @property
    def impressions(self) -> ImpressionCounts:
        """Sums over all marks."""
        return ImpressionCounts(**self._impressions)

    @property
    def clicks(self) -> ClickCounts:
        """Sums over all marks. `read` includes the clicks that waited at `open`; `waiting` is of the last marks."""
        sums = ClickCounts(**self._clicks)
        return sums._replace(read=sums.read + self._opening, waiting=sum(self._waiting.values()))

    @property
    def problems(self) -> list[str]:
        """The marks that do not add up, a line for each; empty if the balance holds."""
        return list(self._problems)

    def to_dict(self, impressions_waiting: int = 0) -> dict[str, dict[str, int]]:
        """The sums as `--json` prints them.

        `impressions_waiting`: impressions in the topic that no mark counts yet. They are added to `read` and to
        `waiting` of the impressions, so that the sums still add up. Clicks given up are a term only if there are any.
        """
        impressions = self.impressions._asdict()
        del impressions["positives"]
        impressions["read"] += impressions_waiting
        impressions["waiting"] = impressions_waiting
        clicks = self.clicks._asdict()
        if self.given_up:
            clicks["given_up"] = self.given_up
        return {
            side: {PRINTED.get(name, name): count for name, count in counts.items()}
            for side, counts in (("impressions", impressions), ("clicks", clicks))
        }

    def _check(self, mark: Mark, what: str, given: int, settled: int) -> None:
        if given != settled:
            ticks = f"partition {mark.partition}, ticks {mark.first_tick}..{mark.last_tick}"
            self._problems.append(f"{ticks}: {what} that came in: {given}, accounted for: {settled}")


def balance_lines(sums: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Both sums of `Balance.to_dict` side by side for people, a term a line."""
    columns = [_sum_lines(side, counts) for side, counts in sums.items()]
    for left, right in zip_longest(*columns, fillvalue=""):
        yield f"  {left:<32}{right}".rstrip()


def _sum_lines(side: str, counts: Mapping[str, int]) -> list[str]:
    width = len(f"{counts['read']:,}")
    signs = [" ", "=", *"+" * (len(counts) - 2)]
    terms = zip(signs, counts.items(), strict=True)
    return [side, *(f"{sign} {count:>{width},} {name.replace('_', '-')}" for sign, (name, count) in terms)]
