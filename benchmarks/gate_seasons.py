"""Counts of ticks as a site's days, weeks and launches make them, and what poison makes of them.

Nothing here knows the gate's bounds. A season is what an operator would call an ordinary year; a poison is what he
would want to have stopped. Times are milliseconds of log time; everything comes from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.gate.gate import TickSums

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SCALE = 65_536
SPREAD = 1.0
"""Relative variance of predictions among examples."""
MODEL_MEMORY = 100.0
"""The model follows the share of clicks over about so many clicks."""
OTHERS = 0.01
"""Share of clicks that end as orphans, and half of it each late and dead."""

Floats = NDArray[np.float64]


@dataclass
class Season:
    """How much traffic a site has when, and how much of it is clicked.

    per_second: examples a second on average. click_share: of an average hour. day, week: whether both follow the time
    of day (clicks by half, volume tenfold from its least to its most) and the weekend. launches: days between two.
    bursts: whether minutes vary by much more than chance. night_ms: pause of every night. gaps: days between two pauses
    of hours or days. slices: share of the examples in each slice.
    """

    name: str
    per_second: float
    tick_ms: int
    click_share: float = 0.01
    day: bool = False
    week: bool = False
    launches: float = 0.0
    bursts: bool = False
    night_ms: int = 0
    gaps: float = 0.0
    keep_negatives: float = 1.0
    slices: tuple[float, ...] = ()


@dataclass
class Poison:
    """What happens to the clicks and impressions of a span: factors, by default none.

    clicks: share of the clicks that still count. extra: more impressions for each one, `extra_share` of which are
    clicked. orphans: share of the lost clicks that end as orphans. flip: labels are exchanged. slice: in the first
    slice all examples are positive.
    """

    name: str
    clicks: float = 1.0
    extra: float = 0.0
    extra_share: float = 0.0
    orphans: float = 0.0
    dead: float = 0.0
    flip: bool = False
    slice: bool = False


@dataclass
class Tick:
    """A tick with examples: its number, its sums, and how many clicks the season meant it to have."""

    tick: int
    sums: TickSums
    expected: float = 0.0


@dataclass
class _Model:
    """A model that predicts the share of clicks that it has seen last, half an example ahead of nothing."""

    share: float
    memory: float = field(default=MODEL_MEMORY)

    def learn(self, shown: int, clicked: int) -> None:
        self.share += (clicked - shown * self.share) / (shown + self.memory / max(self.share, 1e-6))


def ticks(season: Season, days: float, seed: int, poison: Poison | None = None, begin_ms: int = 0) -> Iterator[Tick]:
    """The ticks that have examples, in order, from `begin_ms` on; poisoned, if they are, from the first on."""
    rng = np.random.default_rng(seed)
    model: _Model | None = None
    launches = _Launches(season, days, rng)
    gaps = _gaps(season, days, rng)
    per_chunk = max(1, HOUR_MS // season.tick_ms)
    for begin in range(begin_ms // season.tick_ms, (begin_ms + int(days * DAY_MS)) // season.tick_ms, per_chunk):
        numbers = np.arange(begin, begin + per_chunk)
        at_ms = numbers * season.tick_ms
        rate, share = _course(season, at_ms, rng)
        rate, share = launches.at(at_ms, rate, share)
        rate = np.where(gaps(at_ms), 0.0, rate)
        shown = rng.poisson(rate * season.tick_ms / 1000)
        clicked = rng.binomial(shown, np.clip(share, 0, 1))
        for number, n, k, p in zip(numbers.tolist(), shown.tolist(), clicked.tolist(), share, strict=True):
            if not n:
                continue
            if model is None:
                model = _Model(float(p) if begin_ms else season.click_share)
            yield Tick(number, _sums(season, model, n, k, poison, rng), n * float(p))


def _course(season: Season, at_ms: NDArray[np.int64], rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Examples a second and share of clicks in each tick, without launches."""
    rate, share = np.full(len(at_ms), season.per_second), np.full(len(at_ms), season.click_share)
    angle = 2 * np.pi * (at_ms % DAY_MS) / DAY_MS
    if season.day:
        rate = rate * np.exp(np.log(10) / 2 * np.sin(angle)) / 1.37
        share = share * (1 + 0.5 * np.sin(angle + 0.7))
    if season.week:
        weekend = (at_ms // DAY_MS) % 7 >= 5
        rate, share = np.where(weekend, rate * 0.5, rate), np.where(weekend, share * 0.8, share)
    if season.bursts:
        each = max(1, MINUTE_MS // season.tick_ms)
        minutes = len(at_ms) // each + 1
        part = min(1.0, MINUTE_MS / season.tick_ms)
        burst = np.where(rng.random(minutes) < 0.01 / part, 1 + 3 * part, 1.0)
        noise = np.exp(rng.normal(0, 0.4 * part**0.5, minutes)) * burst
        rate = rate * np.repeat(noise, each)[: len(at_ms)]
        share = share * np.exp(np.repeat(rng.normal(0, 0.15, minutes), each)[: len(at_ms)])
    if season.night_ms:
        rate = np.where(at_ms % DAY_MS < season.night_ms, 0.0, rate)
    return rate, share


class _Launches:
    """Campaigns that begin within minutes, with four times the traffic of the site, clicked more or less often."""

    def __init__(self, season: Season, days: float, rng: np.random.Generator) -> None:
        count = int(days / season.launches) if season.launches else 0
        self._begin = (np.arange(count) + 0.5 * rng.random(count)) * season.launches * DAY_MS
        self._lasts = rng.choice([2, 6, 24], count) * float(HOUR_MS)
        self._share = rng.choice([0.25, 0.5, 1.0, 2.0, 3.0], count)

    def at(self, at_ms: NDArray[np.int64], rate: Floats, share: Floats) -> tuple[Floats, Floats]:
        total, clicked = rate, rate * share
        for begin, lasts, own in zip(self._begin, self._lasts, self._share, strict=True):
            if begin > at_ms[-1] or begin + lasts + HOUR_MS < at_ms[0]:
                continue
            risen = np.clip((at_ms - begin) / (5 * MINUTE_MS), 0, 1) * np.clip((begin + lasts - at_ms) / HOUR_MS, 0, 1)
            total, clicked = total + 4 * rate * risen, clicked + 4 * rate * risen * share * own
        return total, np.divide(clicked, total, out=np.zeros_like(total), where=total > 0)


def _gaps(season: Season, days: float, rng: np.random.Generator) -> Callable[[NDArray[np.int64]], NDArray[np.bool_]]:
    count = int(days / season.gaps) if season.gaps else 0
    begin = rng.random(count) * days * DAY_MS
    end = begin + rng.choice([0.5, 5, 14, 60], count) * HOUR_MS

    def within(at_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        found = np.zeros(len(at_ms), np.bool_)
        for first, last in zip(begin, end, strict=True):
            found |= (at_ms >= first) & (at_ms < last)
        return found

    return within


def _sums(
    season: Season, model: _Model, shown: int, clicked: int, poison: Poison | None, rng: np.random.Generator
) -> TickSums:
    others = int(rng.binomial(clicked, OTHERS)) if clicked else 0
    orphans, late, dead_clicks, dead = others, others // 2, others // 2, 0
    in_slice = [(int(rng.binomial(shown, part)), part) for part in season.slices]
    of_slices = [(n, min(n, int(rng.binomial(clicked, part)))) for n, part in in_slice]
    if poison is not None:
        before = clicked
        clicked = int(rng.binomial(clicked, poison.clicks))
        orphans += int(rng.binomial(before - clicked, poison.orphans))
        if poison.extra:
            extra = int(rng.poisson(shown * poison.extra))
            shown, clicked = shown + extra, clicked + int(rng.binomial(extra, poison.extra_share))
        if poison.dead:
            dead = int(rng.binomial(shown, poison.dead))
        if poison.flip:
            clicked = shown - clicked
        if poison.slice and of_slices:
            n, k = of_slices[0]
            of_slices[0] = n, n
            clicked = min(shown, clicked - k + n)
        if poison.clicks < 1.0:
            of_slices = [(n, int(rng.binomial(k, poison.clicks))) for n, k in of_slices]
    sample = _sample(season, model.share, shown, clicked, poison, rng)
    model.learn(shown, clicked)
    return TickSums(
        shown,
        clicked,
        clicked + orphans + late + dead_clicks,
        orphans,
        late,
        dead_clicks,
        shown + dead,
        0,
        dead,
        *sample,
        tuple(of_slices),
    )


def _sample(
    season: Season, share: float, shown: int, clicked: int, poison: Poison | None, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Sums of w p, w y, w y p and w p p over a sample of the examples that were kept."""
    keep = season.keep_negatives
    kept = int(rng.binomial(shown - clicked, keep)) if keep < 1 else shown - clicked
    wanted = min(kept + clicked, max(16, min(128, (kept + clicked) // 32)))
    k = int(rng.hypergeometric(clicked, kept, wanted)) if wanted else 0
    weight = (wanted - k) / keep
    p, high = share, min(1.0, share * (1 + SPREAD))
    low = max(0.0, share - share * share * SPREAD / max(1 - share, 1e-9))
    if poison is not None and poison.flip:
        high, low = low, high
    predicted = k * high + weight * low
    squared = share * (1 + SPREAD) * predicted
    return tuple(round(SCALE * value) for value in (predicted, k, k * high, min(squared, predicted * max(high, p))))
