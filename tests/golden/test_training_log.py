"""Every version of the training log: these bytes are read for ever; those of the newest version of a record are also
written, byte by byte. Marks have newer versions because the rules of the join have changed.

The folders beside this file hold a record a file. A change that makes this test fail needs a new version of the layout,
with golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stream_learner.core.errors import DamagedRecord
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.field_bound import FieldBound
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
from stream_learner.core.log.skips import Skip, encode_skip
from tests.core.log.record_layouts import same

FOLDER = Path(__file__).parent
ATTEMPT = 0xFEDCBA9876543210
BIAS = 0xEF46DB3751D8E999
FEATURES = 0x89ABCDEF01234567
NEWEST = 5


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
BOUND = FieldBound(1_000_000, (0xEF46DB3751D8E999, 0x0123456789ABCDEF, 2**64 - 1))
COUNTED = np.array([1, 3, 2, 0, 3, 0], np.uint8)
"""The field of each key of version 4: keys 11, 22, 2^64 - 2 and the bias, then 22 and the bias again."""


def marks(rules: int) -> dict[str, Mark]:
    """A mark whose stream time is behind its ticks, one with a resume point, one with its codes ahead, one anew; each
    with what a version had. rules: the version."""
    counts = TickCounts(
        ImpressionCounts(read=15, examples=3, positives=1, duplicates=4, sampled_out=2, dead=1, late=5),
        ClickCounts(read=9, matched=1, duplicates=2, orphans=3, late=1, dead=1, waiting=7),
    )
    if rules == 1:  # no impression was late
        counts = counts._replace(impressions=counts.impressions._replace(read=10, late=0))
    resume = ResumePoint(
        impression_topic_id=bytes(range(16)),
        click_topic_id=bytes(range(16, 32)),
        partitions=8,
        join_fingerprint=0x0123456789ABCDEF,
        impression_log_time=1_699_999_700_000,
        dedupe_from=4_000_000_000,
        click_log_time=-1,
        codes=np.array([0, 5, 2, 7, 3, 1, 4] if rules >= 4 else np.array([0, 1, 2, 3, 3, 1, 0]) | AHEAD, np.uint8),
        rules=rules,
    )
    if rules >= 2:  # log time in steps, and a fingerprint of each input
        resume = replace(
            resume,
            steps=((44_736_842, 4_000_000_000), (44_736_844, 4_900_000_000)),
            impressions_fingerprint=0x2222222222222222,
            clicks_fingerprint=2**64 - 1,
        )
    if rules >= 3:
        resume = replace(resume, click_usual_time=1_699_998_000_321)
    first_tick = {1: 1_700_000_001, 2: 1_700_000_007}.get(rules, 1_700_000_003)
    features = FEATURES if rules >= 2 else 0
    plain = Mark(
        partition=5,
        attempt=ATTEMPT,
        first_tick=first_tick,
        last_tick=1_700_000_007,
        next_impression=5_000_000_000,
        first_click=70,
        click_cursor=80,
        records=1,
        pred_attempt=0x1111111111111111,
        pred_tick=first_tick - 1,
        counts=counts,
        features=features,
        rules=rules,
    )
    resumes = Mark(5, ATTEMPT, 0, 7, 0, 70, 80, 1, 0, -1, counts, resume, features, rules=rules)
    if rules >= 3:  # stream time and tick are two
        plain = replace(plain, stream_tick=1_699_997_900, labels_from_ms=1_699_996_000_123)
        resumes = replace(resumes, stream_tick=-1)
    found = {
        "mark.bin": plain,
        "mark_resume.bin": resumes,
        "mark_codes_ahead.bin": detach_codes(resumes, 269 if rules == 1 else 300)[0],
    }
    if rules >= 2:
        none = replace(resume, codes=np.zeros(0, np.uint8), steps=(), dedupe_from=9)
        predecessor = (0x1111111111111111, 7)
        found["mark_anew.bin"] = Mark(
            5, ATTEMPT, 8, 8, 9, 4, 4, 0, *predecessor, TickCounts(), none, FEATURES, True, rules=rules
        )
    return found


FOLDERS = {1: "training_log_v1", 2: "training_log_v2", 3: "marks_v3", 4: "marks_v4", 5: "marks_v5"}
MARKS = [(rules, name) for rules in FOLDERS for name in marks(rules)]


def golden(folder: str, name: str) -> bytes:
    return (FOLDER / folder / name).read_bytes()


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("version", [1, 4])
def test_golden_examples_are_read_and_written_the_same(version: int, name: str) -> None:
    """The columns from the bytes, the bytes from the columns; in version 4 the bound and the number of each key's field
    as well."""
    value = golden(f"training_log_v{version}", name)
    bound, counted = (BOUND, COUNTED) if version == 4 else (None, COUNTED[:0])
    examples = replace(BATCHES[name], counted=counted)
    assert encode_examples(5, 7, ATTEMPT, examples, bound=bound) == [value]
    record = decode(value)
    assert isinstance(record, ExampleRecord)
    assert (record.partition, record.tick, record.attempt, record.sequence) == (5, 7, ATTEMPT, 0)
    assert record.bound == bound and record.counted.tolist() == ([1, 3, 2, 0] if bound else [])
    again = to_batch(record)
    assert same(again, examples) and again.counted.tolist() == counted.tolist()
    for column in ("log_time_ms", "id_hash", "label", "weight", "row_start", "keys", "values"):
        assert getattr(again, column).tobytes() == getattr(examples, column).tobytes(), column


@pytest.mark.parametrize(("rules", "name"), MARKS)
def test_golden_marks_are_read_and_the_newest_written_the_same(rules: int, name: str) -> None:
    """As it was meant by the rules of its version."""
    value, mark = golden(FOLDERS[rules], name), marks(rules)[name]
    assert decode(value) == mark
    if rules == NEWEST:
        assert encode_mark(mark) == value


def test_every_golden_file_is_read() -> None:
    """None lies beside this test without one."""
    for rules, folder in FOLDERS.items():
        assert {path.name for path in (FOLDER / folder).glob("mark*.bin")} == set(marks(rules))


@pytest.mark.parametrize("rules", [1, NEWEST])
def test_golden_codes_complete_the_mark_they_lie_ahead_of(rules: int) -> None:
    """The codes from their own record, put back into the mark."""
    with_codes = marks(rules)["mark_resume.bin"]
    assert with_codes.resume is not None
    value = golden(FOLDERS[rules], "codes.bin")
    codes = decode_codes(open_record(value))
    assert codes.tolist() == with_codes.resume.codes.tolist()
    assert attach_codes(marks(rules)["mark_codes_ahead.bin"], [codes]).resume == with_codes.resume
    if rules == NEWEST:
        assert detach_codes(with_codes, 300)[1] == [value]


def test_a_flag_that_version_1_did_not_have_is_damage() -> None:
    """No mark of these rules begins anew."""
    value = golden("training_log_v1", "mark_resume.bin")
    with pytest.raises(DamagedRecord, match="unknown flags 5"):
        decode(seal(open_record(value).header._replace(flags=5), value[40:]))


def test_a_resume_point_of_other_rules_is_neither_written_nor_gone_on_from() -> None:
    """What it remembers of clicks and ids means something else by now."""
    mark = marks(1)["mark_resume.bin"]
    with pytest.raises(ValueError, match="rules 1"):
        encode_mark(mark)
    with pytest.raises(ValueError, match="rules 1"):
        JoinState.resume(JoinSpec(1, 0, 1, 0), mark)


SKIP = Skip(5, 5_000_000_001, 0xFEDCBA98, 1_700_000_007_123, "jane@ops", "a disk at näher Stelle was damaged")


def test_a_skip_is_read_and_written_the_same_and_one_that_was_cut_is_damaged() -> None:
    value = golden("training_log_v3", "skip.bin")
    assert decode(value) == SKIP
    assert encode_skip(SKIP) == value
    for size in range(40, len(value)):
        with pytest.raises(DamagedRecord):
            decode(value[:size])


def test_what_does_not_fit_a_skip_is_not_written() -> None:
    for wrong in (Skip(0, -1, 0, 0, "a", "b"), Skip(0, 1, 0, 0, "a", "b" * 5000)):
        with pytest.raises(ValueError, match=r"offset -1|more than"):
            encode_skip(wrong)
