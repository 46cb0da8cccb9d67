"""Series as Prometheus would have scraped them from the program's own registries while something goes on.

A step is called at each scrape with the metrics of a process and the minutes since the beginning, and does to the
metrics what the program would. Names, labels and suffixes of the series are those that the program exposes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stream_learner.adapters.telemetry.metric_names import PREFIX, Metric
from stream_learner.adapters.telemetry.metrics import Metrics
from tools.chart import NAMESPACE

Step = Callable[[Metrics, int], None]
Amount = float | Callable[[int], float]
MODEL = "ctr"


def together(*steps: Step) -> Step:
    """All of these."""

    def step(metrics: Metrics, minute: int) -> None:
        for one in steps:
            one(metrics, minute)

    return step


def sets(metric: Metric, value: Amount, **labels: str) -> Step:
    """A gauge: a constant, or a function of the minute."""
    return lambda metrics, minute: metrics.set(metric, value(minute) if callable(value) else value, **labels)


def adds(metric: Metric, amount: Amount, **labels: str) -> Step:
    """A counter that is added to at each scrape."""
    return lambda metrics, minute: metrics.inc(metric, amount(minute) if callable(amount) else amount, **labels)


def takes(metric: Metric, *seconds: float, **labels: str) -> Step:
    """A histogram that gets these durations at each scrape."""

    def step(metrics: Metrics, _minute: int) -> None:
        for one in seconds:
            metrics.observe(metric, one, **labels)

    return step


def once(step: Step, at: int) -> Step:
    """Only in that minute."""
    return lambda metrics, minute: step(metrics, minute) if minute == at else None


def recorded(pods: Iterable[Step], minutes: int, every: int = 1) -> list[dict[str, str]]:
    """The series of processes, one in each pod, scraped every so many minutes; as promtool reads them."""
    values: dict[str, dict[int, str]] = {}
    for number, step in enumerate(pods):
        metrics = Metrics(MODEL)
        for minute in range(0, minutes + 1, every):
            step(metrics, minute)
            for line in metrics.text().decode().splitlines():
                if line.startswith(PREFIX):
                    series, _, value = line.rpartition(" ")
                    found_in = f'{{namespace="{NAMESPACE}",pod="pod-{number}",'
                    values.setdefault(series.replace("{", found_in, 1), {})[minute] = value
    times = range(0, minutes + 1, every)
    return [
        {"series": series, "values": " ".join(found.get(t, "_") for t in times)} for series, found in values.items()
    ]
