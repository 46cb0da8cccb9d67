"""The joiner of one partition: takes the steps of rule W (`core.log.rule_w`) in their order.

`partition_plan` compares in step 1, `partition_state` does step 2, `attempt_writer` writes in steps 3 to 5. This file
must never append a tick that does not follow the last accepted mark, nor one that counts a dead record whose letter is
not in its topic yet.

| a crash after                    | leaves                                 | the next owner                          |
|----------------------------------|----------------------------------------|-----------------------------------------|
| step 1 or 2                      | nothing new                            | begins at step 1                        |
| step 3                           | nothing: an attempt is only a number   | begins at step 1                        |
| step 4, dead letters only        | letters that will be written again     | writes them again under the same keys   |
| step 4, records without a mark   | records that rule R ignores            | makes the tick again                    |
| step 4, a mark                   | an accepted tick                       | goes on after it                        |
| step 4, before the commit        | an old hint                            | reads more of the log and the inputs    |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import NoReturn

from stream_learner.adapters.kafka import Delivery
from stream_learner.adapters.record_errors import DELETE
from stream_learner.core.errors import BrokenLog
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.state import JoinState
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.marks import Mark, encode_mark
from stream_learner.core.log.rule_r import RuleR
from stream_learner.core.log.rule_w import MAX_OUTSTANDING, Ack, Attempt, Verdict
from stream_learner.errors import Fenced, InputsChanged, LogTrimmed, RetryLater, Stop, TopicRecreated
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.joiner.attempt_writer import AttemptWriter, RecordTag
from stream_learner.roles.joiner.inputs import Inputs, first_good_offsets
from stream_learner.roles.joiner.log_beginning import mark_anew
from stream_learner.roles.joiner.log_tail import Accepted, Hint, LogTail
from stream_learner.roles.joiner.partition_plan import PartitionPlan, check_resume_point, fits
from stream_learner.roles.joiner.partition_state import PartitionState, check_origin
from stream_learner.roles.joiner.progress import Progress
from stream_learner.roles.joiner.stream_clock import Remembered

RETRY_S = 1.0
HOLD_LOOK_S = 5.0
"""A partition that is held looks so often whether the newest records are good again."""
LOOK_AGAIN = 3
"""The training log is read again so often, after a rest each time, where it seems to lack what step 1 needs."""
CLOCK_OFF_MS = 86_400_000
"""How far this machine's clock may be behind the brokers', where it is asked whether numbers of ticks can go on."""
EMPTY_AFTER_S = 1.0
"""While input keeps coming, empty ticks wait this long to share a mark with the next that is not empty."""
NO_APPEND_TIME = (
    "the brokers do not tell when they appended a record: message.timestamp.type of the topic is not LogAppendTime "
    "(`stream-learner topics ensure --apply` sets it). Until they do, ticks go by the clock of this machine as it was "
    "when the joiner started"
)


class _AttemptDropped(Exception):
    """The attempt does not stand any more: back to step 1, after a rest. `cause` is for the metrics."""

    cause = "append_failed"
    rest_s = RETRY_S


class _OtherWriter(_AttemptDropped):
    """Another joiner's mark was accepted."""

    cause = "other_writer"
    rest_s = 0.0


def _refuse_error(delivery: Delivery) -> None:
    """Drop the attempt of a record that was not appended; stop where trying again cannot help."""
    error = delivery.error
    if isinstance(error, Stop) and not isinstance(error, Fenced):
        raise error
    if error is not None:
        raise _AttemptDropped(f"a record was not appended: {error}")


def _is_foreign(attempt: Attempt, offset: int) -> bool:
    try:
        return attempt.acknowledged(offset) is Ack.FOREIGN
    except BrokenLog as error:
        raise _AttemptDropped(f"the log has lost records: {error}") from error


class PartitionJoiner:
    """Joins one partition. `turn` does a bounded piece of work, so that one thread can serve many partitions."""

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        hint: Hint | None,
        buffer_bytes: int,
        remembered: Remembered | None = None,
    ) -> None:
        """remembered: what the clock of an earlier owner of the partition had learned."""
        self.partition = partition
        self.remembered = remembered
        self.progress = Progress(hint=hint)
        self._held_for = ""
        self._plan = plan
        self._buffer_bytes = buffer_bytes
        self._log = plan.log.bind(partition=partition)
        self._tail = LogTail(
            plan.settings,
            plan.queries,
            plan.log_topic,
            partition,
            new_reader=plan.inputs.new_reader,
            new_reader_beside=plan.inputs.new_reader_beside,
            unusable=plan.unusable,
            log_id=plan.log_id,
        )
        if hint is not None and hint.log_id not in ("", plan.log_id):
            self._log.info("hint_ignored", log=plan.log_topic, note="the hint is of another log, which had this name")
        self._scratch = Scratch()
        self._examples = ExampleScratch()
        self._accepted: Accepted | None = None
        self._state: PartitionState | None = None
        self._writer: AttemptWriter | None = None
        self._deliveries: deque[Delivery] = deque()
        self._appended_at_s = 0.0
        self._looked_again = 0
        self._begun_again: int | None = None
        """The attempt that has begun the log again with the settings of now, None if none has."""
        self._steps = self._rule_w()

    @property
    def join(self) -> JoinState | None:
        """The state of the join, None before step 2 has made it."""
        return None if self._state is None else self._state.join

    @property
    def inputs(self) -> Inputs | None:
        """The inputs, None before step 2 has opened them."""
        return None if self._state is None else self._state.inputs

    @property
    def held_for(self) -> str:
        """Why the inputs are not read: too many of their records are bad, or they have a schema that is not known; ""
        while they are read.
        """
        return self._held_for or ("" if self._state is None else self._state.inputs.awaits)

    @property
    def attempt(self) -> Attempt | None:
        """The present attempt, None before step 3 has begun one."""
        return None if self._writer is None else self._writer.attempt

    @property
    def letter_bytes(self) -> int:
        """About how much memory is taken by dead letters that are not in their topic yet, bytes."""
        return 0 if self._state is None else self._state.letters.nbytes

    @property
    def done(self) -> bool:
        """Whether the log holds the last tick that was to be made, by this joiner or another."""
        until_tick, attempt = self._plan.until_tick, self.attempt
        return until_tick is not None and attempt is not None and attempt.durable.last_tick >= until_tick

    @property
    def appending_since_s(self) -> float:
        """When the oldest tick that is not durable was appended, by the monotonic clock; infinity for none."""
        return float("inf") if self._writer is None else self._writer.appending_since_s

    def turn(self) -> bool:
        """Do the next piece of work; False if there was nothing to do."""
        return next(self._steps)

    def deliver(self, delivery: Delivery) -> None:
        """Take the delivery of a record that this partition appended; its tag is a `RecordTag`."""
        self._deliveries.append(delivery)

    @property
    def has_deliveries(self) -> bool:
        """Whether deliveries wait to be taken."""
        return bool(self._deliveries)

    def settle(self) -> None:
        """Note what was acknowledged, without waiting or reading on: for the last commit before the end."""
        writer = self._writer
        while writer is not None and self._deliveries:
            delivery = self._deliveries.popleft()
            if delivery.tag.attempt is not writer.attempt or delivery.tag.letter_bytes is not None:
                continue
            if delivery.error is not None or writer.attempt.acknowledged(delivery.offset) is Ack.FOREIGN:
                return
            writer.note_durable()

    def close(self) -> None:
        """Drop the attempt and give the consumers back. Records in flight may land; rule R then judges them."""
        self._steps.close()
        self._drop_attempt()
        self._tail.close()

    def _rule_w(self) -> Generator[bool, None, None]:
        while True:
            began_s = self._plan.clock_s()
            try:
                # Step 1: find the last resume point, and read on to the high watermark by rule R.
                known = yield from self._find_accepted()
                # Step 2: read both inputs from the resume point; make the ticks again; emit nothing.
                state = yield from self._make_again(known)
                # Step 3: begin an attempt.
                writer = self._begin_attempt(known)
                self.progress.recovery_s.append(self._plan.clock_s() - began_s)
                # Steps 4 and 5: append tick after tick; watch the offsets that are acknowledged.
                yield from self._append_ticks(state, writer)
            except (InputsChanged, TopicRecreated) as error:
                self._drop_attempt()
                yield from self._begin_again(error)
            except (_AttemptDropped, RetryLater) as error:
                # Step 6: anything unusual drops the attempt; the partition is still owned, so back to step 1.
                dropped = error if isinstance(error, _AttemptDropped) else _AttemptDropped
                self.progress.lost[dropped.cause] += 1
                self._log.warning("attempt_dropped", reason=str(error))
                self._drop_attempt()
                yield from self._rest(dropped.rest_s)

    def _rest(self, seconds: float) -> Generator[bool, None, None]:
        until = self._plan.clock_s() + seconds
        while self._plan.clock_s() < until:
            yield False

    # Step 1

    def _find_accepted(self) -> Generator[bool, None, Accepted]:
        try:
            for accepted in self._tail.find(self.progress.hint):
                self._accepted = accepted
                yield True
        except LogTrimmed as error:
            self._look_again(error)
        self._looked_again = 0
        self._tail.close()
        check_resume_point(self._plan, self._known.resume)
        return self._known

    def _look_again(self, error: LogTrimmed) -> NoReturn:
        """Drop the attempt; raise the error itself once the log has been looked at often enough.

        A broker may tell an old end, before the resume points; and retention may take records after a broker has told
        where the log begins. Neither is a reason to stop for good.
        """
        self._tail.close()
        if self._looked_again == LOOK_AGAIN:
            raise error
        self._looked_again += 1
        raise _AttemptDropped(f"looked at again: {error}") from error

    @property
    def _known(self) -> Accepted:
        assert self._accepted is not None  # step 1 has ended
        return self._accepted

    def _begin_again(self, error: Stop) -> Generator[bool, None, None]:
        """Append a mark from which the log begins anew with the settings of now, and go back to step 1.

        Raises the error, with which steps 1 and 2 have refused the log, unless it holds no example that was made with
        other settings, and the numbers of ticks can go on.
        """
        try:
            mark = yield from self._mark_again(error)
            attempt = Attempt(self.partition, mark.attempt, self._known.last, self._known.position)
            self._deliveries.clear()
            value, tag = encode_mark(mark), RecordTag(self.deliver, attempt)
            self._plan.appender.append(self._plan.log_topic, self.partition, value, tag=tag)
            while not any(delivery.tag.attempt is attempt for delivery in self._deliveries):
                yield False
            _refuse_error(next(delivery for delivery in self._deliveries if delivery.tag.attempt is attempt))
            self._begun_again = attempt.id
        except (_AttemptDropped, RetryLater) as unknown:  # step 1 shows whether the mark is there
            self._log.warning("attempt_dropped", reason=str(unknown))
            yield from self._rest(RETRY_S)

    def _mark_again(self, error: Stop) -> Generator[bool, None, Mark]:
        plan, last = self._plan, self._known.mark
        if plan.begins_again is None or last is None or last.attempt == self._begun_again or plan.coupled:
            raise error  # without the brokers' clock, ticks are stream time: what came before them would be late
        point = None if self._known.resume is None else self._known.resume.resume
        if point is not None and point.partitions != plan.partitions:
            raise error
        if not (yield from plan.beginning.may_begin_again(self.partition, lambda mark: fits(plan, mark))):
            raise error
        if (last.last_tick + 2) * plan.spec.tick_ms > wall_clock_ms() + CLOCK_OFF_MS:
            raise InputsChanged(
                f"{error.message}. It holds no example, but its ticks are numbered up to {last.last_tick}: with "
                f"join.tick {plan.spec.tick_ms} ms that lies in the future, and numbers of ticks never go back",
                action=f"Set join.tick back. {DELETE}",
            ) from error
        plan.begins_again.begin(reason=error.message)
        names = (plan.inputs.impressions_topic, plan.inputs.clicks_topic)
        clicks_lost = point is not None and point.click_topic_id != plan.made_from.click_topic_id
        offsets = plan.start.of(*names, self.partition, clicks_lost=clicks_lost)
        offsets.say(self._log)
        return mark_anew(
            self.partition,
            plan.new_attempt_id(),
            self._known.last,
            last_tick=last.last_tick + 1,
            stream_tick=-1,
            impressions_from=offsets.impression,
            clicks_from=offsets.click,
            spec=plan.spec,
            inputs=plan.made_from,
            features=plan.inputs.impression_decoder.features.fingerprint,
        )

    # Step 2

    def _make_again(self, known: Accepted) -> Generator[bool, None, PartitionState]:
        if known.resume is None:
            yield from self._check_origin()
        state = PartitionState(
            self._plan, self.partition, known, self._buffer_bytes, self._examples, remembered=self.to_remember()
        )
        self._state = state
        yield from state.make_again()
        self._log.info(
            "partition_resumed" if known.marks else "partition_begun",
            tick=state.join.next_tick,
            impressions_offset=state.join.next_impression,
            clicks_offset=state.join.click_cursor,
            marks_made_again=len(known.since),
        )
        return state

    def _check_origin(self) -> Generator[bool, None, None]:
        try:
            yield from check_origin(self._plan, self.partition)
        except LogTrimmed as error:  # retention took records after a broker had told where the log begins
            raise _AttemptDropped(f"looked at again: {error}") from error

    # Step 3

    def _begin_attempt(self, known: Accepted) -> AttemptWriter:
        self._deliveries.clear()
        self._writer = AttemptWriter(self._plan, self.partition, known, self.progress, self._scratch, self.deliver)
        return self._writer

    # Steps 4 and 5

    def _append_ticks(self, state: PartitionState, writer: AttemptWriter) -> Generator[bool, None, None]:
        join, inputs, plan = state.join, state.inputs, self._plan
        while True:
            yield from self._take_deliveries(state, writer)
            if join.ended:
                yield False
                continue
            stream = inputs.look(plan.ends.snapshot)
            came = inputs.read(stream)
            writer.append_letters(state.letters)
            if inputs.too_many is not None:
                yield from self._refuse_bad_records(state, writer, *inputs.too_many)
                continue
            made = False
            while writer.attempt.outstanding < MAX_OUTSTANDING:
                alone = not came or self._silent_s() > EMPTY_AFTER_S
                first, base = writer.attempt.next_tick, plan.inputs.brokers.base
                found = state.ticks.next(join, first, stream, base, alone=alone)
                if found is None:
                    break
                yield from self._wait_for_dead_letters(state, writer)
                state.emit(found, writer, stream.m)
                self._appended_at_s = plan.clock_s()
                made = True
            yield came or made

    def count_guesses(self, m: int, base: int) -> int:
        """How many examples had to be guessed since step 2. m, base: as for `StreamClock`."""
        return 0 if self._state is None else self._state.count_guesses(m, base)

    def to_remember(self) -> Remembered | None:
        """What the next owner of the partition should know of its clock; None where nothing is known."""
        state, base = self._state, self._plan.inputs.brokers.base
        if state is not None and state.inputs.clock is not None and base is not None:
            self.remembered = state.inputs.clock.to_remember(self._plan.inputs.clock_ms(), base) or self.remembered
        return self.remembered

    def _silent_s(self) -> float:
        return self._plan.clock_s() - self._appended_at_s

    def _wait_for_dead_letters(self, state: PartitionState, writer: AttemptWriter) -> Generator[bool, None, None]:
        """Wait until every dead record that was read has its letter in the topic."""
        while not state.letters.are_there:
            yield False
            yield from self._take_deliveries(state, writer)
            writer.append_letters(state.letters)

    def _refuse_bad_records(
        self, state: PartitionState, writer: AttemptWriter, topic: str, error: Stop
    ) -> Generator[bool, None, None]:
        """Go on where the newest records are good again. Else write the letters of which the error speaks; then stop,
        go on all the same, or hold: read and append nothing until the newest records are good.
        """
        plan, inputs = self._plan, state.inputs
        good_from = yield from self._good_from(topic)
        if good_from is None:
            yield from self._wait_for_dead_letters(state, writer)
            if plan.inputs.on_bad_share == "drop":
                self._log.warning("bad_records_dropped", topic=topic, reason=str(error))
                plan.inputs.bad_share.let_pass(topic)
                inputs.too_many = None
                return
            if plan.inputs.on_bad_share == "stop":
                raise error
            good_from = yield from self._hold_bad_records(state, writer, topic, error)
        offset = good_from[self.partition]
        self._log.warning("bad_records_passed", topic=topic, right_from_offset=offset, reason=str(error))
        plan.inputs.bad_share.excuse(topic, good_from)
        inputs.too_many = None
        if topic == plan.inputs.clicks_topic:
            inputs.clicks_unreadable_before(offset)

    def _good_from(self, topic: str) -> Generator[bool, None, dict[int, int] | None]:
        plan = self._plan
        return (yield from first_good_offsets(plan.inputs, plan.queries, topic, plan.partitions, self.partition))

    def _hold_bad_records(
        self, state: PartitionState, writer: AttemptWriter, topic: str, error: Stop
    ) -> Generator[bool, None, dict[int, int]]:
        """Read nothing and append nothing; look again every `HOLD_LOOK_S`. Returns where the good records begin."""
        self._log.error("bad_records_held", topic=topic, reason=str(error))
        self._held_for = str(error)
        try:
            while True:
                look_at_s = self._plan.clock_s() + HOLD_LOOK_S
                while self._plan.clock_s() < look_at_s or not self._plan.inputs.bad_share.may_look():
                    yield False
                    yield from self._take_deliveries(state, writer)
                good_from: dict[int, int] | None = None
                with suppress(RetryLater):  # brokers that do not answer are no reason to read all of it again
                    good_from = yield from self._good_from(topic)
                if good_from is not None:
                    return good_from
        finally:
            self._held_for = ""

    def _take_deliveries(self, state: PartitionState, writer: AttemptWriter) -> Generator[bool, None, None]:
        """Take what the brokers say. An error drops the attempt; a foreign offset means that somebody else wrote."""
        attempt = writer.attempt
        while self._deliveries:
            delivery = self._deliveries.popleft()
            if delivery.tag.attempt is not attempt:
                continue
            _refuse_error(delivery)
            if delivery.tag.letter_bytes is not None:
                state.letters.acknowledged(delivery.tag.letter_bytes)
            else:
                self._note_time(delivery)
                if _is_foreign(attempt, delivery.offset):
                    yield from self._decide(attempt)
                writer.note_durable()

    def _note_time(self, delivery: Delivery) -> None:
        brokers, m = self._plan.inputs.brokers, self._plan.inputs.clock_ms()
        if delivery.time_ms >= 0:
            brokers.note(delivery.time_ms, m)
        elif brokers.base is None:
            brokers.assume(wall_clock_ms(), m)
            self._plan.log.warning("no_append_time", topic=delivery.topic, note=NO_APPEND_TIME)

    def _decide(self, attempt: Attempt) -> Generator[bool, None, None]:
        """Step 5: read on by rule R; still one's own mark: go on; another's: back to step 1."""
        known = self._known_to_stand(attempt)
        try:
            for _ in self._tail.read_on(known, attempt.expected_offset):
                yield True
        except LogTrimmed as error:
            self._look_again(error)
        self._tail.close()
        # Retention may since have taken the beginning, and the chain that has lost may be the longest one left.
        self.progress.hint = known.hint or self.progress.hint
        if attempt.decide(known.rule) is Verdict.BEGIN_AGAIN:
            raise _OtherWriter(f"another joiner wrote tick {known.last.last_tick}")

    def _known_to_stand(self, attempt: Attempt) -> Accepted:
        """The place that rule R goes on from: the attempt's last durable mark, before which nothing need be read."""
        if attempt.durable_offset is not None:
            log_id = self._plan.log_id
            after = Hint(attempt.durable_offset + 1, attempt.durable, log_id)
            rule = RuleR(after.known, partition=self.partition)
            self._accepted = Accepted(rule, after.read_from, after=after, log_id=log_id)
        return self._known

    # Step 6

    def _drop_attempt(self) -> None:
        self._writer = None
        self.to_remember()
        if self._state is not None:
            self._state.close()
            self._state = None
