"""The two inputs of one partition: read, decoded, and handed to its join.

`read` never reads further ahead than the join's buffer allows, nor while dead letters wait to be handed over. The end
of a partition is an answer of a broker (`EndWatch`), never a read that brought nothing.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from stream_learner.adapters.kafka import End, KafkaSettings, PartitionReader, RawBatch, Reader, TopicAndPartition
from stream_learner.core.events.decoders import ClickDecoder, Clicks, ImpressionDecoder, Impressions
from stream_learner.core.events.field_counts import FieldCounts
from stream_learner.core.events.reasons import Reason
from stream_learner.core.join.state import JoinState
from stream_learner.errors import RetryLater, TooManyBadRecords
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.joiner.dead_letters import DeadLetter, DeadLetters
from stream_learner.roles.joiner.partition_clock import ClockRule, PartitionClock, Votes
from stream_learner.roles.joiner.silence_watch import SilenceWatch
from stream_learner.wording import count_of

READ_RECORDS = 4_000
BAD_SHARE_RECORDS = 100
"""The share of bad records is not judged while fewer records than this have been read within a period."""


class BadShare:
    """The share of bad records of each input topic within the current period, over all partitions of a joiner.

    Each topic has a share of its own: where one impression in fifty is clicked, clicks that are all bad would hardly
    raise a common share.
    """

    def __init__(self, limit: float, period_ms: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._period_s = period_ms / 1000
        self._clock_s = clock_s
        self._until_s = self._look_at_s = 0.0
        self._read: Counter[str] = Counter()
        self._bad: defaultdict[str, Counter[Reason]] = defaultdict(Counter)
        self._let_pass: set[str] = set()
        self._excused: dict[tuple[str, int], int] = {}

    @property
    def share(self) -> float:
        """The larger of both topics' shares in the current period, 0.0 without records."""
        return max(map(self.share_of, self._read), default=0.0)

    def share_of(self, topic: str) -> float:
        """The share of a topic in the current period, 0.0 without records."""
        read = self._read[topic]
        return self._bad[topic].total() / read if read else 0.0

    def let_pass(self, topic: str) -> None:
        """Raise nothing more for this topic in the current period."""
        self._let_pass.add(topic)

    def note(self, topic: str, partition: int, offsets: np.ndarray, status: np.ndarray) -> None:
        """Count the records of a batch that are not excused. Raises TooManyBadRecords above the limit."""
        first = _first_at(offsets, self._excused.get((topic, partition), 0))
        offsets, status = offsets[first:], status[first:]
        if not len(status):
            return
        now_s = self._clock_s()
        if now_s > self._until_s:
            self._until_s = now_s + self._period_s
            self._read.clear()
            self._bad.clear()
            self._let_pass.clear()
        self._read[topic] += len(status)
        bad = status.nonzero()[0]
        if not len(bad):
            return
        self._bad[topic].update(Reason(code) for code in status[bad].tolist())
        read, found = self._read[topic], self._bad[topic]
        if topic not in self._let_pass and read >= BAD_SHARE_RECORDS and found.total() > self._limit * read:
            reasons = "; ".join(f"{count_of(count, 'time')} {reason.text}" for reason, count in found.most_common())
            raise TooManyBadRecords(
                f"{found.total()} of {count_of(read, 'record')} of {topic} read in the last {self._period_s:g} s "
                f"are bad ({reasons}), the latest in partition {partition} at offset {offsets[bad[-1]]} "
                f"({Reason(int(status[bad[-1]])).text}); join.max_bad_share allows {self._limit:.0%}"
            )

    def allows(self, bad: int, read: int) -> bool:
        """Whether a share of bad records is within the limit; False also where there are too few records to judge."""
        return read >= BAD_SHARE_RECORDS and bad <= self._limit * read

    def may_look(self) -> bool:
        """Whether a partition that is held may look at the newest records now: one of a joiner does each second."""
        now_s = self._clock_s()
        may = now_s >= self._look_at_s
        if may:
            self._look_at_s = now_s + 1.0
        return may

    def excuse(self, topic: str, before: Mapping[int, int]) -> None:
        """Begin a topic's share anew. before: by partition, the offset before which no record counts any more."""
        self._read.pop(topic, None)
        self._bad.pop(topic, None)
        self._excused.update({(topic, partition): offset for partition, offset in before.items()})


class RateLimit:
    """A token bucket: how many impressions a joiner may read now, all its partitions together.

    It fills with `per_s` tokens a second, up to those of `BURST_S`. It gives them out in pieces: so batches are not too
    small, and no partition takes all. The role begins each round of turns with another partition.
    """

    BURST_S = 0.2
    PIECES = 4

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._most = max(per_s * self.BURST_S, 1.0)
        self._piece = max(min(int(self._most) // self.PIECES, READ_RECORDS), 1)
        self._tokens = 0.0
        self._filled_s = now_s

    def allowed(self, now_s: float) -> int:
        """How many records may be read at once; `now_s` by a monotonic clock."""
        self._tokens = min(self._tokens + (now_s - self._filled_s) * self._per_s, self._most)
        self._filled_s = now_s
        return self._piece if self._tokens >= self._piece else 0

    def took(self, records: int) -> None:
        """Take the tokens of records that have been read."""
        self._tokens -= records


@dataclass(frozen=True)
class InputPlan:
    """The settings that the inputs of every partition of a joiner have in common.

    clock: by which rule the wall clock closes ticks; None where it closes none. rate_limit: of impressions; None for
    none. click_votes, impression_votes: whether the last records of each topic were live, over all partitions.
    new_reader: opens a partition for its joiner, once. new_reader_beside: opens it a second time. silence: says when
    the join is held; None where it never is. field_counts: counts the features of each field, over all partitions.
    on_bad_share: as the setting says.
    """

    settings: KafkaSettings
    impressions_topic: str
    clicks_topic: str
    impression_decoder: ImpressionDecoder
    click_decoder: ClickDecoder
    bad_share: BadShare
    clock: ClockRule | None
    rate_limit: RateLimit | None = None
    clock_ms: Callable[[], int] = wall_clock_ms
    impression_votes: Votes = field(default_factory=Votes)
    click_votes: Votes = field(default_factory=Votes)
    silence: SilenceWatch | None = None
    field_counts: FieldCounts | None = None
    on_bad_share: str = "stop"
    new_reader: Callable[..., Reader] = PartitionReader
    new_reader_beside: Callable[..., Reader] = PartitionReader


class Inputs:
    """Reads both inputs of one partition for a join. Used by one thread.

    letters: takes the letters of dead records; None where nobody writes letters. Dead records before `letters.begin`
    get no letter and count for no share: they are read only to make the join's state again.
    too_many: the topic with more bad records than are allowed, and the error that says so; None without one. The join
    and `letters` hold these records. The caller stops with the error, reads nothing, or sets `too_many` to None and
    goes on.
    """

    def __init__(
        self,
        plan: InputPlan,
        partition: int,
        join: JoinState,
        buffer_bytes: int,
        letters: DeadLetters | None = None,
    ) -> None:
        self._plan = plan
        self._partition = partition
        self._join = join
        self._buffer_bytes = buffer_bytes
        self._impressions = plan.new_reader(
            plan.settings, plan.impressions_topic, partition, join.next_impression_to_read, name="impressions"
        )
        self._clicks = plan.new_reader(
            plan.settings, plan.clicks_topic, partition, join.next_click_to_read, name="clicks"
        )
        rule, now_ms = plan.clock, plan.clock_ms()
        self._impression_clock = None if rule is None else PartitionClock(rule, now_ms, plan.impression_votes)
        self._held_until_ms = -1
        self._click_clock = None if rule is None else PartitionClock(rule, now_ms, plan.click_votes)
        self._letters = letters
        self.too_many: tuple[str, TooManyBadRecords] | None = None

    def read(self, *, click_idle_ms: int | None = None) -> bool:
        """Read once from each input that the join wants; returns whether anything came.

        Reads nothing while letters wait to be handed over. Where brokers do not answer, nothing came.
        """
        came = False
        if self._letters is not None and self._letters.wait:
            return came
        with suppress(RetryLater):
            if self._join.wants_clicks(self._buffer_bytes):
                came |= self.read_clicks()
            if self._join.wants_impressions(self._buffer_bytes, click_idle_ms):
                came |= self.read_impressions()
        return came

    def read_clicks(self) -> bool:
        """Read clicks once and add them to the join; returns whether any came."""
        batch = self._clicks.read(READ_RECORDS)
        if batch is not None:
            clicks = self._plan.click_decoder.decode(batch.data, batch.bounds, batch.record_times_ms)
            self._note_dead(self._plan.clicks_topic, batch, clicks.status)
            self._join.add_clicks(batch.offsets, clicks)
            self._note(self._click_clock, clicks, self._join.click_log_time)
        self._join.set_click_position(self._clicks.position)
        return batch is not None

    def read_impressions(self) -> bool:
        """Read impressions once, as many as the rate allows, and add them to the join; returns whether any came."""
        limit = self._plan.rate_limit
        allowed = READ_RECORDS if limit is None else limit.allowed(time.monotonic())
        if not allowed:
            return False
        batch = self._impressions.read(allowed)
        if batch is not None:
            if limit is not None:
                limit.took(len(batch.offsets))
            impressions = self._plan.impression_decoder.decode(batch.data, batch.bounds, batch.record_times_ms)
            self._note_dead(self._plan.impressions_topic, batch, impressions.status)
            self._join.add_impressions(batch.offsets, impressions)
            if self._plan.field_counts is not None:
                self._plan.field_counts.note(batch.data, batch.bounds, impressions.row_start, impressions.keys)
            self._note(self._impression_clock, impressions, self._join.impression_log_time)
        self._join.set_impression_position(self._impressions.position)
        return batch is not None

    def _note(self, clock: PartitionClock | None, events: Clicks | Impressions, log_time_ms: int) -> None:
        if clock is not None:
            clock.note(events.time_ms[events.status == 0], log_time_ms, self._plan.clock_ms())

    def idle_ms(self, ends: Mapping[TopicAndPartition, End]) -> tuple[int | None, int | None]:
        """Progress by the wall clock at the end of clicks and of impressions; None where the end is not reached.

        None for clicks too while they are silent and the join is held.
        """
        plan = self._plan
        clicks = None
        if not self._is_held():
            clicks = self._at_end(ends, plan.clicks_topic, self._clicks.position, self._click_clock)
        impressions = self._at_end(ends, plan.impressions_topic, self._impressions.position, self._impression_clock)
        return clicks, impressions

    def _is_held(self) -> bool:
        """Whether the join is held; lets the clock of the clicks go on slowly when that has ended."""
        silence, clock = self._plan.silence, self._click_clock
        if silence is None or clock is None:
            return False
        if silence.ended_ms > self._held_until_ms:
            self._held_until_ms = silence.ended_ms
            clock.let_go(silence.ended_ms)
        return silence.held

    def _at_end(
        self, ends: Mapping[TopicAndPartition, End], topic: str, position: int, clock: PartitionClock | None
    ) -> int | None:
        end = ends.get((topic, self._partition))
        if clock is None or end is None or position < end.high_watermark:
            return None
        return clock.progress(end.asked_at_ms, self._join.next_tick * self._join.spec.tick_ms)

    def _note_dead(self, topic: str, batch: RawBatch, status: np.ndarray) -> None:
        """Make letters for the dead records of a batch that no mark has counted, and count them for the share."""
        letters = self._letters
        if letters is None:
            return
        new = _first_at(batch.offsets, letters.begin[topic])
        for i in (status[new:].nonzero()[0] + new).tolist():
            offset, time_ms = int(batch.offsets[i]), int(batch.record_times_ms[i])
            reason = Reason(status[i]).text
            letters.add(DeadLetter(topic, self._partition, offset, time_ms, batch.values[i], reason))
        try:
            self._plan.bad_share.note(topic, self._partition, batch.offsets[new:], status[new:])
        except TooManyBadRecords as error:
            self.too_many = self.too_many or (topic, error)

    def close(self) -> None:
        """Close both readers."""
        self._impressions.close()
        self._clicks.close()


def _first_at(offsets: np.ndarray, offset: int) -> int:
    """The index of the first of ascending offsets that is not below `offset`; nearly always the first of all."""
    return 0 if len(offsets) and offsets[0] >= offset else int(np.searchsorted(offsets, offset))
