"""Step 1 of rule W: find the last accepted mark of a partition of the training log, and a resume point before it.

A hint says where to begin. It is never trusted: where it does not lead to an accepted resume point, the log is read
from its earliest record. One that names another log, which had the same name, says nothing. One that names this log
says one thing more: that the log held marks. Where it begins at its first offset and holds none, they were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, OffsetQueries, PartitionReader, Reader
from stream_learner.adapters.record_errors import ANOTHER_NAME, DELETE
from stream_learner.core.log.marks import GENESIS, Mark, MarkId
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.errors import LogTrimmed
from stream_learner.roles.common import log_reader
from stream_learner.roles.common.log_reader import beginning_in_sight, marks, pieces
from stream_learner.roles.common.unusable_records import UnusableRecords

READ_RECORDS = 500
WAIT_S = 0.05
GO_ON = (
    "To go on under the same name: `stream-learner begin-anew` shows what is lost by it, and with --write begins the "
    "log anew where it ends. Or train a model under another name (`stream-learner backfill`) and promote it."
)
"""Operator action where a joiner cannot go on and `begin-anew` could."""
GO_ON_GROWN = (
    "Ids lie elsewhere since partitions were added. To go on under the same name: `stream-learner begin-anew --from "
    "MOMENT`, a moment since which every producer knows of them, shows what is lost by it, and with --write begins the "
    'whole log anew (docs/operations.md, "More partitions"). Or train a model under another name from that moment on '
    "(`stream-learner backfill`) and promote it."
)
"""Operator action where the topics were given more partitions."""


@dataclass(frozen=True)
class Hint:
    """A place at which rule R may begin so that the first mark it accepts is a resume point.

    read_from: offset in the training log. known: the mark accepted before it, `GENESIS` at the beginning. log_id: id of
    the topic of the training log, hexadecimal; "" if the hint was written before hints named it. `Kept` has it as text.
    """

    read_from: int
    known: MarkId
    log_id: str = field(default="", compare=False)

    def to_text(self) -> str:
        """The hint as the metadata of a committed offset."""
        return f"{self.read_from}:{self.known.attempt:x}:{self.known.last_tick}"

    @classmethod
    def from_text(cls, text: str) -> Hint | None:
        """The hint in the metadata of a committed offset; None where there is none, or other text."""
        parts = text.split(":")
        try:
            read_from, attempt, tick = int(parts[0]), int(parts[1], 16), int(parts[2])
        except (IndexError, ValueError):
            return None
        return cls(read_from, MarkId(attempt, tick)) if read_from >= 0 else None


@dataclass
class Accepted:
    """The marks of a partition that rule R has accepted up to `position`.

    rule: goes on from `position`. resume: the last accepted mark with a resume point, None without one. since: the
    accepted marks after it, in order. hint: a reader that begins there accepts `resume` first. after: a reader that
    begins there accepts the next mark first. mark: the last accepted mark; None before the first, and where only a hint
    names it. log_id: as of `Hint`.
    """

    rule: RuleR
    position: int
    resume: Mark | None = None
    hint: Hint | None = None
    since: list[Mark] = field(default_factory=list)
    after: Hint = Hint(0, GENESIS)
    mark: Mark | None = None
    log_id: str = ""

    @property
    def last(self) -> MarkId:
        """The last accepted mark; `GENESIS` before the first."""
        return self.rule.last

    @property
    def marks(self) -> int:
        """The number of accepted marks from the resume point on."""
        return len(self.since) + (self.resume is not None)

    def take(self, tick: AcceptedTick) -> None:
        """Note that rule R has accepted a tick."""
        self.mark = mark = tick.mark
        if mark.resume is not None:
            self.resume, self.hint = mark, self.after
            self.since.clear()
        else:
            self.since.append(mark)
        self.after = Hint(tick.mark_offset + 1, mark.id, self.log_id)


class LogTail:
    """Reads one partition of the training log by rule R; used by one thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        queries: OffsetQueries,
        topic: str,
        partition: int,
        *,
        new_reader: Callable[..., Reader] = PartitionReader,
        new_reader_beside: Callable[..., Reader] = PartitionReader,
        unusable: UnusableRecords | None = None,
        log_id: str = "",
    ) -> None:
        """unusable: counts foreign records, and looks for skips; None makes one of its own, which opens the partition a
        second time by `new_reader_beside`. log_id: as of `Hint`, "" where it is not known.
        """
        self._log_id = log_id
        self._settings = settings
        self._unusable = unusable or UnusableRecords(settings, queries, new_reader=new_reader_beside)
        self._new_reader = new_reader
        self._queries = queries
        self.topic = topic
        self.partition = partition
        self._place = (topic, partition)
        self._reader: Reader | None = None

    def find(self, hint: Hint | None, *, to_resume: bool = True) -> Iterator[Accepted | None]:
        """Yields None while there is more to read, then the `Accepted` as of the high watermark, once.

        to_resume: whether a log that has lost its beginning must hold a resume point.

        Raises LogTrimmed if such a log holds none, or if the log holds no mark although there is a hint that names it;
        DamagedLog and NewerFormat for records that cannot be used.
        """
        if hint is not None and hint.log_id not in ("", self._log_id):
            hint = None
        end = self._queries.high_watermarks([self._place])[self._place]
        earliest = self._queries.earliest([self._place])[self._place]
        if hint is not None and earliest <= hint.read_from < end:
            yield from self._from_hint(hint, end, to_resume=to_resume)
            return
        if earliest > 0 or _names_log(hint):
            self._refuse_empty(hint, earliest, end)
        yield from self._from_earliest(earliest, end, hint, to_resume=to_resume)

    def read_on(self, accepted: Accepted, end: int) -> Iterator[None]:
        """Take the records up to `end`; yields after every piece of work.

        Raises LogTrimmed where the log goes on from a mark that was never accepted.
        """
        reader = self._reader_at(accepted.position)
        for piece in pieces(reader, end, READ_RECORDS, WAIT_S):
            for tick in log_reader.accepted(accepted.rule, self._place, piece, self._unusable):
                accepted.take(tick)
            yield
        accepted.position = reader.position

    def close(self) -> None:
        """Close the reader; a later call opens another."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _refuse_empty(self, hint: Hint | None, earliest: int, end: int) -> None:
        if earliest == end:
            raise self._made_anew(f"holds no record (offsets {earliest} to {end})", hint)

    def _refuse_unmarked(self, hint: Hint | None, accepted: Accepted, end: int) -> None:
        """Raise LogTrimmed where only others have written to a log that had marks."""
        if _names_log(hint) and accepted.mark is None:
            raise self._made_anew(f"holds no mark up to offset {end}", hint)

    def _made_anew(self, what: str, hint: Hint | None) -> LogTrimmed:
        """The error for a log without a mark, whatever else is in it, where there was one."""
        before = f"; a mark at offset {hint.read_from} was expected" if hint else ""
        return LogTrimmed(
            f"{self.topic} partition {self.partition} {what}{before}",
            action="The joiner does not begin this log again, since ticks would be missing or made twice. "
            + ANOTHER_NAME
            + " "
            + DELETE,
        )

    def _from_hint(self, hint: Hint, end: int, *, to_resume: bool) -> Iterator[Accepted | None]:
        known = None if hint.known == GENESIS else hint.known
        accepted = Accepted(RuleR(known, partition=self.partition), hint.read_from, after=hint, log_id=self._log_id)
        try:
            for _ in self.read_on(accepted, end):
                yield None
        except LogTrimmed:
            accepted.resume = None
        if accepted.resume is not None:
            yield accepted
            return
        earliest = self._queries.earliest([self._place])[self._place]
        yield from self._from_earliest(earliest, end, hint, to_resume=to_resume)

    def _from_earliest(
        self, earliest: int, end: int, hint: Hint | None, *, to_resume: bool
    ) -> Iterator[Accepted | None]:
        begin = Hint(0, GENESIS, self._log_id)
        accepted = Accepted(RuleR(partition=self.partition), earliest, after=begin, log_id=self._log_id)
        if earliest > 0:
            in_sight: list[tuple[int, Mark]] = []
            for piece in pieces(self._reader_at(earliest), end, READ_RECORDS, WAIT_S):
                in_sight += marks(self._place, piece, unusable=self._unusable)
                yield None
            sight = beginning_in_sight(in_sight)
            if sight is None:
                raise self._no_resume_point(earliest, end)
            first, after = sight.mark, Hint(sight.offset, sight.mark.id, self._log_id)
            accepted = Accepted(sight.rule(self.partition), sight.offset, after=after, mark=first, log_id=self._log_id)
            accepted.resume = first if first.resume is not None and not first.resume.detached else None
        for _ in self.read_on(accepted, end):
            yield None
        if earliest > 0 and accepted.resume is None and to_resume:
            raise self._no_resume_point(earliest, end)
        self._refuse_unmarked(hint, accepted, end)
        yield accepted

    def _reader_at(self, offset: int) -> Reader:
        if self._reader is None:
            self._reader = self._new_reader(
                self._settings, self.topic, self.partition, offset, isolation=READ_UNCOMMITTED, name="log-tail"
            )
        elif self._reader.position != offset:
            self._reader.seek(offset)
        return self._reader

    def _no_resume_point(self, earliest: int, end: int) -> LogTrimmed:
        return LogTrimmed(
            f"{self.topic} partition {self.partition} has lost its beginning and holds no resume point "
            f"(offsets {earliest} to {end})",
            action="Raise the retention of the training log. " + GO_ON,
        )


def _names_log(hint: Hint | None) -> bool:
    """Whether a hint says that this very log held marks; one that names another is dropped before."""
    return hint is not None and hint.log_id != ""
