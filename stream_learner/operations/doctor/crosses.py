"""Crosses worth a try: pairs of fields that tell clicks together, and not each by itself.

A model of two fields has a weight for each value of either. With the cross it has one for each pair of values, too.
Both are learned from the earlier half of the events and judged by their log-loss in the later one, and the other way
round. So a pair counts only for what two fields say together beyond the sum of both, and neither for noise that more
weights can learn nor for what one burst of clicks did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.plan import Plan
from stream_learner.operations.doctor.events import Event, can_be_named
from stream_learner.operations.doctor.fields import Field
from stream_learner.operations.doctor.findings import ENOUGH, percent
from stream_learner.operations.doctor.ids import Pair

MOST_FIELDS, MOST_VALUES = 12, 1_000
"""Fields of the fewest values are tried: of others a sample has too few events for each pair of values."""
MOST = 3
CLICKS = 5 * ENOUGH
GAIN, ERRORS = 0.01, 4.0
"""A cross makes the log-loss less by at least this share, and by so many standard errors: of 66 pairs that say nothing
together, none is to be proposed in hundreds of samples."""
RIDGE, ROUNDS, FIRM = 1.0, 30, 0.01
"""Weights are learned in at most so many rounds, until none changes by more than `FIRM`."""
LONGEST_STEP = 1.0
"""A longer step of Newton's method diverges where a value has far more clicks than the others."""

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Cross:
    """Two fields, and by which share their cross makes the log-loss less."""

    fields: tuple[str, str]
    gain: float


def crosses_in_words(crosses: Sequence[Cross]) -> str:
    """The setting that has them, and what each is worth.

    >>> crosses_in_words([Cross(("site", "slot"), 0.042)])
    'worth a try: features.crosses: [[site, slot]] (log-loss of the sample 4.2 % less than without)'
    """
    names = ", ".join(f"[{', '.join(cross.fields)}]" for cross in crosses)
    gains = ", ".join(percent(cross.gain) for cross in crosses)
    return f"worth a try: features.crosses: [{names}] (log-loss of the sample {gains} less than without)"


def crosses_of(
    events: Sequence[Event], pairs: Sequence[Pair], fields: Iterable[Field], plan: Plan, leaking: Iterable[str]
) -> list[Cross]:
    """At most `MOST` crosses that are not configured yet, the best first.

    events: as of `with_clicks_read`. fields: of the features. leaking: paths of those that tell the label.
    """
    of_clicked = {id(pair.impression) for pair in pairs}
    labels = np.array([id(event) in of_clicked for event in events], float)
    if not CLICKS <= labels.sum() <= len(labels) - CLICKS:
        return []
    later = np.empty(len(events), bool)
    by_time = np.argsort([event.record.time_ms for event in events], kind="stable")
    later[by_time] = np.arange(len(events)) >= len(events) // 2
    left_out = {*leaking}
    tried = [one for one in fields if one.path not in left_out and _can_be_crossed(one, plan)]
    tried = sorted(tried, key=lambda one: one.distinct)[:MOST_FIELDS]
    codes = {one.path: _codes(one.path, events) for one in tried}
    there = {frozenset(names) for names in ([] if plan.features is None else plan.features.crosses)}
    found = []
    for names in combinations(codes, 2):
        gain, errors = gain_of(codes[names[0]], codes[names[1]], labels, later)
        if gain > GAIN and errors > ERRORS and frozenset(names) not in there:
            found.append(Cross(names, gain))
    return sorted(found, key=lambda one: -one.gain)[:MOST]


def _can_be_crossed(field: Field, plan: Plan) -> bool:
    kind = plan.of(field.path).settings.kind
    is_category = kind == "category" or (kind == "auto" and field.kind in ("text", "boolean"))
    return is_category and 1 < field.distinct <= MOST_VALUES and not field.is_unique and can_be_named(field.path)


def _codes(path: str, events: Iterable[Event]) -> Codes:
    """A number for each value of a field, 0 for none."""
    numbers: dict[str, int] = {}
    values = (event.fields.get(path) for event in events)
    return np.array([0 if of is None else numbers.setdefault(str(of), len(numbers) + 1) for of in values], np.int64)


def gain_of(
    one: Codes, other: Codes, labels: Floats, later: NDArray[np.bool_], *, alone: bool = True
) -> tuple[float, float]:
    """By which share the cross of two fields makes the log-loss less in either half, and by how many standard errors in
    both together. The lesser share counts: a burst makes the sum of both fields wrong for the other half, too.

    one, other: the value of each event, as numbers from 0 on. labels: 0.0 or 1.0. later: which events are of one half.
    alone: whether each field has weights of its own beside the cross.
    """
    both = np.unique(one * (other.max() + 1) + other, return_inverse=True)[1].reshape(-1)
    apart, together = np.empty(len(labels)), np.empty(len(labels))
    for learned in (later, ~later):
        mean = (labels[learned].sum() + 0.5) / (learned.sum() + 1)
        score = np.full(len(labels), np.log(mean / (1 - mean)))
        if alone:
            _learn((one, other), score, labels, learned)
        apart[~learned] = _losses(score[~learned], labels[~learned])
        _learn((both,), score, labels, learned)
        together[~learned] = _losses(score[~learned], labels[~learned])
    less = apart - together
    error = less.std() / np.sqrt(len(less))
    gain = min(less[half].mean() / apart[half].mean() for half in (later, ~later))
    return float(gain), float(less.mean() / error) if error else 0.0


def _learn(fields: Sequence[Codes], score: Floats, labels: Floats, learned: NDArray[np.bool_]) -> None:
    """Add a weight for each value of each field to the score, by Newton's method with a ridge on the events learned."""
    weights = [np.zeros(code.max() + 1) for code in fields]
    for _ in range(ROUNDS):
        longest = 0.0
        for code, of in zip(fields, weights, strict=True):
            p_click = 1 / (1 + np.exp(-score[learned]))
            slope = np.bincount(code[learned], labels[learned] - p_click, len(of)) - RIDGE * of
            curve = np.bincount(code[learned], p_click * (1 - p_click), len(of)) + RIDGE
            step = np.clip(slope / curve, -LONGEST_STEP, LONGEST_STEP)
            of += step
            score += step[code]
            longest = max(longest, np.abs(step).max())
        if longest < FIRM:
            return


def _losses(score: Floats, labels: Floats) -> Floats:
    losses: Floats = np.logaddexp(0.0, score) - labels * score
    return losses
