"""Hours and weekdays of a time in a zone: what a field of a kind for times becomes.

A zone is a name of the IANA time zone database, which the standard library's `zoneinfo` finds on the machine, or in the
package tzdata. Only this file asks it, once a zone: decoders have the table of `zone_changes`. A time before the first
of its rows does not exist, since times begin in 1970; from `REPEATS_FROM_S` on the rules of every zone repeat with the
calendar, every 400 years, which are whole weeks.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

UTC: Final = "UTC"
PARTS: Final = {"hour": (1, 24), "weekday": (24, 7), "hour_of_week": (1, 168)}
"""The kinds for times, each with (d, n): the value is h // d % n, where h is the hour of the week, 0 on Monday at 0:00.
"""
WEEK_HOURS: Final = 168
THURSDAY_S: Final = 3 * 86_400
"""1970 began on a Thursday, so many seconds after Monday at 0:00."""
CALENDAR_S: Final = 146_097 * 86_400
"""400 years."""
REPEATS_FROM_S: Final = 4_102_444_800
"""The year 2100: some zones have their changes listed one by one until 2087."""

_STEP_S = 5 * 86_400
"""No two changes of a zone since 1970 are closer than six days."""


def check_zone(name: str) -> None:
    """Raise ValueError, with the nearest known name, for a zone that is not in the database."""
    _zone(name)


def value_in_zone(kind: str, zone: str, time_ms: int) -> int:
    """The hour 0 to 23, the weekday 0 to 6 from Monday on, or the hour of the week 0 to 167 of an epoch time.

    >>> [value_in_zone(kind, "Europe/Berlin", 1_774_746_000_000) for kind in PARTS]
    [3, 6, 147]
    """
    begins, ahead = zone_changes(zone)
    time_s = time_ms // 1000
    if time_s >= REPEATS_FROM_S:
        time_s = REPEATS_FROM_S + (time_s - REPEATS_FROM_S) % CALENDAR_S
    local_s = time_s + ahead[bisect_right(begins, time_s) - 1]
    divisor, count = PARTS[kind]
    return (local_s + THURSDAY_S) // 3600 % WEEK_HOURS // divisor % count


@lru_cache
def zone_changes(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """When the offset of a zone changes, epoch s, rising from 0 on; and how far it is ahead of UTC from then on, s.

    It holds until the year 2500. Takes 0.2 s of a processor. Raises ValueError as `check_zone`.
    """
    if name == UTC:
        return (0,), (0,)
    zone = _zone(name)
    begins, ahead = [0], [_ahead_s(zone, 0)]
    for high in range(_STEP_S, REPEATS_FROM_S + CALENDAR_S + _STEP_S, _STEP_S):
        low = high - _STEP_S
        if _ahead_s(zone, high) == ahead[-1]:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _ahead_s(zone, middle) == ahead[-1] else (low, middle)
        begins.append(high)
        ahead.append(_ahead_s(zone, high))
    return tuple(begins), tuple(ahead)


def _ahead_s(zone: ZoneInfo | timezone, time_s: int) -> int:
    offset = datetime.fromtimestamp(time_s, zone).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


def _zone(name: str) -> ZoneInfo | timezone:
    if name == UTC:
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        by_city = {known.rpartition("/")[2].lower(): known for known in sorted(available_timezones())}
        near = get_close_matches(name.rpartition("/")[2].lower(), by_city, 1)
        hint = f"; did you mean {by_city[near[0]]}?" if near else "; a zone is called as Europe/Berlin is"
        raise ValueError(f"zone {name!r} is not in this machine's time zone database{hint}") from None
