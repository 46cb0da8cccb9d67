"""The walk of an audit over random histories of a partition: silent where a log is sound, never where it is not.

The slow obvious version is rule R itself over the whole log, and for damage a list of what each accepted mark needs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.core.log.header import HEADER_BYTES, MAGIC, Kind, RecordHeader, open_record, seal
from stream_learner.core.log.marks import GENESIS, ImpressionCounts, MarkId, TickCounts, decode_mark, encode_mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.core.log.rule_w import Attempt
from stream_learner.operations.audit.findings import CHECKSUMS, COUNTS, ORDER, Findings
from stream_learner.operations.audit.log_walk import LogWalk, Step
from stream_learner.operations.audit.request import AuditedPartition, Range
from tests.core.log.log_world import Rules, World, examples_of
from tests.suite.share import cases

NOWHERE = KafkaSettings({"bootstrap.servers": "localhost:1"}, group="nobody")
SEEDS = range(40)
EVERYTHING = Range()


def history(seed: int) -> list[bytes]:
    """The log that several writers leave behind, with all that goes wrong between them."""
    world = World(seed, Rules())
    world.run()
    return world.log


def accepted(log: list[bytes]) -> list[AcceptedTick]:
    """The ticks of a log that rule R accepts."""
    rule = RuleR(partition=0)
    return [tick for offset, value in enumerate(log) if (tick := rule.take(offset, value))]


def walk(
    log: list[bytes | None], wanted: Range = EVERYTHING, earliest: int = 0
) -> tuple[list[Step], Findings, LogWalk]:
    """Walk over a log in memory."""

    def records(start: int) -> Iterator[tuple[int, bytes | None]]:
        yield from list(enumerate(log))[start:]

    findings = Findings(1000)
    walking = LogWalk(AuditedPartition(NOWHERE, "log", 0, wanted, findings, lambda n: None), records, earliest)
    return list(walking.ticks()), findings, walking


def marks_in(steps: list[Step]) -> list[object]:
    """The marks of the steps in the range."""
    return [step.tick.mark for step in steps if step.in_range]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_log_is_read_as_rule_r_reads_it_and_nothing_is_found(seed: int) -> None:
    """Every tick, each with the mark before it; what is ignored is counted, and no lost attempt is a gap."""
    log = history(seed)
    ticks = accepted(log)
    steps, findings, walking = walk(list(log))
    assert findings.listed == []
    assert marks_in(steps) == [tick.mark for tick in ticks]
    assert [step.before for step in steps] == [None, *(tick.mark for tick in ticks[:-1])]
    rule = RuleR(partition=0)
    for offset, value in enumerate(log):
        rule.take(offset, value)
    assert (walking.records, walking.ignored_marks) == (len(log), rule.ignored_marks)
    assert walking.ignored_records == rule.ignored_records
    assert walking.gaps == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_an_accepted_tick_needs_is_missed(seed: int) -> None:
    """Any record that an accepted tick needs, unless another attempt has made a whole log of the same inputs."""
    log, rng = history(seed), random.Random(seed)
    ticks = accepted(log)
    for gone in rng.sample(needed(log, ticks[:-1]), min(2, len(ticks) - 1)):
        steps, findings, _ = walk([*log[:gone], *log[gone + 1 :]])
        if not findings.failures[ORDER]:
            there, all_of_it = steps[-1].tick.mark, ticks[-1].mark
            assert there.next_impression == all_of_it.next_impression
            assert there.click_cursor == all_of_it.click_cursor
            assert there.id not in {tick.mark.id for tick in ticks}


def needed(log: list[bytes], ticks: list[AcceptedTick]) -> list[int]:
    """The offsets of marks and examples that rule R cannot do without: those of accepted ticks, held only once."""
    copies = {value: log.count(value) for value in log}
    offsets = [offset for tick in ticks for offset in (tick.mark_offset, *(at for at, _ in tick.records))]
    return [offset for offset in offsets if copies[log[offset]] == 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_bit_is_found_wherever_it_is(seed: int) -> None:
    """In any byte of any record, of an accepted tick or not; the record is named, or foreign with another magic."""
    log, rng = history(seed), random.Random(seed)
    at = rng.randrange(len(log))
    value = bytearray(log[at])
    byte = rng.randrange(len(value))
    value[byte] ^= 1 << rng.randrange(8)
    _, findings, walking = walk([*log[:at], bytes(value), *log[at + 1 :]])
    assert walking.foreign_records == (byte < len(MAGIC))
    assert byte < len(MAGIC) or at in {finding.offset for finding in findings.listed if finding.check == CHECKSUMS}


@pytest.mark.parametrize("seed", cases(range(30), range(10)))
def test_records_that_are_not_ours_are_counted_and_read_past(seed: int) -> None:
    """A null, text, or another partition's record between sound ones: all ticks are still there."""
    log, rng = history(seed), random.Random(seed)
    ticks = accepted(log)
    at = rng.randrange(len(log) + 1)
    moved = seal(RecordHeader(Kind.EXAMPLES, 0, 1, 0, 9, 3), b"")
    steps, findings, walking = walk(
        [*log[:at], rng.choice([None, b"", b"text", b"x" * HEADER_BYTES, moved]), *log[at:]]
    )
    assert (findings.listed, walking.foreign_records) == ([], 1)
    assert marks_in(steps) == [tick.mark for tick in ticks]


@pytest.mark.parametrize("seed", cases(range(30), range(10)))
def test_ranges_that_adjoin_have_every_tick_once(seed: int) -> None:
    """Cut at any tick, or at any offset; what lies before a range is read and not counted."""
    log, rng = history(seed), random.Random(seed)
    marks = [tick.mark for tick in accepted(log)]
    tick = rng.choice(marks).last_tick
    parts = [walk(list(log), Range(until_tick=tick)), walk(list(log), Range(from_tick=tick + 1))]
    assert [mark for steps, _, _ in parts for mark in marks_in(steps)] == marks
    at = rng.randrange(1, len(log) + 1)
    halves = [walk(list(log), Range(until_offset=at)), walk(list(log), Range(from_offset=at))]
    assert [mark for steps, _, _ in halves for mark in marks_in(steps)] == marks
    assert sum(walking.records for _, _, walking in halves) == len(log)
    assert not any(findings.listed for _, findings, _ in (*parts, *halves) if findings is not halves[0][1])


@pytest.mark.parametrize("seed", cases(range(30), range(10)))
def test_a_log_without_its_beginning_is_read_from_a_mark_that_counts(seed: int) -> None:
    """The longest chain in sight; from there every tick, if most marks in sight count."""
    log, rng = history(seed), random.Random(seed)
    ticks = accepted(log)
    trimmed_to = rng.randrange(1, ticks[len(ticks) // 2].mark_offset + 2)
    left = [tick.mark for tick in ticks if tick.mark_offset >= trimmed_to]
    steps, findings, _ = walk(list(log), earliest=trimmed_to)
    if findings.listed or marks_in(steps) != left[1:]:
        in_sight = RuleR(partition=0)
        for offset, value in enumerate(log):
            in_sight.take(offset, value)
        assert in_sight.ignored_marks > 0, "only marks of attempts that lost can mislead"


def test_a_count_that_is_not_that_of_the_records_is_a_count() -> None:
    """Every record is whole, and the mark says another number; the ticks behind it are read on."""
    log = history(3)
    ticks = accepted(log)
    tick = next(tick for tick in ticks if tick.examples and tick.mark.resume is None)
    mark = decode_mark(open_record(log[tick.mark_offset]))
    counted = mark.counts.impressions._replace(examples=tick.examples + 1, read=tick.examples + 1)
    wrong = encode_mark(replace(mark, counts=mark.counts._replace(impressions=counted)))
    steps, findings, _ = walk([*log[: tick.mark_offset], wrong, *log[tick.mark_offset + 1 :]])
    assert [(f.check, f.offset) for f in findings.listed] == [(COUNTS, tick.mark_offset)]
    assert len(steps) == len(ticks)
    assert [step.whole for step in steps].count(False) == 1


@pytest.mark.parametrize("records", [1, 2], ids=["the mark", "its examples"])
def test_ticks_behind_a_gap_are_read_when_another_joiner_goes_on_from_them(records: int) -> None:
    """A joiner's log lacks a record early, and another has gone on from its last mark: one gap, where it is, and every
    tick behind it.
    """
    first, at = chain(5, GENESIS, 0), 3 * 2 - records
    second = chain(6, decode_mark(open_record(first[-1])).id, len(first))
    marks = [tick.mark for tick in accepted(first + second)]
    steps, findings, walking = walk([*first[:at], *first[at + 1 :], *second])
    assert [(finding.check, finding.tick) for finding in findings.listed] == [(ORDER, 3 if records == 1 else 2)]
    assert marks_in(steps) == marks[:2] + marks[4 if records == 1 else 3 :]
    assert walking.gaps == 1


def chain(attempt_id: int, after: MarkId, offset: int) -> list[bytes]:
    """The records of one attempt: six ticks of one example each."""
    attempt, records = Attempt(0, attempt_id, after, offset), []
    for tick in range(after.last_tick + 1, after.last_tick + 7):
        cut = {"next_impression": tick + 1, "first_click": 0, "click_cursor": 0}
        counts = TickCounts(impressions=ImpressionCounts(read=1, examples=1))
        records += attempt.stamp(examples_of(tick, tick + 1), first_tick=tick, last_tick=tick, counts=counts, **cut)
    return records
