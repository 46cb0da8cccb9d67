"""What the clocks of a joiner's partitions know, for metrics and log: lags, waiting windows, guesses, clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.ticks import BrokersClock

WAITS_S = 60.0
"""Windows that wait for less are not worth a line."""
GUESSES_OVER_MS = 600_000
"""Guesses are over when none was found for so long."""
DIFFERS_S = 5.0
"""A wall clock that differs from the brokers' by more is worth a line."""
PARTITION_GAUGES = (names.JOINER_STREAM_LAG, names.JOINER_CLICK_DELAY, names.JOINER_WINDOWS_WAIT)


class _Episode:
    """Logs one line when a value has passed a limit, and another, named `…_no_more`, when it has fallen to half."""

    def __init__(self, log: Logger, name: str, limit: float, note: str) -> None:
        self._log, self._name, self._limit, self._note = log, name, limit, note
        self._lasts = False

    def look(self, value: float, **fields: object) -> None:
        """Take the present value; `fields` are for the line."""
        if not self._lasts and value > self._limit:
            self._lasts = True
            self._log.warning(self._name, **fields, note=self._note)
        elif self._lasts and value <= self._limit / 2:
            self._lasts = False
            self._log.info(f"{self._name}_no_more")

    def look_at_worst(self, seconds: Mapping[int, float]) -> None:
        """Take the value of each partition; the line names the largest."""
        worst = max(seconds, key=lambda partition: seconds[partition], default=-1)
        most = seconds.get(worst, 0.0)
        self.look(most, partition=worst, seconds=round(most, 1))


class StreamReport:
    """Reports once a second; used by one thread."""

    def __init__(self, metrics: Metrics, log: Logger, brokers: BrokersClock, *, window_s: float) -> None:
        self._metrics, self._brokers = metrics, brokers
        later = "windows close so much later than they end"
        self._lags = _Episode(log, "stream_lags", window_s, f"{later}; nothing is lost by it")
        mixed = "where it comes and goes, some clicks come at once and others late: those are late, or orphans"
        self._delays = _Episode(log, "clicks_lag", window_s, f"{later}; {mixed}")
        self._waits = _Episode(
            log,
            "windows_wait",
            WAITS_S,
            "an input is silent for longer than usual: windows wait, for join.idle_after at the most, or for a click",
        )
        self._ahead = _Episode(
            log,
            "stream_was_ahead",
            0.5,
            "windows were closed before all clicks were there, as it turned out: events came later than they did "
            "before. A replay of old events into the topic looks the same",
        )
        self._differs = _Episode(
            log, "clock_differs", DIFFERS_S, "the wall clock of this process against that of the brokers"
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
        guessed = 0
        for joiner in joiners:
            partition, inputs = joiner.partition, joiner.inputs
            if inputs is None or inputs.clock is None:
                continue
            lag_ms, extra_ms = inputs.clock.lag_ms(base), inputs.clock.extra_ms()
            waits[partition] = inputs.waits_ms(m) / 1000
            if lag_ms is not None:
                lags[partition] = lag_ms / 1000
            if extra_ms is not None:
                delays[partition] = -extra_ms / 1000
            guessed += self._count_guesses(joiner, m, base)
        for metric, seconds in zip(PARTITION_GAUGES, (lags, delays, waits), strict=True):
            for partition, value in seconds.items():
                self._metrics.set(metric, value, partition=str(partition))
        self._lags.look_at_worst(lags)
        self._delays.look_at_worst(delays)
        self._waits.look_at_worst(waits)
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
