"""Reads numbers as the nearest float64.

It is never rounded twice: a number that 64 bits cannot decide is noted, and Python decides it.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.numbers import MAX_DIGITS, more_digits, nearest_float
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_byte, load_f64, load_i64, store_i64
from stream_learner.evaluate.formats.vw.layout import (
    DOUBT_ROOM,
    DOUBT_SPANS,
    DOUBT_VALUES,
    DOUBTS,
    KNOWN,
)

MALFORMED = -1
_0 = np.uint64(0)
_HUGE_POWER = 10**15


@kernel
def read_number(state: int, at: int) -> tuple[int, float]:
    """Read a number: (address behind it or MALFORMED, its value, which may be infinite)."""
    start = at
    sign = load_byte(at)
    if sign == 0x2D or sign == 0x2B:
        at += 1
    behind, mantissa = more_digits(at, _0)
    digits = behind - at
    significant = digits if mantissa != _0 or digits > MAX_DIGITS else 0
    exponent = 0
    if load_byte(behind) == 0x2E:
        point = behind + 1
        first = point
        while significant == 0 and load_byte(first) == 0x30:
            first += 1
        behind, mantissa = more_digits(first, mantissa)
        significant += behind - first
        exponent = point - behind
        digits -= exponent
    if digits == 0:
        return MALFORMED, 0.0
    certain = significant <= MAX_DIGITS
    if load_byte(behind) | 0x20 == 0x65:
        behind, power = _read_power(behind + 1)
        if behind == MALFORMED:
            return MALFORMED, 0.0
        exponent += power
    if certain:
        value, certain = nearest_float(mantissa, exponent)
    if not certain:
        value = _ask(state, start, behind)
    elif sign == 0x2D:
        value = -value
    return behind, value


@kernel
def _read_power(at: int) -> tuple[int, int]:
    """Read what follows an `e`: (address behind or MALFORMED, the power).

    A power beyond 10**15 is not exact: no text has so many digits that it would matter.
    """
    sign = load_byte(at)
    if sign == 0x2D or sign == 0x2B:
        at += 1
    start = at
    power = 0
    byte = load_byte(at)
    while 0x30 <= byte <= 0x39:
        if power < _HUGE_POWER:
            power = 10 * power + byte - 0x30
        at += 1
        byte = load_byte(at)
    return MALFORMED if at == start else at, -power if sign == 0x2D else power


@kernel
def _ask(state: int, start: int, behind: int) -> float:
    """The value that Python has decided for the next doubtful number of this line; 1 if it is not decided yet."""
    k = load_i64(state + DOUBTS)
    store_i64(state + DOUBTS, k + 1)
    if k < load_i64(state + KNOWN):
        return load_f64(load_i64(state + DOUBT_VALUES) + 8 * k)
    if k < load_i64(state + DOUBT_ROOM):
        spans = load_i64(state + DOUBT_SPANS) + 16 * k
        store_i64(spans, start)
        store_i64(spans + 8, behind)
    return 1.0
