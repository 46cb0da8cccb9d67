"""What the clocks of a joiner's partitions know, for metrics and log: lags, waiting windows, guesses, clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.roles.joiner.brokers_clock import BrokersClock
from stream_learner.roles.joiner.partition import PartitionJoiner

WAITS_S = 60.0
"""Windows that wait for less are not worth a line."""
DIFFERS_S = 5.0
"""A wall clock that differs from the brokers' by more is worth a line."""
PARTITION_GAUGES = (names.JOINER_STREAM_LAG, names.JOINER_CLICK_DELAY, names.JOINER_WINDOWS_WAIT)


class _Episode:
    """Says when something begins, with the partition where it is worst, and when it is over."""

    def __init__(self, log: Logger, begins: str, ends: str, limit: float) -> None:
        self._log, self._begins, self._ends, self._limit = log, begins, ends, limit
        self._lasts = False

    def note(self, seconds: Mapping[int, float], **fields: object) -> None:
        """Take a value of each partition."""
        worst = max(seconds, key=lambda partition: seconds[partition], default=-1)
        most = seconds.get(worst, 0.0)
        if not self._lasts and most > self._limit:
            self._lasts = True
            self._log.warning(self._begins, partition=worst, seconds=round(most, 1), **fields)
        elif self._lasts and most <= self._limit / 2:
            self._lasts = False
            self._log.info(self._ends)


class StreamReport:
    """Reports once a second; used by one thread."""

    def __init__(self, metrics: Metrics, log: Logger, brokers: BrokersClock, *, window_s: float, tick_ms: int) -> None:
        self._metrics, self._log, self._brokers = metrics, log, brokers
        self._lags = _Episode(log, "stream_lags", "stream_lags_no_more", window_s)
        self._waits = _Episode(log, "windows_wait", "windows_wait_no_more", WAITS_S)
        self._tick_ms = tick_ms
        self._guessed: dict[int, int] = {}
        self._guessing = False
        self._clock_differs = False

    def look(self, joiners: Iterable[PartitionJoiner], m: int, wall_ms: int) -> None:
        """Report what the clocks of the partitions know. m, wall_ms: the monotonic and the wall clock."""
        base = self._brokers.base
        if base is None:
            return
        self._look_at_wall_clock((wall_ms - m - base) / 1000)
        lags, waits, guessed = {}, {}, 0
        for joiner in joiners:
            partition, inputs = joiner.partition, joiner.inputs
            if inputs is None or inputs.clock is None:
                continue
            lag_ms, extra_ms = inputs.clock.lag_ms(base), inputs.clock.extra_ms()
            waits[partition] = inputs.waits_ms(m) / 1000
            self._metrics.set(names.JOINER_WINDOWS_WAIT, waits[partition], partition=str(partition))
            if lag_ms is not None:
                lags[partition] = lag_ms / 1000
                self._metrics.set(names.JOINER_STREAM_LAG, lags[partition], partition=str(partition))
            if extra_ms is not None:
                self._metrics.set(names.JOINER_CLICK_DELAY, -extra_ms / 1000, partition=str(partition))
            guessed += self._count_guesses(joiner, m, base)
        note = "windows close so much later than they end; nothing is lost by it"
        self._lags.note(lags, note=note)
        note = (
            "an input is silent for longer than usual: windows wait, for join.idle_after at the longest, or for a click"
        )
        self._waits.note(waits, note=note)
        self._say_guessed(guessed)

    def _count_guesses(self, joiner: PartitionJoiner, m: int, base: int) -> int:
        total, before = joiner.count_guesses(m, base), self._guessed.get(joiner.partition, 0)
        self._guessed[joiner.partition] = total
        new = total - before if total >= before else total  # the partition was begun again
        self._metrics.inc(names.JOINER_GUESSED, new, partition=str(joiner.partition))
        return new

    def _say_guessed(self, new: int) -> None:
        if new and not self._guessing:
            self._log.warning(
                "stream_was_ahead",
                examples=new,
                note="windows were closed before all clicks were there, as it turned out: events came later than they "
                "did before. A replay of old events into the topic looks the same",
            )
        elif self._guessing and not new:
            self._log.info("stream_was_ahead_no_more")
        self._guessing = bool(new)

    def _look_at_wall_clock(self, ahead_s: float) -> None:
        self._metrics.set(names.JOINER_CLOCK_AHEAD, ahead_s)
        if (abs(ahead_s) > DIFFERS_S) == self._clock_differs:
            return
        self._clock_differs = not self._clock_differs
        say, event = (
            (self._log.warning, "clock_differs") if self._clock_differs else (self._log.info, "clock_right_again")
        )
        say(event, ahead_seconds=round(ahead_s, 1), note="the wall clock of this process against that of the brokers")

    def forget(self, partition: int) -> None:
        """A partition is not joined here any more."""
        self._guessed.pop(partition, None)
