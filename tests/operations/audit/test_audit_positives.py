"""What the clicks that matched say of the positive examples: never wrong of a sound log, and near enough to find one
that is not."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from stream_learner.core.log.marks import ClickCode, ClickCounts, Mark, ResumePoint, TickCounts
from stream_learner.operations.audit.positives import Bounds, bounds
from tests.oracles import join as oracle_join
from tests.oracles import loop as oracle
from tests.scenarios import NAMES, records, scenario


def mark(waiting: int, codes: list[ClickCode] | None = None) -> Mark:
    """A mark after which so many clicks wait; with codes it is a resume point."""
    point = None
    if codes is not None:
        point = ResumePoint(bytes(16), bytes(16), 1, 0, 0, 0, 0, np.array(codes, np.uint8))
    counts = TickCounts(clicks=ClickCounts(waiting=waiting))
    return Mark(0, 1, 0, 4, 0, 0, waiting, 1, 0, -1, counts, point)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dedupe_ms", [0, 2_000, 600_000])
def test_every_range_of_a_sound_log_is_within_its_bounds(name: str, dedupe_ms: int) -> None:
    """From any mark to any later one, whatever waits at either end."""
    made = scenario(name, 2).with_settings(dedupe_ms=dedupe_ms)
    s = made.settings
    for shown, clicked in zip(records(made.impressions), records(made.clicks), strict=True):
        impressions = [oracle.read_impression(record, s) for record in shown]
        clicks = [oracle.read_click(record, s) for record in clicked]
        marks = oracle_join.marks_by_log_time(impressions, clicks, s)
        joined = oracle_join.replay(impressions, clicks, marks, s)
        positives = [0, *accumulate(j.impressions["positives"] for j in joined)]
        matched = [0, *accumulate(j.clicks["matched"] for j in joined)]
        waiting = [0, *(j.clicks["waiting"] for j in joined)]
        some = np.linspace(0, len(joined), 12, dtype=int).tolist()
        for begin in some:
            for end in (n for n in some if n > begin):
                found = bounds(
                    matched[end] - matched[begin],
                    mark(waiting[begin]) if begin else None,
                    mark(waiting[end]),
                    ids_repeat=dedupe_ms == 0,
                    clicks_have_values=s["value"] is not None,
                )
                made_positive = positives[end] - positives[begin]
                assert found.fewest is None or made_positive >= found.fewest
                assert found.most is None or made_positive <= found.most


def test_codes_of_resume_points_make_the_bounds_narrow() -> None:
    """What had matched before the range is not counted, what has matched and waits is."""
    before = mark(3, [ClickCode.MATCHED, ClickCode.UNMATCHED, ClickCode.MATCHED])
    after = mark(4, [ClickCode.MATCHED, ClickCode.DUPLICATE, ClickCode.LATE, ClickCode.UNMATCHED])
    assert bounds(10, before, after, ids_repeat=False, clicks_have_values=False) == Bounds(9, 9)
    assert bounds(1, before, after, ids_repeat=False, clicks_have_values=False) == Bounds(0, 0)
    assert bounds(10, mark(3), mark(4), ids_repeat=False, clicks_have_values=False) == Bounds(7, 14)
    assert bounds(10, before, after, ids_repeat=True, clicks_have_values=True) == Bounds(None, None)
