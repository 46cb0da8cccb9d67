"""One partition of the training log, record by record: what rule R accepts, and everything that it should not meet.

In: the records of a partition up to where it ended at the beginning. Out: its accepted ticks in order, once each.
This file must never stop at damage: it is noted, and reading goes on behind it.

A mark that is not accepted, with none accepted that goes as far, is a gap: its predecessor, or a record of its own, is
missing. Repeats are no gap, nor are marks of an attempt that lost: another has gone, or will go, as far. After a gap
the ticks behind it are read as those of a log that begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from stream_learner.core.errors import BrokenLog, ForeignRecord, RecordError, Where
from stream_learner.core.log.header import Kind, LogRecord, open_record
from stream_learner.core.log.marks import Mark, MarkId, decode_mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.operations.audit.findings import CHECKSUMS, COUNTS, ORDER
from stream_learner.operations.audit.request import AuditedPartition
from stream_learner.roles.common.log_reader import RawRecords, beginning_in_sight, marks
from stream_learner.roles.joiner.partition import MAX_OUTSTANDING
from stream_learner.wording import count_of

RecordsFrom = Callable[[int], RawRecords]

T = TypeVar("T")

REMEMBERED = 10_000
"""Marks and damaged records that are kept in mind, the latest."""


class Step(NamedTuple):
    """An accepted tick, and the mark that it follows, None at the beginning of the log.

    in_range: whether it is one of those asked for; those before them are only read. whole: whether its records could
    be read, so that `tick` has them all.
    """

    tick: AcceptedTick
    before: Mark | None
    in_range: bool
    whole: bool = True


class _Open(NamedTuple):
    """The first mark that was ignored beyond the last that counts. reach: the last one; marks: how many there were."""

    offset: int
    mark: Mark
    reach: Mark
    marks: int

    def further(self, mark: Mark) -> _Open:
        """With one more."""
        return self._replace(reach=max(self.reach, mark, key=_how_far), marks=self.marks + 1)

    def has_read_no_more_than(self, mark: Mark) -> bool:
        """Whether a mark goes as far in both inputs."""
        reach = self.reach
        return mark.next_impression >= reach.next_impression and mark.click_cursor >= reach.click_cursor


def _how_far(mark: Mark) -> tuple[int, int]:
    return mark.next_impression + mark.click_cursor, mark.last_tick


class LogWalk:
    """Reads one partition. `ticks` may be gone through once; the figures are of the range, as far as it has come."""

    def __init__(self, place: AuditedPartition, records: RecordsFrom, earliest: int) -> None:
        """records: the offsets and values from an offset on, up to the end. earliest: the first offset held."""
        self._place = place
        self._records = records
        self._earliest = earliest
        self._rule = RuleR(partition=place.partition)
        self._before: Mark | None = None
        self._open: _Open | None = None
        self._known: dict[MarkId, bool] = {}
        self._damaged: dict[int, bool] = {}
        self._checked_to = earliest
        self._next_offset = earliest
        self._is_over = False
        self._goes_back = False
        self._in_range = False
        self.records = self.ignored_marks = self.ignored_records = self.gaps = 0

    def ticks(self) -> Generator[Step, None, None]:
        """Every accepted tick up to the end of the range. Raises BrokerUnreachable, NotAuthorised and others."""
        start = self._earliest
        self._rule.position = start  # so that damage at the very beginning does not look like a missing one
        if start > 0:
            # Damaged records are skipped: they are noted when they are read again.
            place = (self._place.topic, self._place.partition)
            begin = beginning_in_sight(marks(place, self._records(start), skip_damaged=True))
            if begin is None:
                return
            start = self._checked_to = self._next_offset = begin.offset
            self._begin_after(begin.mark)
        while True:
            yield from self._read(start)
            gap = self._missing
            if gap is None or self._is_over:
                return
            self._note_gap(gap)
            start, self._goes_back = gap.offset + 1, False
            self._begin_after(gap.mark)

    @property
    def reaches_end(self) -> bool:
        """Whether everything up to the end of the log was read: the range has no end before it."""
        return not self._is_over

    def _begin_after(self, mark: Mark) -> None:
        self._rule = RuleR(mark.id, partition=self._place.partition)
        self._before = mark
        self._open = None
        self._known = {mark.id: True}

    def _read(self, start: int) -> Iterator[Step]:
        wanted = self._place.range
        for offset, value in self._records(start):
            if wanted.until_offset is not None and offset >= wanted.until_offset:
                self._is_over = True
                return
            record = self._look_at(offset, value or b"")
            step = None if record is None else self._take(offset, record)
            if self._goes_back:
                return
            if step is None:
                continue
            if wanted.is_over(offset, step.tick.mark):
                self._is_over = True
                return
            yield self._ranged(step)

    def _look_at(self, offset: int, value: bytes) -> LogRecord | None:
        """Check a record by itself; None where it is not one that rule R may be shown."""
        record, wrong = None, None
        try:
            record = open_record(value, Where(offset, self._place.partition))
            if record.header.partition != self._place.partition:
                raise ForeignRecord(f"a record of partition {record.header.partition}")
            record.check_body()
        except RecordError as error:
            wrong = error
        tick = None if record is None else record.header.tick
        if offset >= self._checked_to:
            self._place.progress(1)
            self._check_offset(offset, tick)
        if wrong is not None:
            self._note_damage(offset, wrong, tick)
        return None if isinstance(wrong, ForeignRecord) else record

    def _note_damage(self, offset: int, error: RecordError, tick: int | None = None, check: str = CHECKSUMS) -> None:
        """A record that is not whole, or not ours: noted once."""
        if offset not in self._damaged and self._is_asked(offset, tick):
            _remember(self._damaged, offset)
            self._place.fail(check, error.what, offset, tick)

    def _check_offset(self, offset: int, tick: int | None) -> None:
        """A hole between offsets: whoever writes here ends no transactions, and nothing is compacted."""
        self._checked_to = offset + 1
        if self._is_asked(offset, tick):
            self.records += 1
            self._place.findings.held(CHECKSUMS)
            if offset != self._next_offset:
                self._place.fail(ORDER, f"offsets {self._next_offset} to {offset - 1} hold no record", offset)
        self._next_offset = offset + 1

    def _is_asked(self, offset: int, tick: int | None) -> bool:
        """Whether a record is of the range: by its tick, where it has one, else by the mark before it."""
        wanted = self._place.range
        at = tick if tick is not None else 0 if self._before is None else self._before.last_tick + 1
        if wanted.until_tick is not None and at > wanted.until_tick:
            return False
        if wanted.from_tick is not None and not self._in_range and at < wanted.from_tick:
            return False
        return wanted.from_offset is None or offset >= wanted.from_offset

    def _take(self, offset: int, record: LogRecord) -> Step | None:
        """Show a record to rule R."""
        rule, header = self._rule, record.header
        ignored = rule.ignored_marks, rule.ignored_records
        try:
            tick = rule.take_opened(offset, record)
        except RecordError as error:
            return self._go_on_behind(offset, record, error)
        if self._is_asked(offset, header.tick):
            self.ignored_marks += rule.ignored_marks - ignored[0]
            self.ignored_records += rule.ignored_records - ignored[1]
        if tick is not None:
            return Step(tick, self._before, in_range=False)
        if header.kind is Kind.MARK and not self._is_explained(offset, decode_mark(record)):
            unseen = BrokenLog("an attempt begins after a mark that never counted", Where(offset))
            return self._go_on_behind(offset, record, unseen)
        return None

    def _go_on_behind(self, offset: int, record: LogRecord, error: RecordError) -> Step | None:
        """Note what a mark could not be accepted for, and take it as accepted: what follows it can then be read.

        If the marks that it goes on from are in the log, behind a gap, then reading goes back to them.
        """
        try:
            mark = decode_mark(record) if record.header.kind is Kind.MARK else None
        except RecordError:
            mark = None  # noted by its checksum; the next mark finds the gap
        if mark is None:
            self._note_damage(offset, error, record.header.tick)
            return None
        if isinstance(error, BrokenLog):
            gap = self._missing
            if gap is not None and gap.mark.attempt == mark.pred_attempt:
                self._goes_back = True
                return None
            self._note_gap(_Open(offset, mark, mark, 1))
        else:
            at = offset if error.offset is None else error.offset
            self._note_damage(at, error, mark.last_tick, COUNTS if at == offset else CHECKSUMS)
        before = self._before if mark.predecessor == self._rule.last else None
        self._begin_after(mark)
        return Step(AcceptedTick(mark, offset, []), before, in_range=False, whole=False)

    def _ranged(self, step: Step) -> Step:
        mark = step.tick.mark
        found = self._open
        if found is not None and (mark.begins_anew or found.has_read_no_more_than(mark)):
            self._open = None
        _remember(self._known, mark.id, True)
        self._before = mark
        self._in_range = self._place.range.has_begun(step.tick.mark_offset, mark)
        if self._in_range:
            self.last = mark
        return step._replace(in_range=self._in_range)

    def _is_explained(self, offset: int, mark: Mark) -> bool:
        """Whether there may be such a mark that is ignored: a repeat, or of an attempt that lost.

        Those that go beyond the last one that counts stay open, until one that counts has gone as far. False for the
        first mark of an attempt after one that did not count: whoever wrote it has read a log in which it did.
        """
        if mark.id in self._known:
            return True
        if mark.pred_attempt != mark.attempt and self._known.get(mark.predecessor) is False:
            return False
        _remember(self._known, mark.id, False)
        if mark.last_tick > self._rule.last.last_tick:
            self._open = _Open(offset, mark, mark, 1) if self._open is None else self._open.further(mark)
        return True

    @property
    def _missing(self) -> _Open | None:
        """The first mark behind a gap, None if what is open is only what a joiner that lost had under way."""
        found, last, until = self._open, self._before, self._place.range.until_tick
        if until is not None and self._rule.last.last_tick >= until:
            return None
        if found is None or (last and found.has_read_no_more_than(last) and found.marks <= MAX_OUTSTANDING):
            return None
        return found

    def _note_gap(self, found: _Open) -> None:
        mark, last = found.mark, self._rule.last
        if mark.predecessor == last and mark.first_tick == last.last_tick + 1:
            why = f"the mark names {count_of(mark.records, 'record')}, and not all are there"
        else:
            why = f"the mark of ticks {mark.first_tick} to {mark.last_tick} follows {_text(mark.predecessor)}"
            why += f", which is not in the log; the last that counts is {_text(last)}"
        if not self._is_asked(found.offset, mark.last_tick):
            return
        self.gaps += 1
        self._place.fail(ORDER, why, found.offset, mark.last_tick)


def _remember(kept: dict[T, bool], one: T, value: bool = True) -> None:
    """Keep it, and of all that are kept the latest."""
    kept[one] = value
    if len(kept) > REMEMBERED:
        del kept[next(iter(kept))]


def _text(mark: MarkId) -> str:
    return f"tick {mark.last_tick} of attempt {mark.attempt:016x}"
