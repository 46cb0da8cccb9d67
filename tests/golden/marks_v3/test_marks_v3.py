"""Version 3 of the marks in the training log: these bytes are read for ever. Marks are written in a newer version
(`marks_v5`), because clicks are ahead or not.

The files beside this one hold a record each. A change that makes this test fail needs a new version of the layout, with
golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stream_learner.core.log.examples import decode
from stream_learner.core.log.marks import (
    AHEAD,
    ClickCounts,
    ImpressionCounts,
    Mark,
    ResumePoint,
    TickCounts,
    detach_codes,
)

FOLDER = Path(__file__).parent
ATTEMPT = 0xFEDCBA9876543210
COUNTS = TickCounts(
    ImpressionCounts(read=15, examples=3, positives=1, duplicates=4, sampled_out=2, dead=1, late=5),
    ClickCounts(read=9, matched=1, duplicates=2, orphans=3, late=1, dead=1, waiting=7),
)
RESUME = ResumePoint(
    impression_topic_id=bytes(range(16)),
    click_topic_id=bytes(range(16, 32)),
    partitions=8,
    join_fingerprint=0x0123456789ABCDEF,
    impression_log_time=1_699_999_700_000,
    dedupe_from=4_000_000_000,
    click_log_time=-1,
    click_usual_time=1_699_998_000_321,
    codes=np.array([0, 1, 2, 3, 3, 1, 0], np.uint8) | AHEAD,
    steps=((44_736_842, 4_000_000_000), (44_736_844, 4_900_000_000)),
    impressions_fingerprint=0x2222222222222222,
    clicks_fingerprint=2**64 - 1,
    rules=3,
)
FEATURES = 0x89ABCDEF01234567
PLAIN_MARK = Mark(
    partition=5,
    attempt=ATTEMPT,
    first_tick=1_700_000_003,
    last_tick=1_700_000_007,
    next_impression=5_000_000_000,
    first_click=70,
    click_cursor=80,
    records=1,
    pred_attempt=0x1111111111111111,
    pred_tick=1_700_000_002,
    counts=COUNTS,
    features=FEATURES,
    stream_tick=1_699_997_900,
    labels_from_ms=1_699_996_000_123,
    rules=3,
)
RESUME_MARK = Mark(5, ATTEMPT, 0, 7, 0, 70, 80, 1, 0, -1, COUNTS, RESUME, FEATURES, stream_tick=-1, rules=3)
AHEAD_MARK, _ = detach_codes(RESUME_MARK, 300)
NO_CODES = replace(RESUME, codes=np.zeros(0, np.uint8), steps=(), dedupe_from=9)
ANEW_MARK = Mark(5, ATTEMPT, 8, 8, 9, 4, 4, 0, 0x1111111111111111, 7, TickCounts(), NO_CODES, FEATURES, True, rules=3)
MARKS = {
    "mark.bin": PLAIN_MARK,
    "mark_resume.bin": RESUME_MARK,
    "mark_codes_ahead.bin": AHEAD_MARK,
    "mark_anew.bin": ANEW_MARK,
}


@pytest.mark.parametrize("name", MARKS)
def test_golden_marks_are_read(name: str) -> None:
    """A mark whose stream time is behind its ticks, one with a resume point, one with its codes ahead, one anew."""
    assert decode((FOLDER / name).read_bytes()) == MARKS[name]
