"""Mutations of rule R and rule W: each with one step less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proofs.simulation import joiners, process
from proofs.simulation.kafka import Log
from proofs.simulation.process import LOG, Process
from stream_learner.core.log.marks import Mark, MarkId
from stream_learner.core.log.rule_r import RuleR
from stream_learner.core.log.rule_w import Attempt, Verdict
from stream_learner.roles.common import log_reader
from stream_learner.roles.joiner import partition as partition_module
from stream_learner.roles.joiner import partition_plan
from stream_learner.roles.joiner.attempt_writer import AttemptWriter
from stream_learner.roles.joiner.bad_records import DeadLetters
from stream_learner.roles.joiner.log_tail import Accepted, Hint, LogTail
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.partition_state import PartitionState


def _nothing(*args: object, **kwargs: object) -> None:
    """Does nothing."""


def _always(*args: object, **kwargs: object) -> bool:
    return True


def _any_predecessor(self: RuleR, mark: Mark) -> bool:
    return mark.first_tick == self.last.last_tick + 1


def _any_tick(self: RuleR, mark: Mark) -> bool:
    return mark.pred_attempt == self.last.attempt


def _first_in_sight(marks: list[tuple[int, Mark]]) -> tuple[int, Mark] | None:
    return marks[0] if marks else None


def _short_of_the_end() -> Any:
    right = LogTail.read_on

    def read_on(self: LogTail, known: Accepted, end: int) -> Iterator[None]:
        return right(self, known, max(end - 2, known.position))

    return read_on


def _believe_the_hint(self: LogTail, hint: Hint, end: int, **options: Any) -> Iterator[Accepted | None]:
    known = Accepted(RuleR(hint.known, partition=self.partition), hint.read_from, after=hint)
    for _ in self.read_on(known, end):
        yield None
    yield known


def _no_empty_log(self: LogTail, hint: Hint | None, earliest: int, end: int) -> None:
    """An empty log is a new one, whatever the hint says."""


def _same_attempt(self: Process) -> int:
    self.world.note_writer(self, 77 + self.instance)
    return 77 + self.instance


def _hint_as_before() -> Any:
    """The hint from before another's mark was found, and no part of the mutation: retention takes what lies before it.

    In what is left the attempt that lost may have more marks than the one that won. With the hint that was learned this
    harms nobody.
    """
    right = PartitionJoiner._decide

    def decide(self: PartitionJoiner, attempt: Attempt) -> Iterator[bool]:
        before = self.progress.hint
        try:
            yield from right(self, attempt)
        except partition_module._OtherWriter:
            learned, self.progress.hint = self.progress.hint, before
            if learned is not None:
                _log_of(self).trim(learned.read_from)
            raise

    return decide


def _log_of(joiner: PartitionJoiner) -> Log:
    process: Any = joiner._plan.settings
    return process.logs[LOG, joiner.partition]


def _forget_predecessor() -> Any:
    right = Attempt.stamp

    def stamp(self: Attempt, *args: Any, **kwargs: Any) -> list[bytes]:
        records = right(self, *args, **kwargs)
        self._stamped = MarkId(self._first_predecessor.attempt, self._stamped.last_tick)
        return records

    return stamp


def _go_on() -> Any:
    right = Attempt.decide

    def decide(self: Attempt, rule: RuleR) -> Verdict:
        right(self, rule)
        self.in_doubt = False
        return Verdict.GO_ON

    return decide


def _do_not_watch(attempt: Attempt, offset: int) -> bool:
    attempt._expected = offset
    attempt.acknowledged(offset)
    return False


def _no_wait(self: PartitionJoiner, state: PartitionState, writer: AttemptWriter) -> Iterator[bool]:
    return iter(())


def _forget_letters(self: AttemptWriter, letters: DeadLetters) -> None:
    while (letter := letters.hand_over()) is not None:
        letters.acknowledged(letter.nbytes)


def _letters_of_an_attempt_only() -> Any:
    right = PartitionJoiner._begin_attempt

    def begin(self: PartitionJoiner, known: Accepted) -> AttemptWriter:
        writer = right(self, known)
        if self._state is not None:
            _forget_letters(writer, self._state.letters)
        return writer

    return begin


def _skip_ticks_since() -> Any:
    def make(self: PartitionState, mark: Mark) -> Iterator[bool]:
        self.join.next_tick = mark.stream_tick + 1
        return iter(())

    return make


def _do_not_compare() -> Any:
    def make(self: PartitionState, mark: Mark) -> Iterator[bool]:
        cut = self.join.cut_of(mark)
        while not self.join.covers(cut):
            yield self._read_towards(cut.next_impression, cut.click_cursor)
        self.join.emit(cut, self._examples)

    return make


def _take_errors_for_offsets() -> Any:
    right = partition_module._is_foreign

    def is_foreign(attempt: Attempt, offset: int) -> bool:
        if offset >= 0:
            return right(attempt, offset)
        attempt._outstanding.popleft()
        return False

    return is_foreign


def _lose(kind: str) -> list[tuple[Any, str, Any]]:
    """No part of the mutation: makes this kind of loss happen in every history."""
    return [(joiners, "LOSSES", (kind,)), (joiners, "LOSS_SHARE", 1.0)]


MUTATIONS = {
    "rule R: a mark need not name the last accepted one": lambda: [
        (RuleR, "_follows", _any_predecessor),
        (RuleR, "_refuse_unseen", _nothing),
    ],
    "rule R: a mark need not carry the next tick": lambda: [
        (RuleR, "_follows", _any_tick),
        (RuleR, "_refuse_unseen", _nothing),
    ],
    "rule R: the attempt's records need not all be there": lambda: [(RuleR, "_complete", _always)],
    "rule R: a gap is not noticed": lambda: [(RuleR, "_refuse_unseen", _nothing)],
    "rule R: in a trimmed log the first mark in sight counts": lambda: [
        (log_reader, "find_chain", _first_in_sight),
    ],
    "rule W 1: the log is not read to the high watermark": lambda: [(LogTail, "read_on", _short_of_the_end())],
    "rule W 1: the hint is believed": lambda: [(LogTail, "_from_hint", _believe_the_hint)],
    "rule W 1: an empty log is a new one, whatever the hint": lambda: [
        *_lose("log emptied"),
        (LogTail, "_refuse_empty", _no_empty_log),
        (LogTail, "_refuse_unmarked", _nothing),
    ],
    "rule W 1: a log that seems to lack its resume points is not looked at again": lambda: [
        (partition_module, "LOOK_AGAIN", 0),
        (process, "STALE_SHARE", 0.3),  # no part of the mutation: more of the trouble that it needs
    ],
    "rule W 1: topic ids are not compared": lambda: [
        *_lose("input recreated"),
        (partition_plan, "_check_topic_ids", _nothing),
    ],
    "rule W 1: partition counts are not compared": lambda: [
        *_lose("partitions changed"),
        (partition_plan, "_check_partition_count", _nothing),
    ],
    "rule W 1: the join's settings are not compared": lambda: [
        *_lose("settings changed"),
        (partition_plan, "_check_settings", _nothing),
    ],
    "rule W 2: ticks after the resume point are not made again": lambda: [
        (PartitionState, "_make_tick_again", _skip_ticks_since())
    ],
    "rule W 2: what is made again is not compared": lambda: [
        *_lose("input compacted"),
        (PartitionState, "_make_tick_again", _do_not_compare()),
    ],
    "rule W 3: an attempt's id is used again": lambda: [(Process, "_new_attempt_id", _same_attempt)],
    "rule W 4: a mark does not name the one before it": lambda: [(Attempt, "stamp", _forget_predecessor())],
    "rule W 4: the offsets that come back are not watched": lambda: [(partition_module, "_is_foreign", _do_not_watch)],
    "rule W 2: dead records read beyond the last mark are forgotten": lambda: [
        (PartitionJoiner, "_begin_attempt", _letters_of_an_attempt_only())
    ],
    "rule W 4: dead letters are not waited for": lambda: [(PartitionJoiner, "_wait_for_dead_letters", _no_wait)],
    "rule W 4: dead letters are not written": lambda: [(AttemptWriter, "append_letters", _forget_letters)],
    "rule W 5: another's mark is no reason to begin again": lambda: [(Attempt, "decide", _go_on())],
    "rule W 5: the hint does not learn which mark was accepted": lambda: [
        (PartitionJoiner, "_decide", _hint_as_before())
    ],
    "rule W 6: an error does not drop the attempt": lambda: [
        (partition_module, "_refuse_error", _nothing),
        (partition_module, "_is_foreign", _take_errors_for_offsets()),
    ],
}
