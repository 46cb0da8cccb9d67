"""How often the gate holds in ordinary years, how soon it holds poison, and what it costs.

Years: a site with a day's course, weekends, launches, bursts and pauses, at volumes from 0.01 to 1,000 examples a
second; value: false alarms. Then every season alone. Poison: value is how many expected clicks came before the gate
held, at the slowest of several times of day. Cost: microseconds of `judge` and `take`, and their share of the fold.
`--quick` takes a month and fewer times of day.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.gate_seasons import DAY_MS, HOUR_MS, Poison, Season, Tick, ticks
from benchmarks.gate_talkingdata import sums_of_talkingdata
from stream_learner.core.gate.gate import Gate, GatePolicy, Verdict
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode, encode_examples
from stream_learner.core.log.marks import ImpressionCounts, Mark, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers.ftrl import FtrlProximal

VOLUMES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
YEAR_TICK_MS = 300_000
WARM = {
    0.01: (60, 60_000, 60),
    0.1: (20, 60_000, 20),
    1.0: (8, 10_000, 8),
    10.0: (1, 5_000, 1),
    100.0: (1, 5_000, 1),
    1000.0: (0.6, 2_000, 0.4),
}
"""By volume: days before the poison, ticks of so many milliseconds, days of poison at most."""
POISONS = (
    Poison("dead clicks", clicks=0.0),
    Poison("half the clicks lost", clicks=0.5),
    Poison("clicks an hour late", clicks=0.02, orphans=1.0),
    Poison("impressions doubled under other ids", extra=1.0),
    Poison("bots, 20 times the volume", extra=19.0),
    Poison("a tenth of the examples all positive", slice=True),
    Poison("labels flipped", flip=True),
)

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """All rows."""
    return [*_years(quick), *_seasons(quick), *_real(), *_poisons(quick), *_cost()]


def alarms(season: Season, days: float, seed: int = 1) -> tuple[int, list[tuple[int, Verdict]]]:
    """How many ticks there were, and the verdicts; what is held is accepted."""
    return _alarms(ticks(season, days, seed), season)


def _alarms(all_ticks: Iterator[Tick], season: Season) -> tuple[int, list[tuple[int, Verdict]]]:
    gate, count, found = _gate(season), 0, []
    for tick in all_ticks:
        verdict = gate.judge_sums(tick.tick, tick.sums)
        if verdict is not None:
            found.append((tick.tick, verdict))
        gate.accept()
        count += 1
    return count, found


def taught(season: Season, days: float, seed: int) -> dict[str, Any]:
    """The state of a gate after ordinary days."""
    gate = _gate(season)
    for tick in ticks(season, days, seed):
        gate.judge_sums(tick.tick, tick.sums)
        gate.accept()
    return gate.state()


def delay(
    state: dict[str, Any], season: Season, poison: Poison, begin_ms: int, days: float, seed: int
) -> tuple[float, float, str] | None:
    """Minutes and expected clicks from the beginning of the poison to the hold, and the bound; None if none held."""
    gate, expected = _gate(season), 0.0
    gate.restore(state)
    for tick in ticks(season, days, seed, poison, begin_ms):
        expected += tick.expected
        verdict = gate.judge_sums(tick.tick, tick.sums)
        if verdict is not None:
            return (tick.tick * season.tick_ms - begin_ms) / 60_000, expected, verdict.bound
        gate.take()
    return None


def _gate(season: Season) -> Gate:
    slices = [(f"slice {number}", number + 1) for number in range(len(season.slices))]
    return Gate(GatePolicy(), tick_ms=season.tick_ms, slices=slices)


def _years(quick: bool) -> Iterator[Row]:
    days = 30 if quick else 365
    for volume in VOLUMES:
        season = Season("", volume, YEAR_TICK_MS, day=True, week=True, launches=4, bursts=True, gaps=10, slices=(0.1,))
        yield _row(f"false alarms, {days} days, {volume:g} a second", *alarms(season, days))


def _seasons(quick: bool) -> Iterator[Row]:
    days = 20 if quick else 120
    for volume in (0.1, 10.0, 1000.0):
        for name, settings in {
            "a day's course": {},
            "weekends": {"week": True},
            "launches": {"launches": 3},
            "bursts": {"bursts": True},
            "quiet nights": {"night_ms": 7 * HOUR_MS},
            "pauses": {"gaps": 4},
            "negatives sampled": {"keep_negatives": 0.1},
            "a third is clicked": {"click_share": 0.3},
        }.items():
            season = Season("", volume, YEAR_TICK_MS, day=True, **settings)  # type: ignore[arg-type]
            yield _row(f"false alarms, {name}, {days} days, {volume:g} a second", *alarms(season, days))


def _real() -> Iterator[Row]:
    for tick_ms in (10_000, 60_000):
        found = sums_of_talkingdata(tick_ms)
        if found is not None:
            yield _row(
                f"false alarms, TalkingData, ticks of {tick_ms // 1000} s", *_alarms(found, Season("", 0, tick_ms))
            )


def _row(name: str, count: int, found: list[tuple[int, Verdict]]) -> Row:
    note = "; ".join([f"{count:,} ticks", *(f"tick {tick}: {verdict.message}" for tick, verdict in found[:3])])
    return {"name": name, "value": len(found), "unit": "alarms", "note": note}


def _poisons(quick: bool) -> Iterator[Row]:
    times = 1 if quick else 2
    for volume in VOLUMES[1:-1] if quick else VOLUMES:
        warm, tick_ms, days = WARM[volume]
        season = Season("", volume, tick_ms, day=True, slices=(0.1,))
        begins = [int((warm + min(1.0, warm) * (seed + 0.3) / times) * DAY_MS) for seed in range(times)]
        states = [taught(season, begin_ms / DAY_MS, seed) for seed, begin_ms in enumerate(begins)]
        for poison in POISONS:
            found = [
                delay(state, season, poison, begin_ms, days, 100 + seed)
                for seed, (state, begin_ms) in enumerate(zip(states, begins, strict=True))
            ]
            held = [one for one in found if one is not None]
            name = f"{poison.name}, {volume:g} a second"
            note = "; ".join("not held" if one is None else f"{one[0]:,.1f} min by {one[2]}" for one in found)
            value = max((expected for _, expected, _ in held), default=float("nan"))
            yield {"name": name, "value": value, "unit": "expected clicks", "note": note, "held": len(held)}


def _cost() -> Iterator[Row]:
    """On the records of ticks with 20 features an example, beside the fold of the same records."""
    for examples, count in ((100, 300), (1_000, 100), (10_000, 20)):
        parts = [_tick(number, examples) for number in range(count)]
        learner, gate = Learner(FtrlProximal()), Gate(GatePolicy(), tick_ms=1_000)
        fold_s = judge_s = 0.0
        for number, part in enumerate(parts):
            begin = time.perf_counter()
            gate.judge(number, [part], lambda record: np.full(len(record), 0.1))
            gate.accept()
            middle = time.perf_counter()
            for _, record in part.records:
                learner.fold(record, number)
            end = time.perf_counter()
            if number >= count // 5:
                judge_s, fold_s = judge_s + middle - begin, fold_s + end - middle
        of = count - count // 5
        yield {
            "name": f"judge and take, {examples:,} examples a tick",
            "value": judge_s / of * 1e6,
            "unit": "µs",
            "note": f"{judge_s / fold_s:.1%} of the fold, without the predictions of the sample",
        }


def _tick(number: int, examples: int) -> AcceptedTick:
    rng = np.random.default_rng(number)
    row_start = np.arange(examples + 1) * 20
    keys = (rng.integers(1, 2_000, (examples, 20)) * 20 + np.arange(20)).astype(np.uint64).ravel()
    label = (rng.random(examples) < 0.1).astype(np.float64)
    batch = ExampleBatch(
        np.full(examples, number * 1_000, np.int64),
        rng.integers(1, 1 << 62, examples).astype(np.uint64),
        label,
        np.ones(examples),
        row_start,
        keys,
        np.ones(len(keys)),
    )
    records = [decode(value) for value in encode_examples(0, number, 1, batch)]
    counts = TickCounts(ImpressionCounts(read=examples, examples=examples, positives=int(label.sum())))
    mark = Mark(0, 1, number, number, 0, 0, 0, len(records), 1, number - 1, counts)
    return AcceptedTick(mark, 0, [(0, record) for record in records if isinstance(record, ExampleRecord)])
