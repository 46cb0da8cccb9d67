"""One bound as it goes through the log: its estimates, its evidence, and the tick that is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_learner.core.gate.bounds import (
    BURST,
    DAY_MS,
    EVIDENCE,
    FAST_FOUND,
    FAST_MS,
    FINE_EVIDENCE,
    HOUR_MS,
    LAUNCH,
    LULL,
    LULL_MS,
    MINUTE_MS,
    PATIENCE,
    PATIENCE_MS,
    PRIOR,
    SLOW_FOUND,
    SLOW_MS,
    YEAR_MS,
    Bound,
    Estimate,
    Excess,
    Score,
    Sum,
)
from stream_learner.core.machine.arithmetic import log

_LEAST_LIMIT = 8.0
"""No limit of evidence is below this, so below it none need be worked out."""
_LEAST_A_YEAR = 1_000.0


class _Judged(NamedTuple):
    """The tick that was judged last, and what follows from learning it."""

    tick: int
    now_ms: int
    found: float
    exposure: float
    ms: float
    fast: Estimate
    ready: bool
    expected: float
    budget: float
    values: list[float]
    expecteds: list[float]
    broken: bool
    day_broken: bool


class Series:
    """One bound. `judge` a tick, then `take`, `accept` or `skip` it; `judge` changes nothing that `state` shows."""

    def __init__(self, bound: Bound, *, false_alarms: float, warm_up_ms: int) -> None:
        self.bound = bound
        self._false_alarms, self._warm_up_ms = false_alarms, warm_up_ms
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._ready = False
        self._age_ms = 0.0
        self._idle_ms = 0.0
        self._budget = BURST
        self._fast = Estimate()
        self._slow = Estimate()
        self._waiting = Sum()
        self._waits_since_ms = -1
        self._scores = [Score(test) for test in self.bound.tests]
        self._day_score = None if self.bound.day is None else Score(self.bound.day)
        self._day, self._days, self._day_tick = -1, 0, -1
        self._day_sum, self._days_waiting = Sum(), Sum()
        self._minute, self._minute_off, self._minute_of = -1, 0.0, 0.0
        self._new_off, self._new_of = 0.0, 0.0
        self._recent, self._recent_of = 0.0, 0.0
        self._spread, self._spread_of = PRIOR, PRIOR
        self._judged: _Judged | None = None

    # judging

    def judge(self, tick: int, now_ms: int, found: float, exposure: float, ms: float, gap: bool) -> Excess | None:
        """Whether the counts of a tick, for which `ms` of log time passed, are out of bounds.

        now_ms: log time. gap: whether the log had a pause before the tick.
        """
        ms += self._idle_ms
        fast = self._fast.faded(EVIDENCE / 2) if gap else self._fast
        ready = self._ready or self._is_ready(fast)
        expected = exposure * max(fast.share, self.bound.floor)
        part, budget = self._part(fast, ready, expected, ms)
        fine = ready and fast.ms <= FAST_MS and fast.found >= FINE_EVIDENCE and not self._is_lull(fast, exposure, ms)
        values, expecteds = [], []
        limit, excess = 0.0, None
        for score in self._scores:
            test, of_test, value = score.test, expected, 0.0
            if fine or (ready and not test.fine):
                if test.lenient and self._days:
                    of_slow = exposure * max(self._slow.share, self.bound.floor)
                    of_test = min(of_test, of_slow) if score.is_low else max(of_test, of_slow)
                if score.is_low:
                    of_test *= part
                value = score.after(found, of_test)
                if value > _LEAST_LIMIT and excess is None:
                    limit = limit or self._limit(fast)
                    if value > limit:
                        excess = score.excess(tick, found, of_test, limit)
            values.append(value)
            expecteds.append(of_test)
        of_day = None if excess is not None else self._judge_day(now_ms)
        broken = excess is not None, of_day is not None
        self._judged = _Judged(
            tick, now_ms, found, exposure, ms, fast, ready, expected, budget, values, expecteds, *broken
        )
        return excess or of_day

    def _is_ready(self, fast: Estimate) -> bool:
        evidence = fast.exposure if self.bound.by_exposure else fast.found
        return self._age_ms >= self._warm_up_ms and evidence >= EVIDENCE

    def _part(self, fast: Estimate, ready: bool, expected: float, ms: float) -> tuple[float, float]:
        """The part of what is expected that the time allows, and the budget that is left."""
        if not (ready and self.bound.capped and expected > 0.0):
            return 1.0, self._budget
        of_time = LAUNCH * fast.found / fast.ms * ms
        budget = min(self._budget + of_time, max(BURST, of_time))
        part = min(1.0, budget / expected)
        return part, budget - part * expected

    def _is_lull(self, fast: Estimate, exposure: float, ms: float) -> bool:
        if not self.bound.capped:
            return False
        keep = 1.0 / (1.0 + ms / LULL_MS)
        usual = self._recent_of * keep + fast.exposure / fast.ms * ms
        return self._recent * keep + exposure < LULL * usual

    def _limit(self, fast: Estimate) -> float:
        """The evidence that chance gives `false_alarms` times a year, times the dispersion."""
        a_year = max(fast.found / fast.ms * YEAR_MS, _LEAST_A_YEAR)
        return float(log(a_year / self._false_alarms)) * self.dispersion

    @property
    def dispersion(self) -> float:
        """How many times as much the counts of minutes vary as they would by chance; at least 1."""
        return max(1.0, self._spread / self._spread_of)

    def _judge_day(self, now_ms: int) -> Excess | None:
        """Whether the day that ended before this tick was out of bounds."""
        score, found = self._day_score, self._day_sum.found
        if score is None or not self._day_ends(now_ms) or not self._day_is_judged:
            return None
        expected = self._of_day()
        limit = float(log(365.0 / self._false_alarms)) * self.dispersion
        return score.excess(self._day_tick, found, expected, limit) if score.after(found, expected) > limit else None

    def _day_ends(self, now_ms: int) -> bool:
        return self._day >= 0 and now_ms // DAY_MS != self._day

    @property
    def _day_is_judged(self) -> bool:
        return self._days >= 2 and self._slow.found >= EVIDENCE

    def _of_day(self) -> float:
        """The events that were expected of the day that has ended."""
        day, slow = self._day_sum, self._slow
        expected = day.exposure * max(slow.share, self.bound.floor)
        return min(expected, LAUNCH * slow.found / slow.ms * day.ms) if self.bound.capped else expected

    # learning

    def take(self) -> None:
        """The tick judged last is learned."""
        judged = self._ended()
        if judged.exposure <= 0.0:
            self._idle_ms = judged.ms
            return
        self._idle_ms = 0.0
        self._fast, self._ready, self._budget = judged.fast, judged.ready, judged.budget
        self._age_ms += judged.ms
        for score, value, expected in zip(self._scores, judged.values, judged.expecteds, strict=True):
            score.take(value, judged.tick, judged.found, expected)
        self._take_recent(judged)
        self._take_minute(judged)
        self._take_day(judged)
        if self._waits_since_ms < 0:
            self._waits_since_ms = judged.now_ms
        self._waiting.add(judged.found, judged.exposure, judged.ms, judged.expected)
        suspicious = any(value > 0.0 for value in judged.values)
        if not suspicious or self._has_waited_long(judged.now_ms):
            self._learn_waiting()

    def accept(self) -> None:
        """The tick judged last is learned by decision: where it was out of bounds, what is usual begins with it."""
        judged = self._ended()
        if judged.broken or judged.day_broken:
            self._begin_anew()
            judged = judged._replace(
                fast=self._fast, ready=False, values=[0.0] * len(judged.values), broken=False, day_broken=False
            )
        self._judged = judged
        self.take()

    def skip(self) -> None:
        """The tick judged last is left out; so is what waited to be learned and was found out of bounds with it."""
        judged = self._ended()
        if judged.broken:
            self._waiting, self._waits_since_ms = Sum(), -1
            self._new_off = self._new_of = 0.0
        if judged.day_broken:
            self._day_sum, self._days_waiting, self._day = Sum(), Sum(), -1
            assert self._day_score is not None
            self._day_score.clear()

    def _ended(self) -> _Judged:
        assert self._judged is not None, "`judge` comes first"
        judged, self._judged = self._judged, None
        return judged

    def _has_waited_long(self, now_ms: int) -> bool:
        return now_ms - self._waits_since_ms >= PATIENCE_MS and self._waiting.expected >= PATIENCE

    def _learn_waiting(self) -> None:
        waiting = self._waiting
        self._fast.learn(waiting.found, waiting.exposure, waiting.ms, HOUR_MS, FAST_FOUND)
        keep = 1.0 / (1.0 + waiting.ms / DAY_MS)
        self._spread = self._spread * keep + self._new_off
        self._spread_of = self._spread_of * keep + self._new_of
        self._new_off = self._new_of = 0.0
        self._waiting, self._waits_since_ms = Sum(), -1
        for score in self._scores:
            score.clear()

    def _take_recent(self, judged: _Judged) -> None:
        if judged.ready:
            keep = 1.0 / (1.0 + judged.ms / LULL_MS)
            self._recent = self._recent * keep + judged.exposure
            self._recent_of = self._recent_of * keep + judged.fast.exposure / judged.fast.ms * judged.ms

    def _take_minute(self, judged: _Judged) -> None:
        """How far the events of a minute are off what is expected makes the dispersion."""
        minute = judged.now_ms // MINUTE_MS
        if minute != self._minute:
            self._new_off += self._minute_off * self._minute_off
            self._new_of += self._minute_of
            self._minute, self._minute_off, self._minute_of = minute, 0.0, 0.0
        if judged.ready:
            self._minute_off += judged.found - judged.expected
            self._minute_of += judged.expected

    def _take_day(self, judged: _Judged) -> None:
        if self._day_ends(judged.now_ms):
            self._end_day()
        if self._day < 0:
            self._day, self._day_tick = judged.now_ms // DAY_MS, judged.tick
        self._day_sum.add(judged.found, judged.exposure, judged.ms, 0.0)

    def _end_day(self) -> None:
        score, day, waiting = self._day_score, self._day_sum, self._days_waiting
        expected = self._of_day() if self._day_is_judged else 0.0
        waiting.add(day.found, day.exposure, day.ms, expected)
        suspicious = False
        if score is not None and self._day_is_judged:
            score.take(score.after(day.found, expected), self._day_tick, day.found, expected)
            suspicious = score.value > 0.0
        if not suspicious or waiting.expected >= PATIENCE:
            self._slow.learn(waiting.found, waiting.exposure, waiting.ms, SLOW_MS, SLOW_FOUND)
            self._days_waiting = Sum()
            if score is not None:
                score.clear()
        self._day_sum, self._day = Sum(), -1
        self._days += 1

    # state

    def state(self) -> dict[str, Any]:
        """Everything, exact, in JSON's types."""
        scores = [*self._scores, *([] if self._day_score is None else [self._day_score])]
        return {
            "ready": self._ready,
            "since": [self._waits_since_ms, self._day, self._days, self._day_tick, self._minute],
            "scores": [[score.since, *_hex(score.value, score.found, score.expected)] for score in scores],
            "sums": [_hex(*_parts(part)) for part in (self._fast, self._slow)]
            + [_hex(*_parts(part), part.expected) for part in (self._waiting, self._day_sum, self._days_waiting)],
            "numbers": _hex(*(getattr(self, name) for name in _NUMBERS)),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._begin_anew()
        self._ready = bool(state["ready"])
        self._waits_since_ms, self._day, self._days, self._day_tick, self._minute = map(int, state["since"])
        scores = [*self._scores, *([] if self._day_score is None else [self._day_score])]
        for score, (since, *numbers) in zip(scores, state["scores"], strict=True):
            score.since = int(since)
            score.value, score.found, score.expected = _floats(numbers)
        fast, slow, waiting, day, days = map(_floats, state["sums"])
        self._fast, self._slow = Estimate(*fast), Estimate(*slow)
        self._waiting, self._day_sum, self._days_waiting = Sum(*waiting), Sum(*day), Sum(*days)
        for name, number in zip(_NUMBERS, _floats(state["numbers"]), strict=True):
            setattr(self, name, number)


_NUMBERS = (
    "_age_ms",
    "_idle_ms",
    "_budget",
    "_minute_off",
    "_minute_of",
    "_new_off",
    "_new_of",
    "_recent",
    "_recent_of",
    "_spread",
    "_spread_of",
)


def _parts(part: Estimate | Sum) -> tuple[float, float, float]:
    return part.found, part.exposure, part.ms


def _hex(*numbers: float) -> list[str]:
    return [float(number).hex() for number in numbers]


def _floats(texts: list[str]) -> list[float]:
    return [float.fromhex(text) for text in texts]
