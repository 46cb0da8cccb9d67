"""Judges one tick after the other, and remembers what was learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.gate.bounds import (
    DEAD,
    DEAD_SOON,
    FAILING,
    FLOOD,
    GAP_MS,
    HALF,
    HALF_DAY,
    MANY,
    Bound,
)
from stream_learner.core.gate.sample import SCALE, add_products, cut_rows, sampled, slice_counts
from stream_learner.core.gate.series import Series
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.core.machine.entries import read_only

Predict = Callable[[ExampleRecord], NDArray[np.float64]]
"""Predictions f64[n] in [0, 1] of a record's examples, by the model before the tick, which it must not change."""

MOST_MS: Final = 600_000
"""No tick stands for more log time than this, however long the pause before it; but for what its own windows span."""
_MARKED: Final = 9
"""How many fields of `TickSums` marks have."""

BOUNDS: Final[tuple[Bound, ...]] = (
    Bound("positives", (DEAD, DEAD_SOON, HALF, MANY), day=HALF_DAY, capped=True),
    Bound("negatives", (DEAD, HALF)),
    Bound("volume", (FLOOD,), dispersion=10.0),
    Bound("orphans", (FAILING,), floor=0.05, by_exposure=True),
    Bound("late_clicks", (FAILING,), floor=0.05, by_exposure=True),
    Bound("dead_clicks", (FAILING,), floor=0.05, by_exposure=True),
    Bound("late_impressions", (FAILING,), floor=0.05, by_exposure=True),
    Bound("dead_impressions", (FAILING,), floor=0.05, by_exposure=True),
    Bound("calibration", (HALF, MANY), day=HALF_DAY),
    Bound("ranking", (HALF,), day=HALF_DAY),
)
_OF_SLICE: Final = frozenset({"positives", "negatives"})


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The settings by which the gate judges; `config.gate` has the meaning of each.

    ignore: names of bounds that are not judged.
    """

    false_alarms: float = 0.01
    warm_up_ms: int = 3_600_000
    sample: int = 128
    ignore: frozenset[str] = frozenset()


class Verdict(NamedTuple):
    """The reason why a tick is not to be learned.

    bound: its name. slice: the name of the slice, "" for all examples. found, expected: what was counted since
    `since_tick`, and what was usual; `found` lies outside low..high.
    """

    bound: str
    slice: str
    found: float
    expected: float
    low: float
    high: float
    since_tick: int

    @property
    def message(self) -> str:
        """In plain words."""
        where = f" of {self.slice}" if self.slice else ""
        less = self.found < self.low
        limit = f"at least {self.low:.6g}" if less else f"at most {self.high:.6g}"
        what = f"too {'few' if less else 'many'} {_NOUNS[self.bound]}{where}"
        return f"{what} since tick {self.since_tick}: {self.found:.6g}, usual are {self.expected:.6g}, {limit}"


_NOUNS: Final[Mapping[str, str]] = {
    "positives": "examples with a click",
    "negatives": "examples without a click",
    "volume": "examples for the time",
    "orphans": "clicks without an impression",
    "late_clicks": "late clicks",
    "dead_clicks": "clicks that cannot be read",
    "late_impressions": "late impressions",
    "dead_impressions": "impressions that cannot be read",
    "calibration": "clicks for what the model predicts",
    "ranking": "clicks where the model predicts them",
}


class TickSums(NamedTuple):
    """The counts by which the gate knows a tick: whole numbers, so that no order of adding matters.

    shown: examples and negatives that were sampled out. ended: clicks that have an outcome. predicted, labelled,
    label_predicted, predicted_squared: sums over the sample of w p, w y, w y p and w p p, in units of 1 / 65,536.
    slices: examples and positives of each slice.
    """

    shown: int
    positives: int
    ended: int = 0
    orphans: int = 0
    late_clicks: int = 0
    dead_clicks: int = 0
    read: int = 0
    late_impressions: int = 0
    dead_impressions: int = 0
    predicted: int = 0
    labelled: int = 0
    label_predicted: int = 0
    predicted_squared: int = 0
    slices: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of_marks(cls, marks: Iterable[Mark]) -> TickSums:
        """The counts of marks."""
        return cls(0, 0).plus([sum(counts) for counts in zip(*map(_of_mark, marks), strict=True)])

    def plus(self, other: Sequence[int]) -> TickSums:
        """With the sums of marks added."""
        marked: list[Any] = [had + more for had, more in zip(self[:_MARKED], other, strict=True)]
        return TickSums._make([*marked, *self[_MARKED:]])

    def pairs(self, ms: float) -> tuple[tuple[float, float], ...]:
        """Found events and exposure of every bound, in the order of `BOUNDS`."""
        return (
            (self.positives, self.shown),
            (self.shown - self.positives, self.shown),
            (self.shown, ms),
            (self.orphans, self.ended),
            (self.late_clicks, self.ended),
            (self.dead_clicks, self.ended),
            (self.late_impressions, self.read),
            (self.dead_impressions, self.read),
            (self.labelled / SCALE, self.predicted / SCALE),
            (self.label_predicted / SCALE, self.predicted_squared / SCALE),
        )


def _of_mark(mark: Mark) -> tuple[int, ...]:
    """The first `_MARKED` sums of one mark."""
    impressions, clicks = mark.counts.impressions, mark.counts.clicks
    return (
        impressions.examples + impressions.sampled_out,
        impressions.positives,
        clicks.settled,
        clicks.orphans,
        clicks.late,
        clicks.dead,
        impressions.read,
        impressions.late,
        impressions.dead,
    )


class Gate:
    """The gate of one model. Used by one thread."""

    def __init__(self, policy: GatePolicy, *, tick_ms: int, slices: Sequence[tuple[str, int]] = ()) -> None:
        """slices: the name to show and the feature key (u64) of each."""
        self._policy, self._tick_ms = policy, tick_ms
        self._slices = tuple(sorted({key: name for name, key in slices}.items()))
        self._keys = np.array([key for key, _ in self._slices], np.uint64)
        self._whole = [place for place, bound in enumerate(BOUNDS) if self._judges(bound)]
        of_slice = [bound for bound in BOUNDS if bound.name in _OF_SLICE and self._judges(bound)]
        self._parts = [(place, bound) for place in range(len(self._slices)) for bound in of_slice]
        self._bounds = [BOUNDS[place] for place in self._whole] + [bound for _, bound in self._parts]
        self._series = Series(
            self._bounds, tick_ms=tick_ms, false_alarms=policy.false_alarms, warm_up_ms=policy.warm_up_ms
        )
        self._carried = [0] * _MARKED
        self._tick = -1
        self._judged = -1
        self._lags: dict[int, int] = {}
        self._coming_lags: dict[int, int] = {}
        self._waited = self._coming_waited = self._coming_span = 0

    def _judges(self, bound: Bound) -> bool:
        return bound.name not in self._policy.ignore

    def count(self, mark: Mark) -> None:
        """Count a mark that is passed where no partition has an example; it is judged with the next examples."""
        self._waited += self._note_lag(self._lags, mark)
        self._carried = [had + more for had, more in zip(self._carried, _of_mark(mark), strict=True)]

    def judge(self, tick: int, accepted: Sequence[AcceptedTick], predict: Predict | None = None) -> Verdict | None:
        """The reason why a tick with examples must not be learned, None if it may.

        accepted: what `LogFollower` hands out for the tick, of every partition. Changes nothing that `state` shows: the
        same tick may be judged again. `take`, `accept` or `skip` ends it.
        """
        records = [record for part in accepted for _, record in part.records]
        sums = TickSums.of_marks(part.mark for part in accepted)
        if predict is not None:
            sums = _with_sample(sums, records, predict, self._policy.sample)
        if self._slices:
            found = slice_counts(records, self._keys).tolist()
            sums = sums._replace(slices=tuple((examples, positives) for examples, positives in found))
        self._coming_lags = dict(self._lags)
        self._coming_span = sum(self._span(part.mark) for part in accepted)
        self._coming_waited = sum(self._note_lag(self._coming_lags, part.mark) for part in accepted)
        return self.judge_sums(tick, sums)

    def judge_sums(self, tick: int, sums: TickSums) -> Verdict | None:
        """`judge`, of sums that are there already."""
        sums = sums.plus(self._carried)
        now_ms = (tick - min(self._coming_lags.values(), default=0)) * self._tick_ms
        passed_ms = self._tick_ms if self._tick < 0 else self._passed_ms(tick)
        spans_ms = self._coming_span / max(len(self._coming_lags), 1) * self._tick_ms
        ms = float(min(passed_ms, max(MOST_MS, self._tick_ms)) if spans_ms <= MOST_MS else spans_ms)
        gap = passed_ms > max(GAP_MS, self._tick_ms)
        self._judged = tick
        broken = self._series.judge(tick, now_ms, self._counts(sums, ms), ms, gap)
        if broken is None:
            return None
        place, excess = broken
        return Verdict(self._bounds[place].name, self._slice_of(place), *excess)

    @staticmethod
    def _note_lag(lags: dict[int, int], mark: Mark) -> int:
        """Note how many ticks the stream time of a mark's partition is behind, and return how many it has waited."""
        if mark.stream_tick < 0:
            return 0
        lag = mark.last_tick - mark.stream_tick
        before = lags.get(mark.partition, lag)
        lags[mark.partition] = lag
        return lag - before

    def _span(self, mark: Mark) -> int:
        """How many ticks of stream time a mark closes; 0 where its partition has had none before."""
        lag = self._lags.get(mark.partition)
        if lag is None or self._tick < 0 or mark.stream_tick < 0:
            return 0
        return mark.stream_tick - (mark.first_tick - 1 - lag)

    def _passed_ms(self, tick: int) -> float:
        """How much stream time has passed since the tick judged before, in the mean of all partitions.

        Where windows wait, stream time falls behind the ticks; where they go on, it passes in leaps.
        """
        partitions = max(len(self._coming_lags), 1)
        waited = (self._waited + self._coming_waited) / partitions
        return max(tick - self._tick - waited, 1 / partitions) * self._tick_ms

    def _counts(self, sums: TickSums, ms: float) -> list[tuple[float, float]]:
        """Found events and exposure of every bound that is judged."""
        of_all = sums.pairs(ms)
        counts = [of_all[place] for place in self._whole]
        for place, bound in self._parts:
            examples, positives = sums.slices[place] if sums.slices else (0, 0)
            counts.append((positives if bound.name == "positives" else examples - positives, examples))
        return counts

    def _slice_of(self, place: int) -> str:
        """The name of the slice that a bound is about, "" for all examples."""
        of_slice = place - len(self._whole)
        return self._slices[self._parts[of_slice][0]][1] if of_slice >= 0 else ""

    def take(self) -> None:
        """The tick judged last is learned: it enters the estimates."""
        self._end(self._series.take)

    def accept(self) -> None:
        """The tick judged last is learned by decision: bounds that it broke are learned anew, beginning with it."""
        self._end(self._series.accept)

    def skip(self) -> None:
        """The tick judged last is left out: nothing of it enters the estimates."""
        self._end(self._series.skip)

    def _end(self, how: Callable[[], None]) -> None:
        if self._judged < 0:
            raise ValueError("`judge` comes first")
        how()
        self._tick, self._judged = self._judged, -1
        self._lags = self._coming_lags or self._lags
        self._coming_lags, self._waited, self._coming_waited, self._coming_span = {}, 0, 0, 0
        self._carried = [0] * _MARKED

    def state(self) -> dict[str, Any]:
        """Everything, exact, in JSON's types; `restore` takes it."""
        return {
            "tick": self._tick,
            "carried": list(self._carried),
            "lags": {str(partition): lag for partition, lag in sorted(self._lags.items())},
            "waited": self._waited,
            "series": {name: self._series.state(place) for place, name in enumerate(self._names())},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Bounds and slices that it does not have begin anew."""
        self._tick, self._carried, self._judged = int(state["tick"]), list(map(int, state["carried"])), -1
        self._lags = {int(partition): int(lag) for partition, lag in state.get("lags", {}).items()}
        self._waited = int(state.get("waited", 0))
        for place, name in enumerate(self._names()):
            if name in state["series"]:
                self._series.restore(place, state["series"][name])

    def _names(self) -> list[str]:
        """The names of the bounds in a state."""
        parts = [f"{bound.name}/{self._slices[place][0]:016x}" for place, bound in self._parts]
        return [*(BOUNDS[place].name for place in self._whole), *parts]


def _with_sample(sums: TickSums, records: Sequence[ExampleRecord], predict: Predict, most: int) -> TickSums:
    """With the sums over the sample."""
    totals = np.zeros(4, np.int64)
    for record, rows in sampled(records, most):
        part = cut_rows(record, rows)
        add_products(predict(part), read_only(part.label), read_only(part.weight), totals)
    predicted, labelled, label_predicted, predicted_squared = totals.tolist()
    return sums._replace(
        predicted=predicted,
        labelled=labelled,
        label_predicted=label_predicted,
        predicted_squared=predicted_squared,
    )
