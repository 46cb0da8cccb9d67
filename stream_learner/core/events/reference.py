"""The defining decoder: one event through orjson and plain Python, slow and obvious.

This file must never be tuned at the price of clarity: the fast decoder is tested against it.

Checks are made in this order, and the first that fails counts: size, JSON (what orjson accepts), object, id, time,
weight, value, then features in the order of the event. Fields are visited depth first. An element of a list stands for
the list's field. Of several fields with the path of a role the first counts. null is the same as absent.

Times. A time is read to whole microseconds and then rounded down to whole milliseconds. A number with a fraction is
rounded to the nearest microsecond, ties to even; digits of ISO 8601 after the sixth are cut off. The units `ms`, `s`
and `us` want a number. `iso` wants `YYYY-MM-DD`, `T` or a space, `HH:MM`, then optionally `:SS`, a fraction after `.`
or `,`, and a zone: `Z` or `+HH:MM`, `+HHMM`, `+HH` (or `-`); no zone means UTC. `auto` reads a string as ISO 8601, and
a number by its size: below 1e11 as seconds, below 1e14 as milliseconds, below 1e17 as microseconds. (1e11 s is the
year 5138; 1e11 ms is March 1973, so milliseconds before that need the unit named.) Everything else is refused, and so
is a time before 1970 or after the year 9999.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import orjson

from stream_learner.core.events.feature_keys import size_text
from stream_learner.core.events.field_numbers import Origin
from stream_learner.core.events.local_time import value_in_zone
from stream_learner.core.events.plan import FieldPlan, Plan, Role
from stream_learner.core.events.reasons import BEYOND_FLOAT64, Reason, Refused, of_field
from stream_learner.core.machine.arithmetic import log1p
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts, xxh64

MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""

AUTO_SECONDS_BELOW = 10**11
AUTO_MILLIS_BELOW = 10**14
AUTO_MICROS_BELOW = 10**17

MICROS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def read_time(value: Any, unit: str) -> int:
    """Epoch milliseconds of a time field. Raises Refused(BAD_TIME)."""
    if isinstance(value, str) and unit in ("iso", "auto"):
        micros = _micros_of_iso(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and unit != "iso":
        micros = _micros_of_number(value, _unit_by_size(value) if unit == "auto" else unit)
    else:
        raise Refused(Reason.BAD_TIME)
    time_ms = micros // 1000
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise Refused(Reason.BAD_TIME)
    return time_ms


def _unit_by_size(value: float) -> str:
    if value < AUTO_SECONDS_BELOW:
        return "s"
    if value < AUTO_MILLIS_BELOW:
        return "ms"
    if value < AUTO_MICROS_BELOW:
        return "us"
    raise Refused(Reason.BAD_TIME)


def _micros_of_number(value: float, unit: str) -> int:
    if not 0 <= value <= 1e18:
        raise Refused(Reason.BAD_TIME)
    if isinstance(value, int):
        return value * MICROS_PER[unit]
    return round(value * float(MICROS_PER[unit]))


def _micros_of_iso(text: str) -> int:
    match = _ISO.fullmatch(text)
    if match is None:
        raise Refused(Reason.BAD_TIME)
    year, month, day, hour, minute, second, fraction, sign, zone_hour, zone_minute = match.groups()
    try:
        local = datetime(
            int(year),
            int(month),
            int(day),
            int(hour),
            int(minute),
            int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=timezone.utc,
        )
    except ValueError:
        raise Refused(Reason.BAD_TIME) from None
    ahead = timedelta(hours=int(zone_hour or 0), minutes=int(zone_minute or 0))
    if ahead >= timedelta(days=1) or int(zone_minute or 0) > 59:
        raise Refused(Reason.BAD_TIME)
    return (local - _EPOCH) // _MICROSECOND + (ahead // _MICROSECOND) * (1 if sign == "-" else -1)


Occurrence = tuple[bytes, float]
"""The text whose hash is the key of a feature, and the value of the feature."""


@dataclass(slots=True)
class PlainRow:
    """The columns of one event. number: the weight of an impression or the value of a click.

    origins: the source of each feature; of one that was summed, of the first of them.
    """

    time_ms: int = 0
    id_hash: int = 0
    number: float = 1.0
    keys: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)


def read_event(plan: Plan, event: dict[str, Any], record_time_ms: int) -> PlainRow:
    """The columns of one event that `parse_event` gave. Raises Refused."""
    row = PlainRow()
    if plan.roles:
        _read_roles(plan, event, record_time_ms, row)
    if plan.features is not None:
        row.keys, row.values, row.origins = _read_features(plan, event)
    return row


def parse_event(raw: bytes, max_event_bytes: int) -> dict[str, Any]:
    """The object that the bytes stand for. Raises Refused."""
    if len(raw) > max_event_bytes:
        raise Refused(Reason.TOO_LARGE)
    try:
        event = orjson.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(Reason.NOT_JSON) from None
    if not isinstance(event, dict):
        raise Refused(Reason.NOT_OBJECT)
    return event


def beyond_float64(raw: bytes) -> bool:
    """Whether bytes are no event only because a number in them is beyond float64, which JSON itself allows.

    >>> beyond_float64(b'{"a": -1e400}'), beyond_float64(b'{"a": 1e400'), beyond_float64(b'{"a": NaN}')
    (True, False, False)
    """
    numbers: list[float] = []

    def number(text: str) -> None:
        numbers.append(float(text))

    try:
        json.loads(raw, parse_float=number, parse_int=number, parse_constant=orjson.loads)
    except (ValueError, RecursionError):
        return False
    return any(map(math.isinf, numbers))


def words_of(raw: bytes, reason: Reason) -> str:
    """Why bytes are no event that can be used, in words for a person."""
    return BEYOND_FLOAT64 if reason is Reason.NOT_JSON and beyond_float64(raw) else reason.text


def walk(event: dict[str, Any], enter: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """The joined name and the value of every field, depth first, an object or list before its inside.

    enter: whether to enter an object or list that is the value of a field of this name.
    """
    stack: list[Iterator[tuple[str, Any]]] = [iter(event.items())]
    while stack:
        for name, value in stack[-1]:
            yield name, value
            if isinstance(value, (dict, list)) and enter(name):
                stack.append(_inside(name, value))
                break
        else:
            stack.pop()


def _inside(name: str, value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{name}.{key}", inner) for key, inner in value.items())
    return ((name, element) for element in value)


def _read_roles(plan: Plan, event: dict[str, Any], record_time_ms: int, row: PlainRow) -> None:
    found: dict[Role, Any] = {}
    for name, value in walk(event, lambda name: plan.of(name).role_below):
        if name in plan.roles:
            found.setdefault(plan.roles[name], value)
    row.id_hash = _read_id(found.get(Role.ID))
    row.time_ms = _read_time(plan, found, record_time_ms)
    if Role.WEIGHT in found:
        row.number = _read_number(found[Role.WEIGHT], plan.max_number, Reason.BAD_WEIGHT)
    if Role.VALUE in found:
        row.number = _read_number(found[Role.VALUE], plan.max_number, Reason.BAD_VALUE)


def _read_id(value: Any) -> int:
    if value is None:
        raise Refused(Reason.NO_ID)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise Refused(Reason.BAD_ID)
    return xxh64(str(value).encode()) or 1


def _read_time(plan: Plan, found: dict[Role, Any], record_time_ms: int) -> int:
    path = next((path for path, role in plan.roles.items() if role is Role.TIME), None)
    if path is None:
        if not 0 <= record_time_ms <= MAX_TIME_MS:
            raise Refused(Reason.BAD_TIME)
        return record_time_ms
    value = found.get(Role.TIME)
    try:
        time_ms = read_time(value, plan.time_unit)
    except Refused:
        raise Refused(Reason.BAD_TIME, of_field(Reason.BAD_TIME, path, value)) from None
    if record_time_ms >= 0 and time_ms - record_time_ms > plan.max_skew_ms:
        raise Refused(Reason.TIME_AHEAD)
    return time_ms


def _read_number(value: Any, most: float, reason: Reason) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(reason)
    number = float(value)
    if not (0.0 <= number <= most and math.isfinite(number)):
        raise Refused(reason)
    return abs(number)


def _read_features(plan: Plan, event: dict[str, Any]) -> tuple[list[int], list[float], list[Origin]]:
    spec = plan.features
    assert spec is not None
    found: list[Occurrence] = []
    origins: list[Origin] = []
    watched: dict[str, list[int]] = {}
    for name, value in walk(event, lambda name: plan.of(name).below):
        field_plan = plan.of(name)
        if field_plan.below and len(name.encode()) > spec.max_value_bytes:
            raise Refused(Reason.VALUE_TOO_LONG)
        if not field_plan.feature or value is None or isinstance(value, (dict, list)):
            continue
        _check_count(len(found) + 1, spec.max_features)
        if field_plan.watched:
            watched.setdefault(name, []).append(len(found))
        found.append(occurrence(field_plan, value, spec.max_value_bytes))
        origins.append(name)
    absent = [name for name in plan.indicators() if name not in watched]
    found += [(f"{spec.in_keys(name)}:missing".encode(), 1.0) for name in absent]
    origins += absent
    _check_count(len(found), spec.max_features)
    keys = hash_texts([text for text, _ in found])
    values = [value for _, value in found]
    _add_crosses(plan, watched, keys, values, origins)
    if spec.bias:
        keys.append(BIAS_KEY)
        values.append(1.0)
        origins.append(None)
    return _sum_repeats(keys, values, origins)


def occurrence(plan: FieldPlan, value: Any, max_value_bytes: int) -> Occurrence:
    """The feature of a string, number or boolean of a field that gives features. Raises Refused."""
    kind = plan.settings.kind
    if plan.settings.is_time:
        return f"{plan.in_keys}={_value_of_time(plan, value)}".encode(), 1.0
    if isinstance(value, str):
        text = value.encode()
        if len(text) > max_value_bytes:
            raise Refused(Reason.VALUE_TOO_LONG)
        return plan.in_keys.encode() + b"=" + text, 1.0
    if isinstance(value, bool):
        return f"{plan.in_keys}={'true' if value else 'false'}".encode(), 1.0
    if isinstance(value, int) and kind == "category":
        return f"{plan.in_keys}={value}".encode(), 1.0
    number = float(value)
    if kind == "auto":
        return f"{plan.in_keys}={size_text(number)}".encode(), 1.0
    if kind == "bucket":
        return f"{plan.in_keys}=b{bisect_right(plan.settings.edges, number)}".encode(), 1.0
    if kind == "log":
        number = math.copysign(float(log1p(abs(number))), number)
    return plan.in_keys.encode(), number


def _value_of_time(plan: FieldPlan, value: Any) -> int:
    settings = plan.settings
    try:
        return value_in_zone(settings.kind, settings.zone, read_time(value, settings.time_unit))
    except Refused:
        raise Refused(Reason.NOT_A_TIME, of_field(Reason.NOT_A_TIME, plan.name, value)) from None


def _add_crosses(
    plan: Plan, watched: dict[str, list[int]], keys: list[int], values: list[float], origins: list[Origin]
) -> None:
    assert plan.features is not None
    for names in plan.features.crosses:
        places = [watched.get(name, []) for name in names]
        _check_count(len(keys) + math.prod(map(len, places)), plan.features.max_features)
        combinations = list(product(*places))
        crossed = [[keys[place] for place in combination] for combination in combinations]
        keys += hash_texts([b"".join(key.to_bytes(8, "little") for key in parts) for parts in crossed])
        values += [math.prod(values[place] for place in combination) for combination in combinations]
        origins += [names] * len(combinations)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise Refused(Reason.TOO_MANY_FEATURES)


def _sum_repeats(
    keys: list[int], values: list[float], origins: list[Origin]
) -> tuple[list[int], list[float], list[Origin]]:
    sums: dict[int, float] = {}
    first: dict[int, Origin] = {}
    for key, value, origin in zip(keys, values, origins, strict=True):
        sums[key] = sums[key] + value if key in sums else value
        first.setdefault(key, origin)
    if not all(map(math.isfinite, sums.values())):
        raise Refused(Reason.NOT_FINITE)
    kept = {key: value for key, value in sums.items() if value != 0.0}
    return list(kept), list(kept.values()), [first[key] for key in kept]
