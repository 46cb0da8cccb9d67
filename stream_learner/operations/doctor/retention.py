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
    if retention is None:
        yield Finding(
            "tells",
            f"{side.name}_retention_unknown",
            f"the settings of {side.sample.topic} may not be asked for",
            f"whether it keeps what a joiner reads again, {span(needed_ms)}, is not known",
            "the right DescribeConfigs on the topic (`stream-learner rights`)",
        )
    elif retention.ms is not None and retention.ms <= needed_ms + ABSENCE_MS:
        stops = retention.ms <= needed_ms
        yield Finding(
            "stops" if stops else "warns",
            f"{side.name}_retention",
            f"{side.sample.topic} keeps {span(retention.ms)} (retention.ms {retention.ms}); a joiner that starts reads "
            f"{span(needed_ms)} again (window, dedupe, skew, lateness)",
            "a joiner that is started again finds its records gone, and stops"
            if stops
            else f"a joiner that is away for {span(retention.ms - needed_ms)} finds its records gone, and stops",
            f"the topic's retention.ms: {needed_ms + DAY_MS} or more; or a shorter window, dedupe or lateness of join",
        )
