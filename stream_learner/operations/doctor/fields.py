"""Fields of impressions as features: what each holds, and those that harm a model as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stream_learner.core.events.plan import Plan
from stream_learner.operations.doctor.events import Side, paths_of, values_of
from stream_learner.operations.doctor.findings import ENOUGH, Finding, percent, quantile, shown
from stream_learner.operations.doctor.ids import UNIQUE, Pair
from stream_learner.operations.doctor.times import TimeField

LARGE = 10.0
"""A number whose median is beyond this one needs a scale: the step of a weight grows with the value."""
FEW = 1_000
"""A whole number with fewer distinct values is more likely a name than a quantity."""
LEAST_UNIQUE = 100
LEAK, NO_LEAK = 0.95, 0.01


@dataclass(frozen=True)
class Field:
    """What a field holds in a sample.

    kind: text, whole number, number, boolean, or mixed. share: of the events that have it. least, median, largest: of
    numbers, else None. example: one of its values.
    """

    path: str
    kind: str
    share: float
    distinct: int
    count: int
    least: float | None
    median: float | None
    largest: float | None
    example: Any

    @property
    def is_unique(self) -> bool:
        """Whether nearly every event has a value of its own: an id or a time, of which nothing can be learned."""
        return self.count >= LEAST_UNIQUE and self.distinct >= UNIQUE * self.count

    @property
    def is_large(self) -> bool:
        """Whether it holds numbers that need a scale."""
        return self.median is not None and max(abs(self.median), abs(self.largest or 0) / 10) > LARGE


def fields_of(side: Side) -> list[Field]:
    """Every field of the events, that which most events have first."""
    events = side.events
    return [
        _field(path, values_of(events, path), count / len(events)) for path, count in paths_of(events).most_common()
    ]


def _field(path: str, values: Sequence[Any], share: float) -> Field:
    numbers = sorted(
        float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    least, median, largest = (quantile(numbers, q) if numbers else None for q in (0.0, 0.5, 1.0))
    kind = _kind({type(value) for value in values})
    return Field(path, kind, share, len(set(map(str, values))), len(values), least, median, largest, values[-1])


def _kind(types: set[type]) -> str:
    names = {str: "text", bool: "boolean", int: "whole number", float: "number"}
    if types == {int, float}:
        return "number"
    return names.get(next(iter(types)), "mixed") if len(types) == 1 else "mixed"


def check_fields(
    fields: Iterable[Field], plan: Plan, times: Iterable[TimeField], leaks: Iterable[str]
) -> Iterable[Finding]:
    """Features that harm. fields: those that are features. plan: of the impressions. times, leaks: the fields that look
    like times, and the paths of those that look like labels.
    """
    paths_of_times, leaking = {time.path for time in times}, {*leaks}
    for one in fields:
        if one.count < ENOUGH:
            continue
        kind = plan.of(one.path).settings.kind
        if one.path in leaking:
            yield _leaks(one)
        elif one.path in paths_of_times and one.is_unique:
            yield _unique(one, "looks like a time")
        elif one.is_unique and (one.kind in ("text", "mixed") or kind == "category"):
            yield _unique(one, "looks like an id")
        elif one.is_large and kind in ("auto", "number"):
            yield _large(one, kind)


def _large(one: Field, kind: str) -> Finding:
    as_name = one.kind == "whole number" and one.distinct <= FEW and not one.is_unique
    change = f"features.categorical: [{one.path}]" if as_name else f"features.fields: {{{one.path}: {{kind: log}}}}"
    return Finding(
        "warns",
        "number_without_scale",
        f"`{one.path}` is a {one.kind} of kind {kind}: least {one.least:g}, median {one.median:g}, largest "
        f"{one.largest:g}, {one.distinct:,} distinct values among {one.count:,}",
        "its value is the feature, and a large one outweighs all others: predictions can be worse than a constant",
        f"{change}, or kind bucket, category or ignore",
    )


def _unique(one: Field, what: str) -> Finding:
    return Finding(
        "warns",
        "unique_field",
        f"`{one.path}` {what}: {one.distinct:,} distinct values among {one.count:,}, such as {shown(one.example)}",
        "each event adds a feature that never comes again: the model grows without an end and learns nothing from it",
        f"features.exclude: [{one.path}]",
    )


def _leaks(one: Field) -> Finding:
    return Finding(
        "warns",
        "label_leaks",
        f"`{one.path}` tells impressions with a click from the others in more than {percent(LEAK)}",
        "a field that is known only after the click makes a model that is perfect here and useless for predictions",
        f"features.exclude: [{one.path}], unless it is known when a prediction is asked for",
    )


def leaks(side: Side, pairs: Sequence[Pair]) -> list[str]:
    """The fields of few values of which some come with a click nearly always, and the others nearly never."""
    clicked = {id(pair.impression) for pair in pairs}
    if len(clicked) < ENOUGH:
        return []
    found = []
    for path in paths_of(side.events):
        of_value: dict[str, list[bool]] = {}
        for event in side.events:
            of_value.setdefault(str(event.fields.get(path)), []).append(id(event) in clicked)
            if len(of_value) > 3:
                break
        else:
            shares = [sum(clicks) / len(clicks) for clicks in of_value.values()]
            if max(shares) > LEAK and min(shares) < NO_LEAK and all(s > LEAK or s < NO_LEAK for s in shares):
                found.append(path)
    return found
