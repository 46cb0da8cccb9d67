"""Checks that the examples a model was learned from have the features that it would be published with.

A log that does not say with which features it was made holds back no model.
"""

from __future__ import annotations

from collections.abc import Mapping

from stream_learner.core.log.marks import Mark

UNKNOWN = 0


class LogFeatures:
    """The features of the newest folded mark of each partition.

    `by_partition` has their fingerprints, 0 where the mark does not say.
    """

    def __init__(self, own: int) -> None:
        """own: the fingerprint of the features that the model is published with."""
        self._own = own
        self.by_partition: dict[int, int] = {}

    def restore(self, by_partition: Mapping[int, int]) -> None:
        """Begin with the fingerprints in a checkpoint."""
        self.by_partition = dict(by_partition)

    def take(self, mark: Mark) -> None:
        """Note the next mark of a partition."""
        self.by_partition[mark.partition] = mark.features

    @property
    def differing(self) -> list[int]:
        """The partitions whose newest mark has other features."""
        return sorted(p for p, found in self.by_partition.items() if found not in (UNKNOWN, self._own))

    def trouble(self, log_topic: str) -> str:
        """The reason why the model must not be published, "" if it may be."""
        partitions = ", ".join(map(str, self.differing))
        if not partitions:
            return ""
        return f"{log_topic} partition {partitions} was made with other settings of features than this learner has"
