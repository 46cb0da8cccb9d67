"""One bound as it goes through the log: its estimates, its evidence, and the tick that is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_learner.core.gate.bounds import (
    ALIKE,
    BURST,
    DAY_MS,
    DAYS,
    EVIDENCE,
    FAST_FOUND,
    FAST_MS,
    FINE_EVIDENCE,
    HOUR_MS,
    LAUNCH,
    LAUNCHED,
    LOWEST_DAYS,
    LULL,
    LULL_MS,
    MINUTE_MS,
    MOST_DAYS,
    OF_A_DAY,
    PATIENCE,
    PATIENCE_MS,
    PRIOR,
    RISE,
    RISING,
    RISING_MS,
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

    def __init__(self, bound: Bound, *, tick_ms: int, false_alarms: float, warm_up_ms: int) -> None:
        self.bound = bound
        self._tick_ms = tick_ms
        self._false_alarms, self._warm_up_ms = false_alarms, warm_up_ms
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._ready = False
        self._age_ms = 0.0
        self._idle_ms = 0.0
        self._budget = BURST
        self._fast = Estimate()
        self._slow = Estimate()
        self._pace = Estimate()
        self._waiting = Sum()
        self._waits_since_ms = -1
        self._scores = [Score(test) for test in self.bound.tests]
        self._day_score = None if self.bound.day is None else Score(self.bound.day)
        self._day, self._days, self._day_tick = -1, 0, -1
        self._day_sum = Sum()
        self._learned_days: list[Sum] = []
        self._waiting_days: list[Sum] = []
        self._minute, self._minute_off, self._minute_of = -1, 0.0, 0.0
        self._new_off, self._new_of = 0.0, 0.0
        self._recent, self._recent_of = 0.0, 0.0
        self._recent_found, self._recent_found_of = 0.0, 0.0
        self._newest, self._newest_of = 0.0, 0.0
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
        lull, rising = self._traffic(fast, exposure, ms) if ready else (False, False)
        fine = ready and self._is_fine(fast) and not lull
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
                if value > _LEAST_LIMIT and excess is None and not (rising and test.fine):
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

    def _is_fine(self, fast: Estimate) -> bool:
        least_ms, most_ms = FAST_MS
        return least_ms <= fast.ms <= most_ms and fast.found >= FINE_EVIDENCE

    def _part(self, fast: Estimate, ready: bool, expected: float, ms: float) -> tuple[float, float]:
        """The part of what is expected that the time allows, and the budget that is left."""
        if not (ready and self.bound.capped and expected > 0.0):
            return 1.0, self._budget
        a_ms = LAUNCH * self._pace.found / self._pace.ms
        # A pause gives way to a few events only: what comes after it has come in a tick.
        of_time = min(a_ms * ms, max(a_ms * self._tick_ms, BURST))
        budget = min(self._budget + of_time, max(BURST, of_time))
        part = min(1.0, budget / expected)
        return part, budget - part * expected

    def _traffic(self, fast: Estimate, exposure: float, ms: float) -> tuple[bool, bool]:
        """Whether far fewer examples come than usual, and whether their number rises just now."""
        if not self.bound.capped:
            return False, False
        usual = fast.exposure / fast.ms * ms
        keep, short = 1.0 / (1.0 + ms / LULL_MS), 1.0 / (1.0 + ms / RISING_MS)
        lately = (self._recent * keep + exposure) / (self._recent_of * keep + usual)
        just_now = (self._newest * short + exposure) / (self._newest_of * short + usual)
        rises, faster = RISING
        return lately < LULL, just_now > rises and just_now > faster * lately

    def _limit(self, fast: Estimate) -> float:
        """The evidence that chance gives `false_alarms` times a year, times the dispersion."""
        a_year = max(fast.found / fast.ms * YEAR_MS, _LEAST_A_YEAR)
        return float(log(a_year / self._false_alarms)) * self.dispersion

    @property
    def dispersion(self) -> float:
        """How many times as much the counts of minutes vary as they would by chance; at least 1."""
        return max(self.bound.dispersion, self._spread / self._spread_of)

    def _judge_day(self, now_ms: int) -> Excess | None:
        """Whether the days up to the one that ended before this tick were out of bounds."""
        score, found = self._day_score, self._day_sum.found
        if score is None or not self._day_ends(now_ms) or not self._day_is_judged:
            return None
        expected, limit = self._of_day(), self._day_limit
        if self._after_day(score, expected) <= limit:
            return None
        return score.excess(self._day_tick, found, expected, limit)

    def _day_ends(self, now_ms: int) -> bool:
        return self._day >= 0 and now_ms // DAY_MS != self._day

    @property
    def _day_limit(self) -> float:
        return float(log(365.0 / self._false_alarms)) * self.dispersion

    def _after_day(self, score: Score, expected: float) -> float:
        return min(score.after(self._day_sum.found, expected), score.value + OF_A_DAY * self._day_limit)

    @property
    def _day_is_judged(self) -> bool:
        if len(self._learned_days) <= LOWEST_DAYS or self._slow.found < EVIDENCE:
            return False
        day, usual = self._day_sum, self._lowest_days()
        least, most = ALIKE if self.bound.capped else (0.0, float("inf"))
        return least * usual.exposure * day.ms <= day.exposure * usual.ms <= most * usual.exposure * day.ms

    def _lowest_days(self) -> Sum:
        by_share = sorted(self._learned_days, key=lambda day: (day.found / day.exposure, day.found, day.exposure))
        usual = Sum()
        for day in by_share[:LOWEST_DAYS]:
            usual.add(day.found, day.exposure, day.ms, 0.0)
        return usual

    def _of_day(self) -> float:
        """The events that were expected of the day that has ended."""
        usual, day = self._lowest_days(), self._day_sum
        return day.exposure * max(usual.found / usual.exposure, self.bound.floor)

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
        self._pace.learn(judged.found, judged.exposure, judged.ms, HOUR_MS, FAST_FOUND)
        self._take_recent(judged)
        self._take_minute(judged)
        self._take_day(judged)
        if self._waits_since_ms < 0:
            self._waits_since_ms = judged.now_ms
        self._waiting.add(judged.found, judged.exposure, judged.ms, judged.expected)
        if self._has_waited_long(judged.now_ms):
            for score in self._scores:
                score.clear()
        if not any(score.suspicious for score in self._scores):
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
        """The tick judged last is left out; so is what waited to be learned and was found out of bounds with it.

        Half of the evidence stays. So a tick behind it that is sound, by chance a little low, is not held for what came
        before it; and where the wrong goes on, it is held after half as many events as at first.
        """
        judged = self._ended()
        if judged.broken:
            for score in self._scores:
                score.ease()
            self._waiting, self._waits_since_ms = Sum(), -1
            self._new_off = self._new_of = 0.0
        if judged.day_broken:
            self._day_sum, self._waiting_days, self._day = Sum(), [], -1
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

    def _take_recent(self, judged: _Judged) -> None:
        """What the last minutes had, and what was usual for their time."""
        if not (judged.ready and self.bound.capped):
            return
        fast = judged.fast
        keep = 1.0 / (1.0 + judged.ms / LULL_MS)
        self._recent = self._recent * keep + judged.exposure
        self._recent_of = self._recent_of * keep + fast.exposure / fast.ms * judged.ms
        short = 1.0 / (1.0 + judged.ms / RISING_MS)
        self._newest = self._newest * short + judged.exposure
        self._newest_of = self._newest_of * short + fast.exposure / fast.ms * judged.ms
        self._recent_found = self._recent_found * keep + judged.found
        self._recent_found_of = self._recent_found_of * keep + fast.found / fast.ms * judged.ms
        if self._has_changed():
            self._fast = fast.faded(EVIDENCE / 2)

    def _has_changed(self) -> bool:
        """Whether much more, or much less, comes and is clicked: other traffic, whose usual share is not known yet."""
        shown, found = RISE
        more = self._recent > shown * self._recent_of and self._recent_found > found * self._recent_found_of
        launched, most = LAUNCHED
        more = more or launched * self._recent_of < self._recent < most * self._recent_of
        less = self._recent < LULL * self._recent_of and self._recent_found < LULL * self._recent_found_of
        return more or less

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
        score, day, waiting = self._day_score, self._day_sum, self._waiting_days
        if score is not None and self._day_is_judged:
            day.expected = self._of_day()
            score.take(self._after_day(score, day.expected), self._day_tick, day.found, day.expected)
        waiting.append(day)
        waits_long = len(waiting) > LOWEST_DAYS and sum(day.expected for day in waiting) >= PATIENCE
        if score is not None and (waits_long or len(waiting) >= MOST_DAYS):
            score.clear()
        if score is None or not score.suspicious:
            for day in waiting:
                self._slow.learn(day.found, day.exposure, day.ms, SLOW_MS, SLOW_FOUND)
            self._learned_days = [*self._learned_days, *waiting][-DAYS:]
            self._waiting_days = []
        self._day_sum, self._day = Sum(), -1
        self._days += 1

    # state

    def state(self) -> dict[str, Any]:
        """Everything, exact, in JSON's types."""
        return {
            "ready": self._ready,
            "since": [self._waits_since_ms, self._day, self._days, self._day_tick, self._minute],
            "scores": [[score.since, *_hex(score.value, score.found, score.expected)] for score in self._all_scores()],
            "estimates": [_hex(part.found, part.exposure, part.ms) for part in (self._fast, self._slow, self._pace)],
            "sums": [_of_sum(part) for part in (self._waiting, self._day_sum)],
            "days": [_of_sum(day) for day in self._learned_days],
            "waiting_days": [_of_sum(day) for day in self._waiting_days],
            "numbers": _hex(*(getattr(self, name) for name in _NUMBERS)),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._begin_anew()
        self._ready = bool(state["ready"])
        self._waits_since_ms, self._day, self._days, self._day_tick, self._minute = map(int, state["since"])
        for score, (since, *numbers) in zip(self._all_scores(), state["scores"], strict=True):
            score.since = int(since)
            score.value, score.found, score.expected = _floats(numbers)
        self._fast, self._slow, self._pace = (Estimate(*_floats(part)) for part in state["estimates"])
        self._waiting, self._day_sum = (Sum(*_floats(part)) for part in state["sums"])
        self._learned_days = [Sum(*_floats(day)) for day in state["days"]]
        self._waiting_days = [Sum(*_floats(day)) for day in state["waiting_days"]]
        for name, number in zip(_NUMBERS, _floats(state["numbers"]), strict=True):
            setattr(self, name, number)

    def _all_scores(self) -> list[Score]:
        return [*self._scores, *([] if self._day_score is None else [self._day_score])]


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
    "_recent_found",
    "_recent_found_of",
    "_newest",
    "_newest_of",
    "_spread",
    "_spread_of",
)


def _of_sum(part: Sum) -> list[str]:
    return _hex(part.found, part.exposure, part.ms, part.expected)


def _hex(*numbers: float) -> list[str]:
    return [float(number).hex() for number in numbers]


def _floats(texts: list[str]) -> list[float]:
    return [float.fromhex(text) for text in texts]
