"""Bounds as they go through the log: their estimates, their evidence, and the tick that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stream_learner.core.gate import steps
from stream_learner.core.gate.bounds import BURST, PRIOR, Bound, Excess
from stream_learner.core.gate.days import Day, Days


class Series:
    """Some bounds. `judge` a tick, then `take`, `accept` or `skip` it; `judge` changes nothing that `state` shows."""

    def __init__(self, bounds: Sequence[Bound], *, tick_ms: int, false_alarms: float, warm_up_ms: int) -> None:
        count = len(bounds)
        self._bounds = steps.zeros(steps.BOUND, count)
        self._tests = steps.zeros(steps.TEST, count, steps.TESTS)
        self._rows = steps.zeros(steps.ROW, count)
        self._scores = steps.zeros(steps.SCORE, count, steps.TESTS)
        self._coming = steps.zeros(steps.COMING, count)
        self._steps = steps.zeros(steps.STEP, count, steps.TESTS)
        self._arrays = self._bounds, self._tests, self._rows, self._scores, self._coming, self._steps
        self._days = []
        for n, bound in enumerate(bounds):
            self._tests[n] = steps.tests_of(bound.tests)
            self._bounds[n] = (
                *(bound.floor, bound.dispersion, tick_ms, warm_up_ms, false_alarms),
                *(bound.capped, bound.by_exposure, len(bound.tests)),
            )
            self._days.append(Days(bound, self._bounds[n], self._rows[n]))
            self._begin_anew(n)
        self._judged: tuple[int, int] | None = None
        self._answer = steps.SOUND
        self._broken_days: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def _begin_anew(self, n: int) -> None:
        self._rows[n] = np.zeros((), steps.ROW)
        row = self._rows[n]
        row.budget, row.spread, row.spread_of = BURST, PRIOR, PRIOR
        row.waits_since_ms = row.day = row.day_tick = row.minute = -1
        for score in self._scores[n]:
            steps.advance(score, 0.0, 0, 0.0, 0.0)
        self._days[n].begin_anew()

    def judge(
        self, tick: int, now_ms: int, counts: Sequence[tuple[float, float]], ms: float, gap: bool
    ) -> tuple[int, Excess] | None:
        """The first bound that the counts of a tick break, by its place, and how.

        now_ms: log time. counts: found events and exposure of each bound. ms: the log time that has passed. gap:
        whether the log had a pause before the tick.
        """
        given = np.array(counts, np.float64).reshape(-1, 2)
        self._judged, self._broken_days = (tick, now_ms), set()
        self._answer = steps.judge(*self._arrays, given, now_ms, ms, gap)
        return None if self._answer == steps.SOUND else self._first_excess(tick, now_ms)

    def _first_excess(self, tick: int, now_ms: int) -> tuple[int, Excess] | None:
        first = None
        for n in range(len(self)):
            excess = self._excess(n, tick, now_ms)
            if excess is not None and first is None:
                first = n, excess
        return first

    def _excess(self, n: int, tick: int, now_ms: int) -> Excess | None:
        coming = self._coming[n]
        if coming.broken >= 0:
            score, test = self._scores[n, coming.broken], self._tests[n, coming.broken]
            expected = float(self._steps[n, coming.broken].expected)
            return steps.excess_of(score, test, tick, float(coming.found), expected, float(coming.limit))
        excess = self._days[n].judge() if steps.day_ends(self._rows[n], now_ms) else None
        if excess is not None:
            self._broken_days.add(n)
        return excess

    def take(self) -> None:
        """The tick judged last is learned."""
        tick, now_ms = self._ended()
        if self._answer & steps.DAY_ENDS:
            for row, coming, days in zip(self._rows, self._coming, self._days, strict=True):
                if coming.exposure > 0.0 and steps.day_ends(row, now_ms):
                    days.end()
        steps.take(*self._arrays, tick, now_ms)

    def accept(self) -> None:
        """The tick judged last is learned by decision: where it was out of bounds, what is usual begins with it."""
        for n in self._broken():
            self._begin_anew(n)
            coming = self._coming[n]
            coming.fast_found = coming.fast_exposure = coming.fast_ms = 0.0
            coming.ready = False
            for step in self._steps[n]:
                step.value = 0.0
        self.take()

    def skip(self) -> None:
        """The tick judged last is left out; so is what waited to be learned and was found out of bounds with it.

        Half of the evidence stays. So a tick behind it that is sound, by chance a little low, is not held for what came
        before it; and where the wrong goes on, it is held after half as many events as at first.
        """
        broken = self._broken()
        self._ended()
        for n in broken:
            if n in self._broken_days:
                self._days[n].skip()
            else:
                self._ease(n)

    def _ease(self, n: int) -> None:
        row = self._rows[n]
        for score in self._scores[n]:
            score.value, score.found, score.expected = score.value / 2.0, score.found / 2.0, score.expected / 2.0
        steps.forget_waiting(row)
        row.new_off = row.new_of = 0.0

    def _broken(self) -> list[int]:
        """The places of the bounds that the tick judged last is out of."""
        if self._answer == steps.SOUND:
            return []
        return [n for n, coming in enumerate(self._coming) if coming.broken >= 0 or n in self._broken_days]

    def _ended(self) -> tuple[int, int]:
        assert self._judged is not None, "`judge` comes first"
        judged, self._judged = self._judged, None
        return judged

    # state

    def state(self, n: int) -> dict[str, Any]:
        """All of one bound, exact, in JSON's types."""
        row = self._rows[n]
        learned, waiting = self._days[n].state()
        return {
            "ready": bool(row.ready),
            "since": [int(row[name]) for name in _SINCE],
            "scores": [
                [int(score.since), *_hex(score.value, score.found, score.expected)] for score in self._all_scores(n)
            ],
            "estimates": [_hex(*(row[f"{name}_{part}"] for part in _ESTIMATE)) for name in ("fast", "slow", "pace")],
            "sums": [_hex(*(row[name] for name in _WAITING)), _hex(*(row[name] for name in _DAY), 0.0)],
            "days": [_hex(*day) for day in learned],
            "waiting_days": [_hex(*day) for day in waiting],
            "numbers": _hex(*(row[name] for name in _NUMBERS)),
        }

    def restore(self, n: int, state: Mapping[str, Any]) -> None:
        """Go on from a state of one bound. Raises ValueError for a state that does not have its numbers."""
        self._begin_anew(n)
        row = self._rows[n]
        row.ready = bool(state["ready"])
        _fill(row, _SINCE, map(int, state["since"]))
        for score, (since, *numbers) in zip(self._all_scores(n), state["scores"], strict=True):
            _fill(score, ("value", "found", "expected"), _floats(numbers))
            score.since = int(since)
        for name, numbers in zip(("fast", "slow", "pace"), state["estimates"], strict=True):
            _fill(row, [f"{name}_{part}" for part in _ESTIMATE], _floats(numbers))
        waiting, day = state["sums"]
        _fill(row, _WAITING, _floats(waiting))
        _fill(row, _DAY, _day(day)[:3])
        _fill(row, _NUMBERS, _floats(state["numbers"]))
        learned, waiting = ([_day(day) for day in state[name]] for name in ("days", "waiting_days"))
        self._days[n].restore(learned, waiting)

    def _all_scores(self, n: int) -> list[steps.Record]:
        return [*self._scores[n][: self._bounds[n].tests], *self._days[n].scores]


_SINCE = ("waits_since_ms", "day", "days", "day_tick", "minute")
_ESTIMATE = ("found", "exposure", "ms")
_WAITING = ("waiting_found", "waiting_exposure", "waiting_ms", "waiting_expected")
_DAY = ("day_found", "day_exposure", "day_ms")
_NUMBERS = (
    "age_ms",
    "idle_ms",
    "budget",
    "minute_off",
    "minute_of",
    "new_off",
    "new_of",
    "recent",
    "recent_of",
    "recent_found",
    "recent_found_of",
    "newest",
    "newest_of",
    "spread",
    "spread_of",
)


def _fill(record: steps.Record, names: Sequence[str], values: Any) -> None:
    for name, value in zip(names, values, strict=True):
        record[name] = value


def _day(texts: Sequence[str]) -> Day:
    found, exposure, ms, expected = _floats(texts)
    return Day(found, exposure, ms, expected)


def _hex(*numbers: float) -> list[str]:
    return [float(number).hex() for number in numbers]


def _floats(texts: Sequence[str]) -> list[float]:
    return [float.fromhex(text) for text in texts]
