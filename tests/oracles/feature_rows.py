"""The keys and values of an event by the table in `features`: `json`, `xxhash`, and a page of plain Python.

This file must never import the code under test.
"""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import date, datetime, timedelta, timezone
from itertools import product
from zoneinfo import ZoneInfo

import xxhash

from tests.oracles.arithmetic import log1p_documented, size


def h(text: str | bytes) -> int:
    return xxhash.xxh64_intdigest(text if isinstance(text, bytes) else text.encode()) or 1


def parse(raw: bytes):
    """JSON with integers beyond 64 bits read as floats, as orjson does."""
    return json.loads(raw, parse_int=lambda digits: int(digits) if -(2**63) <= int(digits) < 2**64 else float(digits))


def below(name: str, names) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:i]) in names for i in range(1, len(parts) + 1))


def written(name: str, rule: int) -> str:
    """A field's name in the text of a key, letter by letter."""
    if rule == 1:
        return name
    out = ""
    for i, letter in enumerate(name):
        if letter in "\\=" or name[i:] == ":missing":
            out += "\\"
        out += letter
    return out or "\\e"


def seconds(value: int | float | str, unit: str) -> int:
    """Seconds since 1970 of a time that is one, by the table of times in docs/hash-vectors.md."""
    if isinstance(value, str):
        found = re.fullmatch(r"(.{10}).(\d\d):(\d\d)(?::(\d\d))?(?:[.,]\d+)?[Zz]?(?:([+-]\d\d):?(\d\d)?)?", value)
        assert found is not None
        day, hour, minute, second, ahead, more = found.groups(default="0")
        clock = 60 * (60 * int(hour) + int(minute)) + int(second)
        zone = 60 * int(ahead) + int(more) * (-1 if ahead[0] == "-" else 1)
        return 86_400 * (date.fromisoformat(day) - date(1970, 1, 1)).days + clock - 60 * zone
    if unit == "auto":
        unit = "s" if value < 10**11 else "ms" if value < 10**14 else "us"
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    if isinstance(value, int):
        return value // per_second
    return round(value * float(1_000_000 // per_second)) // 1_000_000


def of_clock(kind: str, zone: str, since_1970: int) -> int:
    """What the clocks in a zone show, and the weekday there; the calendar repeats after 400 years."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=since_1970)
    near = moment.replace(year=moment.year - 400 * max(0, (moment.year - 2200) // 400)).astimezone(ZoneInfo(zone))
    return {"hour": near.hour, "weekday": near.weekday(), "hour_of_week": 24 * near.weekday() + near.hour}[kind]


def row(event: dict, spec: dict, ignore: tuple[str, ...] = ()) -> tuple[list[int], list[float]]:
    """Keys and values of an event. spec: the JSON form of a feature specification."""
    rule = spec.get("key_rule", 1)
    fields = spec.get("fields", {})
    left_out = {*spec.get("exclude", ()), *ignore, *(n for n, f in fields.items() if f.get("kind") == "ignore")}
    found: list[tuple[str, int, float]] = []

    def visit(name: str, value) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                visit(name + "." + key, inner)
        elif isinstance(value, list):
            for element in value:
                visit(name, element)
        elif value is not None and wanted(name):
            found.append((name, *feature(name, value)))

    def wanted(name: str) -> bool:
        return not below(name, left_out) and (not spec.get("include") or below(name, set(spec["include"])))

    def feature(name: str, value) -> tuple[int, float]:
        kind = fields.get(name, {}).get("kind", "auto")
        if name in spec.get("categorical", ()):
            kind = "category"
        if kind in ("hour", "weekday", "hour_of_week"):
            of = fields[name]
            clock = of_clock(kind, of.get("zone", "UTC"), seconds(value, of.get("time_unit", "auto")))
            return h(f"{written(name, rule)}={clock}"), 1.0
        if value is True or value is False:
            return h(f"{written(name, rule)}={str(value).lower()}"), 1.0
        if isinstance(value, str) or (isinstance(value, int) and kind == "category"):
            return h(f"{written(name, rule)}={value}"), 1.0
        x = float(value)
        if kind == "auto" and rule >= 3:
            return h(f"{written(name, rule)}=b{size(x):04d}"), 1.0
        if kind == "bucket":
            return h(f"{written(name, rule)}=b{sum(edge <= x for edge in fields[name]['edges'])}"), 1.0
        if kind == "log":
            x = math.copysign(log1p_documented(abs(x)), x)
        return h(written(name, rule)), x

    for key, value in event.items():
        visit(key, value)
    own = list(found)
    for name, settings in fields.items():
        if settings.get("missing") == "indicator" and not any(n == name for n, _, _ in own):
            found.append(("", h(f"{written(name, rule)}:missing"), 1.0))
    for names in spec.get("crosses", ()):
        for parts in product(*[[o for o in own if o[0] == name] for name in names]):
            x = 1.0
            for _, _, value in parts:
                x *= value
            found.append(("", h(b"".join(struct.pack("<Q", key) for _, key, _ in parts)), x))
    if spec.get("bias", True):
        found.append(("", h(b""), 1.0))
    sums: dict[int, float] = {}
    for _, key, value in found:
        sums[key] = sums[key] + value if key in sums else value
    kept = [(key, value) for key, value in sums.items() if value != 0]
    return [key for key, _ in kept], [value for _, value in kept]
