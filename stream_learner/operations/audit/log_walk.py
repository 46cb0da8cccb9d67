"""Reads one partition of the training log by rule R, and reports every record that a sound log does not have.

It hands out the accepted ticks in order, each once. Damage does not end the walk: it is reported, and reading goes on
behind it.

The hard case is a mark that rule R does not accept. It is harmless if it is a repeat, or of an attempt that lost: then
an accepted mark goes, or will go, as far in the inputs. It is a gap if none does: then its predecessor, or one of its
records, is missing. A gap is reported when the end of the range is reached, or when a later mark goes on from the marks
behind it. The walk then goes back to the gap, and reads what follows as a log that begins there:

    offset   1     2     3     4     5     6
    mark     A ◀── B    (C)    D ◀── E ◀── F        C is missing, D follows C, and rule R ignores D, E, F
             accepted           open              ▶ D is reported, and E and F are read as following D
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from stream_learner.core.errors import BrokenLog, ForeignRecord, RecordError, Where
from stream_learner.core.log.header import Kind, LogRecord, open_record
from stream_learner.core.log.marks import Mark, MarkId, decode_mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.core.log.rule_w import MAX_OUTSTANDING
from stream_learner.core.log.skips import checksum_of
from stream_learner.operations.audit.findings import CHECKSUMS, COUNTS, ORDER
from stream_learner.operations.audit.request import AuditedPartition
from stream_learner.roles.common.log_reader import RawRecords, beginning_in_sight, marks
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.wording import count_of

RecordsFrom = Callable[[int], RawRecords]

T = TypeVar("T")

REMEMBERED = 10_000
"""How many marks, and how many damaged records, the walk remembers: the latest ones."""


class Step(NamedTuple):
    """An accepted tick, and the mark that it follows, None at the beginning of the log.

    in_range: whether it was asked for; ticks before the range are read, too. whole: whether `tick` has all its records.
    """

    tick: AcceptedTick
    before: Mark | None
    in_range: bool
    whole: bool = True


class _Open(NamedTuple):
    """Ignored marks that go beyond the last accepted one. offset, mark: the first of them; reach: the one that goes
    furthest in the inputs; marks: their number."""

    offset: int
    mark: Mark
    reach: Mark
    marks: int

    def further(self, mark: Mark) -> _Open:
        """These marks and one more."""
        return self._replace(reach=max(self.reach, mark, key=_how_far), marks=self.marks + 1)

    def has_read_no_more_than(self, mark: Mark) -> bool:
        """Whether `mark` has read as far in both inputs as `reach`."""
        reach = self.reach
        return mark.next_impression >= reach.next_impression and mark.click_cursor >= reach.click_cursor


def _how_far(mark: Mark) -> tuple[int, int]:
    return mark.next_impression + mark.click_cursor, mark.last_tick


class LogWalk:
    """Reads one partition. `ticks` may be iterated once; `records`, `gaps` and the like count within the range."""

    def __init__(
        self, place: AuditedPartition, records: RecordsFrom, earliest: int, unusable: UnusableRecords | None = None
    ) -> None:
        """records: gives offsets and values from an offset on, to the end. earliest: the first offset there is.
        unusable: says foreign records, and looks for skips; None if nobody does.
        """
        self._place = place
        self._unusable = unusable
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
        self.foreign_records = self.skipped_records = 0

    def ticks(self) -> Generator[Step, None, None]:
        """Every accepted tick up to the end of the range. Raises BrokerUnreachable, NotAuthorised and others."""
        start = self._earliest
        self._rule.position = start  # else damage in the first record would look like a missing record
        if start > 0:
            # Damaged records are skipped here, and reported when they are read again.
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
        """Whether the walk has read up to the end of the log: the range did not end before it."""
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
        """Check a record by itself. None if it is not a record of this partition, so that rule R must not see it.

        A foreign one is counted, and so is a damaged one that a skip names.
        """
        record, wrong = None, None
        try:
            record = open_record(value, Where(offset, self._place.partition))
            if record.header.partition != self._place.partition:
                raise ForeignRecord(f"a record of partition {record.header.partition}")
            record.check_body()
        except RecordError as error:
            wrong = error
        tick = None if record is None else record.header.tick
        is_new = offset >= self._checked_to
        if is_new:
            self._place.progress(1)
            self._check_offset(offset, tick)
        if isinstance(wrong, ForeignRecord):
            if is_new and self._is_asked(offset, None):
                self.foreign_records += 1
                if self._unusable is not None:
                    self._unusable.note_foreign((self._place.topic, self._place.partition), offset, wrong)
        elif wrong is not None and self._is_skipped(offset, value):
            self.skipped_records += is_new and self._is_asked(offset, tick)
        elif wrong is not None:
            self._note_damage(offset, wrong, tick)
        return None if isinstance(wrong, ForeignRecord) else record

    def _is_skipped(self, offset: int, value: bytes) -> bool:
        """Whether a skip names a damaged record; rule R is told, too."""
        if self._unusable is None:
            return False
        checksum = self._unusable.skips_behind((self._place.topic, self._place.partition), offset).get(offset)
        if checksum is None or checksum != checksum_of(value):
            return False
        self._rule.note_skip(offset, checksum)
        return True

    def _note_damage(self, offset: int, error: RecordError, tick: int | None = None, check: str = CHECKSUMS) -> None:
        """Report a damaged or foreign record, once."""
        if offset not in self._damaged and self._is_asked(offset, tick):
            _remember(self._damaged, offset)
            self._place.fail(check, error.what, offset, tick)

    def _check_offset(self, offset: int, tick: int | None) -> None:
        """Report a hole between offsets: a topic without transactions and compaction has none."""
        self._checked_to = offset + 1
        if self._is_asked(offset, tick):
            self.records += 1
            self._place.findings.held(CHECKSUMS)
            if offset != self._next_offset:
                self._place.fail(ORDER, f"offsets {self._next_offset} to {offset - 1} hold no record", offset)
        self._next_offset = offset + 1

    def _is_asked(self, offset: int, tick: int | None) -> bool:
        """Whether a record is in the range, by its tick; a record without one has the tick after the mark before it."""
        wanted = self._place.range
        at = tick if tick is not None else 0 if self._before is None else self._before.last_tick + 1
        if wanted.until_tick is not None and at > wanted.until_tick:
            return False
        if wanted.from_tick is not None and not self._in_range and at < wanted.from_tick:
            return False
        return wanted.from_offset is None or offset >= wanted.from_offset

    def _take(self, offset: int, record: LogRecord) -> Step | None:
        """Give a record to rule R."""
        rule, header = self._rule, record.header
        ignored, skipped = (rule.ignored_marks, rule.ignored_records), rule.skipped_records
        try:
            tick = self._take_unless_skipped(offset, record)
        except RecordError as error:
            return self._go_on_behind(offset, record, error)
        if self._is_asked(offset, header.tick):
            self.ignored_marks += rule.ignored_marks - ignored[0]
            self.ignored_records += rule.ignored_records - ignored[1]
        if tick is not None:
            return Step(tick, self._before, in_range=False)
        is_skipped = rule.skipped_records > skipped
        if header.kind is Kind.MARK and not is_skipped and not self._is_explained(offset, decode_mark(record)):
            unseen = BrokenLog("an attempt begins after a mark that never counted", Where(offset))
            return self._go_on_behind(offset, record, unseen)
        return None

    def _take_unless_skipped(self, offset: int, record: LogRecord) -> AcceptedTick | None:
        try:
            return self._rule.take_opened(offset, record)
        except BrokenLog:
            if not self._is_skipped(offset, record.value):
                raise
        self.skipped_records += self._is_asked(offset, record.header.tick)
        return self._rule.take_opened(offset, record)

    def _go_on_behind(self, offset: int, record: LogRecord, error: RecordError) -> Step | None:
        """Report why a mark cannot be accepted, and treat it as accepted, so that what follows it can be read.

        If the marks that it follows are in the log, behind a gap, the walk goes back to that gap instead.
        """
        try:
            mark = decode_mark(record) if record.header.kind is Kind.MARK else None
        except RecordError:
            mark = None  # reported by its checksum; the next mark finds the gap
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
        """Whether a sound log may hold this ignored mark: as a repeat, or as one of an attempt that lost.

        Marks that go beyond the last accepted one stay open until an accepted one goes as far. False for the first mark
        of an attempt that follows an ignored mark: its writer has read a log in which that mark was accepted.
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
        """The open marks if they are a gap; None if they can be the outstanding records of a joiner that lost."""
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
    """Remember `one`, and forget the oldest entry above REMEMBERED."""
    kept[one] = value
    if len(kept) > REMEMBERED:
        del kept[next(iter(kept))]


def _text(mark: MarkId) -> str:
    return f"tick {mark.last_tick} of attempt {mark.attempt:016x}"
