"""The oracle's reading of an event: from the bytes of a record to id, time, weight and hashed features.

In: a record and the settings. Out: an `Impression` or a `Click`, a bad record among them as one without a
time. Like all of the oracle this file imports nothing of `stream_learner`, and must never be corrected to
agree with it without a sentence of the design that says so.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import Any, NamedTuple

from tests.oracles.feature_rows import h as hash_bytes
from tests.oracles.feature_rows import row

BIAS_KEY = 0xEF46DB3751D8E999

Settings = dict[str, Any]
Features = tuple[tuple[int, float], ...]

DEFAULTS: Settings = {
    # the join
    "window_ms": 60_000,
    "skew_ms": 0,
    "tick_ms": 1_000,
    "dedupe_ms": 300_000,
    "lateness_ms": 600_000,
    "agree": 16,
    "keep_negatives": 1.0,
    "sampling_constant": 0x9E3779B97F4A7C15,
    # where an event keeps its id, time (None: the record's timestamp), weight and value
    "id": "id",
    "click_id": "id",
    "time": None,
    "click_time": None,
    "time_unit": "ms",  # s, ms, us, iso
    "max_skew_ms": 60_000,
    "weight": None,
    "value": None,
    "limit_bytes": None,
    # features
    "include": None,
    "exclude": (),
    "categorical": (),
    "number": (),
    "log": (),
    "buckets": {},
    "clocks": {},  # by field: hour, weekday or hour_of_week, and the zone
    "missing": (),
    "crosses": (),
    # FTRL-Proximal
    "alpha": 0.1,
    "beta": 1.0,
    "l1": 0.0,
    "l2": 0.0,
}


def settings(**changes: Any) -> Settings:
    """The defaults above with some of them changed; a name that is not there is a mistake of the test."""
    unknown = set(changes) - set(DEFAULTS)
    if unknown:
        raise KeyError(f"no such setting: {sorted(unknown)}")
    return {**DEFAULTS, **changes}


class Record(NamedTuple):
    """A record of an input topic as Kafka gives it."""

    offset: int
    timestamp_ms: int
    value: bytes | None


class Impression(NamedTuple):
    offset: int
    time_ms: int | None  # None: a bad record, which has only its place
    id_hash: int
    weight: float
    features: Features


class Click(NamedTuple):
    offset: int
    time_ms: int | None
    id_hash: int
    value: float


class BadRecord(Exception):
    """The record is not an event."""


def _integer(text: str) -> int | float:
    n = int(text)
    return n if text != "-0" and -(2**63) <= n < 2**64 else float(text)


def _no_constant(text: str) -> float:
    raise BadRecord(f"{text} is not JSON")


def _object(value: bytes | None, s: Settings) -> dict[str, Any]:
    if value is None or (s["limit_bytes"] is not None and len(value) > s["limit_bytes"]):
        raise BadRecord("nothing there, or too large")
    try:
        event = json.loads(value.decode("utf-8"), parse_int=_integer, parse_constant=_no_constant)
        json.dumps(event, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise BadRecord("not JSON") from error
    if not isinstance(event, dict):
        raise BadRecord("not an object")
    return event


def _id_hash(event: dict[str, Any], field: str) -> int:
    found = event.get(field)
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise BadRecord("no id, or one of a wrong type")
    return hash_bytes(str(found).encode("utf-8"))


def _number(event: dict[str, Any], field: str | None, low: float, high: float) -> float:
    found = 1.0 if field is None or field not in event else event[field]
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not low <= found <= high:
        raise BadRecord(f"{field} is no number from {low} to {high}")
    return float(found)


def _time_ms(event: dict[str, Any], field: str | None, record: Record, s: Settings) -> int:
    if field is None:
        return record.timestamp_ms
    found = event.get(field)
    if s["time_unit"] == "iso" and isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found.replace("Z", "+00:00"))
        except ValueError as error:
            raise BadRecord("no such time") from error
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        found = round(moment.timestamp() * 1000)
    elif isinstance(found, bool) or not isinstance(found, int):
        raise BadRecord("no time, or one of a wrong type")
    elif s["time_unit"] == "s":
        found *= 1000
    elif s["time_unit"] == "us":
        found //= 1000
    if found < 0 or found > record.timestamp_ms + s["max_skew_ms"]:
        raise BadRecord("time out of range, or ahead of the record's")
    return int(found)


def read_impression(record: Record, s: Settings) -> Impression:
    """The event in a record; a bad one keeps its place and has no time."""
    try:
        event = _object(record.value, s)
        id_hash = _id_hash(event, s["id"])
        time_ms = _time_ms(event, s["time"], record, s)
        weight = _number(event, s["weight"], 0.0, 1.7976931348623157e308)
        return Impression(record.offset, time_ms, id_hash, weight, features(event, s))
    except BadRecord:
        return Impression(record.offset, None, 0, 0.0, ())


def read_click(record: Record, s: Settings) -> Click:
    """The event in a record; a bad one keeps its place and has no time."""
    try:
        event = _object(record.value, s)
        id_hash = _id_hash(event, s["click_id"])
        time_ms = _time_ms(event, s["click_time"], record, s)
        return Click(record.offset, time_ms, id_hash, _number(event, s["value"], 0.0, 1.0))
    except BadRecord:
        return Click(record.offset, None, 0, 0.0)


def features(event: dict[str, Any], s: Settings) -> Features:
    """Keys and values of an event in their order: fields as they occur, missing indicators, crosses, bias."""
    fields: dict[str, dict[str, Any]] = {name: {"missing": "indicator"} for name in s["missing"]}
    for kind in ("number", "log"):
        for name in s[kind]:
            fields.setdefault(name, {})["kind"] = kind
    for name, edges in s["buckets"].items():
        fields.setdefault(name, {}).update(kind="bucket", edges=edges)
    for name, (kind, zone) in s["clocks"].items():
        fields.setdefault(name, {}).update(kind=kind, zone=zone, time_unit=s["time_unit"])
    spec = {
        "key_rule": 3,
        "fields": fields,
        **{name: s[name] for name in ("include", "exclude", "categorical", "crosses")},
    }
    own = (name for name in (s["id"], s["time"], s["weight"]) if name is not None and name not in s["clocks"])
    keys, values = row(event, spec, tuple(own))
    if not all(map(math.isfinite, values)):
        raise BadRecord("a value that is not finite")
    return tuple(zip(keys, values, strict=True))
