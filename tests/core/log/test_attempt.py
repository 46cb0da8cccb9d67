"""One joiner's attempt at a partition: what it stamps, what is durable, and when it must begin again."""

from __future__ import annotations

import numpy as np
import pytest

from stream_learner.core.errors import BrokenLog
from stream_learner.core.log.examples import ExampleBatch, decode
from stream_learner.core.log.header import open_record
from stream_learner.core.log.marks import GENESIS, ClickCounts, ImpressionCounts, Mark, MarkId, ResumePoint, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.core.log.rule_w import Ack, Attempt, Verdict

Log = list[bytes]


def examples(n: int) -> ExampleBatch:
    """`n` examples of one feature each."""
    return ExampleBatch(
        np.arange(n, dtype=np.int64),
        np.arange(1, n + 1, dtype=np.uint64),
        np.zeros(n),
        np.ones(n),
        np.arange(n + 1, dtype=np.int64),
        np.full(n, 5, np.uint64),
        np.ones(n),
    )


def stamp(attempt: Attempt, n: int = 1, resume: ResumePoint | None = None) -> list[bytes]:
    """The next tick, with `n` examples."""
    return attempt.stamp(
        examples(n),
        first_tick=attempt.next_tick,
        last_tick=attempt.next_tick,
        next_impression=n,
        first_click=0,
        click_cursor=0 if resume is None else len(resume.codes),
        counts=TickCounts(ImpressionCounts(read=n, examples=n), ClickCounts()),
        resume=resume,
    )


def append(log: Log, attempt: Attempt, records: list[bytes]) -> list[Ack]:
    """The records reach the log, each is acknowledged."""
    answers = []
    for record in records:
        log.append(record)
        answers.append(attempt.acknowledged(len(log) - 1))
    return answers


def read(log: Log, rule: RuleR | None = None) -> tuple[RuleR, list[AcceptedTick]]:
    """A reader at the end of the log, and the ticks it accepted on the way."""
    rule = RuleR() if rule is None else rule
    begin = rule.position or 0
    ticks = [rule.take(begin + i, value) for i, value in enumerate(log[begin:])]
    return rule, [tick for tick in ticks if tick is not None]


def test_ticks_follow_each_other_and_a_reader_accepts_them_all() -> None:
    """Each mark names the one before it; runs of empty ticks share one mark."""
    attempt = Attempt(4, 77, GENESIS, 0)
    log: Log = []
    append(log, attempt, stamp(attempt, 2))
    empty = ExampleBatch.empty()
    append(
        log,
        attempt,
        attempt.stamp(
            empty,
            first_tick=1,
            last_tick=9,
            next_impression=2,
            first_click=0,
            click_cursor=0,
            counts=TickCounts(),
        ),
    )
    append(log, attempt, stamp(attempt, 1))
    rule, ticks = read(log)
    assert [(t.mark.first_tick, t.mark.last_tick, t.examples) for t in ticks] == [
        (0, 0, 2),
        (1, 9, 0),
        (10, 10, 1),
    ]
    assert [t.mark.predecessor for t in ticks] == [GENESIS, MarkId(77, 0), MarkId(77, 9)]
    assert rule.last == attempt.durable == MarkId(77, 10)


def test_a_tick_is_durable_when_its_mark_is_acknowledged() -> None:
    """Records of examples alone make nothing durable."""
    attempt = Attempt(0, 77, GENESIS, 5)
    first, mark = stamp(attempt)
    assert open_record(first).header.kind != open_record(mark).header.kind
    assert attempt.outstanding == 2
    assert attempt.acknowledged(5) is Ack.EXPECTED
    assert (attempt.durable, attempt.durable_offset) == (GENESIS, None)
    assert attempt.acknowledged(6) is Ack.EXPECTED
    assert (attempt.durable, attempt.durable_offset) == (MarkId(77, 0), 6)
    assert (attempt.outstanding, attempt.expected_offset) == (0, 7)


def test_a_foreign_offset_leaves_the_attempt_in_doubt_until_the_log_has_been_read() -> None:
    """Marks acknowledged in doubt count as durable only once the verdict is to go on."""
    attempt, log = Attempt(0, 77, GENESIS, 0), []
    append(log, attempt, stamp(attempt))
    late = Attempt(0, 88, GENESIS, 0)
    log.append(stamp(late)[0])
    assert append(log, attempt, stamp(attempt)) == [Ack.FOREIGN, Ack.EXPECTED]
    assert attempt.in_doubt
    assert attempt.durable == MarkId(77, 0)
    rule, _ = read(log)
    assert attempt.decide(rule) is Verdict.GO_ON
    assert not attempt.in_doubt
    assert (attempt.durable, attempt.durable_offset) == (MarkId(77, 1), 4)


def test_an_attempt_whose_mark_was_overtaken_begins_again() -> None:
    """Another's mark came first: the last accepted mark is not one's own."""
    mine, other, log = Attempt(0, 77, GENESIS, 0), Attempt(0, 88, GENESIS, 0), []
    log += stamp(other)
    assert append(log, mine, stamp(mine))[0] is Ack.FOREIGN
    rule, ticks = read(log)
    assert [tick.mark.attempt for tick in ticks] == [88]
    assert mine.decide(rule) is Verdict.BEGIN_AGAIN
    assert mine.durable == GENESIS


def test_an_attempt_without_a_mark_yet_begins_again_if_its_predecessor_is_no_longer_the_last() -> None:
    """Its first mark would name a mark that has been followed by another's."""
    mine, other, log = Attempt(0, 77, GENESIS, 0), Attempt(0, 88, GENESIS, 0), []
    pending = stamp(mine)
    log += stamp(other)
    append(log, mine, pending[:1])
    assert mine.decide(read(log)[0]) is Verdict.BEGIN_AGAIN


def test_an_attempt_without_a_mark_yet_goes_on_if_only_ignored_records_came_between() -> None:
    """Records of an attempt that never ends its tick harm nobody."""
    mine, other, log = Attempt(0, 77, GENESIS, 0), Attempt(0, 88, GENESIS, 0), []
    pending = stamp(mine)
    log.append(stamp(other)[0])
    append(log, mine, pending[:1])
    assert mine.decide(read(log)[0]) is Verdict.GO_ON
    append(log, mine, pending[1:])
    assert read(log)[0].last == mine.durable == MarkId(77, 0)


def test_an_own_mark_that_came_back_and_was_not_accepted_ends_the_attempt() -> None:
    """An older mark of one's own being the last is not enough: every later one would be ignored."""
    attempt, log = Attempt(0, 77, GENESIS, 0), []
    append(log, attempt, stamp(attempt))
    second = stamp(attempt)
    log.append(stamp(Attempt(0, 88, GENESIS, 0))[0])
    attempt.acknowledged(len(log))
    log.append(stamp(Attempt(0, 99, GENESIS, 0))[0])
    append(log, attempt, second[1:])
    rule, _ = read(log)
    assert rule.last == MarkId(77, 0)
    assert attempt.decide(rule) is Verdict.BEGIN_AGAIN


def test_a_verdict_needs_a_reader_that_has_read_past_every_acknowledged_offset() -> None:
    """A reader that stands before them could not know."""
    attempt, log = Attempt(0, 77, GENESIS, 0), []
    rule, _ = read(log)
    append(log, attempt, stamp(attempt))
    with pytest.raises(ValueError, match="acknowledged up to 1"):
        attempt.decide(rule)
    assert attempt.decide(read(log, rule)[0]) is Verdict.GO_ON


def test_an_offset_that_goes_back_means_a_broken_log() -> None:
    """The partition was cut short or made anew; nothing is known any more."""
    attempt = Attempt(3, 77, MarkId(66, 8), 100)
    stamp(attempt)
    with pytest.raises(BrokenLog, match=r"partition 3, offset 99: .* reached 100"):
        attempt.acknowledged(99)


def test_what_cannot_follow_is_refused_and_leaves_the_attempt_as_it_was() -> None:
    """A tick out of turn, or counts that differ from the examples: an error found before it is written."""
    attempt = Attempt(0, 77, MarkId(66, 8), 100)
    places = {"next_impression": 0, "first_click": 0, "click_cursor": 0}
    with pytest.raises(ValueError, match="9 comes next"):
        attempt.stamp(examples(0), first_tick=8, last_tick=9, counts=TickCounts(), **places)
    with pytest.raises(ValueError, match="1 examples, counted as 0"):
        attempt.stamp(examples(1), first_tick=9, last_tick=9, counts=TickCounts(), **places)
    with pytest.raises(ValueError, match="nothing that was stamped"):
        attempt.acknowledged(100)
    with pytest.raises(ValueError, match="no attempt's id"):
        Attempt(0, 0, GENESIS, 0)
    assert (attempt.next_tick, attempt.outstanding) == (9, 0)


def test_a_resume_point_larger_than_a_record_travels_in_several_and_arrives_whole() -> None:
    """A window of many clicks makes more codes than a record holds; rule R puts them back into the mark."""
    codes = (np.arange(5000) * 7 % 4).astype(np.uint8)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 8, 1, 5, 6, 7, codes)
    attempt, log = Attempt(0, 77, GENESIS, 0, max_bytes=400), []
    append(log, attempt, stamp(attempt, 3, resume))
    bare = decode(log[-1])
    assert isinstance(bare, Mark)
    assert bare.resume is not None
    assert bare.resume.detached == 5000
    assert max(map(len, log)) <= 400
    rule, (tick,) = read(log)
    assert tick.mark.resume == resume
    assert tick.mark.records == len(log) - 1
    assert [len(record) for _, record in tick.records] == [3]
    assert rule.ignored_records == 0
