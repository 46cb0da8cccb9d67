"""The plan of a decoder: roles (id, time, weight, value) by path, features by specification.

Both decoders ask a plan for the treatment of each field, by the joined name of the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec, covered
from stream_learner.core.events.field_numbers import NOT_COUNTED, FieldNumbers

KNOWN_NAMES_LIMIT = 4_096
KNOWN_NAME_LENGTH = 256
_ONLY_TIMES = "; the time is one by the kinds hour, weekday and hour_of_week"


class Role(IntEnum):
    """The role of a field in its event, besides being a feature."""

    NONE = 0
    ID = 1
    TIME = 2
    WEIGHT = 3
    VALUE = 4


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """Treatment of one field.

    in_keys: the name as it stands in the texts that are hashed. feature: whether its strings, booleans and numbers
    become features. below: whether it or a field inside it may give features. role_below: whether the field of a role
    may be inside it. watched: whether a cross or a missing indicator asks for it. number: the number under which its
    features count (`field_numbers`).
    """

    name: str
    in_keys: str
    role: Role
    feature: bool
    below: bool
    role_below: bool
    watched: bool
    settings: FieldSpec
    number: int = NOT_COUNTED


@dataclass(slots=True)
class Plan:
    """Everything a decoder must know; `of` gives the treatment of a field.

    roles: role by path. ignore: names of fields that give no features, nor anything inside them; the paths of roles are
    among them, but that of a time that is a feature (`EventSpec.paths`). features: None if no features are wanted.
    time_unit, max_skew_ms, max_event_bytes: as in `EventSpec`. max_number: the largest weight or value. numbers:
    numbers the fields of features; None if nobody counts them.
    """

    roles: Mapping[str, Role]
    features: FeatureSpec | None
    ignore: tuple[str, ...] = ()
    time_unit: str = "ms"
    max_skew_ms: int = 0
    max_event_bytes: int = 1 << 62
    max_number: float = math.inf
    numbers: FieldNumbers | None = None
    watched: frozenset[str] = field(init=False)
    _known: dict[str, FieldPlan] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.features
        if spec is None:
            self.watched = frozenset()
            return
        crossed = {name for names in spec.crosses for name in names}
        self.watched = frozenset(crossed | {*self.indicators()})
        for name in sorted({*self.watched, *spec.fields, *spec.categorical}):
            if covered(name, self.ignore):
                raise ValueError(
                    f"field {name!r} is the event's id, time, weight or value, never a feature"
                    f"{_ONLY_TIMES if self.roles.get(name) is Role.TIME else ''}"
                )
        for name, role in self.roles.items():
            settings = spec.fields.get(name, FieldSpec())
            if role is Role.TIME and settings.is_time and settings.time_unit != self.time_unit:
                raise ValueError(
                    f"field {name!r} is the event's time, in {self.time_unit}, and cannot have time_unit "
                    f"{settings.time_unit} as a feature"
                )

    def indicators(self) -> tuple[str, ...]:
        """Names whose absence is a feature, in the order of the specification."""
        fields = self.features.fields if self.features else {}
        return tuple(name for name, settings in fields.items() if settings.missing == "indicator")

    def of(self, name: str) -> FieldPlan:
        """The treatment of the field of this joined name."""
        plan = self._known.get(name)
        if plan is None:
            plan = self._make(name)
            if len(self._known) < KNOWN_NAMES_LIMIT and len(name) <= KNOWN_NAME_LENGTH:
                self._known[name] = plan
        return plan

    def _make(self, name: str) -> FieldPlan:
        spec = None if covered(name, self.ignore) else self.features
        return FieldPlan(
            name=name,
            in_keys=name if spec is None else spec.in_keys(name),
            role=self.roles.get(name, Role.NONE),
            feature=spec is not None and spec.takes(name),
            below=spec is not None and spec.takes_below(name),
            role_below=any(path.startswith(name + ".") for path in self.roles),
            watched=name in self.watched,
            settings=spec.of(name) if spec is not None else FieldSpec(),
            number=NOT_COUNTED if self.numbers is None else self.numbers.of(name),
        )
