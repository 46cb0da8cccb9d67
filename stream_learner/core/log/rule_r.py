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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_learner.core.errors import BrokenLog, DamagedRecord, ForeignRecord, Where
from stream_learner.core.log.examples import ExampleRecord, decode_examples
from stream_learner.core.log.header import Kind, LogRecord, open_record
from stream_learner.core.log.marks import GENESIS, Mark, MarkId, attach_codes, decode_codes, decode_mark


@dataclass(frozen=True, slots=True)
class AcceptedTick:
    """The ticks up to `mark.last_tick`, to which all of `records`, pairs of offset and examples, belong."""

    mark: Mark
    mark_offset: int
    records: list[tuple[int, ExampleRecord]]

    @property
    def examples(self) -> int:
        """How many examples the tick has."""
        return sum(len(record) for _, record in self.records)


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
    `buffered_records` only.
    """

    __slots__ = (
        "_buffers",
        "_partition",
        "_started",
        "accepted_marks",
        "ignored_marks",
        "ignored_records",
        "last",
        "position",
    )

    def __init__(self, known: MarkId | None = None, *, partition: int | None = None) -> None:
        self.last = GENESIS if known is None else known
        self.position: int | None = None
        self.accepted_marks = 0
        self.ignored_marks = 0
        self.ignored_records = 0
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

        Offsets rise from call to call and may have gaps. An error leaves the reader as it was before the record. Raises
        ForeignRecord, NewerVersion, DamagedRecord (of a header, of a mark, or of a record that counts; a record that is
        ignored may have any body), BrokenLog, ValueError where an offset does not rise.
        """
        where = Where(offset, self._partition)
        self._check_offset(offset, where)
        return self._take(offset, open_record(value or b"", where))

    def take_opened(self, offset: int, record: LogRecord) -> AcceptedTick | None:
        """Take a record that has been opened already, like `take`."""
        self._check_offset(offset, record.where)
        return self._take(offset, record)

    def _check_offset(self, offset: int, where: Where) -> None:
        if self.position is not None and offset < self.position:
            raise ValueError(f"offset {offset} after {self.position - 1}")
        if not self._started and self.position is None and offset != 0:
            raise BrokenLog("the partition's beginning is gone; begin after a mark of find_chain", where)

    def _take(self, offset: int, record: LogRecord) -> AcceptedTick | None:
        header = record.header
        if self._partition is not None and header.partition != self._partition:
            raise ForeignRecord(f"a record of partition {header.partition}", record.where)
        tick = None
        if header.kind is Kind.MARK:
            tick = self._take_mark(offset, decode_mark(record), record.where)
        else:
            self._hold(offset, record)
        self.position = offset + 1
        return tick

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
        examples, codes = [], []
        for at, record in records:
            header = record.header
            if header.partition != mark.partition:
                raise DamagedRecord(f"partition {header.partition}, its mark has {mark.partition}", record.where)
            if header.kind is Kind.EXAMPLES:
                examples.append((at, decode_examples(record)))
            else:
                codes.append(decode_codes(record))
        mark = attach_codes(mark, codes, where)
        _check_counts(mark, examples, where)
        self._buffers.pop(mark.attempt, None)
        for attempt in list(self._buffers):
            self._drop(attempt)
        self.accepted_marks += 1
        self.last = mark.id
        self._started = True
        return AcceptedTick(mark, offset, examples)

    def _refuse_unseen(self, mark: Mark, where: Where) -> None:
        """Raise BrokenLog where an attempt begins after a mark that its writer accepted, but this reader did not."""
        begins = mark.pred_attempt != mark.attempt
        if begins and mark.predecessor != self.last and mark.pred_tick >= self.last.last_tick:
            after = f"{mark.predecessor}, which never counted here; the last that did is {self.last}"
            raise BrokenLog(f"an attempt begins after {after}", where)

    def _drop(self, attempt: int) -> None:
        self.ignored_records += len(self._buffers.pop(attempt).records)


def _check_counts(mark: Mark, examples: list[tuple[int, ExampleRecord]], where: Where) -> None:
    found = sum(len(record) for _, record in examples)
    counted = mark.counts.impressions.examples
    if found != counted:
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
