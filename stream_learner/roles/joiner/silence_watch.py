"""Waits for clicks, and holds the join, while clicks are silent: feeds the rule of `click_silence`, and logs what it
decides, for all partitions of a process together and for each.

While the join is held the clock closes no window; newer clicks do, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone

from stream_learner.adapters.kafka import End, TopicAndPartition
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.roles.joiner.click_silence import Arrived, ClickSilence, Usual


class NewRecords:
    """Counts the records that come, by the high watermarks of the partitions that are watched.

    Where a broker does not tell the ends of both inputs of a partition, the impressions that came up to the next such
    answer are not counted: nobody knows whether clicks came too.
    """

    def __init__(self, impressions_topic: str, clicks_topic: str) -> None:
        self._topics = impressions_topic, clicks_topic
        self._before: dict[int, tuple[End, End]] = {}
        self._at_ms = -1
        self._seen: Mapping[TopicAndPartition, End] = {}

    def look(self, ends: Mapping[TopicAndPartition, End]) -> dict[int, Arrived]:
        """The records that came since the last look, by partition; none if the ends are the same object as then."""
        if not ends or ends is self._seen:
            return {}
        self._seen = ends
        at_ms = max(end.asked_at_ms for end in ends.values())
        before_ms, self._at_ms = self._at_ms, at_ms
        before, self._before = self._before, self._pairs(ends)
        found = {}
        for partition, pair in self._before.items():
            if partition not in before:
                continue
            known = all(end.asked_at_ms == at_ms for end in pair)
            known &= all(end.asked_at_ms == before_ms for end in before[partition])
            came = [
                max(end.high_watermark - then.high_watermark, 0)
                for end, then in zip(pair, before[partition], strict=True)
            ]
            found[partition] = Arrived(at_ms, came[0] if known else 0, came[1])
        return found

    def _pairs(self, ends: Mapping[TopicAndPartition, End]) -> dict[int, tuple[End, End]]:
        impressions, clicks = self._topics
        return {
            partition: (end, ends[clicks, partition])
            for (topic, partition), end in ends.items()
            if topic == impressions and (clicks, partition) in ends
        }


class SilenceWatch:
    """Decides for which partitions of a process clicks are waited for, and which are held."""

    def __init__(
        self,
        impressions_topic: str,
        clicks_topic: str,
        log: Logger,
        time_of: Callable[[int], int] = lambda at_ms: at_ms,
    ) -> None:
        """time_of: the moment, ms since the epoch, of a time of the clock by which ends are asked for."""
        self._topic = clicks_topic
        self._new = NewRecords(impressions_topic, clicks_topic)
        self._all = ClickSilence()
        self._partitions: dict[int, ClickSilence] = {}
        self._log = log
        self._time_of = time_of
        self._said: dict[int | None, ClickSilence] = {}

    @property
    def held(self) -> list[int]:
        """The partitions that are held."""
        return [partition for partition in self._partitions if self.is_held(partition)]

    def is_held(self, partition: int) -> bool:
        """Whether the clock may close no window of a partition."""
        own = self._partitions.get(partition)
        return self._all.held or (own is not None and own.held)

    def waits_since(self, partition: int) -> int | None:
        """Since when clicks are waited for in a partition; None where they are not."""
        own = self._partitions.get(partition)
        since = [self._all.waits_since_ms, None if own is None else own.waits_since_ms]
        return min((at for at in since if at is not None), default=None)

    def look(self, ends: Mapping[TopicAndPartition, End]) -> None:
        """Take the present ends of the partitions, and log it where partitions are held from now on, or no more."""
        found = self._new.look(ends)
        if not found:
            return
        at_ms = next(iter(found.values())).at_ms
        self._note(
            None,
            self._all,
            Arrived(at_ms, *(sum(counts) for counts in zip(*(one[1:] for one in found.values()), strict=True))),
        )
        for partition, came in found.items():
            self._note(partition, self._partitions.setdefault(partition, ClickSilence()), came)

    def keep(self, partitions: Iterable[int]) -> None:
        """Forget all partitions but these."""
        self._partitions = {p: one for p, one in self._partitions.items() if p in set(partitions)}

    def _note(self, partition: int | None, silence: ClickSilence, came: Arrived) -> None:
        since_ms = silence.since_ms
        silence.note(came)
        where = {} if partition is None else {"partition": partition}
        if silence.held and partition not in self._said and not (partition is not None and self._all.held):
            self._said[partition] = silence
            self._log.warning(
                "clicks_silent",
                topic=self._topic,
                **where,
                since=self._moment(silence.since_ms),
                impressions=silence.impressions,
                clicks_expected=round(silence.expected),
                note="impressions go on and no click comes, for longer than chance explains: until one comes, the "
                "clock closes no window. See whether clicks are still written to the topic. If it is right that there "
                "are none, set join.hold_on_silence to false and start the joiner again",
            )
        elif partition in self._said and not silence.held:
            del self._said[partition]
            self._log.info("clicks_again", topic=self._topic, **where, since=self._moment(since_ms))

    def recall(self, partition: int, of_all: str, own: str) -> None:
        """Begin with what an earlier process learned: of all its partitions, and of this one."""
        for silence, text in ((self._all, of_all), (self._partitions.setdefault(partition, ClickSilence()), own)):
            usual = Usual.from_text(text)
            if usual is not None:
                silence.recall(usual)

    def to_texts(self, partition: int) -> tuple[str, str]:
        """What this process has learned, of all its partitions and of one, as `recall` takes it."""
        own = self._partitions.get(partition) or ClickSilence()
        return self._all.usual.to_text(), own.usual.to_text()

    def _moment(self, at_ms: int) -> str:
        moment_ms = max(self._time_of(at_ms), 0)
        return datetime.fromtimestamp(moment_ms / 1000, timezone.utc).isoformat(timespec="seconds")
