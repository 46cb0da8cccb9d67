"""The metrics of one process as Prometheus text, and the texts of several processes merged into one.

A metric that `metric_names` does not declare is refused.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as PrometheusMetric

from stream_learner.adapters.telemetry.metric_names import CATALOGUE, FROM_ZERO, Metric
from stream_learner.errors import BrokenInvariant

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
C = TypeVar("C", Counter, Gauge, Histogram)


class Metrics:
    """Values of the declared metrics for one model. Thread-safe; each instance counts for itself.

    Raises BrokenInvariant for a metric that is not declared, a label that is missing or too many, and an
    operation that is not the metric's: counters go up, gauges are set, histograms observe.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._registry = _Registry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._counters: _Kind[Counter] = _Kind(model)
        self._gauges: _Kind[Gauge] = _Kind(model)
        self._histograms: _Kind[Histogram] = _Kind(model)
        for metric in CATALOGUE:
            self._make(metric)
        for metric, labels in FROM_ZERO:
            self._counters.of(metric, labels)

    def _make(self, metric: Metric) -> None:
        name, meaning, labels = metric.full_name, metric.meaning, ("model", *metric.labels)
        if metric.kind == "counter":
            self._counters.families[metric] = Counter(name, meaning, labels, registry=self._registry)
        elif metric.kind == "gauge":
            self._gauges.families[metric] = Gauge(name, meaning, labels, registry=self._registry)
        else:
            self._histograms.families[metric] = Histogram(
                name, meaning, labels, buckets=metric.buckets, registry=self._registry
            )

    def inc(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Add `amount` >= 0 to a counter."""
        try:
            self._counters.of(metric, labels).inc(amount)
        except ValueError as error:
            raise _not_declared(metric, error) from error

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._gauges.of(metric, labels).set(value)

    def follow(self, metric: Metric, value: Callable[[], float], **labels: str) -> None:
        """Let a gauge ask `value` whenever it is scraped; it must be quick and must not raise."""
        self._gauges.of(metric, labels).set_function(value)

    def observe(self, metric: Metric, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram."""
        self._histograms.of(metric, labels).observe(seconds)

    def counter_of(self, metric: Metric, **labels: str) -> Callable[[float], None]:
        """A function that adds to a counter with these labels, for callers that cannot afford to look the labels up."""
        add: Callable[[float], None] = self._counters.of(metric, labels).inc
        return add

    def histogram_of(self, metric: Metric, **labels: str) -> Callable[[float], None]:
        """A function that adds a duration in seconds to a histogram with these labels."""
        add: Callable[[float], None] = self._histograms.of(metric, labels).observe
        return add

    def forget(self, metric: Metric, **labels: str) -> None:
        """Stop showing a gauge with these labels, for example of a partition given away.

        Does nothing if it was never set.
        """
        self._gauges.forget(metric, labels)

    def text(self) -> bytes:
        """All values in Prometheus's text format, `CONTENT_TYPE`."""
        return generate_latest(self._registry)


class _Kind(Generic[C]):
    """The metrics of one kind by their declarations, and what counts for each set of labels. Thread-safe.

    The library finds it for its labels too, but takes several microseconds.
    """

    def __init__(self, model: str) -> None:
        self.families: dict[Metric, C] = {}
        self._model = model
        self._found: dict[str, dict[tuple[tuple[str, str], ...], C]] = defaultdict(dict)
        """By the metric's name and its labels."""
        self._changing = threading.Lock()
        """Held while something is found or forgotten, so that nothing is kept that is shown no more."""

    def of(self, metric: Metric, labels: Mapping[str, str]) -> C:
        """What counts for these labels. Raises BrokenInvariant for a metric or labels that are not declared."""
        known, key = self._found[metric.name], tuple(labels.items())
        found = known.get(key)
        if found is not None:
            return found
        with self._changing:
            try:
                found = known[key] = self.families[metric].labels(model=self._model, **labels)
            except (KeyError, ValueError) as error:
                raise _not_declared(metric, error) from error
        return found

    def forget(self, metric: Metric, labels: Mapping[str, str]) -> None:
        """Show these labels no more. Does nothing if they were never shown; raises BrokenInvariant as `of`."""
        with self._changing:
            try:
                family, values = self.families[metric], [labels[name] for name in metric.labels]
            except KeyError as error:
                raise _not_declared(metric, error) from error
            known = self._found[metric.name]
            for key in [key for key in known if dict(key) == labels]:
                del known[key]
            with suppress(KeyError):
                family.remove(self._model, *values)


class _Registry(CollectorRegistry):
    """A registry without the undeclared `_created` samples that the library adds to counters and histograms."""

    def collect(self) -> Iterator[PrometheusMetric]:
        """All families with their samples."""
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _not_declared(metric: Metric, error: Exception) -> BrokenInvariant:
    """What to raise where the library refuses: it is a mistake of this program."""
    return BrokenInvariant(f"metric {metric.name} is not declared for this use: {error}")


def merged(texts: Iterable[tuple[Mapping[str, str], bytes]]) -> bytes:
    """The samples of all texts, each family once. The labels given with a text are added to each of its samples.

    If several samples have the same name and labels, the first one stays: several texts of one process repeat what is
    true of the whole process.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, str]] = {}
    for labels, text in texts:
        family = ""
        for line in text.decode().splitlines():
            if line.startswith("# "):
                _, kind, family, _ = line.split(" ", 3)
                if kind == "HELP":
                    heads.setdefault(family, [])
                if family in heads and not samples.get(family) and line not in heads[family]:
                    heads[family].append(line)
                samples.setdefault(family, {})
            elif line:
                series, _, value = line.rpartition(" ")
                samples[family].setdefault(_with_labels(series, labels), value)
    lines = [
        line
        for family, head in heads.items()
        for line in (*head, *(f"{series} {value}" for series, value in samples[family].items()))
    ]
    return ("\n".join(lines) + "\n").encode()


def _with_labels(series: str, labels: Mapping[str, str]) -> str:
    if not labels:
        return series
    added = ",".join(f'{name}="{value}"' for name, value in labels.items())
    name, brace, rest = series.partition("{")
    return f"{name}{{{added},{rest}" if brace else f"{name}{{{added}}}"
