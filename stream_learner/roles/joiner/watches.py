"""What a joiner says of its partitions when it begins and when it is over: streams that lag, windows that wait,
guesses, clocks that differ, and shares of records that tell of a producer that is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.join.state import NOTHING_EARLY, Early
from stream_learner.core.log.marks import TickCounts
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.ticks import BrokersClock

WAITS_S = 60.0
"""Windows that wait for less are not worth a line."""
AWAITS_NEXT = (
    "nothing has come for longer than usual, of impressions or of clicks: windows wait for what comes next, for "
    "join.idle_after at the most"
)
AWAITS_CLICK = "clicks have stopped and impressions go on: windows wait for the next click"
GUESSES_OVER_MS = 600_000
"""Guesses are over when none was found for so long."""
DIFFERS_S = 5.0
"""A wall clock that differs from the brokers' by more is worth a line."""
BEHIND_S = 60.0
"""A partition that is behind by more is worth a line, if it has not come nearer for `FALLS_S`."""
FALLS_S = 30.0
AHEAD_S = 10.0
"""Log time that is ahead of the clock by more is worth a line."""
PARTITION_GAUGES = (names.JOINER_STREAM_LAG, names.JOINER_CLICK_DELAY, names.JOINER_WINDOWS_WAIT)
HARDLY_ANY = 0.01
"""The share of clicks that may match by chance."""
LEAST_RECORDS = 1_000
"""A share is judged, and counted anew, after so many records of its input."""
LEAST_FOUND = 50
"""To be over, a share is judged by so many records that those of a share at the bound would be this many."""


class StreamReport:
    """What the clocks of a joiner's partitions know. Reports once a second; used by one thread."""

    def __init__(self, metrics: Metrics, log: Logger, brokers: BrokersClock, *, window_s: float) -> None:
        self._metrics, self._brokers = metrics, brokers
        later = "windows close so much later than they end"
        self._lags = Episode(log, "stream_lags", limit=window_s, note=f"{later}; nothing is lost by it")
        mixed = "where it comes and goes, some clicks come at once and others late: those are late, or orphans"
        self._delays = Episode(log, "clicks_lag", limit=window_s, note=f"{later}; {mixed}")
        self._waits = Episode(log, "windows_wait", limit=WAITS_S)
        self._ahead = Episode(
            log,
            "stream_was_ahead",
            note="windows were closed before all clicks were there, as it turned out: events came later than they did "
            "before. A replay of old events into the topic looks the same",
        )
        self._differs = Episode(
            log, "clock_differs", limit=DIFFERS_S, note="the wall clock of this process against that of the brokers"
        )
        self._guessed: dict[int, int] = {}
        self._ahead_until = -1

    def look(self, joiners: Iterable[PartitionJoiner], m: int, wall_ms: int) -> None:
        """Report what the clocks of the partitions know. m, wall_ms: the monotonic and the wall clock."""
        base = self._brokers.base
        if base is None:
            return
        ahead_s = (wall_ms - m - base) / 1000
        self._metrics.set(names.JOINER_CLOCK_AHEAD, ahead_s)
        self._differs.look(abs(ahead_s), ahead_seconds=round(ahead_s, 1))
        lags: dict[int, float] = {}
        delays: dict[int, float] = {}
        waits: dict[int, float] = {}
        notes: dict[int, str] = {}
        guessed = 0
        for joiner in joiners:
            partition, inputs = joiner.partition, joiner.inputs
            if inputs is None or inputs.clock is None:
                continue
            lag_ms, extra_ms = inputs.clock.lag_ms(base), inputs.clock.extra_ms()
            waits[partition] = inputs.waits_ms(m) / 1000
            notes[partition] = AWAITS_CLICK if inputs.awaits_click else AWAITS_NEXT
            if lag_ms is not None:
                lags[partition] = lag_ms / 1000
            if extra_ms is not None:
                delays[partition] = -extra_ms / 1000
            guessed += self._count_guesses(joiner, m, base)
        for metric, episode, seconds in zip(
            PARTITION_GAUGES,
            (self._lags, self._delays, self._waits),
            (lags, delays, waits),
            strict=True,
        ):
            for partition, value in seconds.items():
                self._metrics.set(metric, value, partition=str(partition))
            episode.look_at_worst(seconds, notes if episode is self._waits else None)
        if guessed:
            self._ahead_until = m + GUESSES_OVER_MS
        self._ahead.look(float(m <= self._ahead_until), examples=guessed)

    def _count_guesses(self, joiner: PartitionJoiner, m: int, base: int) -> int:
        total, before = joiner.count_guesses(m, base), self._guessed.get(joiner.partition, 0)
        self._guessed[joiner.partition] = total
        new = total - before if total >= before else total  # the partition was begun again
        self._metrics.inc(names.JOINER_GUESSED, new, partition=str(joiner.partition))
        return new

    def forget(self, partition: int) -> None:
        """A partition is not joined here any more."""
        self._guessed.pop(partition, None)


class BehindWatch:
    """Notices when a partition is behind and comes no nearer: the lag of a history that is read falls all the while."""

    def __init__(self, log: Logger) -> None:
        self._episode = Episode(log, "behind", "caught_up", limit=BEHIND_S)
        self._least: dict[int, tuple[float, float]] = {}

    def look(self, lags_s: Mapping[int, float], now_s: float) -> None:
        """Take the lags of the partitions. now_s: the monotonic clock."""
        least = self._least
        self._least = {
            partition: min(least.get(partition, (lag_s, now_s)), (lag_s, now_s)) if lag_s > BEHIND_S else (lag_s, now_s)
            for partition, lag_s in lags_s.items()
        }
        falling = {partition for partition, (_, since_s) in self._least.items() if now_s - since_s < FALLS_S}
        told = lags_s if self._episode.lasts else {p: lag_s for p, lag_s in lags_s.items() if p not in falling}
        self._episode.look_at_worst(told)


class AheadWatch:
    """Notices when log time is ahead of the clock: then enough producers have wrong clocks to agree on it."""

    def __init__(self, metrics: Metrics, log: Logger) -> None:
        self._metrics = metrics
        self._episodes = {
            side: Episode(log, "log_time_ahead", limit=AHEAD_S, ends_at=0.0) for side in ("impressions", "clicks")
        }

    def look(self, joiners: Iterable[PartitionJoiner], now_ms: int) -> None:
        """Report how far the log time of each input is ahead of the clock."""
        joins = {joiner.partition: joiner.join for joiner in joiners if joiner.join is not None}
        for side, episode in self._episodes.items():
            log_times = {
                p: join.impression_log_time if side == "impressions" else join.click_log_time
                for p, join in joins.items()
            }
            ahead_s = {p: max(log_time - now_ms, 0) / 1000 for p, log_time in log_times.items()}
            self._metrics.set(names.JOINER_LOG_TIME_AHEAD, max(ahead_s.values(), default=0.0), input=side)
            episode.look_at_worst(ahead_s, input=side)


@dataclass(frozen=True)
class _Bound:
    """More than `limit` of an input's records with these outcomes is worth a line."""

    event: str
    side: Literal["impressions", "clicks"]
    outcome: str
    limit: float

    @property
    def least_to_end(self) -> float:
        """A share that was said is judged, and counted anew, after so many records of its input."""
        return max(LEAST_RECORDS, LEAST_FOUND / self.limit)


_BOUNDS = (
    _Bound("many_duplicates", "impressions", "duplicates", 0.1),
    _Bound("many_duplicates", "clicks", "duplicates", 0.1),
    _Bound("many_dead_letters", "impressions", "dead", 0.01),
    _Bound("many_dead_letters", "clicks", "dead", 0.01),
    _Bound("many_late", "impressions", "late", 0.01),
    _Bound("many_late", "clicks", "late", 0.05),
    _Bound("many_early", "impressions", "early", 0.02),
    _Bound("many_early", "clicks", "early", 0.02),
)


class ShareWatch:
    """Notices shares above their bounds, over all partitions of a joiner."""

    def __init__(self, log: Logger) -> None:
        self._watched = [(bound, Counter[str](), Episode(log, bound.event, limit=bound.limit)) for bound in _BOUNDS]

    def note(self, counts: TickCounts, early: Early = NOTHING_EARLY) -> None:
        """Take the counts of a mark, and how much of it was early."""
        impressions, clicks = counts.impressions, counts.clicks
        for bound, total, episode in self._watched:
            is_click = bound.side == "clicks"
            if bound.outcome == "early":
                found = early.clicks if is_click else early.examples
            else:
                found = getattr(clicks if is_click else impressions, bound.outcome)
            total.update(records=clicks.settled if is_click else impressions.read, found=found)
            if total["records"] >= (bound.least_to_end if episode.lasts else LEAST_RECORDS):
                share = total["found"] / total["records"]
                episode.look(share, input=bound.side, share=round(share, 3))
                total.clear()


class OrphanShare:
    """Notices when most clicks find no impression, over all partitions of a joiner."""

    LIMIT = 0.5
    LEAST_CLICKS = 1_000
    """The share is judged, and counted anew, after so many clicks whose outcome is known."""

    def __init__(self, log: Logger, partitions: int) -> None:
        """partitions: of each input."""
        self._episode, self._partitions = Episode(log, "many_orphans", limit=self.LIMIT), partitions
        self._clicks = self._orphans = 0

    def note(self, counts: TickCounts) -> None:
        """Take the counts of a mark. Where it begins, the line has the share of matched clicks, and likely causes."""
        clicks = counts.clicks
        self._clicks += clicks.matched + clicks.orphans
        self._orphans += clicks.orphans
        if self._clicks < self.LEAST_CLICKS:
            return
        orphans = self._orphans / self._clicks
        self._clicks = self._orphans = 0
        matched = 1 - orphans
        about = {} if self._episode.lasts else {"note": likely_causes(matched, self._partitions)}
        self._episode.look(orphans, matched_share=round(matched, 3), **about)


def likely_causes(matched_share: float, partitions: int) -> str:
    """The likely causes why few clicks find their impression, by the share that does. partitions: of each input."""
    if partitions > 1 and 0.5 < matched_share * partitions < 1.5:
        return (
            f"about one click in {partitions}, the number of partitions, finds its impression, as when the producers "
            "of the two topics use different partitioners: Java's default is murmur2, librdkafka's is CRC32"
        )
    if matched_share < HARDLY_ANY:
        return (
            "hardly any click finds an impression with its id: other ids in the two topics, topics that share no key, "
            "times in another unit than input.time_unit, or impressions that are gone or came before the model began"
        )
    return (
        "most clicks find no impression with their id in their partition: clicks later than join.window, impressions "
        "that are gone or came before the model began, or one producer of several with other ids or partitioner"
    )
