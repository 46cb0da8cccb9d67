"""The fields of an event that become features, and their kinds: the part of the configuration that a scorer shares.

A specification is checked, immutable and JSON-able, and has a fingerprint. Names are those of the fields; inside
objects they are joined with `.`, so `{"user": {"age": 3}}` has the field `user.age`, as has `{"user.age": 3}`. A name
in `include` or `exclude`, and a field of kind `ignore`, stand for the field and everything below it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

from stream_learner.core.events.feature_keys import FIRST_RULE, KEY_RULES, NEWEST_RULE, SIZE_RULE, name_in_keys
from stream_learner.core.events.kinds import Kind, Missing, TimeUnit
from stream_learner.core.events.local_time import PARTS, UTC, check_zone
from stream_learner.core.machine.hashing import xxh64

MAX_FEATURES_LIMIT = 32_768
MAX_VALUE_BYTES_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The features of one field. Strings and booleans are categories whatever the kind (save `ignore`, and times).

    kind: what numbers become. `auto`: the category of the number's size, by key rules 1 and 2 the same as `number`;
    `number`: a numeric feature of that value; `category`: integers are categories, numbers with a fraction or exponent
    are numeric features; `log`: sgn(x) log1p(|x|); `bucket`: the category `b<i>`, i = number of `edges` <= x. `hour`,
    `weekday`, `hour_of_week`: the value is a time, and becomes the category of its hour 0 to 23, its weekday 0 to 6
    from Monday on, or its hour 0 to 167 of the week. `ignore`: the field and all below it are left out.
    edges: bucket boundaries, strictly increasing, finite. missing: `indicator` adds the feature `name:missing`
    to an event in which the field gives no feature (absent, null, an empty list, an object).
    zone: of hours and weekdays, by its name in the IANA database. time_unit: as which times are read
    (`events.reference`). Raises ValueError if these do not go together, or the zone is not known.
    """

    kind: Kind = "auto"
    edges: tuple[float, ...] = ()
    missing: Missing = "skip"
    zone: str = UTC
    time_unit: TimeUnit = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if self.missing not in get_args(Missing):
            raise ValueError(f"missing must be one of {', '.join(get_args(Missing))}, not {self.missing!r}")
        if self.kind == "bucket" and not self.edges:
            raise ValueError("kind bucket needs edges")
        if self.kind != "bucket" and self.edges:
            raise ValueError(f"edges belong to kind bucket, not to {self.kind}")
        if not all(math.isfinite(edge) for edge in self.edges):
            raise ValueError("edges must be finite")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must be strictly increasing")
        if self.kind == "ignore" and self.missing == "indicator":
            raise ValueError("an ignored field cannot have a missing indicator")
        if self.time_unit not in get_args(TimeUnit):
            raise ValueError(f"time_unit must be one of {', '.join(get_args(TimeUnit))}, not {self.time_unit!r}")
        if not self.is_time and (self.zone, self.time_unit) != (UTC, "auto"):
            raise ValueError(f"zone and time_unit belong to the kinds {', '.join(PARTS)}, not to {self.kind}")
        check_zone(self.zone)

    @property
    def is_time(self) -> bool:
        """Whether the values are read as times."""
        return self.kind in PARTS

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, with zone and unit for times only; `FieldSpec.from_dict` is its inverse."""
        of_time = {"zone": self.zone, "time_unit": self.time_unit} if self.is_time else {}
        return {"kind": self.kind, "edges": list(self.edges), "missing": self.missing, **of_time}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> FieldSpec:
        """From the form that `to_dict` gives; a setting that is left out has its default. Raises ValueError."""
        _refuse_unknown(settings, tuple(cls.__dataclass_fields__))
        return cls(**{**settings, "edges": tuple(settings.get("edges", ()))})


@dataclass(frozen=True)
class FeatureSpec:
    """The features of an event.

    include: fields to take; empty means all. exclude: fields to leave out, stronger than include.
    fields: settings by field name; their order is the order of missing indicators within an example.
    categorical: fields whose integers are categories, short for kind `category`.
    crosses: tuples of two or more field names; a cross exists where each of its fields gives a feature.
    bias: add the constant feature. max_features: most features of an event, counted before repeats are
    summed, crosses and indicators included, bias not. max_value_bytes: longest name or string value, in UTF-8.
    key_rule: which texts are hashed; `feature_keys` has the rules.
    Raises ValueError, naming the field, if settings contradict each other.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fields: Mapping[str, FieldSpec] = field(default_factory=dict)
    crosses: tuple[tuple[str, ...], ...] = ()
    bias: bool = True
    max_features: int = 1_000
    max_value_bytes: int = 4_096
    categorical: tuple[str, ...] = ()
    key_rule: int = NEWEST_RULE

    def __post_init__(self) -> None:
        for attribute in ("include", "exclude", "categorical"):
            names = getattr(self, attribute)
            if isinstance(names, str):
                raise ValueError(f"{attribute} must be a list of names, not the string {names!r}")
            object.__setattr__(self, attribute, tuple(names))
        object.__setattr__(self, "fields", dict(self.fields))
        object.__setattr__(self, "crosses", tuple(_cross(names) for names in self.crosses))
        _check_limit("max_features", self.max_features, MAX_FEATURES_LIMIT)
        _check_limit("max_value_bytes", self.max_value_bytes, MAX_VALUE_BYTES_LIMIT)
        if type(self.key_rule) is not int or self.key_rule not in KEY_RULES:
            raise ValueError(f"key_rule must be one of {', '.join(map(str, KEY_RULES))}, not {self.key_rule!r}")
        self._check_names()
        self._check_fields()
        self._check_crosses()

    def __hash__(self) -> int:
        return hash((self.include, self.exclude, tuple(self.fields.items()), self.crosses, self.categorical))

    def takes(self, name: str) -> bool:
        """Whether the field of this name gives features, by include, exclude and ignore."""
        return not covered(name, self.left_out()) and (not self.include or covered(name, self.include))

    def takes_below(self, name: str) -> bool:
        """Whether the field, or one inside it, may give features."""
        if covered(name, self.left_out()):
            return False
        below = name + "."
        return self.takes(name) or any(wanted.startswith(below) for wanted in self.include)

    def left_out(self) -> tuple[str, ...]:
        """Names that are left out, with everything below them."""
        ignored = (name for name, settings in self.fields.items() if settings.kind == "ignore")
        return (*self.exclude, *ignored)

    def of(self, name: str) -> FieldSpec:
        """The settings of a field as they work: one that is listed in `categorical` has kind `category`, and by a
        key rule without sizes `auto` is `number`."""
        settings = self.fields.get(name, _AUTO)
        if name in self.categorical:
            return FieldSpec("category", (), settings.missing)
        if settings.kind == "auto" and self.key_rule < SIZE_RULE:
            return FieldSpec("number", (), settings.missing)
        return settings

    def in_keys(self, name: str) -> str:
        """The name of a field as it stands in the texts that are hashed."""
        return name_in_keys(name, self.key_rule)

    @cached_property
    def fingerprint(self) -> int:
        """u64 that differs between two specifications if some event has other features by them, or only one refuses it.

        It does not differ if they only mean the same in other words: a default written out, a name listed twice or in
        another place of a list without order, `categorical` in place of the kind.
        """
        text = json.dumps(self._meaning(), sort_keys=True, separators=(",", ":"))
        return xxh64(f"features 1: {text}".encode())

    def rule_of(self, fingerprint: int) -> int | None:
        """The key rule by which these settings have that fingerprint; None if they do not by any."""
        return next((rule for rule in KEY_RULES if replace(self, key_rule=rule).fingerprint == fingerprint), None)

    def differences(self, other: FeatureSpec) -> list[str]:
        """The settings by which the other makes different features or refuses other events; empty if there are none.

        `fields.name` stands for kind and edges of a field, `indicators` for the missing indicators and their order.

        >>> FeatureSpec(exclude=("a",)).differences(FeatureSpec(fields={"b": FieldSpec("log")}))
        ['exclude', 'fields.b']
        """
        mine, theirs = self._meaning(), other._meaning()
        own, foreign = mine.pop("fields"), theirs.pop("fields")
        found = [name for name in mine if mine[name] != theirs[name]]
        return found + [f"fields.{name}" for name in sorted({*own, *foreign}) if own.get(name) != foreign.get(name)]

    def _meaning(self) -> dict[str, Any]:
        """The settings in one form for equal meanings, JSON-able; the fingerprint is made of it.

        `exclude` also has the ignored fields, `fields` only kinds that fields without settings do not have.
        """
        usual = "number" if self.key_rule < SIZE_RULE else "auto"
        names = [name for name in dict.fromkeys((*self.fields, *self.categorical)) if self.takes(name)]
        treated = {name: self.of(name) for name in names}
        return {
            "include": _highest(self.include),
            "exclude": _highest(self.left_out()),
            "fields": {
                name: [settings.kind, *(edge + 0.0 for edge in settings.edges)]
                + [settings.zone, settings.time_unit] * settings.is_time
                for name, settings in treated.items()
                if settings.kind != usual
            },
            "indicators": [name for name, settings in self.fields.items() if settings.missing == "indicator"],
            "crosses": [list(names) for names in self.crosses],
            "bias": bool(self.bias),
            "max_features": self.max_features,
            "max_value_bytes": self.max_value_bytes,
            "key_rule": self.key_rule,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, which is published with a model; `from_dict` is its inverse.

        Key rule 1 is left out, so that a model of that rule is described as it was before there was another.
        """
        form = {
            "include": list(self.include),
            "exclude": list(self.exclude),
            "fields": {name: settings.to_dict() for name, settings in self.fields.items()},
            "crosses": [list(names) for names in self.crosses],
            "bias": self.bias,
            "max_features": self.max_features,
            "max_value_bytes": self.max_value_bytes,
            "categorical": list(self.categorical),
        }
        return form if self.key_rule == FIRST_RULE else {**form, "key_rule": self.key_rule}

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> FeatureSpec:
        """From the form that `to_dict` gives; a setting left out has its default, `key_rule` 1. Raises ValueError."""
        _refuse_unknown(spec, tuple(cls.__dataclass_fields__))
        fields = {name: field_of(name, settings) for name, settings in spec.get("fields", {}).items()}
        return cls(**{"key_rule": FIRST_RULE, **spec, "fields": fields})

    def _check_names(self) -> None:
        names = [*self.include, *self.exclude, *self.fields, *self.categorical]
        for name in [*names, *(name for cross in self.crosses for name in cross)]:
            if not isinstance(name, str):
                raise ValueError(f"a field's name must be a string, not {name!r}")
            try:
                name.encode()
            except UnicodeEncodeError:
                raise ValueError(f"field {name!r}: the name is not valid Unicode") from None

    def _check_fields(self) -> None:
        for name, settings in self.fields.items():
            if not isinstance(settings, FieldSpec):
                raise ValueError(f"field {name!r}: settings must be a FieldSpec, not {settings!r}")
            if settings.kind != "ignore" and not self.takes(name):
                raise ValueError(f"field {name!r} has settings but is not taken, by include, exclude or ignore")
        for name in self.categorical:
            if not self.takes(name):
                raise ValueError(f"field {name!r} is categorical but is not taken, by include, exclude or ignore")
            kind = self.fields.get(name, _AUTO).kind
            if kind not in ("auto", "category"):
                raise ValueError(f"field {name!r} is listed as categorical but its kind is {kind}")

    def _check_crosses(self) -> None:
        for names in self.crosses:
            label = " x ".join(map(repr, names))
            if len(names) < 2:
                raise ValueError(f"cross {label}: a cross needs two fields or more")
            for name in names:
                if not self.takes(name):
                    raise ValueError(f"cross {label}: field {name!r} is not taken, by include, exclude or ignore")
        if len(set(self.crosses)) < len(self.crosses):
            raise ValueError("a cross is listed twice")


_AUTO = FieldSpec()


def covered(name: str, names: Iterable[str]) -> bool:
    """Whether a name is one of these, or below one of them.

    >>> covered("user.age", ["user"]), covered("username", ["user"])
    (True, False)
    """
    return any(name == other or name.startswith(other + ".") for other in names)


def _highest(names: Iterable[str]) -> list[str]:
    """These names in rising order, each once, without those that are below another of them."""
    distinct = set(names)
    return sorted(name for name in distinct if not covered(name, distinct - {name}))


def _cross(names: Any) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ValueError(f"cross {names!r}: a cross is a list of field names")
    return tuple(names)


def _check_limit(setting: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{setting} must be a whole number from 1 to {most:,}, not {value!r}")


def field_of(name: str, settings: Any) -> FieldSpec:
    """The settings of a field from the form that `to_dict` gives. Raises ValueError, naming the field."""
    if isinstance(settings, FieldSpec):
        return settings
    try:
        return FieldSpec.from_dict(settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"field {name!r}: {error}") from None


def _refuse_unknown(settings: Any, known: tuple[str, ...]) -> None:
    if not isinstance(settings, Mapping):
        raise ValueError(f"settings must be a mapping, not {settings!r}")
    for name in settings:
        if name not in known:
            raise ValueError(f"unknown setting {name!r}; known are {', '.join(known)}")
