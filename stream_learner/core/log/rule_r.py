"""Rule R: which ticks of a partition of the training log count. Every reader of the log goes by it.

The package page (`core/log/__init__.py`) explains the rule. `RuleR` is fed the records of a partition in offset order,
and returns each accepted tick once. Where to begin:

- At the beginning of the partition, offset 0: `RuleR()`. The first tick follows `GENESIS`.
- After a mark that is known to be accepted (a learner's position, a joiner's hint): `RuleR(mark.id)`, from any offset
  up to the one after that mark.
- Where no accepted mark is known, for example at the oldest record that retention has left: read the marks in sight,
  `find_chain(marks)`, and take the mark that it returns as accepted: `RuleR(mark.id)` from the offset after it. That
  mark's own tick may lack records that lay before it. So reading begins after it, and its tick is not read.

A reader that holds no mark and is shown an offset other than 0 raises `BrokenLog`, instead of waiting for a first tick
that is gone. So does one that sees an attempt begin after a mark which it has not accepted itself.

What carries no valid header of this partition is no part of the log: it is passed over, and counted. If it begins like
a record of ours, and the chain of accepted marks then lacks something, it raises `DamagedRecord` all the same.

Where a record raises `DamagedRecord` or `BrokenLog`, a skip (`skips.py`) that lies behind it decides: with one, a
record of examples or codes is left out of its tick, and any other is taken as if it were not there. Without a skip
nobody goes on, and a record without an error is never skipped. So all readers accept the same, whichever of them had
read a skip when they came to the record: who is stopped looks for one in what is left of the log, and says it by
`note_skip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.errors import BrokenLog, DamagedHeader, DamagedRecord, ForeignRecord, RecordError, Where
from stream_learner.core.log.examples import ExampleRecord, decode_examples
from stream_learner.core.log.header import Kind, LogRecord, open_record
from stream_learner.core.log.marks import GENESIS, Mark, MarkId, attach_codes, decode_codes, decode_mark
from stream_learner.core.log.skips import checksum_of, decode_skip


@dataclass(frozen=True, slots=True)
class AcceptedTick:
    """The ticks up to `mark.last_tick`, to which all of `records`, pairs of offset and examples, belong.

    left_out: the offsets of damaged records of the tick that a skip names. Examples that they held are not in
    `records`; a resume point that they belonged to is not in `mark`.
    """

    mark: Mark
    mark_offset: int
    records: list[tuple[int, ExampleRecord]]
    left_out: tuple[int, ...] = ()

    @property
    def examples(self) -> int:
        """How many examples the tick has."""
        return sum(len(record) for _, record in self.records)

    @property
    def lost_examples(self) -> int:
        """How many more its mark counts."""
        return self.mark.counts.impressions.examples - self.examples if self.left_out else 0


@dataclass(slots=True)
class _Buffer:
    """Records of one tick of an attempt that wait for their mark: by rising sequence, without a gap."""

    tick: int
    records: list[tuple[int, LogRecord]] = field(default_factory=list)


class RuleR:
    """Reads one partition of the training log.

    `known` is the last mark already accepted, None at the beginning of the partition. `partition`, where given, must be
    the one that every record names.

    last: the last accepted mark's id (`GENESIS` before the first). position: the next offset to take, None before the
    first. accepted_marks, ignored_marks, ignored_records: counts so far. Records that still wait for their mark are in
    `buffered_records` only. foreign_records: how many were passed over as no part of the log; last_foreign: what was
    wrong with the last of them. skipped_records: how many a skip has left out.
    """

    __slots__ = (
        "_buffers",
        "_headerless",
        "_partition",
        "_skips",
        "_started",
        "_stopped_at",
        "accepted_marks",
        "foreign_records",
        "ignored_marks",
        "ignored_records",
        "last",
        "last_foreign",
        "position",
        "skipped_records",
    )

    def __init__(self, known: MarkId | None = None, *, partition: int | None = None) -> None:
        self.last = GENESIS if known is None else known
        self.position: int | None = None
        self.accepted_marks = 0
        self.ignored_marks = 0
        self.ignored_records = 0
        self.foreign_records = 0
        self.last_foreign: RecordError | None = None
        self.skipped_records = 0
        self._skips: dict[int, int] = {}
        self._headerless: tuple[int, bytes] | None = None
        self._stopped_at: MarkId | None = None
        self._started = known is not None
        self._partition = partition
        self._buffers: dict[int, _Buffer] = {}

    @property
    def buffered_records(self) -> int:
        """Records that wait for their mark."""
        return sum(len(buffer.records) for buffer in self._buffers.values())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that wait for their mark."""
        return sum(record.size_bytes for buffer in self._buffers.values() for _, record in buffer.records)

    def take(self, offset: int, value: bytes | None) -> AcceptedTick | None:
        """Take the record at `offset`. Returns the tick that it completes, if it is a mark and accepted.

        Offsets rise from call to call and may have gaps. An error leaves the reader as it was before the record; it
        names the record that a skip may name. Raises NewerVersion, DamagedRecord (of a mark, or of a record that
        counts; a record that is ignored may have any body), BrokenLog, ValueError where an offset does not rise.
        """
        where = Where(offset, self._partition)
        self._check_offset(offset, where)
        value = value or b""
        try:
            record = open_record(value, where)
        except (ForeignRecord, DamagedHeader) as error:
            self._pass_over(offset, value, error)
            return None
        except DamagedRecord:
            if not self._is_skipped(offset, value):
                raise
            self._leave_out(offset)
            return None
        return self._take(offset, record)

    def take_opened(self, offset: int, record: LogRecord) -> AcceptedTick | None:
        """Take a record that has been opened already, like `take`."""
        self._check_offset(offset, record.where)
        return self._take(offset, record)

    def note_skip(self, offset: int, checksum: int) -> None:
        """Note that a skip further on in the log names the record at `offset`, with this `checksum_of` its value."""
        self._skips[offset] = checksum

    def _is_skipped(self, offset: int, value: bytes) -> bool:
        checksum = self._skips.get(offset)
        return checksum is not None and checksum == checksum_of(value)

    def _leave_out(self, offset: int) -> None:
        self.skipped_records += 1
        self.position = offset + 1

    def _pass_over(self, offset: int, value: bytes, error: RecordError) -> None:
        """Go on behind what is no part of this log; remember it if it begins like a record of ours."""
        if isinstance(error, DamagedHeader):
            self._headerless = (offset, value)
        self.foreign_records += 1
        self.last_foreign = error
        self.position = offset + 1

    def _check_offset(self, offset: int, where: Where) -> None:
        if self.position is not None and offset < self.position:
            raise ValueError(f"offset {offset} after {self.position - 1}")
        if not self._started and self.position is None and offset != 0:
            raise BrokenLog("the partition's beginning is gone; begin after a mark of find_chain", where)

    def _take(self, offset: int, record: LogRecord) -> AcceptedTick | None:
        header = record.header
        if self._partition is not None and header.partition != self._partition:
            foreign = ForeignRecord(f"a record of partition {header.partition}", record.where)
            self._pass_over(offset, record.value, foreign)
            return None
        tick = None
        if header.kind is Kind.MARK:
            tick = self._take_mark_unless_skipped(offset, record)
        elif header.kind is Kind.SKIP:
            self._take_skip(offset, record)
        else:
            self._hold(offset, record)
        self.position = offset + 1
        return tick

    def _take_skip(self, offset: int, record: LogRecord) -> None:
        """Note a skip; one that is damaged, or names no earlier record, says nothing."""
        try:
            skip = decode_skip(record)
        except DamagedRecord:
            self.ignored_records += 1
            return
        if skip.offset < offset:
            self.note_skip(skip.offset, skip.checksum)

    def _take_mark_unless_skipped(self, offset: int, record: LogRecord) -> AcceptedTick | None:
        try:
            return self._take_mark(offset, decode_mark(record), record.where)
        except RecordError as error:
            if error.offset != offset or not self._is_skipped(offset, record.value):
                raise
        self.skipped_records += 1
        return None

    def _hold(self, offset: int, record: LogRecord) -> None:
        """Keep a record for its mark. One that no mark can name any more is ignored."""
        header = record.header
        buffer = self._buffers.get(header.attempt)
        if buffer is not None and header.tick > buffer.tick:
            self._drop(header.attempt)
            buffer = None
        if buffer is None:
            buffer = _Buffer(header.tick)
        if header.tick == buffer.tick and header.sequence == len(buffer.records):
            buffer.records.append((offset, record))
            self._buffers[header.attempt] = buffer
        else:
            self.ignored_records += 1

    def _take_mark(self, offset: int, mark: Mark, where: Where) -> AcceptedTick | None:
        buffer = self._buffers.get(mark.attempt)
        records = buffer.records if buffer is not None and buffer.tick == mark.last_tick else []
        if self._follows(mark) and self._complete(mark, records):
            return self._accept(offset, mark, records, where)
        self._refuse_headerless(mark)
        self._refuse_unseen(mark, where)
        self.ignored_marks += 1
        if buffer is not None and buffer.tick <= mark.last_tick:
            self._drop(mark.attempt)
        return None

    def _follows(self, mark: Mark) -> bool:
        """Whether the mark names the last accepted one and carries the next tick."""
        return mark.predecessor == self.last and mark.first_tick == self.last.last_tick + 1

    def _complete(self, mark: Mark, records: list[tuple[int, LogRecord]]) -> bool:
        """Whether all records of the mark's tick are there; those held have sequences from 0 on without a gap."""
        return len(records) == mark.records

    def _accept(self, offset: int, mark: Mark, records: list[tuple[int, LogRecord]], where: Where) -> AcceptedTick:
        examples: list[tuple[int, ExampleRecord]] = []
        codes: list[NDArray[np.uint8]] = []
        left_out: list[int] = []
        for at, record in records:
            try:
                if record.header.kind is Kind.EXAMPLES:
                    examples.append((at, decode_examples(record)))
                else:
                    codes.append(decode_codes(record))
            except DamagedRecord:
                if not self._is_skipped(at, record.value):
                    raise
                left_out.append(at)
                if record.header.kind is Kind.CODES:
                    mark = replace(mark, resume=None)
        mark = mark if mark.resume is None else attach_codes(mark, codes, where)
        _check_counts(mark, examples, where, exactly=not left_out)
        self._buffers.pop(mark.attempt, None)
        for attempt in list(self._buffers):
            self._drop(attempt)
        self.accepted_marks += 1
        self.skipped_records += len(left_out)
        self.last = mark.id
        self._started = True
        self._headerless = self._stopped_at = None
        self._skips = {at: checksum for at, checksum in self._skips.items() if at > offset}
        return AcceptedTick(mark, offset, examples, tuple(left_out))

    def _refuse_headerless(self, mark: Mark) -> None:
        """Raise DamagedRecord where the chain of accepted marks has lost a record or a mark to a damaged header.

        That is so where a record with such a header was passed over since the last accepted mark, a mark that goes on
        from that one is ignored, and its attempt goes on all the same.
        """
        if mark.id == self.last:
            self._headerless = self._stopped_at = None
        if self._headerless is None:
            return
        offset, value = self._headerless
        if mark.predecessor == self._stopped_at and not self._is_skipped(offset, value):
            lacks = f"tick {mark.pred_tick} lacks a record or a mark before it"
            raise DamagedRecord(f"its header is damaged, and {lacks}", Where(offset, self._partition))
        if mark.pred_attempt == self.last.attempt and mark.pred_tick >= self.last.last_tick:
            self._stopped_at = mark.id

    def _refuse_unseen(self, mark: Mark, where: Where) -> None:
        """Raise BrokenLog where an attempt begins after a mark that its writer accepted, but this reader did not."""
        begins = mark.pred_attempt != mark.attempt
        if begins and mark.predecessor != self.last and mark.pred_tick >= self.last.last_tick:
            after = f"{mark.predecessor}, which never counted here; the last that did is {self.last}"
            raise BrokenLog(f"an attempt begins after {after}", where)

    def _drop(self, attempt: int) -> None:
        self.ignored_records += len(self._buffers.pop(attempt).records)


def _check_counts(mark: Mark, examples: list[tuple[int, ExampleRecord]], where: Where, *, exactly: bool) -> None:
    found = sum(len(record) for _, record in examples)
    counted = mark.counts.impressions.examples
    if found > counted or (exactly and found != counted):
        raise DamagedRecord(f"the mark counts {counted} examples, there are {found}", where)


def find_chain(marks: Sequence[tuple[int, Mark]]) -> tuple[int, Mark] | None:
    """The earliest mark, with its offset, of the longest chain among marks in offset order; None without any.

    In a chain each mark names the one before it and begins with the next tick. The chain of an attempt that lost ends,
    the chain that counts goes on: so the more marks are in sight, the surer the answer. Of equally long chains the one
    that reaches furthest into the log is taken. A wrong guess is found out: `RuleR` raises BrokenLog at the next
    attempt.
    """
    best: tuple[int, int] | None = None
    answer = None
    chains: dict[MarkId, tuple[int, tuple[int, Mark]]] = {}
    for offset, mark in marks:
        if mark.id in chains:
            continue
        length, first = 0, (offset, mark)
        if mark.first_tick == mark.pred_tick + 1 and mark.predecessor in chains:
            length, first = chains[mark.predecessor]
        chains[mark.id] = (length + 1, first)
        if best is None or (length + 1, offset) > best:
            best, answer = (length + 1, offset), first
    return answer
