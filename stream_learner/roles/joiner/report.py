"""The metrics of a joiner's partitions, and of the fields of its impressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.field_counts import FieldCounts
from stream_learner.core.log.marks import CLICK_OUTCOMES, IMPRESSION_OUTCOMES, ClickCounts, ImpressionCounts, TickCounts
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.progress import Progress
from stream_learner.roles.joiner.watches import PARTITION_GAUGES

if TYPE_CHECKING:
    from stream_learner.config import Config

SHOWN_FIELDS = 20
LEAST_FEATURES = 100
"""Fields with fewer features are not shown: producers that make up names must not make up series."""
LEAST_SAMPLED = 4
"""Nor are those of which fewer features are in the sample: each of these may stand for thousands."""
LONGEST_NAME = 100


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
    unreported = [mark for progress in progresses for mark in progress.unreported]
    if unreported:
        _report_counts(metrics, _sum([counts for counts, _ in unreported]))
    for place, metric in enumerate((names.JOINER_EARLY_EXAMPLES, names.JOINER_EARLY_CLICKS)):
        metrics.inc(metric, sum(early[place] for _, early in unreported))
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
    impressions = ImpressionCounts(*map(sum, zip(*(mark.impressions for mark in marks), strict=True)))
    return TickCounts(impressions, ClickCounts(*map(sum, zip(*(mark.clicks for mark in marks), strict=True))))


def _report_counts(metrics: Metrics, counts: TickCounts) -> None:
    impressions, clicks = counts.impressions, counts.clicks
    metrics.inc(names.JOINER_READ, impressions.read, input="impressions")
    metrics.inc(names.JOINER_READ, clicks.read, input="clicks")
    metrics.inc(names.JOINER_POSITIVES, impressions.positives)
    for field, outcome in IMPRESSION_OUTCOMES.items():
        metrics.inc(names.JOINER_IMPRESSIONS, getattr(impressions, field), outcome=outcome)
    for field, outcome in CLICK_OUTCOMES.items():
        metrics.inc(names.JOINER_CLICKS, getattr(clicks, field), outcome=outcome)


class FieldReport:
    """Shows which fields give the most different features: so one finds the field that makes a model grow."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        impressions, _ = config.event_specs()
        self.counts = FieldCounts(impressions.impression_plan(config.feature_spec()))
        self._metrics = metrics
        self._shown: set[str] = set()

    def update(self) -> None:
        """Show the largest fields, and the features of all. To be called about once a second."""
        self.counts.catch_up()
        found, share = self.counts.counts(), self.counts.share
        least = max(LEAST_FEATURES, round(LEAST_SAMPLED * share))
        self._metrics.set(names.JOINER_FEATURES, sum(found.values()))
        largest = [(name, count) for name, count in found.items() if count >= least][:SHOWN_FIELDS]
        shown = {name[:LONGEST_NAME]: count for name, count in reversed(largest)}
        for name in self._shown - set(shown):
            self._metrics.forget(names.JOINER_FIELD_FEATURES, field=name)
        for name, count in shown.items():
            self._metrics.set(names.JOINER_FIELD_FEATURES, count, field=name)
        self._shown = set(shown)
