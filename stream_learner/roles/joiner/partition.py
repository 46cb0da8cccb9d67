"""The joiner of one partition: rule W of `core.log.rule_w`, step by step.

In: a partition that the group has given to this process. Out: its ticks, appended to the training log.
This file must never append a tick that does not follow the last accepted mark, nor before the tick's dead letters
are in their topic; nor write letters in step 2, for records that marks have counted.

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

import secrets
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NoReturn

from stream_learner.adapters.kafka import Appender, Delivery, EndWatch, KafkaSettings, OffsetQueries
from stream_learner.adapters.record_errors import ANOTHER_NAME
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.errors import BrokenLog
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.join.state import JoinState, TickOutput, WrongResume
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.marks import GENESIS, RULES, InputIdentity, Mark, MarkId, ResumePoint
from stream_learner.core.log.rule_r import RuleR
from stream_learner.core.log.rule_w import Ack, Attempt, Verdict
from stream_learner.errors import Fenced, InputsChanged, LogTrimmed, RetryLater, Stop, TopicRecreated
from stream_learner.roles.joiner.beginning import Start
from stream_learner.roles.joiner.dead_letters import DeadLetter, DeadLetters
from stream_learner.roles.joiner.inputs import InputPlan, Inputs
from stream_learner.roles.joiner.log_origin import LogOrigin
from stream_learner.roles.joiner.log_tail import GO_ON, GO_ON_GROWN, Accepted, Hint, LogTail
from stream_learner.roles.joiner.newest_records import right_again
from stream_learner.roles.joiner.progress import Appended, Progress
from stream_learner.wording import count_of

RESUME_SHARE = 0.05
"""A resume point is written when it costs less than this share of the bytes since the last one."""
MAX_OUTSTANDING = 64
"""Records appended and not acknowledged, at most, before the next tick is made."""
MAX_LETTER_BYTES = 8 << 20
"""Of a longer dead record only this much is kept; the header `value_bytes` then says how long it was."""
LETTERS_ON_THEIR_WAY_BYTES = 8 << 20
"""Of the letters of a partition, at most, or a quarter of its buffer; no record is read while more would be."""
RECORDS_GONE = (
    "Input records that the log was made from are gone, or were never like this: look at retention and at "
    "`cleanup.policy` of the input topics, which must not be compact. What was joined is in the log and in the model. "
    + GO_ON
)
JOIN_SETTINGS = "join (window, skew, tick, dedupe, keep_negatives, lateness or agree)"
EVENT_SETTINGS = " (its fields, input.time_unit, join.max_event_bytes or join.max_skew)"
RETRY_S = 1.0
LOOK_AGAIN = 3
"""So often the training log is looked at again, a rest before each, when it seems to have lost what is needed."""
EMPTY_AFTER_S = 1.0
"""While input keeps coming, empty ticks wait this long to share a mark with the next that is not empty."""


def _new_attempt_id() -> int:
    return secrets.randbelow(2**64 - 1) + 1


@dataclass(frozen=True)
class PartitionPlan:
    """What all partitions of a joiner have in common. clock_s: monotonic. new_attempt_id: u64, random, never 0."""

    settings: KafkaSettings
    queries: OffsetQueries
    appender: Appender
    ends: EndWatch
    inputs: InputPlan
    spec: JoinSpec
    log_topic: str
    dead_letters_topic: str
    start: Start
    origin: LogOrigin
    impression_topic_id: bytes
    click_topic_id: bytes
    partitions: int
    record_bytes: int
    resume_within_s: float
    log: Logger
    until_tick: int | None = None
    clock_s: Callable[[], float] = time.monotonic
    new_attempt_id: Callable[[], int] = _new_attempt_id
    letter_bytes: int = MAX_LETTER_BYTES


class _Dropped(Exception):
    """The attempt does not stand any more: back to step 1, after a rest. `cause` is for the metrics."""

    cause = "append_failed"
    rest_s = RETRY_S


class _Lost(_Dropped):
    """Another joiner's mark was accepted."""

    cause = "other_writer"
    rest_s = 0.0


def _refuse_error(delivery: Delivery) -> None:
    """Drop the attempt of a record that was not appended; stop where trying again cannot help."""
    error = delivery.error
    if isinstance(error, Stop) and not isinstance(error, Fenced):
        raise error
    if error is not None:
        raise _Dropped(f"a record was not appended: {error}")


def _is_foreign(attempt: Attempt, offset: int) -> bool:
    try:
        return attempt.acknowledged(offset) is Ack.FOREIGN
    except BrokenLog as error:
        raise _Dropped(f"the log has lost records: {error}") from error


class PartitionJoiner:
    """Joins one partition. `turn` does a bounded piece of work, so that one thread can serve many partitions."""

    def __init__(self, plan: PartitionPlan, partition: int, hint: Hint | None, buffer_bytes: int) -> None:
        self.partition = partition
        self.progress = Progress(hint=hint)
        self._plan = plan
        self._buffer_bytes = buffer_bytes
        self._log = plan.log.bind(partition=partition)
        self._tail = LogTail(plan.settings, plan.queries, plan.log_topic, partition, new_reader=plan.inputs.new_reader)
        self._scratch = Scratch()
        self._rows = ExampleScratch()
        self._inputs: Inputs | None = None
        self._join: JoinState | None = None
        self._letters = DeadLetters({}, 0)
        self._attempt: Attempt | None = None
        self._accepted: Accepted | None = None
        self._deliveries: deque[Delivery] = deque()
        self._bytes_since_resume = 0
        self._resumed_at_s = 0.0
        self._appended: deque[Appended] = deque()
        self._appended_at_s = 0.0
        self._looked_again = 0
        self._after = Hint(0, GENESIS)
        self._steps = self._rule_w()

    @property
    def join(self) -> JoinState | None:
        """The state of the join, None before step 2 has made it."""
        return self._join

    @property
    def letter_bytes(self) -> int:
        """Memory of dead letters that are not in their topic yet, about, bytes."""
        return self._letters.nbytes

    @property
    def done(self) -> bool:
        """Whether the last tick that was to be made is in the log, as its mark or in that of another joiner."""
        until_tick, attempt = self._plan.until_tick, self._attempt
        return until_tick is not None and attempt is not None and attempt.durable.last_tick >= until_tick

    @property
    def appending_since_s(self) -> float:
        """When the oldest tick that is not acknowledged was appended, by the monotonic clock; infinity for none."""
        return self._appended[0].at_s if self._appended and self._attempt is not None else float("inf")

    def turn(self) -> bool:
        """Do the next piece of work; False if there was nothing to do."""
        return next(self._steps)

    def deliver(self, delivery: Delivery) -> None:
        """Take what became of a record that this partition appended."""
        self._deliveries.append(delivery)

    def settle(self) -> None:
        """Note what was acknowledged, without waiting or reading on: for the last commit before the end."""
        attempt = self._attempt
        while attempt is not None and self._deliveries:
            delivery = self._deliveries.popleft()
            _, of, letter_bytes = delivery.tag
            if of is not attempt or letter_bytes is not None:
                continue
            if delivery.error is not None or attempt.acknowledged(delivery.offset) is Ack.FOREIGN:
                return
            self._note_durable(attempt)

    def close(self) -> None:
        """Drop the attempt and give the consumers back. What is still in flight is for rule R to judge."""
        self._steps.close()
        self._drop_attempt()
        self._tail.close()

    def _rule_w(self) -> Generator[bool, None, None]:
        while True:
            began_s = self._plan.clock_s()
            try:
                # Step 1: find the last resume point, and read on to the high watermark by rule R.
                yield from self._find_accepted()
                # Step 2: read both inputs from the resume point; make the ticks again; emit nothing.
                join = yield from self._make_again()
                # Step 3: begin an attempt.
                self._begin_attempt()
                self.progress.recovery_s.append(self._plan.clock_s() - began_s)
                # Steps 4 and 5: append tick after tick; watch the offsets that are acknowledged.
                yield from self._append_ticks(join)
            except (_Dropped, RetryLater) as error:
                # Step 6: anything unusual drops the attempt; the partition is still owned, so back to step 1.
                dropped = error if isinstance(error, _Dropped) else _Dropped
                self.progress.lost[dropped.cause] += 1
                self._log.warning("attempt_dropped", reason=str(error))
                self._drop_attempt()
                yield from self._rest(dropped.rest_s)

    def _rest(self, seconds: float) -> Generator[bool, None, None]:
        until = self._plan.clock_s() + seconds
        while self._plan.clock_s() < until:
            yield False

    # Step 1

    def _find_accepted(self) -> Generator[bool, None, None]:
        try:
            for accepted in self._tail.find(self.progress.hint):
                self._accepted = accepted
                yield True
        except LogTrimmed as error:
            self._look_again(error)
        self._looked_again = 0
        self._tail.close()
        self._check_topics()

    def _look_again(self, error: LogTrimmed) -> NoReturn:
        """Drop the attempt; raise the error itself once the log has been looked at often enough.

        The end that a broker tells may be an old one, short of the resume points; and retention may take records
        between the question where the log begins and the reading of it. Neither is a reason to stop for good.
        """
        self._tail.close()
        if self._looked_again == LOOK_AGAIN:
            raise error
        self._looked_again += 1
        raise _Dropped(f"looked at again: {error}") from error

    def _check_topics(self) -> None:
        """The resume point must be of these very topics, with these very settings."""
        mark = self._known.resume
        if mark is None or mark.resume is None:
            return
        point, plan = mark.resume, self._plan
        where = f"{plan.log_topic} partition {self.partition}"
        if point.rules != RULES:
            raise InputsChanged(
                f"{where} was made by an earlier version, whose rules of the join (before log time took agreement) "
                "make other examples"
            )
        differing = self._differing_settings(mark, point)
        if differing:
            raise InputsChanged(f"{where} was made with other settings of {', '.join(differing)}")
        if point.partitions != plan.partitions:
            raise InputsChanged(
                f"{where} was made from {count_of(point.partitions, 'partition')}, now there are {plan.partitions}",
                action=GO_ON_GROWN if point.partitions < plan.partitions else ANOTHER_NAME,
            )
        pairs = (
            (plan.inputs.impressions_topic, point.impression_topic_id, plan.impression_topic_id),
            (plan.inputs.clicks_topic, point.click_topic_id, plan.click_topic_id),
        )
        for topic, then, now in pairs:
            if then != now:
                raise TopicRecreated(f"{topic} is not the topic that {where} was made from: its id has changed")

    def _differing_settings(self, mark: Mark, point: ResumePoint) -> list[str]:
        """The sections whose settings are not those that the examples of the log were made with."""
        plan, inputs = self._plan, self._plan.inputs
        impressions = inputs.impression_decoder
        sections = (
            (JOIN_SETTINGS, point.join_fingerprint, plan.spec.fingerprint),
            ("input.impressions" + EVENT_SETTINGS, point.impressions_fingerprint, impressions.events.fingerprint),
            ("input.clicks" + EVENT_SETTINGS, point.clicks_fingerprint, inputs.click_decoder.events.fingerprint),
            ("features", mark.features, impressions.features.fingerprint),
        )
        return [section for section, then, now in sections if then != now]

    @property
    def _known(self) -> Accepted:
        assert self._accepted is not None  # step 1 has ended
        return self._accepted

    # Step 2

    def _make_again(self) -> Generator[bool, None, JoinState]:
        known = self._known
        if known.resume is None:
            yield from self._check_origin()
        join = self._fresh_join() if known.resume is None else self._resumed_join(known.resume)
        self._join = join
        self._letters = self._new_letters(join)
        inputs = Inputs(self._plan.inputs, self.partition, join, self._buffer_bytes, self._letters)
        self._inputs = inputs
        try:
            while not join.rebuilt:
                yield self._read_towards(join, inputs, join.next_impression, join.click_cursor)
            for mark in known.since:
                yield from self._make_tick_again(join, inputs, mark)
        except WrongResume as error:
            where = f"{self._plan.log_topic} partition {self.partition}"
            raise InputsChanged(f"{where} cannot be gone on with: {error}", action=RECORDS_GONE) from error
        self._log.info(
            "partition_resumed" if known.marks else "partition_begun",
            tick=join.next_tick,
            impressions_offset=join.next_impression,
            clicks_offset=join.click_cursor,
            marks_made_again=len(known.since),
        )
        return join

    def _check_origin(self) -> Generator[bool, None, None]:
        """A partition that was added to a log that has begun must not be begun as that of a new log."""
        plan = self._plan
        try:
            count = yield from plan.origin.find()
        except LogTrimmed as error:  # retention took records between the question where the log begins and the reading
            raise _Dropped(f"looked at again: {error}") from error
        if count in (None, plan.partitions):
            return
        began = f"the log began with {count_of(count, 'partition')}, now there are {plan.partitions}"
        raise InputsChanged(
            f"{plan.log_topic} partition {self.partition} holds no mark, and {began}", action=GO_ON_GROWN
        )

    def _fresh_join(self) -> JoinState:
        plan, start = self._plan, self._plan.start
        if self._known.since:
            first = self._known.since[0]
            raise InputsChanged(
                f"{plan.log_topic} partition {self.partition} begins with tick {first.first_tick} "
                "and without a resume point: it was not written by this program"
            )
        beginning = start.of(plan.inputs.impressions_topic, plan.inputs.clicks_topic, self.partition)
        beginning.say(self._log)
        return JoinState(
            plan.spec,
            impression_start=beginning.impression,
            click_start=beginning.click,
            until_tick=plan.until_tick,
        )

    def _resumed_join(self, mark: Mark) -> JoinState:
        return JoinState.resume(self._plan.spec, mark, until_tick=self._plan.until_tick)

    def _new_letters(self, join: JoinState) -> DeadLetters:
        """No letter yet: none is needed for what the accepted marks have counted."""
        known, inputs = self._known, self._plan.inputs
        impressions, clicks = join.next_impression, join.click_cursor
        if known.since:
            impressions, clicks = known.since[-1].next_impression, known.since[-1].click_cursor
        limit_bytes = min(max(self._buffer_bytes // 4, 1 << 20), LETTERS_ON_THEIR_WAY_BYTES)
        return DeadLetters({inputs.impressions_topic: impressions, inputs.clicks_topic: clicks}, limit_bytes)

    def _make_tick_again(self, join: JoinState, inputs: Inputs, mark: Mark) -> Generator[bool, None, None]:
        """Make a tick of an accepted mark once more and compare; what it holds is in the log already."""
        cut = Cut(mark.first_tick, mark.last_tick, mark.next_impression, mark.click_cursor)
        while not join.covers(cut):
            yield self._read_towards(join, inputs, cut.next_impression, cut.click_cursor)
        output = join.emit(cut, self._rows)
        if (output.counts, output.first_click) != (mark.counts, mark.first_click):
            raise InputsChanged(
                f"the ticks {mark.first_tick} to {mark.last_tick} of {self._plan.log_topic} partition "
                f"{self.partition} cannot be made again: the log counts {mark.counts}, the inputs now give "
                f"{output.counts}",
                action=RECORDS_GONE,
            )

    def _read_towards(self, join: JoinState, inputs: Inputs, next_impression: int, click_cursor: int) -> bool:
        came = False
        if join.next_click_to_read < click_cursor:
            came |= inputs.read_clicks()
        if join.next_impression_to_read < next_impression:
            came |= inputs.read_impressions()
        return came

    # Step 3

    def _begin_attempt(self) -> None:
        known = self._known
        self._deliveries.clear()
        self._resumed_at_s = 0.0 if known.resume is None else self._plan.clock_s()
        self._bytes_since_resume = 0
        self.progress.attempts += 1
        self.progress.hint = known.hint or self.progress.hint
        self._appended.clear()
        self._after = known.after
        self._attempt = Attempt(
            self.partition,
            self._plan.new_attempt_id(),
            known.last,
            known.position,
            max_bytes=self._plan.record_bytes,
            features=self._plan.inputs.impression_decoder.features.fingerprint,
            scratch=self._scratch,
        )

    # Steps 4 and 5

    def _append_ticks(self, join: JoinState) -> Generator[bool, None, None]:
        assert self._attempt is not None and self._inputs is not None
        attempt, inputs = self._attempt, self._inputs
        while True:
            yield from self._take_deliveries(attempt)
            if join.ended:
                yield False
                continue
            click_idle, impression_idle = inputs.idle_ms(self._plan.ends.snapshot)
            came = inputs.read(click_idle_ms=click_idle)
            self._append_dead_letters()
            if inputs.too_many is not None:
                yield from self._refuse_bad_records(inputs, *inputs.too_many)
                continue
            made = False
            while attempt.outstanding < MAX_OUTSTANDING:
                alone = not came or self._silent_s() > EMPTY_AFTER_S
                cut = join.next_cut(click_idle, impression_idle, allow_empty=alone)
                if cut is None:
                    break
                yield from self._wait_for_dead_letters()
                self._append(attempt, join, join.emit(cut, self._rows))
                made = True
            yield came or made

    def _silent_s(self) -> float:
        return self._plan.clock_s() - self._appended_at_s

    def _append_dead_letters(self) -> None:
        """Hand over letters of what was read, as many as may be on their way."""
        while (letter := self._letters.hand_over()) is not None:
            self._append_dead_letter(letter)

    def _wait_for_dead_letters(self) -> Generator[bool, None, None]:
        """Until the letters of all that was read are there: no tick may be appended that counts a record before."""
        while not self._letters.are_there:
            yield False
            yield from self._take_deliveries(self._attempt)
            self._append_dead_letters()

    def _refuse_bad_records(self, inputs: Inputs, topic: str, error: Stop) -> Generator[bool, None, None]:
        """Stop, with the letters where the message says; or go on, where the newest records are right again."""
        plan = self._plan
        right_from = yield from right_again(
            plan.inputs, plan.queries, topic, plan.partitions, self.partition, inputs.position(topic)
        )
        if right_from is None:
            yield from self._wait_for_dead_letters()
            raise error
        offset = right_from[self.partition]
        self._log.warning("bad_records_passed", topic=topic, right_from_offset=offset, reason=str(error))
        plan.inputs.bad_share.excuse(topic, right_from)
        inputs.too_many = None

    def _append_dead_letter(self, letter: DeadLetter) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("topic", letter.topic),
            ("partition", str(letter.partition)),
            ("offset", str(letter.offset)),
            ("time_ms", str(letter.time_ms)),
            ("reason", letter.reason),
        ]
        value = letter.value
        if value is not None and len(value) > self._plan.letter_bytes:
            headers.append(("value_bytes", str(len(value))))
            value = value[: self._plan.letter_bytes]
        self._plan.appender.append(
            self._plan.dead_letters_topic,
            -1,
            value,
            key=f"{letter.topic}/{letter.partition}/{letter.offset}".encode(),
            headers=headers,
            tag=(self, self._attempt, letter.nbytes),
        )

    def _append(self, attempt: Attempt, join: JoinState, output: TickOutput) -> None:
        resume = self._resume_point(join)
        cut = output.cut
        records = attempt.stamp(
            output.examples,
            first_tick=cut.first_tick,
            last_tick=cut.last_tick,
            next_impression=cut.next_impression,
            first_click=output.first_click,
            click_cursor=cut.click_cursor,
            counts=output.counts,
            resume=resume,
        )
        for value in records:
            self._plan.appender.append(self._plan.log_topic, self.partition, value, tag=(self, attempt, None))
        size = sum(map(len, records))
        self._bytes_since_resume += size
        self.progress.log_bytes += size
        self._appended_at_s = self._plan.clock_s()
        before = self._appended[-1].id if self._appended else attempt.durable
        mark = MarkId(attempt.id, cut.last_tick)
        self._appended.append(Appended(self._appended_at_s, mark, before, cut, output.counts, resume is not None))

    def _resume_point(self, join: JoinState) -> ResumePoint | None:
        """A resume point, where it costs little or the last one is too old."""
        cheap = join.resume_bytes < RESUME_SHARE * self._bytes_since_resume
        if not cheap and self._plan.clock_s() - self._resumed_at_s < self._plan.resume_within_s and self._resumed_at_s:
            return None
        self._resumed_at_s = self._plan.clock_s()
        self._bytes_since_resume = 0
        plan = self._plan
        inputs = InputIdentity(
            plan.impression_topic_id,
            plan.click_topic_id,
            plan.partitions,
            plan.inputs.impression_decoder.events.fingerprint,
            plan.inputs.click_decoder.events.fingerprint,
        )
        return join.resume_point(inputs)

    def _take_deliveries(self, attempt: Attempt | None) -> Generator[bool, None, None]:
        """Watch what comes back. An error drops the attempt; a foreign offset means that somebody else wrote."""
        while self._deliveries:
            delivery = self._deliveries.popleft()
            _, of, letter_bytes = delivery.tag
            if of is not attempt or attempt is None:
                continue
            _refuse_error(delivery)
            if letter_bytes is not None:
                self._letters.acknowledged(letter_bytes)
            else:
                if _is_foreign(attempt, delivery.offset):
                    yield from self._decide(attempt)
                self._note_durable(attempt)

    def _decide(self, attempt: Attempt) -> Generator[bool, None, None]:
        """Step 5: read on by rule R; still one's own mark: go on; another's: back to step 1."""
        known = self._known_to_stand(attempt)
        try:
            for _ in self._tail.read_on(known, attempt.expected_offset):
                yield True
        except LogTrimmed as error:
            self._look_again(error)
        self._tail.close()
        if attempt.decide(known.rule) is Verdict.BEGIN_AGAIN:
            raise _Lost(f"another joiner wrote tick {known.last.last_tick}")

    def _known_to_stand(self, attempt: Attempt) -> Accepted:
        """Where rule R goes on from: the attempt's last durable mark is accepted, so nothing before it need be read."""
        if attempt.durable_offset is not None:
            after = Hint(attempt.durable_offset + 1, attempt.durable)
            self._accepted = Accepted(RuleR(after.known, partition=self.partition), after.read_from, after=after)
        return self._known

    def _note_durable(self, attempt: Attempt) -> None:
        """Move the progress to the last durable mark, and the hint to the last durable resume point."""
        progress = self.progress
        while self._appended and self._appended[0].id.last_tick <= attempt.durable.last_tick:
            tick = self._appended.popleft()
            progress.note(tick, self._plan.clock_s())
            if tick.is_resume_point and tick.predecessor == self._after.known:
                progress.hint = self._after
            if tick.id == attempt.durable and attempt.durable_offset is not None:
                self._after = Hint(attempt.durable_offset + 1, tick.id)

    def _drop_attempt(self) -> None:
        self._attempt = self._join = None
        self._letters = DeadLetters({}, 0)
        if self._inputs is not None:
            self._inputs.close()
            self._inputs = None
