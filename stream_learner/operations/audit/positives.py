"""Positive examples against the clicks that matched, as far as a log can tell.

Where ids are remembered, each positive example has exactly one click that counts as matched. Clicks are counted when
they expire, examples when they close, so a click and its example may lie on different sides of either end of the
range. That gives bounds for the number of positives. A log in which ids repeat has no upper bound, one whose clicks
have values has no lower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stream_learner.core.log.marks import AHEAD, ClickCode, Mark
from stream_learner.operations.audit.findings import EXAMPLES_AGAIN, HOLDS, POSITIVES, Finding, Findings
from stream_learner.operations.audit.mark_checks import Stretch, Sums
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config


class Bounds(NamedTuple):
    """The fewest and the most positive examples that there may be; None if the log cannot tell."""

    fewest: int | None
    most: int | None


def check_positives(config: Config, sums: Mapping[int, Sums], findings: Findings, *, replay: bool) -> None:
    """Check every partition. Where all examples were made again and hold, nothing is left for the bounds to show."""
    if replay and findings.status(EXAMPLES_AGAIN) == HOLDS:
        findings.held(POSITIVES, sum(of.positives for of in sums.values()))
        return
    for partition, of in sums.items():
        if len(of.balances) == 1 and not of.other_rules:
            for stretch in of.stretches:
                _check(config, partition, stretch, findings)


def bounds(matched: int, opening: Mark | None, last: Mark, *, ids_repeat: bool, clicks_have_values: bool) -> Bounds:
    """How many positives a range may have in which `matched` clicks have expired as matched.

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


def _check(config: Config, partition: int, stretch: Stretch, findings: Findings) -> None:
    if stretch.last is None:
        return
    found = bounds(
        stretch.balance.clicks.matched,
        stretch.opening,
        stretch.last,
        ids_repeat=config.join.dedupe_ms == 0,
        clicks_have_values=config.input.clicks.value is not None,
    )
    findings.held(POSITIVES, stretch.positives)
    least, most = found.fewest or 0, found.most
    if stretch.positives < least or (most is not None and stretch.positives > most):
        between = f"{least} or more" if most is None else f"{least} to {most}"
        what = f"{count_of(stretch.positives, 'positive')}; by the clicks that matched there are {between}"
        findings.fail(Finding(POSITIVES, what, config.examples_topic, partition, tick=stretch.last.last_tick))


def _matched_waiting(mark: Mark | None) -> tuple[int, int]:
    """The fewest and the most clicks that wait after a mark and have matched already."""
    if mark is None:
        return 0, 0
    if mark.resume is None:
        return 0, mark.counts.clicks.waiting
    matched = int(np.count_nonzero((mark.resume.codes & (AHEAD - 1)) == ClickCode.MATCHED))
    return matched, matched
