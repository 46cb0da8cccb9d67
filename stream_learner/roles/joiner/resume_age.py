"""How old the last resume point of a partition may get: a fraction of what retention leaves.

A joiner begins at the last resume point that the training log holds. It reads the inputs again from there, and from as
much before as its memory reaches: the window, `dedupe` and an eighth of it for impressions; the window, the skew and
twice `lateness` for clicks, since a click that is ahead of log time stays longer. So an input's retention less that is
what the age of a resume point may use. The topic with the least decides.
"""

from __future__ import annotations

from stream_learner.adapters.kafka import Admin
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.join.spec import JoinSpec
from stream_learner.errors import NotAuthorised

RESUMES_PER_RETENTION = 4
UNLIMITED_MS = 7 * 86_400_000
"""Stands for a retention without limit."""
LEAST_S = 10.0
"""The least age at which a resume point is written because of its age."""


def memory_ms(spec: JoinSpec) -> tuple[int, int]:
    """How much of impressions and of clicks before a resume point is read again where a joiner begins at it."""
    return spec.window_ms + spec.dedupe_ms * 9 // 8, spec.keep_ms + spec.lateness_ms


def resume_within_s(admin: Admin, spec: JoinSpec, log_topic: str, impressions: str, clicks: str, log: Logger) -> float:
    """The age at which a resume point is written whatever it costs.

    An input whose settings may not be asked for does not count. Logs `retention_too_short` for an input that keeps less
    than the join must read again. Raises NotAuthorised where the settings of the training log may not be asked for.
    """
    left_ms = [_left_ms(admin, log_topic, 0, log)]
    for topic, needed_ms in zip((impressions, clicks), memory_ms(spec), strict=True):
        try:
            left_ms.append(_left_ms(admin, topic, needed_ms, log))
        except NotAuthorised as error:
            log.info("retention_not_known", topic=topic, reason=str(error))
    return max(min(left_ms) / (RESUMES_PER_RETENTION * 1000), LEAST_S)


def _left_ms(admin: Admin, topic: str, needed_ms: int, log: Logger) -> int:
    """The retention of a topic less what the join's memory needs of it; below 0 where that is more."""
    configs = admin.describe([topic], with_configs=True)[topic].configs
    policies = configs.get("cleanup.policy", "").split(",")
    retention_ms = int(configs.get("retention.ms", -1))
    if retention_ms < 0 or "delete" not in policies:
        return UNLIMITED_MS
    if retention_ms <= needed_ms:
        log.warning("retention_too_short", topic=topic, retention_s=retention_ms / 1000, needed_s=needed_ms / 1000)
    return min(retention_ms - needed_ms, UNLIMITED_MS)
