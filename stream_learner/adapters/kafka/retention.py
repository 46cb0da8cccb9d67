"""How long it takes until retention trims records that are still needed.

`RetentionWatch` asks about once a minute, in a thread of its own: a reader that lags so far that its records are gone
cannot go on, and lag alone does not say how far that is away.

Kafka trims a segment when its newest record is older than `retention.ms`, or when the rest of the partition is larger
than `retention.bytes`. For the first, the time of the oldest needed record is enough. The second depends on what is
still to come; where it has trimmed already, the partition's present length in time stands for it. So the figure is an
estimate by the speed so far; a partition that was never trimmed by size has none of the second kind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from stream_learner.adapters.kafka.admin import Admin
from stream_learner.adapters.kafka.clients import log
from stream_learner.adapters.kafka.ends import BEYOND_END, TopicAndPartition
from stream_learner.errors import NotAuthorised

PERIOD_S = 60.0
CLOSE_S = 3600.0
"""What is trimmed within so long is close; where the topic keeps everything for less than two hours, within half."""
UNTIL_NEEDED_S = 2.0
"""Time between two looks while nothing is needed yet, as by a joiner without partitions; no broker is asked."""
SHARE = 256
"""The time of a record is looked for to this part of the time that the partition reaches back."""
LEAST_MS = 1_000


class Retention(NamedTuple):
    """What a topic keeps: so long, and so many bytes of a partition; None for no limit of that kind."""

    ms: int | None
    size_bytes: int | None

    @property
    def is_limited(self) -> bool:
        """Whether anything is ever trimmed."""
        return self.ms is not None or self.size_bytes is not None

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Retention:
        """From a topic's settings. A topic that deletes nothing by age keeps all."""
        if "delete" not in configs.get("cleanup.policy", "delete").split(","):
            return cls(None, None)
        ms, size_bytes = (int(configs.get(name, -1)) for name in ("retention.ms", "retention.bytes"))
        return cls(ms if ms >= 0 else None, size_bytes if size_bytes >= 0 else None)


def trimmed_at_ms(
    retention: Retention, *, needed_ms: int, oldest_ms: int, now_ms: int, was_trimmed: bool
) -> int | None:
    """When the record of time `needed_ms` may be trimmed, ms since 1970; None if nothing would trim it.

    oldest_ms: the time of the oldest record that is kept. was_trimmed: whether there were older ones.

    >>> trimmed_at_ms(Retention(1_000, None), needed_ms=9_500, oldest_ms=9_100, now_ms=10_000, was_trimmed=True)
    10500
    >>> trimmed_at_ms(Retention(1_000, 1 << 20), needed_ms=9_500, oldest_ms=9_400, now_ms=10_000, was_trimmed=True)
    10100
    """
    found = [] if retention.ms is None else [needed_ms + retention.ms]
    if retention.size_bytes is not None and was_trimmed:
        found.append(needed_ms + now_ms - oldest_ms)
    return min(found, default=None)


def _close_s(retention: Retention | None) -> float:
    return CLOSE_S if retention is None or retention.ms is None else min(CLOSE_S, retention.ms / 2000)


class RetentionWatch:
    """Watches the partitions of some topics. `trimmed_at_ms` is replaced as a whole, and may be read by any thread.

    A partition without a new answer keeps the one before: the time goes on, and so does what is left.
    """

    def __init__(
        self,
        admin: Admin,
        needed: Callable[[], Mapping[TopicAndPartition, int]],
        clock_ms: Callable[[], int],
        *,
        not_known: Callable[[str, str], None] = lambda topic, reason: None,
        close: Callable[[TopicAndPartition, float], None] = lambda partition, seconds: None,
        period_s: float = PERIOD_S,
    ) -> None:
        """needed: the first offset of each partition that is needed still. not_known: is told once of a topic whose
        retention may not be asked for, and why. close: is told of a partition of which something needed is trimmed
        soon (`CLOSE_S`), and in how many seconds, once until it is no longer so. All are called in the watch's thread.
        """
        self._close, self._is_close = close, set[TopicAndPartition]()
        self._admin, self._needed, self._clock_ms, self._period_s = admin, needed, clock_ms, period_s
        self._not_known, self._said = not_known, set[str]()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.trimmed_at_ms: Mapping[TopicAndPartition, int] = MappingProxyType({})
        """By partition, when the oldest record that is needed may be trimmed; without those that are kept for ever."""

    def start(self) -> RetentionWatch:
        """Ask in the background. Brokers that do not answer are asked again."""
        if not self._admin.is_mock():
            self._thread = threading.Thread(target=self._run, name="retention-watch", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread, without waiting for an answer; the last figures stay."""
        self._stopped.set()

    def ask(self) -> bool:
        """Ask now, in the calling thread; whether anything is needed.

        Raises BrokerUnreachable, RetryLater, NotAuthorised, TopicMissing.
        """
        needed = dict(self._needed())
        retentions = self._retentions(sorted({topic for topic, _ in needed}))
        limited = {p: offset for p, offset in needed.items() if retentions.get(p[0], Retention(None, None)).is_limited}
        found = self._look(limited, retentions)
        kept = {p: at_ms for p, at_ms in self.trimmed_at_ms.items() if p in limited}
        self.trimmed_at_ms = MappingProxyType({**kept, **found})
        self._say_what_is_close(retentions)
        return bool(needed)

    def _say_what_is_close(self, retentions: Mapping[str, Retention]) -> None:
        now_ms = self._clock_ms()
        left_s = {p: max(at_ms - now_ms, 0) / 1000 for p, at_ms in self.trimmed_at_ms.items()}
        is_close = {
            partition for partition, seconds in left_s.items() if seconds < _close_s(retentions.get(partition[0]))
        }
        for partition in sorted(is_close - self._is_close):
            self._close(partition, left_s[partition])
        self._is_close = is_close

    def _retentions(self, topics: list[str]) -> dict[str, Retention]:
        found = {}
        for topic in topics:
            try:
                described = self._admin.describe([topic], with_configs=True).get(topic)
            except NotAuthorised as error:
                if topic not in self._said:
                    self._said.add(topic)
                    self._not_known(topic, str(error))
                continue
            if described is not None:
                found[topic] = Retention.of(described.configs)
        return found

    def _look(
        self, needed: Mapping[TopicAndPartition, int], retentions: Mapping[str, Retention]
    ) -> dict[TopicAndPartition, int]:
        queries = self._admin.offsets
        earliest, ends = queries.earliest(needed), queries.high_watermarks(needed)
        oldest_ms, now_ms = queries.first_times(needed), self._clock_ms()
        waiting = {p: offset for p, offset in needed.items() if earliest[p] < offset < ends[p] and oldest_ms[p] >= 0}
        times_ms = self._times(waiting, oldest_ms, now_ms)
        found = {}
        for partition, offset in needed.items():
            if offset < earliest[partition]:
                found[partition] = now_ms
                continue
            # Without a record that waits, the next one is needed, which comes now.
            of_oldest = oldest_ms[partition] if offset < ends[partition] else now_ms
            at_ms = trimmed_at_ms(
                retentions[partition[0]],
                needed_ms=times_ms.get(partition, of_oldest if of_oldest >= 0 else now_ms),
                oldest_ms=oldest_ms[partition] if oldest_ms[partition] >= 0 else now_ms,
                now_ms=now_ms,
                was_trimmed=earliest[partition] > 0,
            )
            if at_ms is not None:
                found[partition] = at_ms
        return found

    def _times(
        self, offsets: Mapping[TopicAndPartition, int], oldest_ms: Mapping[TopicAndPartition, int], now_ms: int
    ) -> dict[TopicAndPartition, int]:
        """About the time of the record at each offset, never later: brokers only tell offsets of times, so bisect."""
        low = {partition: oldest_ms[partition] for partition in offsets}
        high = dict.fromkeys(offsets, now_ms)
        finest = {p: max((now_ms - low[p]) // SHARE, LEAST_MS) for p in offsets}
        while open_still := {p: (low[p] + high[p]) // 2 for p in offsets if high[p] - low[p] > finest[p]}:
            for partition, first in self._admin.offsets.at_times(open_still).items():
                is_later = first == BEYOND_END or first > offsets[partition]
                (high if is_later else low)[partition] = open_still[partition]
        return low

    def _run(self) -> None:
        while not self._stopped.is_set():
            wait_s = self._period_s
            try:
                if not self.ask():
                    wait_s = min(wait_s, UNTIL_NEEDED_S)
            except Exception as error:  # noqa: BLE001 -- no figure is worth the end of a role; it is asked for again
                log.info("retention is not known now: %s: %s", type(error).__name__, error)
            self._stopped.wait(wait_s)
