"""Shows which fields give the most different features: so one finds the field that makes a model grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.field_counts import FieldCounts

if TYPE_CHECKING:
    from stream_learner.config import Config

SHOWN_FIELDS = 20
LEAST_FEATURES = 100
"""Fields with fewer features are not shown: producers that make up names must not make up series."""
LEAST_SAMPLED = 4
"""Nor are those of which fewer features are in the sample: each of these may stand for thousands."""
LONGEST_NAME = 100


class FieldReport:
    """The counts of one joiner, and the gauges that show them."""

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
