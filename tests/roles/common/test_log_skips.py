"""A damaged record and the skip that names it: every reader takes the same ticks, wherever it begins and whenever.

The oracle is the log before the damage, with junk in the place of the skip: the same marks, without the examples of the
damaged record.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from proofs.simulation.kafka import Calm, Log, Queries, Reader
from stream_learner.core.log.header import Kind, open_record
from stream_learner.core.log.marks import Mark, MarkId
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.core.log.skips import Skip, checksum_of, encode_skip
from stream_learner.errors import DamagedLog, LogTrimmed, Stop
from stream_learner.roles.common.log_reader import accepted, accepted_ticks
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.roles.joiner.log_tail import Hint, LogTail
from tests.core.log.log_world import Rules, World
from tests.suite.share import cases

PLACE = ("m.examples", 0)
Plain = tuple[Mark, tuple[tuple[int, bytes], ...]]
"""A mark, and the offsets and ids of its records of examples."""
Reading = Callable[["Topic"], object]


class Topic:
    """A partition with these records, and what reads it."""

    def __init__(self, log: list[bytes], trimmed_to: int = 0) -> None:
        self.log = Log(itertools.count())
        for value in log:
            self.log.append(value, at=0)
        self.log.trim(trimmed_to)
        calm = Calm({PLACE: self.log})
        self.clients: tuple[Any, Any] = (calm, Queries(calm))

    def after(self, known: MarkId | None = None, start: int = 0) -> list[Plain]:
        """The ticks after a mark, of the records from an offset on, as a learner reads them."""
        there = [(entry.offset, entry.value) for entry in self.log.entries if entry.offset >= start]
        unusable = UnusableRecords(*self.clients, new_reader=Reader)  # type: ignore[arg-type]
        return [plain(tick) for tick in accepted(RuleR(known, partition=0), PLACE, there, unusable)]

    def once(self) -> list[Plain]:
        """As `audit`, `evaluate` and `diff` do, from the earliest record on."""
        return [plain(tick) for tick in accepted_ticks(*self.clients, *PLACE, new_reader=Reader)]  # type: ignore[arg-type]

    def joined(self, hint: Hint | None) -> list[tuple[Mark, tuple[()]]]:
        """The marks that a joiner goes on from: the last resume point, and those after it."""
        clients = self.clients
        tail = LogTail(*clients, *PLACE, new_reader=Reader, new_reader_beside=Reader, log_id="ab")  # type: ignore[arg-type]
        found = next(one for one in tail.find(hint, to_resume=False) if one is not None)
        return [(mark, ()) for mark in (found.resume, *found.since) if mark is not None]


def plain(tick: AcceptedTick) -> Plain:
    return tick.mark, tuple((at, record.id_hash.tobytes()) for at, record in tick.records)


def log_of(seed: int) -> list[bytes]:
    """What several writers leave behind."""
    world = World(seed, Rules())
    world.run()
    return list(world.log)


def flipped(log: list[bytes], offset: int, byte: int) -> list[bytes]:
    """The log with a bit of a record turned."""
    value = log[offset]
    return [*log[:offset], value[:byte] + bytes([value[byte] ^ 1]) + value[byte + 1 :], *log[offset + 1 :]]


def with_one_more(log: list[bytes], at: int, value: bytes) -> list[bytes]:
    return [*log[:at], value, *log[at:]]


def skip_of(log: list[bytes], offset: int) -> bytes:
    return encode_skip(Skip(0, offset, checksum_of(log[offset]), 5, "somebody", "a test"))


def stops_at(log: list[bytes]) -> str:
    """The error with which a reader of the whole log stops; "" for none."""
    try:
        Topic(log).after()
    except Stop as error:
        return str(error)
    return ""


def damages(log: list[bytes], rng: random.Random, *kinds: Kind) -> Iterator[tuple[int, list[bytes]]]:
    """Records of these kinds at which every reader stops once a bit of their body is turned, and the log then."""
    offsets = [at for at, value in enumerate(log) if open_record(value).header.kind in kinds]
    for offset in rng.sample(offsets, len(offsets)):
        damaged = flipped(log, offset, rng.randrange(40, len(log[offset])))
        if f"partition 0 offset {offset}:" in stops_at(damaged):
            yield offset, damaged


def readings(ticks: list[AcceptedTick], at: int, rng: random.Random) -> Iterator[Reading]:
    """All ways to read a log with these ticks and, at an offset, one record more."""
    yield lambda topic: topic.after()
    yield lambda topic: topic.once()
    yield lambda topic: topic.joined(None)
    for tick in ticks:
        behind = tick.mark_offset + 1
        behind += behind > at
        start = rng.randrange(behind + 1)
        yield lambda topic, tick=tick, start=start: topic.after(tick.mark.id, start)  # type: ignore[misc]
        yield lambda topic, tick=tick, behind=behind: topic.joined(Hint(behind, tick.mark.id))  # type: ignore[misc]


def outcome(read: Reading, topic: Topic) -> Any:
    """What a reader finds, or the kind of its error."""
    try:
        return read(topic)
    except LogTrimmed as error:
        return type(error)


def accepted_by_rule_r(log: list[bytes]) -> list[AcceptedTick]:
    rule = RuleR(partition=0)
    return [tick for offset, value in enumerate(log) if (tick := rule.take(offset, value))]


@pytest.mark.parametrize("seed", cases(range(30), range(10)))
def test_every_reader_leaves_the_same_examples_out(seed: int) -> None:
    """From the beginning, from any mark, by any hint, from what retention has left; the skip right behind the damaged
    record, or as late as at the end of the log. A skip of other bytes, or of another record, changes nothing.
    """
    sound, rng = log_of(seed), random.Random(seed)
    gone, damaged = next(damages(sound, rng, Kind.EXAMPLES), (0, []))
    if not damaged:
        return

    def less(wanted: Any) -> Any:
        """The same ticks without the record."""
        if isinstance(wanted, type):
            return wanted
        return [(mark, tuple(record for record in records if record[0] != gone)) for mark, records in wanted]

    at = rng.choice((gone + 1, rng.randrange(gone + 1, len(sound) + 1), len(sound)))
    before, after = with_one_more(sound, at, b"junk"), with_one_more(damaged, at, skip_of(damaged, gone))
    for read in readings(accepted_by_rule_r(sound), at, rng):
        assert outcome(read, Topic(after)) == less(outcome(read, Topic(before)))
    upto = rng.randrange(len(sound))
    assert outcome(Topic.once, Topic(after, upto)) == less(outcome(Topic.once, Topic(before, upto)))
    for wrong in (skip_of(sound, gone), skip_of(damaged, gone - 1 if gone else gone + 1), skip_of(damaged, gone)[:-1]):
        assert stops_at(with_one_more(damaged, at, wrong)) == stops_at(damaged)


@pytest.mark.parametrize("seed", cases(range(30), range(10)))
def test_a_resume_point_whose_codes_are_damaged_is_none(seed: int) -> None:
    """The tick counts, with all its examples; a joiner begins at the resume point before."""
    sound, rng = log_of(seed), random.Random(seed)
    gone, damaged = next(damages(sound, rng, Kind.CODES), (0, []))
    if not damaged:
        return
    header = open_record(sound[gone]).header
    hit, after = MarkId(header.attempt, header.tick), Topic([*damaged, skip_of(damaged, gone)])
    wanted = [
        (replace(mark, resume=None) if mark.id == hit else mark, records) for mark, records in Topic(sound).after()
    ]
    assert after.after() == after.once() == wanted
    marks = [mark for mark, _ in wanted]
    last = max((place for place, mark in enumerate(marks) if mark.resume is not None), default=0)
    assert after.joined(None) == [(mark, ()) for mark in marks[last:]]


@pytest.mark.parametrize("seed", cases(range(30), range(10)))
def test_a_damaged_mark_that_is_skipped_is_as_if_it_were_not_there(seed: int) -> None:
    """Whether it counted or not; if ticks go on from it, they do not count, or readers say that it is missing."""
    sound, rng = log_of(seed), random.Random(seed)
    gone, damaged = next(damages(sound, rng, Kind.MARK), (0, []))
    if not damaged:
        return
    at = rng.randrange(gone + 1, len(sound) + 1)
    before = with_one_more([*sound[:gone], b"junk", *sound[gone + 1 :]], at, b"junk")
    after = with_one_more(damaged, at, skip_of(damaged, gone))
    ticks = [tick for tick in accepted_by_rule_r(sound) if tick.mark_offset < gone]
    for read in readings(ticks, at, rng):
        assert outcome(read, Topic(after)) == outcome(read, Topic(before))


def test_no_reader_goes_on_before_the_skip_is_there() -> None:
    """Every way to read that comes to the tick stops, and names the record and what to do."""
    for seed in range(8):
        sound, rng = log_of(seed), random.Random(seed)
        gone, damaged = next(damages(sound, rng, Kind.EXAMPLES), (0, []))
        ticks = [tick for tick in accepted_by_rule_r(sound) if damaged and tick.mark_offset < gone]
        for read in readings(ticks, len(sound), rng) if damaged else ():
            with pytest.raises(DamagedLog, match=rf"partition 0 offset {gone}: ") as raised:
                read(Topic(damaged))
            assert f"log skip {gone} --partition 0" in raised.value.action


def test_a_log_that_had_marks_is_not_begun_again_because_somebody_else_wrote_to_it() -> None:
    """The topic has lost its records, and holds junk only: a hint says that there were marks. It is a new log without
    one, or with one that is of another log, or of an earlier version, which did not name it.
    """
    for topic, lacks in ((Topic([b"junk", b"", b"more of it"]), "no mark up to offset 3"), (Topic([]), "no record")):
        assert topic.joined(None) == []
        for read_from, known in ((7, MarkId(5, 3)), (1, MarkId(5, 3)), (0, MarkId(0, -1))):
            with pytest.raises(LogTrimmed, match=f"holds {lacks}"):
                topic.joined(Hint(read_from, known, "ab"))
            assert topic.joined(Hint(read_from, known, "cd")) == topic.joined(Hint(read_from, known)) == []
