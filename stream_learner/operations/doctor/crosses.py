"""Crosses worth a try: pairs of fields that tell clicks together, and not each by itself.

A model of two fields has a weight for each value of either. With the cross it has one for each pair of values, too.
Both are learned from one half of the events and judged by their log-loss in the other, and the other way round. So a
pair counts only for what two fields say together beyond the sum of both, and not for noise that more weights can learn.
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
RIDGE, ROUNDS, STEPS = 1.0, 4, 3

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
    left_out = {*leaking}
    tried = [one for one in fields if one.path not in left_out and _can_be_crossed(one, plan)]
    tried = sorted(tried, key=lambda one: one.distinct)[:MOST_FIELDS]
    codes = {one.path: _codes(one.path, events) for one in tried}
    there = {frozenset(names) for names in ([] if plan.features is None else plan.features.crosses)}
    found = []
    for names in combinations(codes, 2):
        gain, errors = gain_of(codes[names[0]], codes[names[1]], labels)
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
    one: Codes, other: Codes, labels: Floats, odd: NDArray[np.bool_] | None = None, *, alone: bool = True
) -> tuple[float, float]:
    """By which share the cross of two fields makes the log-loss less, and by how many standard errors.

    one, other: the value of each event, as numbers from 0 on. labels: 0.0 or 1.0. odd: which events are of one half,
    every other one unless given. alone: whether each field has weights of its own beside the cross.
    """
    both = np.unique(one * (other.max() + 1) + other, return_inverse=True)[1].reshape(-1)
    apart, together = np.empty(len(labels)), np.empty(len(labels))
    odd = np.arange(len(labels)) % 2 == 1 if odd is None else odd
    for learned in (odd, ~odd):
        mean = labels[learned].mean()
        score = np.full(len(labels), np.log(mean / (1 - mean)) if 0 < mean < 1 else 0.0)
        weights = [np.zeros(code.max() + 1) for code in (one, other)]
        for _ in range(ROUNDS if alone else 0):
            for code, of in zip((one, other), weights, strict=True):
                score -= of[code]
                of[:] = _weights(code[learned], len(of), score[learned], labels[learned])
                score += of[code]
        apart[~learned] = _losses(score[~learned], labels[~learned])
        score += _weights(both[learned], both.max() + 1, score[learned], labels[learned])[both]
        together[~learned] = _losses(score[~learned], labels[~learned])
    less = apart - together
    error = less.std() / np.sqrt(len(less))
    return float(less.mean() / apart.mean()), float(less.mean() / error) if error else 0.0


def _weights(code: Codes, count: int, score: Floats, labels: Floats) -> Floats:
    """The weight of each value beside a score, by Newton's steps with a ridge."""
    weights = np.zeros(count)
    for _ in range(STEPS):
        p_click = 1 / (1 + np.exp(-score - weights[code]))
        slope = np.bincount(code, labels - p_click, count) - RIDGE * weights
        weights += slope / (np.bincount(code, p_click * (1 - p_click), count) + RIDGE)
    return weights


def _losses(score: Floats, labels: Floats) -> Floats:
    losses: Floats = np.logaddexp(0.0, score) - labels * score
    return losses
