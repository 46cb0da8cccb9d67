"""The arithmetic of a tick, for many bounds in one call: what is expected, the evidence, and what is learned of it.

Each bound has a row in some arrays: `BOUND` is what it is, `ROW` what it has learned, `Coming` what follows from the
tick that was judged last; of each of its tests it has a `TEST` and a `SCORE`. `judge` writes `Coming` alone, `take`
carries it out. Everything is additions, multiplications, divisions and `core.machine.arithmetic.log` of float64 in one
order: two machines that see the same counts come to the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.gate.bounds import (
    BURST,
    DAY_MS,
    EVIDENCE,
    FAST_FOUND,
    FAST_MS,
    FINE_EVIDENCE,
    HIGH_SUSPICION,
    HOUR_MS,
    LAUNCH,
    LAUNCHED,
    LULL,
    LULL_MS,
    MINUTE_MS,
    PATIENCE,
    PATIENCE_MS,
    RISE,
    RISING,
    RISING_MS,
    YEAR_MS,
    Alternative,
    Excess,
)
from stream_learner.core.machine.arithmetic import log
from stream_learner.core.machine.entries import Matrix, entry
from stream_learner.core.machine.kernels import inlined

TESTS: Final = 4
"""How many tests a bound has at most."""
_LEAST_LIMIT: Final = 8.0
"""No limit of evidence is below this, so below it none need be worked out."""
_LEAST_A_YEAR: Final = 1_000.0

SOUND, BROKEN, DAY_ENDS = 0, 1, 2
"""What `judge` answers: bits that any row sets."""

Record: TypeAlias = Any
"""A record of one of the types below, in Python and in kernels, which change it in place."""


def zeros(kind: np.dtype[Any], *shape: int) -> NDArray[Any]:
    """Records of zeros, whose fields are attributes in Python too. (Kernels take a `recarray` ten times as slowly.)"""
    return np.zeros(shape, np.dtype((np.record, kind)))


def _of(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


TEST: Final = np.dtype([*_of(np.float64, "gain", "cost"), *_of(np.bool_, "is_low", "fine", "lenient")], align=True)
"""gain: of evidence for a found event. cost: of evidence for an expected one. The others are `Alternative`'s."""
SCORE: Final = np.dtype([*_of(np.float64, "value", "found", "expected"), *_of(np.int64, "since")], align=True)
"""The evidence for a test, summed since it last was 0, with the events since the tick `since`; -1 where it is 0."""
BOUND: Final = np.dtype(
    [
        *_of(np.float64, "floor", "dispersion", "tick_ms", "warm_up_ms", "false_alarms"),
        *_of(np.bool_, "capped", "by_exposure"),
        *_of(np.int64, "tests"),
    ],
    align=True,
)
ROW: Final = np.dtype(
    [
        *_of(np.float64, "age_ms", "idle_ms", "budget"),
        # The estimate of the last hour, the one over days, and how many events the time has.
        *_of(np.float64, "fast_found", "fast_exposure", "fast_ms"),
        *_of(np.float64, "slow_found", "slow_exposure", "slow_ms"),
        *_of(np.float64, "pace_found", "pace_exposure", "pace_ms"),
        # Ticks that wait until they are learned, and the log time of the first.
        *_of(np.float64, "waiting_found", "waiting_exposure", "waiting_ms", "waiting_expected"),
        # This day.
        *_of(np.float64, "day_found", "day_exposure", "day_ms"),
        # How far this minute is off what was expected; squares and expected events of minutes that wait, and of all.
        *_of(np.float64, "minute_off", "minute_of", "new_off", "new_of", "spread", "spread_of"),
        # Examples and clicks of the last minutes, and those of the last minute, each with what was usual of it.
        *_of(np.float64, "recent", "recent_of", "recent_found", "recent_found_of", "newest", "newest_of"),
        # Numbers of days and minutes, -1 for none; days: how many have ended.
        *_of(np.int64, "waits_since_ms", "day", "day_tick", "days", "minute"),
        *_of(np.bool_, "ready"),
    ],
    align=True,
)
COMING: Final = np.dtype(
    [
        *_of(np.float64, "found", "exposure", "ms", "expected", "budget", "limit"),
        *_of(np.float64, "fast_found", "fast_exposure", "fast_ms"),
        *_of(np.int64, "broken"),
        *_of(np.bool_, "ready"),
    ],
    align=True,
)
"""The tick that was judged last. broken: the first test that is beyond its limit, -1 if none is."""
STEP: Final = np.dtype(_of(np.float64, "value", "expected"))
"""Of one test: its evidence with the tick, and the events that it expected of the tick."""

_Test: TypeAlias = Annotated[Any, zeros(TEST, 1)[0]]
_Score: TypeAlias = Annotated[Any, zeros(SCORE, 1)[0]]
_Bound: TypeAlias = Annotated[Any, zeros(BOUND, 1)[0]]
_Row: TypeAlias = Annotated[Any, zeros(ROW, 1)[0]]
_Bounds: TypeAlias = Annotated[NDArray[Any], zeros(BOUND, 0)]
_Rows: TypeAlias = Annotated[NDArray[Any], zeros(ROW, 0)]
_Coming: TypeAlias = Annotated[NDArray[Any], zeros(COMING, 0)]
_Tests: TypeAlias = Annotated[NDArray[Any], zeros(TEST, 0, TESTS)]
_Scores: TypeAlias = Annotated[NDArray[Any], zeros(SCORE, 0, TESTS)]
_Steps: TypeAlias = Annotated[NDArray[Any], zeros(STEP, 0, TESTS)]


@entry
def dispersion(bound: _Bound, row: _Row) -> float:
    """How many times as much the counts of minutes vary as they would by chance; at least 1."""
    return max(bound.dispersion, row.spread / row.spread_of)


@entry
def after(score: _Score, test: _Test, found: float, expected: float) -> float:
    """The evidence after so many more events."""
    return max(0.0, score.value + found * test.gain - expected * test.cost)


@entry
def advance(score: _Score, value: float, tick: int, found: float, expected: float) -> None:
    """Go to evidence that `after` gave."""
    if value <= 0.0:
        score.value, score.found, score.expected, score.since = 0.0, 0.0, 0.0, -1
        return
    if score.value <= 0.0:
        score.since = tick
    score.value = value
    score.found += found
    score.expected += expected


@entry
def kept(had: float, had_of: float, found: float, exposure: float, ms: float, memory_ms: int, memory: float) -> float:
    """What an estimate keeps when new counts are added: it forgets as much as they weigh in a memory of that time or of
    that many found events."""
    share = had / had_of if had_of > 0.0 else 0.0
    return 1.0 / (1.0 + min(ms / memory_ms, max(found, exposure * share) / memory))


@inlined
def _share(bound: Record, found: float, exposure: float) -> float:
    return max(found / exposure if exposure > 0.0 else 0.0, bound.floor)


@inlined
def _fade(coming: Record) -> None:
    """Leave no more evidence for what is usual than half of what is needed."""
    most = EVIDENCE / 2.0
    if coming.fast_found > most:
        keep = most / coming.fast_found
        coming.fast_found = most
        coming.fast_exposure *= keep
        coming.fast_ms *= keep


# judging


@entry
def judge(
    bounds: _Bounds,
    tests: _Tests,
    rows: _Rows,
    scores: _Scores,
    coming: _Coming,
    steps: _Steps,
    counts: Matrix[np.float64],
    now_ms: int,
    ms: float,
    gap: bool,
) -> int:
    """Judge the counts f64[n, 2] of a tick: found events and exposure of each bound, for which `ms` of log time passed.

    gap: whether the log had a pause before the tick. Writes `coming` and `steps` alone.
    """
    answer = SOUND
    for n in range(len(rows)):
        _prepare(bounds[n], rows[n], coming[n], counts[n, 0], counts[n, 1], ms, gap)
        _test(bounds[n], tests[n], rows[n], scores[n], coming[n], steps[n])
        if coming[n].broken >= 0:
            answer |= BROKEN
        if day_ends(rows[n], now_ms):
            answer |= DAY_ENDS
    return answer


@entry
def day_ends(row: _Row, now_ms: int) -> bool:
    """Whether the day ended before this moment."""
    return row.day >= 0 and now_ms // DAY_MS != row.day


@inlined
def _prepare(bound: Record, row: Record, coming: Record, found: float, exposure: float, ms: float, gap: bool) -> None:
    """What is expected of the tick."""
    coming.found, coming.exposure, coming.ms = found, exposure, ms + row.idle_ms
    coming.fast_found, coming.fast_exposure, coming.fast_ms = row.fast_found, row.fast_exposure, row.fast_ms
    if gap:
        _fade(coming)
    evidence = coming.fast_exposure if bound.by_exposure else coming.fast_found
    coming.ready = row.ready or (row.age_ms >= bound.warm_up_ms and evidence >= EVIDENCE)
    coming.expected = exposure * _share(bound, coming.fast_found, coming.fast_exposure)
    coming.limit = 0.0
    coming.broken = -1


@inlined
def _test(
    bound: Record, tests: NDArray[Any], row: Record, scores: NDArray[Any], coming: Record, steps: NDArray[Any]
) -> None:
    """The evidence of each test with the tick, and the first that is beyond its limit."""
    part = _part(bound, row, coming)
    lull, rising = _traffic(bound, row, coming)
    fine = not lull and FAST_MS[0] <= coming.fast_ms <= FAST_MS[1] and coming.fast_found >= FINE_EVIDENCE
    for t in range(bound.tests):
        test, step = tests[t], steps[t]
        step.value, step.expected = 0.0, coming.expected
        if not coming.ready or (test.fine and not fine):
            continue
        if test.lenient and row.days > 0:
            of_slow = coming.exposure * _share(bound, row.slow_found, row.slow_exposure)
            step.expected = min(step.expected, of_slow) if test.is_low else max(step.expected, of_slow)
        if test.is_low:
            step.expected *= part
        step.value = after(scores[t], test, coming.found, step.expected)
        if step.value > _LEAST_LIMIT and coming.broken < 0 and not (rising and test.fine):
            if coming.limit == 0.0:
                coming.limit = _limit(bound, row, coming)
            if step.value > coming.limit:
                coming.broken = t


@inlined
def _part(bound: Record, row: Record, coming: Record) -> float:
    """The part of what is expected that the time allows; notes the budget that it leaves."""
    coming.budget = row.budget
    if not (coming.ready and bound.capped and coming.expected > 0.0):
        return 1.0
    a_ms = LAUNCH * row.pace_found / row.pace_ms
    # A pause gives way to a few events only: what comes after it has come in a tick.
    of_time = min(a_ms * coming.ms, max(a_ms * bound.tick_ms, BURST))
    budget = min(row.budget + of_time, max(BURST, of_time))
    part = min(1.0, budget / coming.expected)
    coming.budget = budget - part * coming.expected
    return part


@inlined
def _traffic(bound: Record, row: Record, coming: Record) -> tuple[bool, bool]:
    """Whether far fewer examples come than usual, and whether their number rises just now."""
    if not (coming.ready and bound.capped):
        return False, False
    usual = coming.fast_exposure / coming.fast_ms * coming.ms
    keep, short = 1.0 / (1.0 + coming.ms / LULL_MS), 1.0 / (1.0 + coming.ms / RISING_MS)
    lately = (row.recent * keep + coming.exposure) / (row.recent_of * keep + usual)
    just_now = (row.newest * short + coming.exposure) / (row.newest_of * short + usual)
    return lately < LULL, just_now > RISING[0] and just_now > RISING[1] * lately


@inlined
def _limit(bound: Record, row: Record, coming: Record) -> float:
    """The evidence that chance gives `false_alarms` times a year, times the dispersion."""
    a_year = max(coming.fast_found / coming.fast_ms * YEAR_MS, _LEAST_A_YEAR)
    return log(a_year / bound.false_alarms) * dispersion(bound, row)


# learning


@entry
def take(
    bounds: _Bounds,
    tests: _Tests,
    rows: _Rows,
    scores: _Scores,
    coming: _Coming,
    steps: _Steps,
    tick: int,
    now_ms: int,
) -> None:
    """The tick judged last is learned."""
    for n in range(len(rows)):
        if coming[n].exposure <= 0.0:
            rows[n].idle_ms = coming[n].ms
        else:
            _take(bounds[n], tests[n], rows[n], scores[n], coming[n], steps[n], tick, now_ms)


@inlined
def _take(
    bound: Record,
    tests: NDArray[Any],
    row: Record,
    scores: NDArray[Any],
    coming: Record,
    steps: NDArray[Any],
    tick: int,
    now_ms: int,
) -> None:
    row.idle_ms = 0.0
    row.age_ms += coming.ms
    row.ready, row.budget = coming.ready, coming.budget
    for t in range(bound.tests):
        advance(scores[t], steps[t].value, tick, coming.found, steps[t].expected)
    _take_pace(row, coming)
    if coming.ready and bound.capped:
        _take_recent(row, coming)
    row.fast_found, row.fast_exposure, row.fast_ms = coming.fast_found, coming.fast_exposure, coming.fast_ms
    _take_minute(row, coming, now_ms // MINUTE_MS)
    _take_day(row, coming, tick, now_ms // DAY_MS)
    if row.waits_since_ms < 0:
        row.waits_since_ms = now_ms
    row.waiting_found += coming.found
    row.waiting_exposure += coming.exposure
    row.waiting_ms += coming.ms
    row.waiting_expected += coming.expected
    if now_ms - row.waits_since_ms >= PATIENCE_MS and row.waiting_expected >= PATIENCE:
        for t in range(bound.tests):
            advance(scores[t], 0.0, tick, 0.0, 0.0)
    for t in range(bound.tests):
        if is_suspicious(scores[t], tests[t]):
            return
    _learn_waiting(row)


@entry
def is_suspicious(score: _Score, test: _Test) -> bool:
    """Whether what it sums must not be learned as usual yet."""
    return score.value > (0.0 if test.is_low else HIGH_SUSPICION)


@inlined
def _take_pace(row: Record, coming: Record) -> None:
    found, exposure, ms = coming.found, coming.exposure, coming.ms
    keep = kept(row.pace_found, row.pace_exposure, found, exposure, ms, HOUR_MS, FAST_FOUND)
    row.pace_found = row.pace_found * keep + found
    row.pace_exposure = row.pace_exposure * keep + exposure
    row.pace_ms = row.pace_ms * keep + ms


@inlined
def _take_recent(row: Record, coming: Record) -> None:
    """What the last minutes had, and what was usual for their time; where it has changed, what is usual fades."""
    keep, short = 1.0 / (1.0 + coming.ms / LULL_MS), 1.0 / (1.0 + coming.ms / RISING_MS)
    usual = coming.fast_exposure / coming.fast_ms * coming.ms
    row.recent = row.recent * keep + coming.exposure
    row.recent_of = row.recent_of * keep + usual
    row.newest = row.newest * short + coming.exposure
    row.newest_of = row.newest_of * short + usual
    row.recent_found = row.recent_found * keep + coming.found
    row.recent_found_of = row.recent_found_of * keep + coming.fast_found / coming.fast_ms * coming.ms
    if _has_changed(row):
        _fade(coming)


@inlined
def _has_changed(row: Record) -> bool:
    """Whether much more, or much less, comes and is clicked: other traffic, whose usual share is not known yet."""
    more = row.recent > RISE[0] * row.recent_of and row.recent_found > RISE[1] * row.recent_found_of
    launched = LAUNCHED[0] * row.recent_of < row.recent < LAUNCHED[1] * row.recent_of
    less = row.recent < LULL * row.recent_of and row.recent_found < LULL * row.recent_found_of
    return more or launched or less


@inlined
def _take_minute(row: Record, coming: Record, minute: int) -> None:
    """How far the events of a minute are off what is expected makes the dispersion."""
    if minute != row.minute:
        row.new_off += row.minute_off * row.minute_off
        row.new_of += row.minute_of
        row.minute, row.minute_off, row.minute_of = minute, 0.0, 0.0
    if coming.ready:
        row.minute_off += coming.found - coming.expected
        row.minute_of += coming.expected


@inlined
def _take_day(row: Record, coming: Record, tick: int, day: int) -> None:
    if row.day < 0:
        row.day, row.day_tick = day, tick
    row.day_found += coming.found
    row.day_exposure += coming.exposure
    row.day_ms += coming.ms


@inlined
def _learn_waiting(row: Record) -> None:
    found, exposure, ms = row.waiting_found, row.waiting_exposure, row.waiting_ms
    keep = kept(row.fast_found, row.fast_exposure, found, exposure, ms, HOUR_MS, FAST_FOUND)
    row.fast_found = row.fast_found * keep + found
    row.fast_exposure = row.fast_exposure * keep + exposure
    row.fast_ms = row.fast_ms * keep + ms
    keep = 1.0 / (1.0 + ms / DAY_MS)
    row.spread = row.spread * keep + row.new_off
    row.spread_of = row.spread_of * keep + row.new_of
    row.new_off = row.new_of = 0.0
    forget_waiting(row)


@entry
def forget_waiting(row: _Row) -> None:
    """No tick waits any more."""
    row.waiting_found, row.waiting_exposure, row.waiting_ms, row.waiting_expected = 0.0, 0.0, 0.0, 0.0
    row.waits_since_ms = -1


def tests_of(alternatives: Sequence[Alternative]) -> NDArray[Any]:
    """TEST[TESTS], of as many alternatives as there are."""
    out = zeros(TEST, TESTS)
    for place, test in enumerate(alternatives):
        out[place] = (log(test.wrong / test.usual), test.wrong - test.usual, test.is_low, test.fine, test.lenient)
    return out


def excess_of(score: Record, test: Record, tick: int, found: float, expected: float, limit: float) -> Excess:
    """The finding if the evidence is beyond `limit` with so many more events."""
    found, expected = float(score.found) + found, float(score.expected) + expected
    bound = (float(test.cost) * expected + limit) / float(test.gain)
    low, high = (bound, float("inf")) if test.is_low else (0.0, bound)
    return Excess(found, expected, max(low, 0.0), high, tick if score.since < 0 else int(score.since))
