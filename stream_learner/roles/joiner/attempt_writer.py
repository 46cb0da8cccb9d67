"""Steps 3 to 5 of rule W, the writing: the ticks of one attempt with their resume points, and its dead letters.

A tick counts as progress only when its mark is durable. The caller decides when a tick may be appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from stream_learner.adapters.kafka import Delivery
from stream_learner.core.join.state import JoinState, TickOutput
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.marks import MarkId, ResumePoint
from stream_learner.core.log.rule_w import Attempt
from stream_learner.roles.joiner.bad_records import DeadLetter, DeadLetters
from stream_learner.roles.joiner.log_tail import Accepted, Hint
from stream_learner.roles.joiner.partition_plan import PartitionPlan
from stream_learner.roles.joiner.progress import Appended, Progress

RESUME_SHARE = 0.05
"""A resume point is written when it costs less than this share of the bytes since the last one."""


class RecordTag(NamedTuple):
    """Comes back with the delivery of a record.

    deliver: takes the delivery. attempt: the one that appended the record. letter_bytes: the memory that a dead letter
    took, None for a record of the training log.
    """

    deliver: Callable[[Delivery], None]
    attempt: Attempt
    letter_bytes: int | None = None


class AttemptWriter:
    """Begins an attempt (step 3) and appends its records. `attempt` tells whether it stands and what is durable."""

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        known: Accepted,
        progress: Progress,
        scratch: Scratch,
        deliver: Callable[[Delivery], None],
    ) -> None:
        """known: what step 1 has found. progress: notes ticks once they are durable. deliver: goes into the tags."""
        self._plan = plan
        self._partition = partition
        self._progress = progress
        self._deliver = deliver
        self._resumed_at_s = 0.0 if known.resume is None else plan.clock_s()
        self._bytes_since_resume = 0
        self._appended: deque[Appended] = deque()
        self._after = known.after
        self.attempt = Attempt(
            partition,
            plan.new_attempt_id(),
            known.last,
            known.position,
            max_bytes=plan.record_bytes,
            features=plan.inputs.impression_decoder.features.fingerprint,
            bound=plan.bound,
            scratch=scratch,
        )
        progress.attempts += 1
        progress.hint = known.hint or progress.hint
        if known.resume is not None and known.resume.resume is not None:
            progress.reads_from = (known.resume.resume.dedupe_from, known.resume.first_click)

    @property
    def appending_since_s(self) -> float:
        """When the oldest tick that is not durable was appended, by the monotonic clock; infinity for none."""
        return self._appended[0].at_s if self._appended else float("inf")

    def append_letters(self, letters: DeadLetters) -> None:
        """Hand the dead letters over that may be in flight now."""
        while (letter := letters.hand_over()) is not None:
            self._append_letter(letter)

    def _append_letter(self, letter: DeadLetter) -> None:
        plan, value = self._plan, letter.value
        headers: list[tuple[str, str | bytes | None]] = [
            ("topic", letter.topic),
            ("partition", str(letter.partition)),
            ("offset", str(letter.offset)),
            ("time_ms", str(letter.time_ms)),
            ("reason", letter.reason),
        ]
        if value is not None and len(value) > plan.letter_bytes:
            headers.append(("value_bytes", str(len(value))))
            value = value[: plan.letter_bytes]
        plan.appender.append(
            plan.dead_letters_topic,
            -1,
            value,
            key=f"{letter.topic}/{letter.partition}/{letter.offset}".encode(),
            headers=headers,
            tag=RecordTag(self._deliver, self.attempt, letter.nbytes),
        )

    def append(self, join: JoinState, output: TickOutput, last_tick: int) -> None:
        """Append the ticks up to `last_tick`: the examples of a cut, and the mark that ends them."""
        plan, cut, first_tick = self._plan, output.cut, self.attempt.next_tick
        resume = self._resume_point(join)
        records = self.attempt.stamp(
            output.examples,
            first_tick=first_tick,
            last_tick=last_tick,
            next_impression=cut.next_impression,
            first_click=output.first_click,
            click_cursor=cut.click_cursor,
            counts=output.counts,
            stream_tick=cut.last_tick,
            labels_from_ms=cut.labels_from_ms,
            resume=resume,
        )
        tag = RecordTag(self._deliver, self.attempt)
        for value in records:
            plan.appender.append(plan.log_topic, self._partition, value, tag=tag)
        size = sum(map(len, records))
        self._bytes_since_resume += size
        self._progress.log_bytes += size
        before = self._appended[-1].id if self._appended else self.attempt.durable
        mark = MarkId(self.attempt.id, last_tick)
        reads_from = None if resume is None else (resume.dedupe_from, output.first_click)
        self._appended.append(
            Appended(plan.clock_s(), mark, before, cut, first_tick, output.counts, reads_from, output.early)
        )

    def _resume_point(self, join: JoinState) -> ResumePoint | None:
        """A resume point, where it costs little or the last one is too old."""
        plan = self._plan
        cheap = join.resume_bytes < RESUME_SHARE * self._bytes_since_resume
        if not cheap and plan.clock_s() - self._resumed_at_s < plan.resume_within_s and self._resumed_at_s:
            return None
        self._resumed_at_s = plan.clock_s()
        self._bytes_since_resume = 0
        return join.resume_point(plan.made_from)

    def note_durable(self) -> None:
        """Move the progress to the last durable mark, and the hint to the last durable resume point."""
        attempt, progress = self.attempt, self._progress
        while self._appended and self._appended[0].id.last_tick <= attempt.durable.last_tick:
            tick = self._appended.popleft()
            progress.note(tick, self._plan.clock_s())
            if tick.is_resume_point and tick.predecessor == self._after.known:
                progress.hint = self._after
            if tick.id == attempt.durable and attempt.durable_offset is not None:
                self._after = Hint(attempt.durable_offset + 1, tick.id, self._plan.log_id)
