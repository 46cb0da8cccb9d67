"""Puts a learner's progress into the metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import TopicAndPartition
from stream_learner.adapters.machine import free_bytes_of
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.model.fold import Learner
from stream_learner.roles.learner.log_follower import LogFollower
from stream_learner.roles.learner.row_brake import largest_fields
from stream_learner.roles.learner.row_index import RowIndexFollower

if TYPE_CHECKING:
    from stream_learner.config import Config

_SLICE_FIGURES = (
    (names.LEARNER_LOG_LOSS, "log_loss"),
    (names.LEARNER_ENTROPY, "normalized_entropy"),
    (names.LEARNER_CALIBRATION, "calibration"),
    (names.LEARNER_AUC, "auc"),
)
_COUNTED = (
    "examples",
    "refused",
    "held_back",
    "field_held_back",
    "read_bytes",
    "ignored",
    "foreign",
    "left_out",
    "missed",
    "fetched",
    "evicted",
)


class LearnerReport:
    """The metrics of one learner. It remembers what it has counted already: counters take differences."""

    def __init__(self, metrics: Metrics, tick_ms: int) -> None:
        self._metrics = metrics
        self._tick_ms = tick_ms
        self._counted = dict.fromkeys(_COUNTED, 0)
        self._with_headroom: set[int] = set()
        self._shown_fields: set[str] = set()
        self._refused = self._told = 0
        self._log = get_logger("learner")

    def begin(self, learner: Learner) -> None:
        """Leave out what the learner folded before this process: counters are of the process."""
        self._counted.update(examples=learner.examples, refused=learner.refused, held_back=_held_back(learner))
        self._counted.update(field_held_back=_held_back_by_fields(learner))

    def update_row_index(self, row_index: RowIndexFollower | None) -> None:
        """Report how much of the model is in memory, and the index of the rest."""
        gauges = self._metrics.set
        gauges(names.LEARNER_MEMORY_BYTES, 0 if row_index is None else row_index.budget.total_bytes)
        if row_index is None:
            return
        gauges(names.LEARNER_MEMORY_ROWS, row_index.table.resident)
        gauges(names.LEARNER_INDEX_TICK, row_index.index_tick)
        for part, size in row_index.memory.items():
            gauges(names.LEARNER_ROCKSDB_BYTES, size, part=part)
        self._count(names.LEARNER_ROWS_MISSED, "missed", row_index.table.missed)
        self._count(names.LEARNER_ROWS_FETCHED, "fetched", row_index.table.fetched)
        self._count(names.LEARNER_ROWS_EVICTED, "evicted", row_index.table.evicted)

    def update_rows(self, learner: Learner, field_names: Mapping[int, str]) -> None:
        """Report the rows of fields, where they are counted. field_names: as of `largest_fields`."""
        gauges, fields = self._metrics.set, learner.field_rows
        self._count(names.LEARNER_FIELD_HELD_BACK, "field_held_back", _held_back_by_fields(learner))
        gauges(names.LEARNER_FIELD_LIMIT, 0 if fields is None else fields.most_rows)
        shown = {count.field: count.rows for count in largest_fields(learner, field_names)}
        for field in self._shown_fields - set(shown):
            self._metrics.forget(names.LEARNER_FIELD_ROWS, field=field)
        for field, rows in shown.items():
            gauges(names.LEARNER_FIELD_ROWS, rows, field=field)
        self._shown_fields = set(shown)

    def update_surroundings(
        self, config: Config, trimmed_at_ms: Mapping[TopicAndPartition, int] | None, paused_s: float, now_ms: int
    ) -> None:
        """Report what the model depends on: room on its disk, retention of its log, its publication.

        trimmed_at_ms: as of `RetentionWatch`; None where nobody watches.
        """
        self._metrics.set(names.LEARNER_PAUSED_SECONDS, paused_s)
        try:
            free_bytes: float = free_bytes_of(config.state_dir)
        except OSError:
            free_bytes = math.nan
        self._metrics.set(names.LEARNER_FREE_BYTES, free_bytes)
        found = {partition: at_ms for (_, partition), at_ms in (trimmed_at_ms or {}).items()}
        for partition in self._with_headroom - set(found):
            self._metrics.forget(names.LEARNER_HEADROOM, partition=str(partition))
        for partition, at_ms in found.items():
            self._metrics.set(names.LEARNER_HEADROOM, max(at_ms - now_ms, 0) / 1000, partition=str(partition))
        self._with_headroom = set(found)

    def update(self, learner: Learner, log: LogFollower, tick: int, now_ms: int) -> None:
        """Report the state after `tick`."""
        self._count(names.LEARNER_EXAMPLES, "examples", learner.examples)
        self._note_refused(learner.refused - self._counted["refused"])
        self._count(names.LEARNER_REFUSED, "refused", learner.refused)
        self._count(names.LEARNER_LOG_BYTES, "read_bytes", log.read_bytes)
        self._count(names.LEARNER_IGNORED, "ignored", log.ignored)
        self._count(names.LEARNER_FOREIGN, "foreign", log.foreign)
        self._count(names.LEARNER_LEFT_OUT, "left_out", log.left_out)
        gauges = self._metrics.set
        gauges(names.LEARNER_BUFFER_BYTES, log.waiting_bytes)
        gauges(names.LEARNER_FEATURES, learner.table.count)
        self._count(names.LEARNER_HELD_BACK, "held_back", _held_back(learner))
        gauges(names.LEARNER_ROWS_LIMIT, 0 if learner.row_bound is None else learner.row_bound.max_rows)
        gauges(names.LEARNER_NONZERO, learner.nonzero)
        gauges(names.LEARNER_TABLE_BYTES, learner.table.bytes)
        if tick >= 0:
            end_ms = (tick + 1) * self._tick_ms
            gauges(names.LEARNER_TICK_TIME, end_ms / 1000)
            gauges(names.LEARNER_LAG, max(now_ms - end_ms, 0) / 1000)
        self._report_slice(learner)

    def _note_refused(self, more: int) -> None:
        """Log the first examples refused since the start, and whenever they have doubled."""
        self._refused += max(more, 0)
        if self._refused > 0 and self._refused >= 2 * self._told:
            self._told = self._refused
            self._log.warning("examples_refused", since_start=self._refused)

    def _report_slice(self, learner: Learner) -> None:
        """Report the last whole slice of the progressive metrics; the first slice while it is not whole."""
        slices = learner.progress.slices()
        if not slices:
            return
        whole = slices[-2] if len(slices) > 1 else slices[-1]
        for metric, name in _SLICE_FIGURES:
            # A figure that the slice does not define must not stand at its last good value.
            self._metrics.set(metric, math.nan if whole[name] is None else whole[name])

    def _count(self, metric: names.Metric, name: str, total: int) -> None:
        self._metrics.inc(metric, max(total - self._counted[name], 0))
        self._counted[name] = total


def _held_back(learner: Learner) -> int:
    return 0 if learner.row_bound is None else learner.row_bound.held_back


def _held_back_by_fields(learner: Learner) -> int:
    return 0 if learner.field_rows is None else learner.field_rows.held_back.total()
