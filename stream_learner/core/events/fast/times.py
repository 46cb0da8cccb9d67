"""Times of events inside kernels, by the rules of `events.reference`.

FAIL stands for every time that plain Python has to decide. This file must never accept a time that
`reference.read_time` reads differently.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.layout import FAIL, UNIT_CODES
from stream_learner.core.events.fast.numbers import more_digits
from stream_learner.core.events.reference import AUTO_MICROS_BELOW, AUTO_MILLIS_BELOW, AUTO_SECONDS_BELOW, MAX_TIME_MS
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_byte

_MILLIS, _SECONDS, _MICROS = UNIT_CODES["ms"], UNIT_CODES["s"], UNIT_CODES["us"]
_ISO, _AUTO = UNIT_CODES["iso"], UNIT_CODES["auto"]
_LARGE = 10**18
_MILLIS_PER_DIGIT = np.array([0, 100, 10, 1])
_DAYS_BEFORE_MONTH = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_DAYS_IN_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@kernel
def _unit_by_size(unit: int, value: float) -> int:
    if unit != _AUTO:
        return unit
    if value < AUTO_SECONDS_BELOW:
        return _SECONDS
    if value < AUTO_MILLIS_BELOW:
        return _MILLIS
    return _MICROS if value < AUTO_MICROS_BELOW else FAIL


@kernel
def time_of_integer(value: int, unit: int) -> int:
    """Epoch ms of an integer in the given unit; FAIL before 1970 and after the year 9999."""
    if value < 0 or value > _LARGE:
        return FAIL
    unit = _unit_by_size(unit, np.float64(value))
    if unit == _SECONDS:
        time_ms = value * 1000 if value <= MAX_TIME_MS else FAIL
    elif unit == _MILLIS:
        time_ms = value
    elif unit == _MICROS:
        time_ms = value // 1000
    else:
        return FAIL
    return time_ms if time_ms <= MAX_TIME_MS else FAIL


@kernel
def time_of_float(value: float, unit: int) -> int:
    """Epoch ms of a number with a fraction; FAIL before 1970 and after the year 9999."""
    if not 0.0 <= value <= 1e18:
        return FAIL
    unit = _unit_by_size(unit, value)
    if unit == _SECONDS:
        micros = np.rint(value * 1e6)
    elif unit == _MILLIS:
        micros = np.rint(value * 1e3)
    elif unit == _MICROS:
        micros = np.rint(value)
    else:
        return FAIL
    if micros > 9e17:
        return FAIL
    time_ms = np.int64(micros) // 1000
    return time_ms if time_ms <= MAX_TIME_MS else FAIL


@kernel
def _digits(at: int, count: int) -> int:
    """The number of exactly `count` digits at an address, FAIL if there are fewer."""
    number = 0
    for i in range(count):
        digit = load_byte(at + i) - 0x30
        if digit < 0 or digit > 9:
            return FAIL
        number = 10 * number + digit
    return number


@kernel
def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date from 1970 on; FAIL if there is no such date."""
    if year < 1970 or month < 1 or month > 12 or day < 1:
        return FAIL
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS_IN_MONTH[month] + (1 if leap and month == 2 else 0):
        return FAIL
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400 - 477
    return (year - 1970) * 365 + leaps + _DAYS_BEFORE_MONTH[month] + (1 if leap and month > 2 else 0) + day - 1


@kernel
def _zone_ms(at: int, end: int) -> int:
    """Milliseconds by which the zone in [at, end), `Z` or `+HH:MM`, is ahead of UTC; one day for any other text."""
    unknown = 86_400_000
    sign = load_byte(at)
    if at == end or (sign == 0x5A and at + 1 == end):
        return 0
    if at + 6 != end or (sign != 0x2B and sign != 0x2D) or load_byte(at + 3) != 0x3A:
        return unknown
    hours = _digits(at + 1, 2)
    minutes = _digits(at + 4, 2)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return unknown
    ahead = (hours * 60 + minutes) * 60_000
    return -ahead if sign == 0x2D else ahead


@kernel
def time_of_text(at: int, length: int, unit: int) -> int:
    """Epoch ms of `YYYY-MM-DDTHH:MM:SS`, then optionally a fraction, then optionally `Z` or `+HH:MM`.

    FAIL for any other text, and before 1970.
    """
    if length < 19 or (unit != _ISO and unit != _AUTO):
        return FAIL
    end = at + length
    days = _days(_digits(at, 4), _digits(at + 5, 2), _digits(at + 8, 2))
    hour, minute, second = _digits(at + 11, 2), _digits(at + 14, 2), _digits(at + 17, 2)
    separators = load_byte(at + 4) == 0x2D and load_byte(at + 7) == 0x2D and load_byte(at + 13) == 0x3A
    if not separators or load_byte(at + 16) != 0x3A or load_byte(at + 10) != 0x54:
        return FAIL
    if days < 0 or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return FAIL
    time_ms = ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000
    at += 19
    if at < end and load_byte(at) == 0x2E:
        behind, _ = more_digits(at + 1, np.uint64(0))
        count = min(behind - at - 1, 3)
        if count == 0:
            return FAIL
        time_ms += _digits(at + 1, count) * _MILLIS_PER_DIGIT[count]
        at = behind
    ahead_ms = _zone_ms(at, end)
    if ahead_ms >= 86_400_000 or time_ms < ahead_ms or time_ms - ahead_ms > MAX_TIME_MS:
        return FAIL
    return time_ms - ahead_ms
