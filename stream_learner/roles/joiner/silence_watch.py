"""Holds the join while clicks are silent: what the rule of `roles.joiner.click_silence` sees, says and leaves for the
next.

In: the ends of the partitions held, what an earlier process left. Out: whether ticks may be closed by
the wall clock, a line in the log when that changes.
This file must never hold a tick that newer clicks close.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from stream_learner.adapters.kafka import End, TopicAndPartition
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.roles.joiner.click_silence import Arrived, ClickSilence, Usual


class Arrivals:
    """Counts what comes by the high watermarks of the partitions that are watched.

    Where the broker does not say the ends of both inputs of a partition, its impressions are not counted, nor those
    that came until it does again: nobody can say whether clicks did.
    """

    def __init__(self, impressions_topic: str, clicks_topic: str) -> None:
        self._topics = impressions_topic, clicks_topic
        self._before: dict[int, tuple[End, End]] = {}
        self._at_ms = -1
        self._seen: Mapping[TopicAndPartition, End] = {}

    def look(self, ends: Mapping[TopicAndPartition, End]) -> Arrived | None:
        """What came since the last look; None if nothing was asked since, and the ends are the same object."""
        if not ends or ends is self._seen:
            return None
        self._seen = ends
        at_ms = max(end.asked_at_ms for end in ends.values())
        before_ms, self._at_ms = self._at_ms, at_ms
        before, self._before = self._before, self._pairs(ends)
        impressions = clicks = 0
        for partition, pair in self._before.items():
            if partition not in before:
                continue
            known = all(end.asked_at_ms == at_ms for end in pair)
            known &= all(end.asked_at_ms == before_ms for end in before[partition])
            came = [
                max(end.high_watermark - then.high_watermark, 0)
                for end, then in zip(pair, before[partition], strict=True)
            ]
            impressions += came[0] if known else 0
            clicks += came[1]
        return Arrived(at_ms, impressions, clicks)

    def _pairs(self, ends: Mapping[TopicAndPartition, End]) -> dict[int, tuple[End, End]]:
        impressions, clicks = self._topics
        return {
            partition: (end, ends[clicks, partition])
            for (topic, partition), end in ends.items()
            if topic == impressions and (clicks, partition) in ends
        }


class SilenceWatch:
    """The join of a process is `held` or not; `ended_ms` is when it was held last, -1 for never."""

    def __init__(self, impressions_topic: str, clicks_topic: str, log: Logger) -> None:
        self.ended_ms = -1
        self._topic = clicks_topic
        self._arrivals = Arrivals(impressions_topic, clicks_topic)
        self._silence = ClickSilence()
        self._log = log
        self._said = False

    @property
    def held(self) -> bool:
        """Whether no tick may be closed by the wall clock."""
        return self._silence.held

    def look(self, ends: Mapping[TopicAndPartition, End]) -> None:
        """Take what has come since the last look."""
        came = self._arrivals.look(ends)
        if came is None:
            return
        since_ms = self._silence.since_ms
        self._silence.note(came)
        if self.held and not self._said:
            self._say_silent()
        elif self._said and not self.held:
            self.ended_ms = came.at_ms
            self._log.info("clicks_again", topic=self._topic, since=_moment(since_ms))
        self._said = self.held

    def _say_silent(self) -> None:
        silence = self._silence
        self._log.warning(
            "clicks_silent",
            topic=self._topic,
            since=_moment(silence.since_ms),
            impressions=silence.impressions,
            clicks_expected=round(silence.expected),
            note="impressions go on and no click comes, for longer than chance explains: until one comes, the wall "
            "clock closes no tick. See whether clicks are still written to the topic. If it is right that there are "
            "none, set join.hold_on_silence to false and start the joiner again",
        )

    def recall(self, metadata: str) -> None:
        """Begin with what an earlier process left with its hint, see `with_hint`."""
        usual = Usual.from_text(metadata.split(":")[-1])
        if usual is not None:
            self._silence.recall(usual)

    def with_hint(self, hint: str) -> str:
        """The hint, and after it what the next process should know."""
        return f"{hint}:{self._silence.usual.to_text()}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(max(ms, 0) / 1000, timezone.utc).isoformat(timespec="seconds")
