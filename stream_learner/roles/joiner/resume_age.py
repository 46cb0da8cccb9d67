"""How old the last resume point of a partition may get: a fraction of what retention leaves.

A joiner begins at the last resume point that the training log holds, and reads the inputs again from there, and from as
much before as `Config.must_keep_ms` says. So an input's retention less that is what the age of a resume point may use.
The topic with the least decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from stream_learner.adapters.kafka import Admin, Retention
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.config.values import ABSENCE_MS
from stream_learner.errors import NotAuthorised

RESUMES_PER_RETENTION = 4
UNLIMITED_MS = 7 * 86_400_000
"""Stands for a retention without limit."""
LEAST_S = 10.0
"""The least age at which a resume point is written because of its age."""


def resume_within_s(admin: Admin, must_keep_ms: Mapping[str, int], log_topic: str, log: Logger) -> float:
    """The age at which a resume point is written whatever it costs. must_keep_ms: by topic.

    An input whose settings may not be asked for does not count. Logs `retention_too_short` for a topic that leaves a
    role less than `ABSENCE_MS`. Raises NotAuthorised where the settings of the training log may not be asked for.
    """
    left_ms = [UNLIMITED_MS]
    for topic, needed_ms in must_keep_ms.items():
        try:
            kept_ms = Retention.of(admin.describe([topic], with_configs=True)[topic].configs).ms
        except NotAuthorised as error:
            if topic == log_topic:
                raise
            log.info("retention_not_known", topic=topic, reason=str(error))
            continue
        if kept_ms is not None:
            left_ms.append(kept_ms - needed_ms)
            if left_ms[-1] <= ABSENCE_MS:
                away_s = max(left_ms[-1], 0) / 1000
                seconds = {"retention_s": kept_ms / 1000, "needed_s": needed_ms / 1000, "away_s": away_s}
                log.warning("retention_too_short", topic=topic, **seconds)
    return max(min(left_ms) / (RESUMES_PER_RETENTION * 1000), LEAST_S)
