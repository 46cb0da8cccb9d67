"""The two inputs of one partition: read, decoded, and handed to its join.

`read` never reads further ahead than the join's buffer allows, nor while dead letters wait to be handed over. The end
of a partition is an answer of a broker (`EndWatch`), never a read that brought nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from stream_learner.adapters.kafka import (
    End,
    KafkaSettings,
    OffsetQueries,
    PartitionReader,
    RawBatch,
    Reader,
    TopicAndPartition,
)
from stream_learner.core.events.decoders import ClickDecoder, Clicks, ImpressionDecoder, Impressions, SchemaAwaited
from stream_learner.core.events.field_counts import FieldCounts
from stream_learner.core.events.reasons import Reason
from stream_learner.core.join.state import JoinState
from stream_learner.errors import LogTrimmed, RetryLater, TooManyBadRecords
from stream_learner.roles.common.lifecycle import monotonic_ms
from stream_learner.roles.joiner.bad_records import BadShare, DeadLetter, DeadLetters, first_at
from stream_learner.roles.joiner.click_silence import SilenceWatch
from stream_learner.roles.joiner.stream_clock import ClockRule, Remembered, StreamClock, TopicArrivals
from stream_learner.roles.joiner.ticks import BrokersClock, Stream

READ_RECORDS = 4_000
ARRIVES_WITHIN_MS = 30_000
"""What is read so long after the end of its partition was reached has arrived meanwhile."""
NEWEST_RECORDS = 200
"""The number of newest records that are looked at after too many bad ones, over all partitions; fewer than
`BAD_SHARE_RECORDS` decide nothing.
"""
MOST_PARTITIONS = 16
WAIT_S = 0.05
Decoded = TypeVar("Decoded", Impressions, Clicks)


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

    clock: the rule by which windows close by the clock; None where they do by log time alone. topics: the arrivals of
    both topics, over all partitions. brokers: the brokers' clock. clock_ms: the monotonic clock. rate_limit: of
    impressions; None for none. new_reader: opens a partition for its joiner, once. new_reader_beside: opens it a second
    time. silence: says when clicks are waited for; None where they never are. field_counts: counts the features of each
    field, over all partitions. on_bad_share: as the setting says.
    """

    settings: KafkaSettings
    impressions_topic: str
    clicks_topic: str
    impression_decoder: ImpressionDecoder
    click_decoder: ClickDecoder
    bad_share: BadShare
    clock: ClockRule | None
    rate_limit: RateLimit | None = None
    clock_ms: Callable[[], int] = monotonic_ms
    brokers: BrokersClock = field(default_factory=BrokersClock)
    topics: TopicArrivals | None = None
    silence: SilenceWatch | None = None
    field_counts: FieldCounts | None = None
    on_bad_share: str = "stop"
    new_reader: Callable[..., Reader] = PartitionReader
    new_reader_beside: Callable[..., Reader] = PartitionReader


class _Undecoded:
    """A reader that gives the same batch again until it was decoded. Its position is behind what was.

    awaits: why the batch cannot be decoded, "" if nothing is amiss.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._batch: RawBatch | None = None
        self.awaits = ""

    @property
    def position(self) -> int:
        """The offset of the next record to decode."""
        return self._reader.position if self._batch is None else int(self._batch.offsets[0])

    def close(self) -> None:
        """Give the reader back."""
        self._reader.close()

    def decoded(self, records: int, decode: Callable[..., Decoded]) -> tuple[RawBatch, Decoded] | None:
        """The next batch, decoded; None where none came, or its schemas are not known yet."""
        if self._batch is None:
            self._batch = self._reader.read(records)
        batch = self._batch
        if batch is None:
            return None
        try:
            found = batch, decode(batch.data, batch.bounds, batch.record_times_ms)
        except SchemaAwaited as error:
            self.awaits = str(error)
            return None
        self._batch, self.awaits = None, ""
        return found


class Inputs:
    """Reads both inputs of one partition for a join. Used by one thread.

    letters: takes the letters of dead records; None where nobody writes letters. Dead records before `letters.begin`
    get no letter and count for no share: they are read only to make the join's state again.
    too_many: the topic with more bad records than are allowed, and the error that says so; None without one. The join
    and `letters` hold these records. The caller stops with the error, reads nothing, or sets `too_many` to None and
    goes on. clock: that of this partition, None where windows close by log time alone. late_arrivals: the number of
    impressions that came after their windows were closed, and not too late for a label.
    """

    def __init__(
        self,
        plan: InputPlan,
        partition: int,
        join: JoinState,
        buffer_bytes: int,
        letters: DeadLetters | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        """remembered: what the clock of an earlier owner of the partition had learned."""
        self._plan = plan
        self._partition = partition
        self._join = join
        self._buffer_bytes = buffer_bytes
        self._impressions = _Undecoded(
            plan.new_reader(
                plan.settings, plan.impressions_topic, partition, join.next_impression_to_read, name="impressions"
            )
        )
        self._clicks = _Undecoded(
            plan.new_reader(plan.settings, plan.clicks_topic, partition, join.next_click_to_read, name="clicks")
        )
        self.clock: StreamClock | None = None
        if plan.clock is not None:
            topics = plan.topics or TopicArrivals.none_yet(plan.clock)
            self.clock = StreamClock(plan.clock, topics, plan.clock_ms(), remembered)
        self._impressions_end_at = self._clicks_end_at = -ARRIVES_WITHIN_MS - 1
        self._readable_from: int | None = None
        self._at_end_at = -ARRIVES_WITHIN_MS - 1
        self.late_arrivals = 0
        self._letters = letters
        self.too_many: tuple[str, TooManyBadRecords] | None = None

    def read(self, stream: Stream) -> bool:
        """Read once from each input that the join wants; returns whether anything came.

        Reads nothing while letters wait to be handed over. Where brokers do not answer, nothing came.
        """
        came = False
        if self._letters is not None and self._letters.wait:
            return came
        with suppress(RetryLater):
            if self._readable_from is not None or self._join.wants_clicks(self._buffer_bytes):
                came |= self.read_clicks()
            to_end = self.clock is not None and stream.clicks_at_end
            if self._join.wants_impressions(self._buffer_bytes, stream.clicks_ms, to_end=to_end):
                came |= self.read_impressions()
        return came

    def read_clicks(self) -> bool:
        """Read clicks once and add them to the join; returns whether any came."""
        found = self._clicks.decoded(READ_RECORDS, self._plan.click_decoder.decode)
        if found is not None:
            batch, clicks = found
            self._note_dead(self._plan.clicks_topic, batch, clicks.status, self._plan.click_decoder.words)
            self._join.add_clicks(batch.offsets, clicks)
            self._note_clicks(clicks)
        self._join.set_click_position(self._clicks.position)
        return found is not None

    def read_impressions(self) -> bool:
        """Read impressions once, as many as the rate allows, and add them to the join; returns whether any came."""
        limit = self._plan.rate_limit
        allowed = READ_RECORDS if limit is None else limit.allowed(time.monotonic())
        if not allowed:
            return False
        found = self._impressions.decoded(allowed, self._plan.impression_decoder.decode)
        if found is not None:
            batch, impressions = found
            if limit is not None:
                limit.took(len(batch.offsets))
            words = self._plan.impression_decoder.words
            self._note_dead(self._plan.impressions_topic, batch, impressions.status, words)
            self._join.add_impressions(batch.offsets, impressions)
            if self._plan.field_counts is not None:
                events = impressions.as_json or (batch.data, batch.bounds)
                self._plan.field_counts.note(*events, impressions.row_start, impressions.keys)
            self._note_impressions(impressions)
        self._join.set_impression_position(self._impressions.position)
        return found is not None

    @property
    def awaits(self) -> str:
        """Why records that were read cannot be decoded yet; "" where nothing is amiss."""
        sides = ((self._plan.impressions_topic, self._impressions), (self._plan.clicks_topic, self._clicks))
        return "; ".join(f"{topic} waits for a schema: {side.awaits}" for topic, side in sides if side.awaits)

    def _note_clicks(self, clicks: Clicks) -> None:
        if self.clock is not None:
            usable = clicks.status == 0
            m, times_ms = self._plan.clock_ms(), clicks.time_ms[usable]
            if self._plan.silence is not None:
                self._plan.silence.note_read(self._partition, times_ms, clicks=True)
                self._plan.silence.note_usable(self._partition, usable)
            arrived = m - self._clicks_end_at <= ARRIVES_WITHIN_MS
            self.clock.note_clicks(
                times_ms, m, self._plan.brokers.base, arrived=arrived, closed_ms=self._join.closed_ms
            )

    def _note_impressions(self, impressions: Impressions) -> None:
        if self.clock is None:
            return
        m, join = self._plan.clock_ms(), self._join
        arrived = m - self._impressions_end_at <= ARRIVES_WITHIN_MS
        times_ms = impressions.time_ms[impressions.status == 0]
        if self._plan.silence is not None:
            self._plan.silence.note_read(self._partition, times_ms)
        base, closed_ms, spec = self._plan.brokers.base, join.closed_ms, join.spec
        self.clock.note_impressions(times_ms, join.impression_log_time, m, base, arrived=arrived, closed_ms=closed_ms)
        if arrived:
            behind_ms = closed_ms - spec.window_ms - times_ms
            self.late_arrivals += int(np.count_nonzero((behind_ms > 0) & (behind_ms <= spec.lateness_ms)))

    def clicks_unreadable_before(self, offset: int) -> None:
        """Clicks before this offset could not be read: no window closes until one after it is, and impressions up to
        its time are late.
        """
        self._readable_from = offset

    def _waits_for_readable_clicks(self) -> bool:
        if self._readable_from is None:
            return False
        join = self._join
        first_ms = join.earliest_click_ahead(self._readable_from)
        if first_ms is None:
            return True
        join.labels_from_ms = max(join.labels_from_ms, first_ms + join.spec.skew_ms)
        self._readable_from = None
        return False

    def look(self, ends: Mapping[TopicAndPartition, End]) -> Stream:
        """Where the stream is, as the brokers told the ends of both inputs, and as far as both have been read."""
        plan, join, clock = self._plan, self._join, self.clock
        shown, clicked = (ends.get((topic, self._partition)) for topic in (plan.impressions_topic, plan.clicks_topic))
        waits = self._waits_for_readable_clicks()
        if clock is None or shown is None or clicked is None:
            return Stream(plan.clock_ms(), waits=waits)
        m = min(shown.asked_at_ms, clicked.asked_at_ms)
        impressions_at_end = self._impressions.position >= shown.high_watermark
        clicks_at_end = self._clicks.position >= clicked.high_watermark
        if impressions_at_end:
            self._impressions_end_at = shown.asked_at_ms
        if clicks_at_end:
            self._clicks_end_at = clicked.asked_at_ms
        is_full = join.buffered_bytes >= self._buffer_bytes
        at_end = (clicks_at_end or is_full) and (impressions_at_end or (is_full and clicks_at_end))
        if at_end:
            self._at_end_at = m
            if plan.silence is not None:
                plan.silence.end_backlog(self._partition, m, join.impression_log_time)
        stream_ms = self._stream_ms(clock, m, impressions_at_end) if at_end else None
        clicks_ms, impressions_ms = (stream_ms if end else None for end in (clicks_at_end, impressions_at_end))
        return Stream(m, at_end, clicks_at_end, clicks_ms, impressions_ms, is_full, waits)

    def waits_ms(self, m: int) -> int:
        """For how long windows have waited at `m` because an input is silent, or clicks are; 0 while none waits, and
        while there is more to read.
        """
        clock, silence, base = self.clock, self._plan.silence, self._plan.brokers.base
        is_behind = m - self._at_end_at > ARRIVES_WITHIN_MS
        if clock is None or base is None or is_behind or not self._join.impressions_wait:
            return 0
        since = None if silence is None else silence.waits_since(self._partition)
        stood = clock.stood_at(m, base)
        return m - (max(stood, m - clock.rule.idle_after_ms) if since is None else min(stood, since))

    @property
    def awaits_click(self) -> bool:
        """Whether windows wait for the next click, however long that takes."""
        silence = self._plan.silence
        return silence is not None and silence.waits_since(self._partition) is not None

    def _stream_ms(self, clock: StreamClock, m: int, impressions_seen: bool) -> int | None:
        """S where both inputs have been read; None where only log time tells, or while the join is held."""
        base, silence = self._plan.brokers.base, self._plan.silence
        if base is None or (silence is not None and silence.is_held(self._partition)):
            return None
        waits_since = None if silence is None else silence.waits_since(self._partition)
        return clock.stream_ms(m, base, impressions_seen=impressions_seen, waits_since=waits_since)

    def _note_dead(
        self, topic: str, batch: RawBatch, status: np.ndarray, words: Callable[[bytes, Reason], str]
    ) -> None:
        """Make letters for the dead records of a batch that no mark has counted, and count them for the share.

        words: why a record could not be used.
        """
        letters = self._letters
        if letters is None:
            return
        new, why = first_at(batch.offsets, letters.begin[topic]), ""
        for i in (status[new:].nonzero()[0] + new).tolist():
            offset, time_ms = int(batch.offsets[i]), int(batch.record_times_ms[i])
            value = batch.values[i]
            why = words(value or b"", Reason(status[i]))
            letters.add(DeadLetter(topic, self._partition, offset, time_ms, value, why))
        try:
            self._plan.bad_share.note(topic, self._partition, batch.offsets[new:], status[new:], why)
        except TooManyBadRecords as error:
            self.too_many = self.too_many or (topic, error)

    def close(self) -> None:
        """Close both readers."""
        self._impressions.close()
        self._clicks.close()


def first_good_offsets(
    plan: InputPlan, queries: OffsetQueries, topic: str, partitions: int, partition: int
) -> Generator[bool, None, dict[int, int] | None]:
    """By partition, the offset from which on the records are good; None where they are not, or too few to tell.

    partitions: of the topic. partition: the one with too many bad records. Which of the newest the joiner
    has read already does not matter: it may have read all there are. Yields while it reads. Raises RetryLater.
    """
    places = [(topic, (partition + i) % partitions) for i in range(min(partitions, MOST_PARTITIONS))]
    ends, earliest = queries.last_stable_offsets(places), queries.earliest(places)
    each = NEWEST_RECORDS // len(places)
    begins = {place: max(ends[place] - each, earliest[place]) for place in places}
    bad = read = 0
    try:
        for place in places:
            of_place = yield from _count(plan, *place, begins[place], ends[place])
            bad, read = bad + of_place[0], read + of_place[1]
    except LogTrimmed:  # retention was quicker; the next bad record makes the joiner look again
        return None
    return {number: begin for (_, number), begin in begins.items()} if plan.bad_share.allows(bad, read) else None


def _count(plan: InputPlan, topic: str, partition: int, begin: int, end: int) -> Generator[bool, None, tuple[int, int]]:
    """The number of bad records from `begin` to before `end`, a stable offset, and the number of all."""
    decode = (plan.click_decoder if topic == plan.clicks_topic else plan.impression_decoder).decode
    bad = read = 0
    with plan.new_reader_beside(
        plan.settings, topic, partition, begin, buffer_bytes=1 << 20, name=f"newest-{partition}"
    ) as reader:
        while reader.position < end:
            batch = reader.read(NEWEST_RECORDS, WAIT_S)
            while batch is not None:
                try:
                    status = decode(batch.data, batch.bounds, batch.record_times_ms).status
                except SchemaAwaited:
                    yield False
                else:
                    bad, read = bad + int(np.count_nonzero(status)), read + len(status)
                    break
            yield True
    return bad, read
