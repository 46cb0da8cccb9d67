"""Retention: whether a topic keeps what a role reads when it starts; for `doctor`, and for `topics ensure`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

from stream_learner.adapters.kafka import Admin, KafkaSettings, Retention
from stream_learner.config import Config
from stream_learner.config.values import ABSENCE_MS, DAY_MS
from stream_learner.errors import NotAuthorised
from stream_learner.operations.doctor.events import Side
from stream_learner.operations.doctor.findings import ENOUGH, Finding
from stream_learner.operations.doctor.times import span

RECORD_BYTES = 10
"""About what a record takes in a log besides key and value."""


def check_retention(side: Side, needed_ms: int) -> Iterable[Finding]:
    """Whether an input keeps its records for long enough. needed_ms: as of `Config.must_keep_ms`."""
    retention, topic = side.sample.retention, side.sample.topic
    if retention is not None:
        last_ms = math.inf if retention.size_bytes is None else _bytes_last_ms(side, retention.size_bytes)
        yield from too_short(f"{side.name}_retention", topic, retention, needed_ms, bytes_last_ms=last_ms)
        return
    means = f"whether it keeps what a joiner reads again, {span(needed_ms)}, is not known"
    change = "the right DescribeConfigs on the topic (`stream-learner rights`)"
    seen = f"the settings of {topic} may not be asked for"
    yield Finding("tells", f"{side.name}_retention_unknown", seen, means, change)


def retention_warnings(config: Config) -> list[str]:
    """What is to be said of topics that keep less than roles read again. One that may not be asked for is left out."""
    admin = Admin(KafkaSettings(config.kafka_options(), group=config.group))
    found: list[Finding] = []
    for topic, needed_ms in config.must_keep_ms().items():
        with suppress(NotAuthorised):
            for info in admin.describe([topic], with_configs=True).values():
                found += too_short("retention", topic, Retention.of(info.configs), needed_ms)
    return [f"{one.seen}: {one.means}; change {one.change}" for one in found]


def too_short(
    name: str, topic: str, retention: Retention, needed_ms: int, *, bytes_last_ms: float = math.inf
) -> Iterable[Finding]:
    """A topic that keeps too little for what is needed. bytes_last_ms: how long retention.bytes lasts, about."""
    limits: list[tuple[float, str, str]] = []
    if retention.ms is not None:
        limits.append((retention.ms, "", f"retention.ms: {needed_ms + DAY_MS} or more"))
    if retention.size_bytes is not None and bytes_last_ms < math.inf:
        needed_bytes = round((needed_ms + DAY_MS) / bytes_last_ms * retention.size_bytes)
        by = f" by its retention.bytes of {retention.size_bytes:,} at the rate of the sample"
        limits.append((bytes_last_ms, by, f"retention.bytes: {needed_bytes} or more"))
    kept_ms, by, change = min(limits, default=(needed_ms + DAY_MS, "", ""))
    if kept_ms > needed_ms + ABSENCE_MS:
        return
    stops = kept_ms <= needed_ms and not by  # what the rate tells is an estimate
    seen = f"{topic} keeps {span(kept_ms)}{by}; {span(needed_ms)} are read again at a start (window, lateness, …)"
    away = "started again" if kept_ms <= needed_ms else f"away for {span(kept_ms - needed_ms)}"
    means = f"a role that is {away} finds its records gone, and stops"
    yield Finding("stops" if stops else "warns", name, seen, means, f"the topic's {change}; or a shorter join.window")


def _bytes_last_ms(side: Side, size_bytes: int) -> float:
    """How long so many bytes of the busiest partition last at the rate of its newest records; as long as what is held
    goes back at that rate, if that is longer, as where batches are compressed. Infinity where there are too few."""
    rates = [(0.0, 0.0)]
    for records in side.sample.blocks[0].values():
        took_ms = records[-1].time_ms - records[0].time_ms if len(records) >= ENOUGH else 0
        if took_ms > 0:
            sizes = (len(record.key or b"") + len(record.value or b"") + RECORD_BYTES for record in records)
            rates.append((sum(sizes) / took_ms, len(records) / took_ms))
    most_bytes = max(rates)[0]
    return max(size_bytes / most_bytes, side.sample.held / sum(of for _, of in rates)) if most_bytes else math.inf
