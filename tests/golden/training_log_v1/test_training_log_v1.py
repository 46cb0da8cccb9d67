"""Version 1 of the training log: these bytes are read for ever. Examples are still written so; marks and
codes have newer versions (`training_log_v2`, `marks_v3` to `marks_v5`), because the rules of the join have changed.

The files beside this one hold a record each. A change that makes this test fail needs a new version of the layout, with
golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stream_learner.core.errors import DamagedRecord
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.header import open_record, seal
from stream_learner.core.log.marks import (
    AHEAD,
    ClickCounts,
    ImpressionCounts,
    Mark,
    ResumePoint,
    TickCounts,
    attach_codes,
    decode_codes,
    detach_codes,
    encode_mark,
)

FOLDER = Path(__file__).parent
ATTEMPT = 0xFEDCBA9876543210
BIAS = 0xEF46DB3751D8E999


def batch(label: list[float], weight: list[float], values: list[float]) -> ExampleBatch:
    """Three examples of four, two and no features; three distinct keys and the bias."""
    return ExampleBatch(
        log_time_ms=np.array([1_700_000_000_000, 1_700_000_000_000, 1_700_000_000_777]),
        id_hash=np.array([1, 2**63, 2**64 - 1], np.uint64),
        label=np.array(label),
        weight=np.array(weight),
        row_start=np.array([0, 4, 6, 6]),
        keys=np.array([11, 22, 2**64 - 2, BIAS, 22, BIAS], np.uint64),
        values=np.array(values),
    )


BATCHES = {
    "examples.bin": batch([0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    "examples_soft_weighted.bin": batch([0.0, 0.25, 1.0], [1.0, 2.5, 10.0], [1.0, 0.1, -3.0, 1.0, 1e300, 1.0]),
}

COUNTS = TickCounts(
    ImpressionCounts(read=10, examples=3, positives=1, duplicates=4, sampled_out=2, dead=1),
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
    codes=np.array([0, 1, 2, 3, 3, 1, 0], np.uint8) | AHEAD,
    rules=1,
)
PLAIN_MARK = Mark(
    partition=5,
    attempt=ATTEMPT,
    first_tick=1_700_000_001,
    last_tick=1_700_000_007,
    next_impression=5_000_000_000,
    first_click=70,
    click_cursor=80,
    records=1,
    pred_attempt=0x1111111111111111,
    pred_tick=1_700_000_000,
    counts=COUNTS,
    rules=1,
)
RESUME_MARK = Mark(5, ATTEMPT, 0, 7, 0, 70, 80, 1, 0, -1, COUNTS, RESUME, rules=1)
AHEAD_MARK, _ = detach_codes(RESUME_MARK, 269)
MARKS = {"mark.bin": PLAIN_MARK, "mark_resume.bin": RESUME_MARK, "mark_codes_ahead.bin": AHEAD_MARK}


@pytest.mark.parametrize("name", BATCHES)
def test_golden_examples_are_read_and_written_the_same(name: str) -> None:
    """The columns from the bytes, the bytes from the columns."""
    golden = (FOLDER / name).read_bytes()
    assert encode_examples(5, 7, ATTEMPT, BATCHES[name]) == [golden]
    record = decode(golden)
    assert isinstance(record, ExampleRecord)
    assert (record.partition, record.tick, record.attempt, record.sequence) == (5, 7, ATTEMPT, 0)
    for column in ("log_time_ms", "id_hash", "label", "weight", "row_start", "keys", "values"):
        expected = getattr(BATCHES[name], column)
        assert getattr(to_batch(record), column).tobytes() == expected.tobytes(), column


@pytest.mark.parametrize("name", MARKS)
def test_golden_marks_are_read(name: str) -> None:
    """Marks without and with a resume point, and with its codes ahead."""
    assert decode((FOLDER / name).read_bytes()) == MARKS[name]


def test_a_flag_that_version_1_did_not_have_is_damage() -> None:
    """No mark of these rules begins anew."""
    golden = (FOLDER / "mark_resume.bin").read_bytes()
    with pytest.raises(DamagedRecord, match="unknown flags 5"):
        decode(seal(open_record(golden).header._replace(flags=5), golden[40:]))


def test_a_resume_point_of_other_rules_is_neither_written_nor_gone_on_from() -> None:
    """What it remembers of clicks and ids means something else by now."""
    with pytest.raises(ValueError, match="rules 1"):
        encode_mark(RESUME_MARK)
    with pytest.raises(ValueError, match="rules 1"):
        JoinState.resume(JoinSpec(1, 0, 1, 0), RESUME_MARK)


def test_golden_codes_complete_the_mark_they_lie_ahead_of() -> None:
    """The codes from their own record, put back into the mark."""
    golden = (FOLDER / "codes.bin").read_bytes()
    assert decode_codes(open_record(golden)).tolist() == RESUME.codes.tolist()
    assert attach_codes(AHEAD_MARK, [decode_codes(open_record(golden))]).resume == RESUME
