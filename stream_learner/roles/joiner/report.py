"""The metrics of a joiner's partitions, and two watches over all of them: clocks that are ahead, clicks without
impressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import NamedTuple

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, TickCounts
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.progress import Progress
from stream_learner.roles.joiner.stream_report import PARTITION_GAUGES

HARDLY_ANY = 0.01
"""The share of clicks that may match by chance."""
_IMPRESSIONS = attrgetter(*(f"impressions.{f.name}" for f in fields(ImpressionCounts)))
_CLICKS = attrgetter(*(f"clicks.{f.name}" for f in fields(ClickCounts)))


class PartitionView(NamedTuple):
    """How far a partition has come.

    next_tick: the first tick that is not made, -1 while the partition is being begun. impressions: how many durable
    marks have counted since the partition was begun here. impression_log_time_ms, click_log_time_ms: how far the inputs
    have been read; -1 before the first record, and while the partition is being begun.
    """

    partition: int
    next_tick: int
    impressions: int
    impression_log_time_ms: int
    click_log_time_ms: int


def view_of(joiner: PartitionJoiner) -> PartitionView:
    """How far a partition has come; may be asked from any thread."""
    join, impressions = joiner.join, joiner.progress.impressions
    if join is None:
        return PartitionView(joiner.partition, -1, impressions, -1, -1)
    return PartitionView(joiner.partition, join.next_tick, impressions, join.impression_log_time, join.click_log_time)


def report_partitions(metrics: Metrics, joiners: Sequence[PartitionJoiner], now_ms: int, tick_ms: int) -> None:
    """Report what has become durable in these partitions since the last call."""
    progresses = [joiner.progress for joiner in joiners]
    unreported = [counts for progress in progresses for counts in progress.unreported]
    if unreported:
        _report_counts(metrics, _sum(unreported))
    metrics.inc(names.JOINER_MARKS, len(unreported))
    for metric, name in (
        (names.JOINER_TICKS, "ticks"),
        (names.JOINER_ATTEMPTS, "attempts"),
        (names.JOINER_RESUME_POINTS, "resume_points"),
        (names.JOINER_LOG_BYTES, "log_bytes"),
    ):
        metrics.inc(metric, sum(getattr(progress, name) for progress in progresses))
        for progress in progresses:
            setattr(progress, name, 0)
    for progress in progresses:
        progress.unreported.clear()
        _report_durations(metrics, progress)
    for joiner in joiners:
        _report_place(metrics, joiner)
        lag_s = lag_beyond_window_s(joiner, now_ms, tick_ms)
        if lag_s is not None:
            metrics.set(names.JOINER_LAG, lag_s, partition=str(joiner.partition))


def _report_durations(metrics: Metrics, progress: Progress) -> None:
    """Report how long things took, and which attempts were lost."""
    for reason, times in progress.lost.items():
        metrics.inc(names.JOINER_ATTEMPTS_LOST, times, reason=reason)
    progress.lost.clear()
    for metric, durations in ((names.JOINER_APPEND, progress.append_s), (names.JOINER_RECOVERY, progress.recovery_s)):
        for seconds in durations:
            metrics.observe(metric, seconds)
        durations.clear()


def lag_beyond_window_s(joiner: PartitionJoiner, now_ms: int, tick_ms: int) -> float | None:
    """How far the windows that a partition has closed lie behind the clock; None where it has closed none."""
    last = joiner.progress.last
    return None if last is None or last.last_tick <= 0 else max(now_ms - (last.last_tick + 1) * tick_ms, 0) / 1000


def forget_partition(metrics: Metrics, partition: int) -> None:
    """Remove the gauges of a partition that is not joined here any more."""
    for of in ("impressions", "clicks", "log"):
        metrics.forget(names.JOINER_HEADROOM, of=of, partition=str(partition))
    for metric in (names.JOINER_LAG, names.JOINER_LOG_TIME, *PARTITION_GAUGES):
        for labels in ({"input": "impressions"}, {"input": "clicks"}) if metric is names.JOINER_LOG_TIME else ({},):
            metrics.forget(metric, partition=str(partition), **labels)


def _report_place(metrics: Metrics, joiner: PartitionJoiner) -> None:
    """How far the inputs of a partition have been read."""
    if joiner.join is None:
        return
    for side, log_time_ms in (
        ("impressions", joiner.join.impression_log_time),
        ("clicks", joiner.join.click_log_time),
    ):
        if log_time_ms >= 0:
            metrics.set(names.JOINER_LOG_TIME, log_time_ms / 1000, input=side, partition=str(joiner.partition))


def _sum(marks: Sequence[TickCounts]) -> TickCounts:
    """The counts of many marks as one: a joiner that catches up makes thousands a second. `waiting` has no meaning."""
    impressions = ImpressionCounts(*map(sum, zip(*map(_IMPRESSIONS, marks), strict=True)))
    return TickCounts(impressions, ClickCounts(*map(sum, zip(*map(_CLICKS, marks), strict=True))))


def _report_counts(metrics: Metrics, counts: TickCounts) -> None:
    impressions, clicks = counts.impressions, counts.clicks
    metrics.inc(names.JOINER_READ, impressions.read, input="impressions")
    metrics.inc(names.JOINER_READ, clicks.read, input="clicks")
    metrics.inc(names.JOINER_POSITIVES, impressions.positives)
    for outcome, count in (
        ("example", impressions.examples),
        ("duplicate", impressions.duplicates),
        ("late", impressions.late),
        ("sampled_out", impressions.sampled_out),
        ("dead_lettered", impressions.dead),
    ):
        metrics.inc(names.JOINER_IMPRESSIONS, count, outcome=outcome)
    for outcome, count in (
        ("matched", clicks.matched),
        ("duplicate", clicks.duplicates),
        ("orphan", clicks.orphans),
        ("late", clicks.late),
        ("dead_lettered", clicks.dead),
    ):
        metrics.inc(names.JOINER_CLICKS, count, outcome=outcome)


class AheadWatch:
    """Notices when log time is ahead of the clock: then enough producers have wrong clocks to agree on it."""

    WORTH_A_WORD_MS = 10_000

    def __init__(self) -> None:
        self._said: set[str] = set()

    def look(self, joiners: Iterable[PartitionJoiner], now_ms: int, metrics: Metrics, log: Logger) -> None:
        """Report how far the log time of each input is ahead of the clock; log it when that begins or ends, with the
        furthest partition.
        """
        joins = {joiner.partition: joiner.join for joiner in joiners if joiner.join is not None}
        for side in ("impressions", "clicks"):
            log_times = {
                p: join.impression_log_time if side == "impressions" else join.click_log_time
                for p, join in joins.items()
            }
            furthest = max(log_times, key=lambda p: log_times[p], default=-1)
            ahead_ms = max(log_times.get(furthest, 0) - now_ms, 0)
            metrics.set(names.JOINER_LOG_TIME_AHEAD, ahead_ms / 1000, input=side)
            begins = self.note(side, ahead_ms)
            if begins is not None:
                say, event = (log.warning, "log_time_ahead") if begins else (log.info, "log_time_ahead_no_more")
                say(event, input=side, partition=furthest, seconds=round(ahead_ms / 1000, 1))

    def note(self, side: str, ahead_ms: int) -> bool | None:
        """Take how far the log time of an input is ahead. Returns True when it should be logged that log time is ahead,
        False when it should be logged that it is so no more, else None.
        """
        if ahead_ms > self.WORTH_A_WORD_MS and side not in self._said:
            self._said.add(side)
            return True
        if ahead_ms <= 0 and side in self._said:
            self._said.discard(side)
            return False
        return None


class OrphanShare:
    """Notices when most clicks find no impression, over all partitions of a joiner."""

    LIMIT = 0.5
    LEAST_CLICKS = 1_000

    def __init__(self) -> None:
        self._clicks = self._orphans = 0

    def note(self, counts: TickCounts) -> float | None:
        """Count clicks whose outcome is known. Returns the share of matched ones where that is too small, else None.

        It is judged, and counted anew, after every `LEAST_CLICKS` clicks.
        """
        clicks = counts.clicks
        self._clicks += clicks.matched + clicks.orphans
        self._orphans += clicks.orphans
        if self._clicks < self.LEAST_CLICKS:
            return None
        share = 1 - self._orphans / self._clicks
        self._clicks = self._orphans = 0
        return share if share < 1 - self.LIMIT else None


def likely_causes(matched_share: float, partitions: int) -> str:
    """The likely causes why few clicks find their impression, by the share that does. partitions: of each input."""
    if partitions > 1 and 0.5 < matched_share * partitions < 1.5:
        return (
            f"about one click in {partitions}, the number of partitions, finds its impression, as when the producers "
            "of the two topics use different partitioners: Java's default is murmur2, librdkafka's is CRC32"
        )
    if matched_share < HARDLY_ANY:
        return (
            "hardly any click finds an impression with its id: other ids in the two topics, topics not keyed by id, "
            "times in another unit than input.time_unit, or impressions that are gone or came before the model began"
        )
    return (
        "most clicks find no impression with their id in their partition: clicks later than join.window, impressions "
        "that are gone or came before the model began, or one producer of several with other ids or partitioner"
    )
