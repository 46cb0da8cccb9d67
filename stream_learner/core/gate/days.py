"""Whole days of one bound: each, when it has ended, is held against the three lowest of the last seven."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_learner.core.gate import steps
from stream_learner.core.gate.bounds import (
    ALIKE,
    DAYS,
    EVIDENCE,
    LOWEST_DAYS,
    MOST_DAYS,
    OF_A_DAY,
    PATIENCE,
    SLOW_FOUND,
    SLOW_MS,
    Bound,
    Excess,
)
from stream_learner.core.machine.arithmetic import log


class Day(NamedTuple):
    """Events found, exposure and time of a day, and what was expected of it, 0 where it was not judged."""

    found: float
    exposure: float
    ms: float
    expected: float = 0.0


class Days:
    """The days of one bound. The present one is summed in its row of `steps`, which also has the slow estimate."""

    def __init__(self, bound: Bound, kind: steps.Record, row: steps.Record) -> None:
        """kind, row: of `steps.BOUND` and `steps.ROW`."""
        self._bound, self._kind, self._row = bound, kind, row
        self._test = None if bound.day is None else steps.tests_of([bound.day])[0]
        self._score = steps.zeros(steps.SCORE, 1)[0]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all days that have ended."""
        steps.advance(self._score, 0.0, 0, 0.0, 0.0)
        self._learned: list[Day] = []
        self._waiting: list[Day] = []

    def judge(self) -> Excess | None:
        """Whether the days up to the present one, which has ended, were out of bounds."""
        if self._test is None or not self._is_judged:
            return None
        expected = self._expected
        if self._after(expected) <= self._limit:
            return None
        return steps.excess_of(self._score, self._test, self._row.day_tick, self._today.found, expected, self._limit)

    @property
    def _today(self) -> Day:
        row = self._row
        return Day(float(row.day_found), float(row.day_exposure), float(row.day_ms))

    @property
    def _limit(self) -> float:
        return log(365.0 / self._kind.false_alarms) * steps.dispersion(self._kind, self._row)

    def _after(self, expected: float) -> float:
        """The evidence with the present day, which gives only a part of what is needed."""
        whole = steps.after(self._score, self._test, self._today.found, expected)
        return min(whole, float(self._score.value) + OF_A_DAY * self._limit)

    @property
    def _is_judged(self) -> bool:
        if len(self._learned) <= LOWEST_DAYS or self._row.slow_found < EVIDENCE:
            return False
        day, (_, exposure, ms) = self._today, self._lowest()
        least, most = ALIKE if self._bound.capped else (0.0, float("inf"))
        return least * exposure * day.ms <= day.exposure * ms <= most * exposure * day.ms

    def _lowest(self) -> tuple[float, float, float]:
        """Found events, exposure and time of the days with the smallest shares."""
        by_share = sorted(self._learned, key=lambda day: (day.found / day.exposure, day.found, day.exposure))
        found = exposure = ms = 0.0
        for day in by_share[:LOWEST_DAYS]:
            found, exposure, ms = found + day.found, exposure + day.exposure, ms + day.ms
        return found, exposure, ms

    @property
    def _expected(self) -> float:
        """The events that were expected of the present day."""
        found, exposure, _ = self._lowest()
        return self._today.exposure * max(found / exposure, self._bound.floor)

    def end(self) -> None:
        """The present day has ended, and is learned or waits; the next begins with the next tick."""
        day = self._today
        if self._test is not None and self._is_judged:
            day = day._replace(expected=self._expected)
            value = self._after(day.expected)
            steps.advance(self._score, value, self._row.day_tick, day.found, day.expected)
        self._waiting.append(day)
        waits_long = len(self._waiting) > LOWEST_DAYS and sum(day.expected for day in self._waiting) >= PATIENCE
        if waits_long or len(self._waiting) >= MOST_DAYS:
            steps.advance(self._score, 0.0, 0, 0.0, 0.0)
        if self._test is None or not steps.is_suspicious(self._score, self._test):
            self._learn_waiting()
        self._begin_day()
        self._row.days += 1

    def _learn_waiting(self) -> None:
        row = self._row
        for day in self._waiting:
            counts = day.found, day.exposure, day.ms
            keep = steps.kept(row.slow_found, row.slow_exposure, *counts, SLOW_MS, SLOW_FOUND)
            row.slow_found = row.slow_found * keep + day.found
            row.slow_exposure = row.slow_exposure * keep + day.exposure
            row.slow_ms = row.slow_ms * keep + day.ms
        self._learned = [*self._learned, *self._waiting][-DAYS:]
        self._waiting = []

    def _begin_day(self) -> None:
        row = self._row
        row.day_found = row.day_exposure = row.day_ms = 0.0
        row.day = -1

    def skip(self) -> None:
        """Leave out the days that were out of bounds."""
        self._begin_day()
        self._waiting = []
        steps.advance(self._score, 0.0, 0, 0.0, 0.0)

    @property
    def scores(self) -> list[steps.Record]:
        """The evidence, none where days are not judged."""
        return [] if self._test is None else [self._score]

    def state(self) -> tuple[list[Day], list[Day]]:
        """The days that were learned, and those that wait."""
        return self._learned, self._waiting

    def restore(self, learned: Sequence[Day], waiting: Sequence[Day]) -> None:
        """Go on from `state`; the evidence, the present day and the slow estimate are restored with the row."""
        self._learned, self._waiting = list(learned), list(waiting)
