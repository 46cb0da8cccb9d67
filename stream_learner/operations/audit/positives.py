"""Examples with a click against clicks with an example, where a log can tell.

In: the sums of one partition. Out: a finding, or nothing.
This file must never call a difference wrong that repeated clicks can explain.

Where ids are remembered, each positive example has had one click that counts as matched, and each of those has made
one example positive. Clicks count when they expire, examples when they close; so those that wait at either end of the
range may be on one side only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_learner.core.log.marks import ClickCode, Mark


class Bounds(NamedTuple):
    """The fewest and the most positive examples that there may be; None where the log cannot tell."""

    fewest: int | None
    most: int | None


def bounds(matched: int, opening: Mark | None, last: Mark, *, ids_repeat: bool, clicks_have_values: bool) -> Bounds:
    """How many positives a range may have with which so many matched clicks have gone.

    ids_repeat: whether a click counts for every impression of its id (dedupe is 0, or the log is of the rules 1).
    clicks_have_values: whether a click may leave its example at 0.

    >>> last = Mark(0, 1, 0, 4, 10, 5, 5, 1, 0, -1)
    >>> bounds(7, None, last, ids_repeat=False, clicks_have_values=False)
    Bounds(fewest=7, most=7)
    """
    before, after = _matched_waiting(opening), _matched_waiting(last)
    fewest = matched - before[1] + after[0]
    most = matched - before[0] + after[1]
    return Bounds(None if clicks_have_values else max(fewest, 0), None if ids_repeat else most)


def _matched_waiting(mark: Mark | None) -> tuple[int, int]:
    """Of the clicks that wait after a mark, the fewest and the most that have matched already."""
    if mark is None:
        return 0, 0
    if mark.resume is None:
        return 0, mark.counts.clicks.waiting
    matched = int(np.count_nonzero(mark.resume.codes == ClickCode.MATCHED))
    return matched, matched
