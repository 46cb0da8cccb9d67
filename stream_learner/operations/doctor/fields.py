"""Fields of impressions as features: what each holds, and those that harm a model as they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.plan import Plan
from stream_learner.operations.doctor.events import Side, paths_of, some_paths, values_of
from stream_learner.operations.doctor.findings import Finding, quantile, shown
from stream_learner.operations.doctor.ids import UNIQUE
from stream_learner.operations.doctor.leaks import Leak, is_number
from stream_learner.operations.doctor.times import Clock

LARGE = 10.0
"""A number whose median is beyond this one needs a scale: the step of a weight grows with the value."""
FEW = 1_000
"""A whole number with fewer distinct values is more likely a name than a quantity."""
LEAST_UNIQUE = 100
SPREAD, SURE = 100, 1.7
"""A field is an id where it repeats too rarely for one of fewer than `SPREAD` times as many values as were read, by so
many standard deviations: below 600 events no field does."""
SCALE_FREE = ("normalized", "vw", "pistol", "coin")
"""The optimizers that find the scale of each feature themselves."""


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
        """Whether nearly every event of the sample has a value of its own."""
        return self.count >= LEAST_UNIQUE and self.distinct >= UNIQUE * self.count

    @property
    def is_id(self) -> bool:
        """Whether its values hardly come again beyond the sample, either, so that nothing can be learned of them.

        Of n events whose field has d values, equally likely, n² / 2d repeat one (the birthday problem). Users that come
        ten times each are nearly all different in a sample of few, too.
        """
        repeats = self.count / (2 * SPREAD)
        return self.count - self.distinct < repeats - SURE * math.sqrt(repeats)

    @property
    def is_name(self) -> bool:
        """Whether it holds whole numbers that are names, not quantities."""
        return self.kind == "whole number" and self.distinct <= FEW and not self.is_unique

    @property
    def is_large(self) -> bool:
        """Whether it holds numbers that need a scale."""
        return self.median is not None and max(abs(self.median), abs(self.largest or 0) / 10) > LARGE


def fields_of(side: Side) -> list[Field]:
    """Every field of the events, that which most events have first. Of an event that was sent twice one counts."""
    events = [*{event.text: event for event in side.events}.values()]
    return [
        _field(path, values_of(events, path), count / len(events)) for path, count in paths_of(events).most_common()
    ]


def _field(path: str, values: Sequence[Any], share: float) -> Field:
    numbers = sorted(float(value) for value in values if is_number(value))
    least, median, largest = (quantile(numbers, q) if numbers else None for q in (0.0, 0.5, 1.0))
    kind = _kind({type(value) for value in values})
    return Field(path, kind, share, len(set(map(str, values))), len(values), least, median, largest, values[-1])


def _kind(types: set[type]) -> str:
    names = {str: "text", bool: "boolean", int: "whole number", float: "number"}
    if types == {int, float}:
        return "number"
    return names.get(next(iter(types)), "mixed") if len(types) == 1 else "mixed"


def check_fields(
    fields: Iterable[Field], plan: Plan, times: Iterable[Clock], leaks: Iterable[Leak], optimizer: str
) -> Iterable[Finding]:
    """Features that harm. fields: those that are features. plan: of the impressions. times, leaks: the fields that look
    like times, and those that tell the label. optimizer: its name.
    """
    paths_of_times, leaking = {time.path for time in times}, {leak.path: leak for leak in leaks}
    for one in fields:
        kind, distinct = plan.of(one.path).settings.kind, f"{one.distinct:,} distinct values among {one.count:,}"
        if one.path in leaking:
            yield leaking[one.path].finding()
        elif plan.of(one.path).settings.is_time:
            continue
        elif (one.is_unique and one.path in paths_of_times) or (
            one.is_id and (one.median is None or kind == "category")
        ):
            what = "a time" if one.path in paths_of_times else "an id"
            seen = f"`{one.path}` looks like {what}: {distinct}, such as {shown(one.example)}"
            means = "each event adds a feature that never comes again: the model grows, and learns nothing from it"
            change = f"features.exclude: [{one.path}]"
            if one.path in paths_of_times:
                change += f", or features.fields: {{{one.path}: {{kind: hour_of_week}}}}"
            yield Finding("warns", "unique_field", seen, means, change)
        elif one.is_large and kind == "number" and optimizer not in SCALE_FREE:
            seen = f"`{one.path}` is a {one.kind} of kind number: {one.least:g} to {one.largest:g}, "
            seen += f"median {one.median:g}, {distinct}"
            means = "its value is the feature; large ones outweigh all others: predictions can be worse than a constant"
            log = f"features.fields: {{{one.path}: {{kind: log}}}}"
            change = f"features.categorical: [{one.path}]" if one.is_name else log
            yield Finding("warns", "number_without_scale", seen, means, change)


def check_names(fields: Iterable[Field], spec: FeatureSpec, features: Sequence[Field]) -> Iterable[Finding]:
    """Fields that the configuration names and no event has. features: those of the fields that are features."""
    paths = [one.path for one in fields]
    if not paths:
        return
    there = f"they have {some_paths(paths)}"
    if not features:
        means = "a model without features predicts the same for all events"
        change = "features.include and features.exclude"
        yield Finding("stops", "no_features", f"no field of the events is a feature; {there}", means, change)
        return
    above = {".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 2)}
    settings = {name: getattr(spec, name) for name in ("include", "exclude", "categorical", "fields")}
    settings["crosses"] = tuple(name for cross in spec.crosses for name in cross)
    for setting, name in ((setting, name) for setting, names in settings.items() for name in dict.fromkeys(names)):
        if name not in above:
            excluded = setting == "exclude"
            of = [one.path for one in features] if excluded else paths
            near = get_close_matches(name, of, n=1, cutoff=0.85 if excluded else 0.6)
            if excluded and not near:
                continue  # a field that few events have may be left out, too
            seen = f"features.{setting} names `{name}`, which no event of the sample has; {there}"
            right = near[0] if near else ""
            if near and setting == "crosses":
                crosses = ([right if one == name else one for one in cross] for cross in spec.crosses if name in cross)
                right = "[" + ", ".join(f"[{', '.join(cross)}]" for cross in crosses) + "]"
            change = f"features.{setting}: {right}" if near else f"features.{setting}, if the name is wrong"
            means = "the field that is meant is a feature" if excluded else "it gives no feature"
            yield Finding("warns", "field_missing", seen, means, change)
