"""Marks and their click codes: layout against a plain-Python writer, round trips, limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord
from stream_learner.core.log.examples import decode
from stream_learner.core.log.header import open_record
from stream_learner.core.log.marks import Mark, ResumePoint, attach_codes, decode_codes, detach_codes, encode_mark
from tests.core.log.record_layouts import marks, plain_mark


@settings(max_examples=200, deadline=None)
@given(marks())
def test_a_mark_is_what_the_layout_says_and_decodes_to_itself(mark: Mark) -> None:
    """Every field, the counts and the packed codes survive."""
    value = encode_mark(mark)
    assert value == plain_mark(mark)
    assert decode(value) == mark


@settings(max_examples=100, deadline=None)
@given(marks(), st.integers(494, 534))
def test_codes_too_many_for_a_mark_lie_ahead_of_it_and_come_back(mark: Mark, max_bytes: int) -> None:
    """No record is larger than it may be, and putting the parts back gives the resume point again."""
    bare, parts = detach_codes(mark, max_bytes)
    assert bare.records == mark.records + len(parts)
    assert all(len(part) <= max_bytes for part in parts)
    assert [open_record(part).header.sequence for part in parts] == list(range(mark.records, bare.records))
    value = encode_mark(bare)
    assert len(value) <= max_bytes
    found = decode(value)
    assert found == bare
    assert isinstance(found, Mark)
    whole = attach_codes(found, [decode_codes(open_record(part)) for part in parts])
    assert replace(whole, records=mark.records) == mark


def test_missing_codes_are_noticed() -> None:
    """A mark whose codes ahead are fewer than it names is damaged."""
    codes = np.tile(np.arange(4, dtype=np.uint8), 300)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 4, 9, -1, 0, -1, codes)
    mark, parts = detach_codes(Mark(0, 1, 0, 0, 0, 0, 1200, 0, 0, -1, resume=resume), 300)
    assert len(parts) > 1
    with pytest.raises(DamagedRecord, match="1200 codes"):
        attach_codes(mark, [decode_codes(open_record(part)) for part in parts[1:]])


def test_what_does_not_fit_a_mark_is_an_error_of_the_writer() -> None:
    """Numbers beyond their fields, codes beyond three bits and short topic ids are refused."""
    mark = Mark(0, 1, 0, 0, 0, 0, 9, 0, 0, -1)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 4, 9, -1, 0, -1, np.array([8], np.uint8))
    for wrong in (
        replace(mark, attempt=2**64),
        replace(mark, features=2**64),
        replace(mark, stream_tick=2**63),
        replace(mark, labels_from_ms=2**63),
        replace(mark, begins_anew=True),
        replace(mark, next_impression=2**63),
        replace(mark, partition=-1),
        replace(mark, resume=resume),
        replace(mark, resume=replace(resume, codes=np.zeros(0, np.uint8), click_topic_id=b"short")),
        replace(mark, resume=replace(resume, codes=np.zeros(0, np.uint8), partitions=2**32)),
        replace(mark, resume=replace(resume, codes=np.zeros(1, np.uint8), detached=1)),
    ):
        with pytest.raises(ValueError):
            encode_mark(wrong)
