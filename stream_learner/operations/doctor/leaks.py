"""Labels among the features: fields that are known only after the click.

A field's values are scored by their click rates in one half of the events, and the other half is ordered by these
scores; numbers of many values are put into ranges before. So a field tells clicks apart as well as a model of that
field alone would, whatever it holds: a number, a state, the elements of a list, or whether it is there at all.

What an impression is about tells clicks apart, too: no field of a real site comes near to these bounds (`site` and `ad`
of TalkingData and Criteo: areas under the curve of 0.6 to 0.8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.operations.doctor.events import Event, paths_of
from stream_learner.operations.doctor.findings import ENOUGH, Finding, percent, quantile, shown
from stream_learner.operations.doctor.ids import Pair

AREA_WARNS, AREA_STOPS = 0.95, 0.99
RANGES = 16
SURE = 0.95
"""A value of which so many events have a click is a trace of the click, if it is at least `TRACED` of all clicks."""
TRACED = 0.5
MOST_CLICKED = 0.5
"""Where more impressions than this have a click, a value that always has one says little."""

Flags = NDArray[np.bool_]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Leak:
    """A field that tells which impressions have a click. area: under its curve (ROC) in events that it was not learned
    from. value: of which nearly all events have a click, and traced: the share of the clicks that have it; None, 0.
    """

    path: str
    area: float
    value: str | None
    traced: float

    @property
    def is_full(self) -> bool:
        """Whether it leaves nothing to learn."""
        return self.area > AREA_STOPS or self.traced > SURE

    def in_words(self) -> str:
        """How it tells them."""
        if self.value is None:
            return f"area under its curve {self.area:.3f}"
        return f"nearly all events with {self.value} have a click, and {percent(self.traced)} of the clicks have it"

    def finding(self) -> Finding:
        """What it is, and what comes of it."""
        seen = f"`{self.path}` tells the impressions with a click from the others: {self.in_words()}"
        means = "what is known only after the click makes a model that is perfect here, and useless for predictions"
        change = f"features.exclude: [{self.path}], unless it is known when a prediction is asked for"
        return Finding("stops" if self.is_full else "warns", "label_leaks", seen, means, change)


def leaks(events: Sequence[Event], pairs: Sequence[Pair], no_features: Set[str | None] = frozenset()) -> list[Leak]:
    """The fields of impressions that tell which of them have a click. events: as of `with_clicks_read`. no_features:
    paths not to look at.
    """
    of_clicked = {id(pair.impression) for pair in pairs}
    clicked = np.array([id(event) in of_clicked for event in events], bool)
    if not ENOUGH <= clicked.sum() <= MOST_CLICKED * len(events):
        return []
    judged = (_judged(path, events, clicked) for path in paths_of(events) if path not in no_features)
    return [one for one in judged if one.area > AREA_WARNS or one.value is not None]


def _judged(path: str, events: Sequence[Event], clicked: Flags) -> Leak:
    kinds: dict[tuple[type, Any], int] = {}  # by the type of a value, too: True is 1, and another text
    firsts = [event.fields.get(path) for event in events]
    codes = np.array([kinds.setdefault((type(value), value), len(kinds)) for value in firsts], np.int64)
    further = [(i, value) for i, event in enumerate(events) for value in event.more.get(path, ())]
    more = np.array([(i, kinds.setdefault((type(value), value), len(kinds))) for i, value in further], np.int64)
    at, flat = np.concatenate([[np.arange(len(events)), codes], more.reshape(-1, 2).T], axis=1)

    texts: dict[str, int] = {}
    of_kinds = _ranged([value for _, value in kinds], np.bincount(flat, minlength=len(kinds)))
    text_of = np.array([texts.setdefault(text, len(texts)) for text in of_kinds], np.int64)
    at, flat = np.divmod(np.unique(at * len(texts) + text_of[flat]), len(texts))
    numbers = np.array([float(value) if is_number(value) else np.nan for _, value in kinds])
    area = max(_area(at, flat, clicked), _area_of_size(numbers[codes], clicked))
    counts, of_clicks = np.bincount(flat), np.bincount(flat[clicked[at]], minlength=len(texts))
    sure = np.where((of_clicks >= ENOUGH) & (of_clicks > SURE * counts), of_clicks, 0)
    traced = float(sure.max() / clicked.sum())
    return Leak(path, area, [*texts][sure.argmax()], traced) if traced > TRACED else Leak(path, area, None, 0.0)


def _ranged(values: Sequence[Any], counts: Codes) -> list[str]:
    """Values as text, numbers of many values as ranges, but for those that many events have. counts: of each."""
    numbered = [(value, n) for value, n in zip(values, counts.tolist(), strict=True) if is_number(value)]
    total = sum(n for _, n in numbered)
    rare = {value: n for value, n in numbered if n * RANGES < total}
    numbers = sorted(value for value, n in rare.items() for _ in range(n))
    edges: list[float] = []
    if numbers and len(numbered) > RANGES:
        edges = sorted({quantile(numbers, n / RANGES) for n in range(1, RANGES)})
    return [_text(value, edges if is_number(value) and value in rare else []) for value in values]


def is_number(value: Any) -> bool:
    """Whether a value is a number: booleans are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any, edges: Sequence[float]) -> str:
    if value is None:
        return "no value"
    if not edges:
        return shown(value)
    at = bisect_right(edges, value)
    limits = [f"{edge:g} or more" for edge in edges[:at][-1:]] + [f"less than {edge:g}" for edge in edges[at : at + 1]]
    return ", ".join(limits)


def _area(at: Codes, values: Codes, clicked: Flags) -> float:
    """Of the odd events, scored by the rates of the even ones; a list counts by its largest.

    at, values: pairs of an event and a value that it has, in the order of events.
    """
    even, base, count = at % 2 == 0, clicked.mean(), values.max() + 1
    of_clicks = np.bincount(values[even & clicked[at]], minlength=count)
    rates = (of_clicks + base) / (np.bincount(values[even], minlength=count) + 1)
    scores = np.maximum.reduceat(rates[values], np.searchsorted(at, np.arange(len(clicked))))
    return area_under_curve(scores[1::2], clicked[1::2])


def _area_of_size(numbers: NDArray[np.float64], clicked: Flags) -> float:
    """Of the events that have a number, by its size: large or small. numbers: NaN for none."""
    has = ~np.isnan(numbers)
    if has.mean() < 0.5 or clicked[has].sum() < ENOUGH:
        return 0.5
    area = area_under_curve(numbers[has], clicked[has])
    return max(area, 1 - area)


def area_under_curve(scores: NDArray[np.float64], clicked: Flags) -> float:
    """The share of pairs of a click and another event of which the click has the higher score, equal ones a half.

    >>> area_under_curve(np.array([0.9, 0.1]), np.array([True, False]))
    1.0
    >>> area_under_curve(np.array([0.5, 0.5]), np.array([True, False]))
    0.5
    """
    distinct, of = np.unique(scores, return_inverse=True)
    clicks, others = (np.bincount(of[which], minlength=len(distinct)) for which in (clicked, ~clicked))
    pairs = float(clicks.sum()) * float(others.sum())
    return float(clicks @ (np.cumsum(others) - others / 2)) / pairs if pairs else 0.5
