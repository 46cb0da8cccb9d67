"""Makes the examples of one partition again from its inputs, with each mark's own cut, and compares them byte for byte.

Attempts, and the way a tick is cut into records, are not compared: no input decides them.

It begins at the beginning of the log if the inputs still have theirs; else at the last resume point before the range,
or the first in it, that the inputs still reach back to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.spec import Cut
from stream_learner.core.join.state import JoinState, TickOutput, WrongResume
from stream_learner.core.log.compare import compare, together
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import Mark, ResumePoint
from stream_learner.errors import LogTrimmed, RetryLater
from stream_learner.operations.audit.findings import EXAMPLES_AGAIN
from stream_learner.operations.audit.inputs_check import InputTopics
from stream_learner.operations.audit.log_walk import Step
from stream_learner.operations.audit.request import AuditedPartition
from stream_learner.roles.joiner.inputs import InputPlan, Inputs
from stream_learner.wording import count_of

BUFFER_BYTES: Final = 32 << 20
_BYTES: Final = ("id_hash", "label", "weight", "log_time_ms", "row_start", "keys", "values")


@dataclass(frozen=True)
class AgainPlan:
    """The plan to make the examples again. start: the offsets in both inputs at which the log was begun, None if that
    is not known any more."""

    inputs: InputPlan
    topics: InputTopics
    start: tuple[int, int] | None


class ExamplesAgain:
    """Makes one partition again: call `take` with every step, those before the range too, then `close`."""

    def __init__(self, place: AuditedPartition, plan: AgainPlan) -> None:
        self._place = place
        self._plan = plan
        self._scratch = ExampleScratch()
        self._join: JoinState | None = None
        self._inputs: Inputs | None = None
        self._from: Mark | None = None
        self._since: list[Mark] = []
        self._missed: list[Mark] = []

    def take(self, step: Step) -> None:
        """Make the next tick again, and compare it if it is in the range."""
        mark = step.tick.mark
        if mark.begins_anew:
            self._begin_anew(step)
            return
        if not step.in_range:
            self._remember(mark)
            return
        if self._join is None:
            self._begin(step)
        if self._join is None:
            self._missed.append(mark)
            if mark.resume is not None:
                self._remember(mark)
            self._missed[1:-1] = []
            return
        self._note_missed()
        output = self._made(mark, step)
        if output is not None:
            self._place.findings.held(EXAMPLES_AGAIN)
            self._compare(step, output)

    def _begin_anew(self, step: Step) -> None:
        """Make what follows from this mark on. The mark itself has no examples."""
        self._note_missed()
        self._drop()
        self._from, self._since = None, []
        self._remember(step.tick.mark)
        if step.in_range:
            self._place.findings.held(EXAMPLES_AGAIN)

    def close(self) -> None:
        """Close the consumers, and report what was not made again."""
        self._note_missed()
        self._drop()

    def _remember(self, mark: Mark) -> None:
        """Keep what `_begin` needs: the last mark whose resume point the inputs reach back to, and the marks since."""
        if mark.resume is not None and self._is_held(mark, mark.resume):
            self._from, self._since = mark, []
        elif self._from is not None:
            self._since.append(mark)

    def _is_held(self, mark: Mark, point: ResumePoint) -> bool:
        topics, partition = self._plan.topics, self._place.partition
        impressions, _ = topics.range_of(topics.impressions, partition)
        clicks, _ = topics.range_of(topics.clicks, partition)
        is_ours = topics.is_of_these(mark, point)
        return is_ours and point.dedupe_from >= impressions and mark.first_click >= clicks

    def _begin(self, step: Step) -> None:
        """Make the state of the join before a step again, if that can be done."""
        spec, start = self._plan.topics.spec, self._plan.start
        since = self._since
        if self._from is not None and (step.before is not None and self._leads_to(step.before)):
            join = JoinState.resume(spec, self._from)
        elif step.before is None and start is not None and self._begins_ours(step.tick.mark):
            join, since = JoinState(spec, impression_start=start[0], click_start=start[1]), []
        else:
            return
        self._join = join
        self._inputs = Inputs(self._plan.inputs, self._place.partition, join, BUFFER_BYTES)
        self._from, self._since = None, []
        for mark in since:
            if self._made(mark, step) is None:
                return

    def _begins_ours(self, first: Mark) -> bool:
        """Whether the first mark of a log is of these topics and settings; one without a resume point does not say."""
        point = first.resume
        return first.first_tick == 0 and (point is None or self._plan.topics.is_of_these(first, point))

    def _leads_to(self, mark: Mark) -> bool:
        """Whether the marks kept lead to this one without a gap."""
        last = self._from
        for following in self._since:
            if last is None or following.predecessor != last.id:
                return False
            last = following
        return last is not None and last.id == mark.id

    def _made(self, mark: Mark, step: Step) -> TickOutput | None:
        """The ticks of a mark, made again; None, and a finding, if the inputs do not give them."""
        join, inputs = self._join, self._inputs
        assert join is not None and inputs is not None
        cut = join.cut_of(mark)
        try:
            self._read(join, inputs, cut)
            output = join.emit(cut, self._scratch)
        except (WrongResume, LogTrimmed, ValueError) as error:
            offset = step.tick.mark_offset
            self._place.fail(EXAMPLES_AGAIN, f"cannot be made again: {error}", offset, mark.last_tick)
            self._drop()
            return None
        return output

    def _read(self, join: JoinState, inputs: Inputs, cut: Cut) -> None:
        """Read both inputs as far as a cut needs. Raises LogTrimmed if they end before it."""
        topics = self._plan.topics
        for topic, wanted in ((topics.impressions, cut.next_impression), (topics.clicks, cut.click_cursor)):
            end = topics.range_of(topic, self._place.partition)[1]
            if wanted > end:
                raise LogTrimmed(f"{topic.name} ends at {end}, the mark goes up to {wanted}")
        while not (join.rebuilt and join.covers(cut)):
            with suppress(RetryLater):
                if join.next_click_to_read < max(cut.click_cursor, join.click_cursor):
                    inputs.read_clicks()
                if join.next_impression_to_read < max(cut.next_impression, join.next_impression):
                    inputs.read_impressions()

    def _compare(self, step: Step, output: TickOutput) -> None:
        mark, offset = step.tick.mark, step.tick.mark_offset
        for what in differences(mark, output, self._resume_point(mark)):
            self._place.fail(EXAMPLES_AGAIN, what, offset, mark.last_tick)
        if not step.whole or step.tick.left_out:
            return
        made = output.examples
        for what in example_differences(together(record for _, record in step.tick.records), made):
            self._place.fail(EXAMPLES_AGAIN, what, offset, mark.last_tick)

    def _resume_point(self, mark: Mark) -> ResumePoint | None:
        """The resume point that the join makes now; None if the mark has none."""
        point = mark.resume
        if point is None or self._join is None:
            return None
        return self._join.resume_point(point.inputs)

    def _drop(self) -> None:
        if self._inputs is not None:
            self._inputs.close()
        self._join = self._inputs = None

    def _note_missed(self) -> None:
        """Report which ticks of the range could not be made again."""
        if self._missed:
            first, last = self._missed[0].first_tick, self._missed[-1].last_tick
            why = "no resume point before them of these topics and settings that the inputs still reach back to"
            self._place.leave_out(EXAMPLES_AGAIN, f"ticks {first} to {last}: {why}")
            self._missed.clear()


def differences(mark: Mark, output: TickOutput, point: ResumePoint | None) -> Iterator[str]:
    """The differences between a mark and what the inputs give."""
    if output.counts != mark.counts:
        yield f"the mark counts {mark.counts}, the inputs give {output.counts}"
    if output.first_click != mark.first_click:
        yield f"the mark has first_click {mark.first_click}, the inputs give {output.first_click}"
    if point is not None and mark.resume is not None:
        # The offset from which duplicates are read depends on the offset at which the joiner had begun.
        made = replace(point, dedupe_from=mark.resume.dedupe_from, impression_log_time=mark.resume.impression_log_time)
        if made != mark.resume:
            yield "the resume point is not the one that the inputs give"


def example_differences(there: ExampleBatch, made: ExampleBatch) -> Iterator[str]:
    """The differences between the examples of a tick in the log and those that the inputs give."""
    if all(_bytes(there, name) == _bytes(made, name) for name in _BYTES):
        return
    found = compare(there, made)
    if found is None:
        yield "the same numbers in other bytes"
        return
    if len(found.only_first):
        yield (
            f"{count_of(len(found.only_first), 'example')} that the inputs do not give: {_ids(there, found.only_first)}"
        )
    if len(found.only_second):
        yield f"missing: {count_of(len(found.only_second), 'example')}: {_ids(made, found.only_second)}"
    for name, differ in found.columns.items():
        if differ.any():
            yield f"{count_of(int(differ.sum()), 'example')} with another {name}: {_ids(there, found.first[differ])}"
    if found.reordered:
        yield "the examples are in another order"


def _bytes(batch: ExampleBatch, name: str) -> bytes:
    return np.ascontiguousarray(getattr(batch, name)).tobytes()


def _ids(batch: ExampleBatch, rows: np.ndarray) -> str:
    """The hashes of the first three ids."""
    shown = ", ".join(f"0x{int(batch.id_hash[row]):016x}" for row in rows[:3])
    return f"id {shown}{', …' if len(rows) > 3 else ''}"
