"""How long the topics keep what a joiner that begins anew at the last resume point has to read, and how old that one
may get: a fraction of what retention leaves.

A joiner begins at the last resume point that the training log holds, and reads the inputs again from there, and from as
much before as `Config.must_keep_ms` says. So an input's retention less that is what the age of a resume point may use.
The topic with the least decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import Admin, Retention, RetentionWatch, TopicAndPartition
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config.values import ABSENCE_MS
from stream_learner.errors import NotAuthorised

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.roles.joiner.partition import PartitionJoiner

RESUMES_PER_RETENTION = 4
UNLIMITED_MS = 7 * 86_400_000
"""Stands for a retention without limit."""
LEAST_S = 10.0
"""The least age at which a resume point is written because of its age."""


class Headroom:
    """The watch of one joiner, and the gauges that show what it finds."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        admin: Admin,
        joiners: Callable[[], Iterable[PartitionJoiner]],
        clock_ms: Callable[[], int],
        log: Logger,
    ) -> None:
        """joiners: those of the partitions held; asked from the thread of the watch, which begins at once."""
        topics = config.input
        self._topics = {
            "impressions": topics.impressions.topic,
            "clicks": topics.clicks.topic,
            "log": config.examples_topic,
        }
        self._metrics, self._joiners, self._clock_ms = metrics, joiners, clock_ms
        self._log = log
        self._shown: set[tuple[str, int]] = set()
        self._watch = RetentionWatch(admin, self._needed, clock_ms, close=self._say_close).start()

    def _say_close(self, place: TopicAndPartition, seconds: float) -> None:
        self._log.warning("retention_close", topic=place[0], partition=place[1], seconds=round(seconds))

    def _needed(self) -> dict[TopicAndPartition, int]:
        return {place: offset for joiner in self._joiners() for place, offset in self.needed_of(joiner).items()}

    def needed_of(self, joiner: PartitionJoiner) -> dict[TopicAndPartition, int]:
        """The first offset of each topic that is read where this partition is begun anew; none if that is not known."""
        progress, partition = joiner.progress, joiner.partition
        found = {} if progress.hint is None else {(self._topics["log"], partition): progress.hint.read_from}
        if progress.reads_from is not None:
            impression, click = progress.reads_from
            found[self._topics["impressions"], partition] = impression
            found[self._topics["clicks"], partition] = click
        return found

    def report(self, partitions: Iterable[int]) -> None:
        """Show what was found of these partitions."""
        now_ms, at_ms = self._clock_ms(), self._watch.trimmed_at_ms
        for partition, (of, topic) in product(partitions, self._topics.items()):
            if (topic, partition) in at_ms:
                seconds = max(at_ms[topic, partition] - now_ms, 0) / 1000
                self._metrics.set(names.JOINER_HEADROOM, seconds, of=of, partition=str(partition))
                self._shown.add((of, partition))
            elif (of, partition) in self._shown:
                self._metrics.forget(names.JOINER_HEADROOM, of=of, partition=str(partition))
                self._shown.discard((of, partition))

    def stop(self) -> None:
        """End the watch."""
        self._watch.stop()


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
