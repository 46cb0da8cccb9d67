"""The positions of the last copied checkpoint, against the ticks that the training log holds.

In: the head of a copy, accepted ticks in order. Out: findings.
This file must never call a position wrong that the range does not reach.

The model at a tick is of every accepted tick up to it, of each once. So a position lies right behind the last mark that
is accepted up to the tick of the checkpoint.
"""

from __future__ import annotations

from stream_learner.core.marks import GENESIS, MarkId
from stream_learner.roles.audit.findings import COPIED_CHECKPOINT, Finding
from stream_learner.roles.audit.log_walk import LogWalk, Step
from stream_learner.roles.audit.place import AuditedPartition
from stream_learner.roles.log_follower import LogPosition


class CopyPosition:
    """One partition. `take` gets every step, those before the range too, then `finish`."""

    def __init__(self, place: AuditedPartition, topic: str, tick: int, position: LogPosition) -> None:
        """topic: of the copies. tick: of the checkpoint; position: where it goes on in this partition."""
        self._place, self._topic = place, topic
        self._tick, self._position = tick, position
        self._is_found = False

    def take(self, step: Step) -> None:
        """Look at the next accepted tick."""
        mark, position = step.tick.mark, self._position
        if step.whole and position.mark == (GENESIS if step.before is None else step.before.id):
            self._is_found = True
            if mark.last_tick <= self._tick:
                self._fail(f"it leaves out the mark at offset {step.tick.mark_offset}, of tick {mark.last_tick}")
        if mark.id == position.mark:
            self._is_found = True
            if position.offset != step.tick.mark_offset + 1:
                self._fail(f"its mark is at offset {step.tick.mark_offset}, not right before it")
            if mark.last_tick > self._tick:
                self._fail(f"its mark is of tick {mark.last_tick}, behind that of the checkpoint")

    def finish(self, walk: LogWalk, earliest: int) -> None:
        """The partition was read as far as the range goes. earliest: the first offset that the log holds."""
        findings, position = self._place.findings, self._position
        if self._is_found:
            findings.held(COPIED_CHECKPOINT)
        elif position.offset < earliest:
            findings.held(COPIED_CHECKPOINT)
            self._fail(f"the log begins at offset {earliest}")
        elif walk.reaches_end and position.mark != GENESIS:
            if walk.gaps or earliest:
                self._place.leave_out(COPIED_CHECKPOINT, "the mark of its position was not read, as others before it")
                return
            findings.held(COPIED_CHECKPOINT)
            self._fail(f"its mark, {_text(position.mark)}, is not accepted in the log")

    def _fail(self, what: str) -> None:
        where = f"position {self._position.offset} of {self._place.topic} partition {self._place.partition}"
        self._place.findings.fail(Finding(COPIED_CHECKPOINT, f"{where}: {what}", self._topic, tick=self._tick))


def _text(mark: MarkId) -> str:
    return f"tick {mark.last_tick} of attempt {mark.attempt:016x}"
