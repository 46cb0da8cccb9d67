"""The beginning of a training log: with how many partitions it began, at which offsets of the inputs a partition
begins, whether it may begin again, and the mark with which it does.

*With how many it began*, as its first mark in sight tells it. A partition without a mark is begun as new only where the
log began with as many partitions as there are: an example of a partition that was added must not belong to a tick that
may be folded already. Partitions are added behind the others, so the first partition that has a mark has been there
longest, and its first mark tells. Where retention has taken that mark nothing tells, and a partition may be begun that
should not have been; the learner then stops (`roles.learner.log_follower`).

*The offsets* go by `join.start`, and by the clicks that the topic holds. A partition never begins with impressions
whose clicks the topic has lost: all of them would count as not clicked.

*Whether a partition may begin again* with other settings. A log without an example has taught nothing, so nothing is
lost by it. It may where the partition itself holds no example at all, and where no other partition holds a first one
that was made with other settings: else that log would go on in parts with each. Where retention has taken the beginning
of a log nobody knows what it held, and it counts as one with examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    KafkaSettings,
    OffsetQueries,
    PartitionReader,
    Reader,
    TopicAndPartition,
)
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import resume_anew
from stream_learner.core.log.marks import InputIdentity, Mark, MarkId
from stream_learner.core.log.rule_r import RuleR
from stream_learner.roles.common.log_reader import RawRecords, accepted, marks, pieces
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.wording import moment_of

WAIT_S = 0.05
AGAIN_S = 1.0
"""What all partitions tell is asked again after this time: a joiner asks for each partition that it begins."""
LONG_MS = 86_400_000
"""Clicks that begin later than impressions by more than this, none deleted, were not collected before."""


class LogBeginning:
    """Looks at the beginning of a log; used by one thread.

    Its generators yield True after every piece of work, and raise DamagedLog, NewerFormat, LogTrimmed,
    BrokerUnreachable, RetryLater.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        queries: OffsetQueries,
        topic: str,
        partitions: int,
        *,
        new_reader: Callable[..., Reader] = PartitionReader,
        unusable: UnusableRecords | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """partitions: how many the log has now. unusable: as in `LogTail`, with `new_reader`."""
        self._unusable = unusable or UnusableRecords(settings, queries, new_reader=new_reader)
        self._settings, self._queries, self._topic = settings, queries, topic
        self._places = [(topic, partition) for partition in range(partitions)]
        self._new_reader = new_reader
        self._clock_s = clock_s
        self._began_with: int | None = None
        self._look_at_s = self._others_fit_until_s = float("-inf")

    def partitions(self) -> Generator[bool, None, int | None]:
        """The number of partitions that the log began with, None where it has not begun or nothing tells."""
        if self._began_with is None and self._clock_s() >= self._look_at_s:
            ends, earliest = self._queries.high_watermarks(self._places), self._queries.earliest(self._places)
            for place in self._places:
                self._began_with = yield from self._first_count(place[1], earliest[place], ends[place])
                if self._began_with is not None:
                    break
            self._look_at_s = self._clock_s() + AGAIN_S
        return self._began_with

    def wait_partitions(self) -> int | None:
        """The result of `partitions`, for callers that have nothing else to do meanwhile."""
        steps = self.partitions()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: int | None = end.value
                return found

    def may_begin_again(self, partition: int, fits: Callable[[Mark], bool]) -> Generator[bool, None, bool]:
        """Whether a partition may begin again with the settings of now. fits: whether a resume point was made with
        them.
        """
        may = yield from self._holds_none(partition, lambda mark: False)
        if not may or self._clock_s() < self._others_fit_until_s:
            return may
        for _, other in self._places:
            may = may and (other == partition or (yield from self._holds_none(other, fits)))
        if may:
            self._others_fit_until_s = self._clock_s() + AGAIN_S
        return may

    def _first_count(self, partition: int, start: int, end: int) -> Generator[bool, None, int | None]:
        """The number of partitions in the first resume point of a partition, None where it has none."""
        for piece in self._pieces(partition, start, end):
            found = marks((self._topic, partition), piece, unusable=self._unusable)
            count = next((mark.resume.partitions for _, mark in found if mark.resume is not None), None)
            yield True
            if count is not None:
                return count
        return None

    def _holds_none(self, partition: int, fits: Callable[[Mark], bool]) -> Generator[bool, None, bool]:
        """Whether a partition holds no example, or a first one after a resume point that fits."""
        place = (self._topic, partition)
        end, earliest = self._queries.high_watermarks([place])[place], self._queries.earliest([place])[place]
        if earliest > 0:
            return False
        rule, resume = RuleR(partition=partition), None
        for piece in self._pieces(partition, 0, end):
            for tick in accepted(rule, place, piece, self._unusable):
                resume = resume if tick.mark.resume is None else tick.mark
                if tick.mark.counts.impressions.examples:
                    return resume is not None and fits(resume)
            yield True
        return True

    def _pieces(self, partition: int, start: int, end: int) -> Iterator[RawRecords]:
        if start >= end:
            return
        with self._new_reader(
            self._settings, self._topic, partition, start, isolation=READ_UNCOMMITTED, name="log-beginning"
        ) as reader:
            yield from pieces(reader, end, wait_s=WAIT_S)


class StartOffsets(NamedTuple):
    """The first offset of each input. left_out: the number of offsets of impressions that are skipped for want of
    clicks. clicks_from_ms: the time of the first click held, -1 for none.
    """

    impression: int
    click: int
    left_out: int = 0
    clicks_from_ms: int = -1

    def say(self, log: Logger) -> None:
        """Log a warning if impressions are left out."""
        if self.left_out:
            log.warning(
                "impressions_left_out",
                offsets=self.left_out,
                clicks_since=moment_of(self.clicks_from_ms) if self.clicks_from_ms >= 0 else "none is left",
                note="the click topic reaches back less far than the impression topic: these impressions would all "
                "count as not clicked. Keep clicks at least as long as impressions",
            )


class StartRule:
    """`join.start`: `earliest`, `latest`, or a time in ms."""

    def __init__(self, queries: OffsetQueries, where: str | int) -> None:
        self._queries = queries
        self._where = where

    def of(
        self, impressions_topic: str, clicks_topic: str, partition: int, *, clicks_lost: bool = False
    ) -> StartOffsets:
        """The offsets at which a partition begins, as the brokers answer now.

        clicks_lost: whether clicks are known to be lost, although the topic lacks none at its beginning: it was made
        anew.
        """
        shown, clicked = (impressions_topic, partition), (clicks_topic, partition)
        impression, click = self._offset(shown), self._offset(clicked)
        if self._where == "latest":
            return StartOffsets(impression, click)
        times = self._queries.first_times([shown, clicked])
        begun_ms = max(times[shown], self._where) if isinstance(self._where, int) else times[shown]
        if self._has_clicks(clicked, begun_ms, times[clicked], clicks_lost):
            return StartOffsets(impression, click)
        first = max(impression, self._at_time(shown, times[clicked]))
        return StartOffsets(first, click, first - impression, times[clicked])

    def _has_clicks(self, clicked: TopicAndPartition, begun_ms: int, clicks_from_ms: int, lost: bool) -> bool:
        """Whether the topic holds the clicks for impressions of a time. clicks_from_ms: -1 where it holds none."""
        if 0 <= clicks_from_ms <= begun_ms:
            return True
        lost = lost or self._queries.earliest([clicked])[clicked] > 0
        return not lost and clicks_from_ms - begun_ms <= LONG_MS

    def _offset(self, place: TopicAndPartition) -> int:
        if self._where == "earliest":
            return self._queries.earliest([place])[place]
        return self._at_time(place, self._where if isinstance(self._where, int) else -1)

    def _at_time(self, place: TopicAndPartition, time_ms: int) -> int:
        """The first offset at or after a time; the end of the partition where no record is so late, and for -1."""
        found = self._queries.at_time([place], time_ms)[place] if time_ms >= 0 else -1
        return found if found >= 0 else self._queries.high_watermarks([place])[place]


def mark_anew(
    partition: int,
    attempt: int,
    after: MarkId,
    *,
    last_tick: int,
    stream_tick: int,
    impressions_from: int,
    clicks_from: int,
    spec: JoinSpec,
    inputs: InputIdentity,
    features: int,
) -> Mark:
    """The mark with which a partition begins anew: of the ticks after the mark `after` up to `last_tick`, of an attempt
    that has no other.

    stream_tick: the last tick of stream time that is closed from now on; with -1 none is, as in a new log, and no
    impression is late. impressions_from, clicks_from: where both inputs go on (offsets). features: their fingerprint.
    """
    return Mark(
        partition=partition,
        attempt=attempt,
        first_tick=after.last_tick + 1,
        last_tick=last_tick,
        next_impression=impressions_from,
        first_click=clicks_from,
        click_cursor=clicks_from,
        records=0,
        pred_attempt=after.attempt,
        pred_tick=after.last_tick,
        resume=resume_anew(spec, stream_tick, inputs, dedupe_from=impressions_from),
        features=features,
        begins_anew=True,
        stream_tick=stream_tick,
    )
