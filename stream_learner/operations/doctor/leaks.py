"""Labels among the features: fields that are known only after the click.

A field's values are scored by their click rates in one half of the events, and the other half is ordered by these
scores; numbers of many values are put into ranges before. So a field tells clicks apart as well as a model of that
field alone would, whatever it holds: a number, a state, the elements of a list, or whether it is there at all.

What an impression is about tells clicks apart, too: no field of a real site comes near to these bounds (`site` and `ad`
of TalkingData and Criteo: areas under the curve of 0.6 to 0.8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

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
    clicked = [id(event) in of_clicked for event in events]
    if not ENOUGH <= sum(clicked) <= MOST_CLICKED * len(events):
        return []
    judged = (_judged(path, events, clicked) for path in paths_of(events) if path not in no_features)
    return [one for one in judged if one.area > AREA_WARNS or one.value is not None]


def _judged(path: str, events: Sequence[Event], clicked: Sequence[bool]) -> Leak:
    found = _values(path, events)
    values = _ranged(found)
    area = max(_area(values, clicked), _area_of_size(found, clicked))
    counts: dict[str, list[int]] = {}
    for of_event, is_clicked in zip(values, clicked, strict=True):
        for value in set(of_event):
            counts.setdefault(value, [0, 0])[is_clicked] += 1
    sure = [(n[1], value) for value, n in counts.items() if n[1] >= ENOUGH and n[1] > SURE * sum(n)]
    most, value = max(sure, default=(0, ""))
    traced = most / sum(clicked)
    return Leak(path, area, value, traced) if traced > TRACED else Leak(path, area, None, 0.0)


def _values(path: str, events: Sequence[Event]) -> list[list[Any]]:
    """The values of a field in each event; a list has several."""
    return [[event.fields.get(path), *event.more.get(path, ())] for event in events]


def _ranged(found: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Values as text, numbers of many values as ranges, but for those that many events have."""
    counts = Counter(value for value in chain(*found) if _is_number(value))
    total = counts.total()
    numbers = sorted(value for value, n in counts.items() for _ in range(n) if n * RANGES < total)
    edges: list[float] = []
    if len(counts) > RANGES and numbers:
        edges = sorted({quantile(numbers, n / RANGES) for n in range(1, RANGES)})
    common = {value for value, n in counts.items() if n * RANGES >= total}
    kinds = {(type(value), value) for value in chain(*found)}  # True is 1, and another text
    texts = {kind: _text(kind[1], [] if kind[1] in common else edges) for kind in kinds}
    return [[texts[type(value), value] for value in of_event] for of_event in found]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any, edges: Sequence[float]) -> str:
    if value is None:
        return "no value"
    if not edges or not _is_number(value):
        return shown(value)
    at = bisect_right(edges, value)
    limits = [f"{edge:g} or more" for edge in edges[:at][-1:]] + [f"less than {edge:g}" for edge in edges[at : at + 1]]
    return ", ".join(limits)


def _area(values: Sequence[Sequence[str]], clicked: Sequence[bool]) -> float:
    """Of the odd events, scored by the rates of the even ones; a list counts by its largest."""
    base = sum(clicked) / len(clicked)
    counts: dict[str, list[int]] = {}
    for of_event, is_clicked in zip(values[::2], clicked[::2], strict=True):
        for value in set(of_event):
            counts.setdefault(value, [0, 0])[is_clicked] += 1
    rates = {value: (n[1] + base) / (sum(n) + 1) for value, n in counts.items()}
    scored = [
        (max(rates.get(value, base) for value in of_event), is_clicked)
        for of_event, is_clicked in zip(values[1::2], clicked[1::2], strict=True)
    ]
    return area_under_curve(scored)


def _area_of_size(found: Sequence[Sequence[Any]], clicked: Sequence[bool]) -> float:
    """Of the events that have a number, by its size: large or small."""
    scored = [(of[0], is_clicked) for of, is_clicked in zip(found, clicked, strict=True) if _is_number(of[0])]
    if len(scored) < len(found) / 2 or sum(is_clicked for _, is_clicked in scored) < ENOUGH:
        return 0.5
    area = area_under_curve(scored)
    return max(area, 1 - area)


def area_under_curve(scored: Iterable[tuple[float, bool]]) -> float:
    """The share of pairs of a click and another event of which the click has the higher score, equal ones a half.

    >>> area_under_curve([(0.9, True), (0.1, False)]), area_under_curve([(0.5, True), (0.5, False)])
    (1.0, 0.5)
    """
    counts: dict[float, list[int]] = {}
    for score, is_clicked in scored:
        counts.setdefault(score, [0, 0])[is_clicked] += 1
    below = pairs = 0.0
    for score in sorted(counts):
        others, clicks = counts[score]
        pairs += clicks * (below + others / 2)
        below += others
    positives = sum(n[1] for n in counts.values())
    return pairs / (below * positives) if below and positives else 0.5
