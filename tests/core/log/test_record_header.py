"""A record of the training log is opened once: its header at once, its body when somebody is to read it."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from stream_learner.core.errors import DamagedRecord, Where
from stream_learner.core.log import header as record_header
from stream_learner.core.log.examples import decode
from stream_learner.core.log.header import HEADER_BYTES, Kind, RecordHeader, open_record, seal
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import RuleR
from tests.core.log.log_world import Rules, World

HEADER = RecordHeader(Kind.CODES, 0, 3, 0, 77, 5)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """How often each stretch of bytes was checked."""
    counts: Counter[bytes] = Counter()

    def crc32(stretch: bytes, before: int = 0) -> int:
        counts[bytes(stretch)] += 1
        return zlib.crc32(stretch, before)

    monkeypatch.setattr(record_header, "crc32", crc32)
    return counts


def test_a_body_is_checked_once_and_not_before_it_is_asked_for(checked: Counter[bytes]) -> None:
    value = seal(HEADER, b"the body")
    checked.clear()
    record = open_record(value, Where(9, 3))
    assert (record.header, record.where, record.size_bytes) == (HEADER, Where(9, 3), len(value))
    assert checked == {value[:32]: 1}
    assert [bytes(record.body), bytes(record.body)] == [b"the body"] * 2
    assert checked == {value[:32]: 1, b"the body": 1}


def test_a_damaged_body_is_refused_whenever_it_is_asked_for() -> None:
    """Its header can be read all the same."""
    record = open_record(seal(HEADER, b"the body")[:-1] + b"!", Where(9, 3))
    assert record.header == HEADER
    for _ in range(2):
        with pytest.raises(DamagedRecord, match="partition 3, offset 9: the body's checksum does not match"):
            _ = record.body


@pytest.mark.parametrize("seed", range(8))
def test_rule_r_checks_what_it_hands_out_and_marks_once_and_nothing_else(seed: int, checked: Counter[bytes]) -> None:
    """Records that no accepted mark names may have any body."""
    world = World(seed, Rules())
    world.run()
    marks = [value for value in world.log if isinstance(decode(value), Mark)]
    checked.clear()
    rule = RuleR(partition=0)
    ticks = [tick for offset, value in enumerate(world.log) if (tick := rule.take(offset, value))]
    named = sum(tick.mark.records for tick in ticks)
    assert named
    assert checked.total() == len(world.log) + len(marks) + named
    handed_out = Counter(world.log[offset][HEADER_BYTES:] for tick in ticks for offset, _ in tick.records)
    assert all(checked[body] >= times for body, times in handed_out.items())
