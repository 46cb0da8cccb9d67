"""Retention: whether the inputs keep what a joiner reads when it begins at its last resume point."""

from __future__ import annotations

from collections.abc import Iterable

from stream_learner.config.values import DAY_MS, HOUR_MS
from stream_learner.core.join.spec import JoinSpec
from stream_learner.operations.doctor.events import Side
from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.doctor.times import span
from stream_learner.roles.joiner.resume_age import memory_ms

ABSENCE_MS = HOUR_MS
"""A joiner may be away for so long, at least."""


def check_retention(side: Side, spec: JoinSpec) -> Iterable[Finding]:
    """Whether a topic keeps its records for long enough, by the formula that the joiner goes by."""
    retention, needed_ms = side.sample.retention, memory_ms(spec)[side.name == "clicks"]
    topic, needed = side.sample.topic, span(needed_ms)
    if retention is None:
        means = f"whether it keeps what a joiner reads again, {needed}, is not known"
        change = "the right DescribeConfigs on the topic (`stream-learner rights`)"
        seen = f"the settings of {topic} may not be asked for"
        yield Finding("tells", f"{side.name}_retention_unknown", seen, means, change)
    elif retention.ms is not None and retention.ms <= needed_ms + ABSENCE_MS:
        stops = retention.ms <= needed_ms
        seen = f"{topic} keeps {span(retention.ms)}; a joiner that starts reads {needed} again (window, lateness, …)"
        away = "started again" if stops else f"away for {span(retention.ms - needed_ms)}"
        means = f"a joiner that is {away} finds its records gone, and stops"
        change = f"the topic's retention.ms: {needed_ms + DAY_MS} or more; or a shorter join.window or join.lateness"
        yield Finding("stops" if stops else "warns", f"{side.name}_retention", seen, means, change)
