"""Times of events, in the forms producers write them.

In: a JSON value and the unit that is configured. Out: epoch milliseconds.
This file must never ask what time it is.

Rules. A time is taken to whole microseconds (numbers with a fraction: to the nearest, ties to even; digits of
ISO 8601 beyond the sixth are cut off) and then cut down to whole milliseconds. Units `ms`, `s`, `us` want a number;
`iso` wants `YYYY-MM-DD`, `T` or a space, `HH:MM`, then optionally `:SS`, a fraction after `.` or `,`, and `Z` or
`+HH:MM`, `+HHMM`, `+HH` (or `-`); no zone means UTC. `auto` reads a string as ISO 8601, and a number by its size:
below 1e11 seconds, below 1e14 milliseconds, below 1e17 microseconds. (1e11 s is the year 5138; 1e11 ms is March
1973, so milliseconds before that need the unit named.) Anything else, a time below 0, and one after the year 9999
is refused.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

from stream_learner.core.reasons import Reason, Refused

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
