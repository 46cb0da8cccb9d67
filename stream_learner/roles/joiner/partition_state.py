"""Step 2 of rule W: the state of a partition's join, made again from both inputs as of the last accepted mark.

Nothing is appended here. A record that an accepted mark has counted gets no dead letter: it has one already.
"""

from __future__ import annotations

from collections.abc import Generator

from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.state import JoinState, WrongResume
from stream_learner.core.log.marks import Mark
from stream_learner.errors import InputsChanged
from stream_learner.roles.joiner.attempt_writer import AttemptWriter
from stream_learner.roles.joiner.bad_records import DeadLetters
from stream_learner.roles.joiner.inputs import Inputs
from stream_learner.roles.joiner.log_tail import GO_ON, GO_ON_GROWN, Accepted
from stream_learner.roles.joiner.partition_plan import PartitionPlan
from stream_learner.roles.joiner.stream_clock import Guesses, Remembered
from stream_learner.roles.joiner.ticks import NextTicks, Ticks
from stream_learner.wording import count_of

LETTERS_IN_FLIGHT_BYTES = 8 << 20
LEAST_LETTERS_IN_FLIGHT_BYTES = 1 << 20
"""The bound of a partition's unacknowledged dead letters is a quarter of its buffer, between these two."""
RECORDS_GONE = (
    "Input records that the log was made from are gone, or were never like this: look at retention and at "
    "`cleanup.policy` of the input topics, which must not be compact. What was joined is in the log and in the model. "
    + GO_ON
)


def check_origin(plan: PartitionPlan, partition: int) -> Generator[bool, None, None]:
    """Refuse to begin a partition as new where it was added to a log that had begun.

    Raises InputsChanged, and what `LogBeginning.partitions` raises.
    """
    count = yield from plan.beginning.partitions()
    if count in (None, plan.partitions):
        return
    began = f"the log began with {count_of(count, 'partition')}, now there are {plan.partitions}"
    raise InputsChanged(f"{plan.log_partition(partition)} holds no mark, and {began}", action=GO_ON_GROWN)


class PartitionState:
    """The join of a partition, the inputs that feed it, and the dead letters that they find.

    join, inputs, letters: as of the resume point at first, as of the last accepted mark after `make_again`. ticks:
    which ticks its marks close. guesses: its examples that had to be guessed; None where only log time closes windows.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        known: Accepted,
        buffer_bytes: int,
        examples: ExampleScratch,
        remembered: Remembered | None = None,
    ) -> None:
        """known: what step 1 has found. examples: memory for the examples of a tick. remembered: as for `Inputs`."""
        self._plan = plan
        self._partition = partition
        self._known = known
        self._examples = examples
        self.join = self._fresh_join() if known.resume is None else self._resumed_join(known.resume)
        self.letters = self._no_letters(buffer_bytes)
        self.inputs = Inputs(plan.inputs, partition, self.join, buffer_bytes, self.letters, remembered)
        grace_ms = 0 if plan.inputs.clock is None else plan.inputs.clock.grace_ms
        self.ticks = Ticks(plan.spec.tick_ms, grace_ms, coupled=plan.coupled)
        self.guesses = None if self.inputs.clock is None else Guesses(self.inputs.clock)

    def _fresh_join(self) -> JoinState:
        plan = self._plan
        if self._known.since:
            first = self._known.since[0]
            raise InputsChanged(
                f"{plan.log_partition(self._partition)} begins with tick {first.first_tick} "
                "and without a resume point: it was not written by this program"
            )
        offsets = plan.start.of(plan.inputs.impressions_topic, plan.inputs.clicks_topic, self._partition)
        offsets.say(plan.log.bind(partition=self._partition))
        return JoinState(
            plan.spec,
            impression_start=offsets.impression,
            click_start=offsets.click,
            until_tick=plan.until_tick,
        )

    def _resumed_join(self, mark: Mark) -> JoinState:
        return JoinState.resume(self._plan.spec, mark, until_tick=self._plan.until_tick)

    def _no_letters(self, buffer_bytes: int) -> DeadLetters:
        """Letters are written from the positions of the last accepted mark on."""
        known, inputs = self._known, self._plan.inputs
        impressions, clicks = self.join.next_impression, self.join.click_cursor
        if known.since:
            impressions, clicks = known.since[-1].next_impression, known.since[-1].click_cursor
        limit_bytes = min(max(buffer_bytes // 4, LEAST_LETTERS_IN_FLIGHT_BYTES), LETTERS_IN_FLIGHT_BYTES)
        return DeadLetters({inputs.impressions_topic: impressions, inputs.clicks_topic: clicks}, limit_bytes)

    def make_again(self) -> Generator[bool, None, None]:
        """Read to the last accepted mark; yields whether anything came, read by read.

        Raises InputsChanged where the inputs do not hold what the log was made from.
        """
        join = self.join
        try:
            while not join.rebuilt:
                yield self._read_towards(join.next_impression, join.click_cursor)
            for mark in self._known.since:
                yield from self._make_tick_again(mark)
        except WrongResume as error:
            where = self._plan.log_partition(self._partition)
            raise InputsChanged(f"{where} cannot be gone on with: {error}", action=RECORDS_GONE) from error

    def _make_tick_again(self, mark: Mark) -> Generator[bool, None, None]:
        """Make the ticks of an accepted mark once more and compare the counts; the log holds the examples already."""
        cut = self.join.cut_of(mark)
        while not self.join.covers(cut):
            yield self._read_towards(cut.next_impression, cut.click_cursor)
        output = self.join.emit(cut, self._examples)
        if (output.counts, output.first_click) != (mark.counts, mark.first_click):
            raise InputsChanged(
                f"the ticks {mark.first_tick} to {mark.last_tick} of {self._plan.log_partition(self._partition)} "
                f"cannot be made again: the log counts {mark.counts}, the inputs now give {output.counts}",
                action=RECORDS_GONE,
            )

    def emit(self, found: NextTicks, writer: AttemptWriter, m: int) -> None:
        """Append ticks, and their examples. m: the monotonic clock, ms."""
        output = self.join.emit(found.cut, self._examples)
        self.ticks.closed(m)
        writer.append(self.join, output, found.last_tick)
        if found.cut.closes and self.guesses is not None:
            self.guesses.note(self.join.closed_ms, len(output.examples))

    def count_guesses(self, m: int, base: int) -> int:
        """How many examples had to be guessed so far. m, base: as for `StreamClock`."""
        if self.guesses is None:
            return 0
        self.guesses.look(m, base, self.join.closed_ms)
        return self.guesses.total + self.inputs.late_arrivals

    def _read_towards(self, next_impression: int, click_cursor: int) -> bool:
        came = False
        if self.join.next_click_to_read < click_cursor:
            came |= self.inputs.read_clicks()
        if self.join.next_impression_to_read < next_impression:
            came |= self.inputs.read_impressions()
        return came

    def close(self) -> None:
        """Give the readers of both inputs back."""
        self.inputs.close()
