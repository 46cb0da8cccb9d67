"""Numbers of JSON inside kernels: exact, or not at all.

Digits end before the closing `}` of the record, so no function needs its end. This file must never round twice: a
number whose nearest float64 is in doubt is left to orjson.

Large mantissas and exponents: Lemire, "Number parsing at a gigabyte per second" (2021), with the interval of powers
of five [-342, 308]; small ones: Clinger (1990), one exact multiplication or division.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.layout import FAIL
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    float_of_bits,
    leading_zeros,
    load_byte,
    load_u64,
    product_high,
    trailing_zeros,
)

_ZEROS = np.uint64(0x3030303030303030)
_CARRY = np.uint64(0x7676767676767676)
_HIGHS = np.uint64(0x8080808080808080)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_QUADS = np.uint64(0x0000FFFF0000FFFF)
_TEN_1 = np.uint64(1 + (10 << 8))
_TEN_2 = np.uint64(1 + (100 << 16))
_TEN_4 = np.uint64(1 + (10_000 << 32))
_0 = np.uint64(0)
_1 = np.uint64(1)
_3 = np.uint64(3)
_8 = np.uint64(8)
_16 = np.uint64(16)
_32 = np.uint64(32)
_EXACT = np.uint64(1 << 53)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_IN_DOUBT = np.uint64(0x1FF)
_HIDDEN = np.uint64(1 << 52)

MAX_DIGITS = 19
_MIN_POWER, _MAX_POWER = -300, 280

_TENS = np.array([10**i for i in range(20)], np.uint64)
_FLOAT_TENS = np.array([float(10**i) for i in range(23)])


def _power_of_five(power: int) -> int:
    """The 128 leading bits of 5^power, rounded down; for powers from -27 to -1 rounded up, as the proof demands."""
    five = 5 ** abs(power)
    if power >= 0:
        shift = 128 - five.bit_length()
        return five << shift if shift >= 0 else five >> -shift
    bits = (five - 1).bit_length() + 127
    return (1 << bits) // five + (1 if power >= -27 else 0)


_FIVES = [_power_of_five(power) for power in range(_MIN_POWER, _MAX_POWER + 1)]
_FIVES_HIGH = np.array([five >> 64 for five in _FIVES], np.uint64)
_FIVES_LOW = np.array([five & (2**64 - 1) for five in _FIVES], np.uint64)


@inlined
def digit_count(at: int) -> int:
    """How many of the 8 bytes from an address on are digits, up to the first that is none."""
    digits = load_u64(at) ^ _ZEROS
    return trailing_zeros(((digits + _CARRY) | digits) & _HIGHS) >> 3


@inlined
def leading_digits(word: np.uint64) -> tuple[int, np.uint64]:
    """How many bytes of a word are digits, counted from the lowest to the first that is none, and their number."""
    digits = word ^ _ZEROS
    others = ((digits + _CARRY) | digits) & _HIGHS
    count = trailing_zeros(others) >> 3
    if count == 0:
        return 0, _0
    digits = digits << np.uint64(64 - 8 * count)
    digits = ((digits * _TEN_1) >> _8) & _PAIRS
    digits = ((digits * _TEN_2) >> _16) & _QUADS
    return count, (digits * _TEN_4) >> _32


@kernel
def more_digits(at: int, mantissa: np.uint64) -> tuple[int, np.uint64]:
    """Append all digits from `at` on to the mantissa, modulo 2^64: (address after them, mantissa)."""
    while True:
        count, number = leading_digits(load_u64(at))
        mantissa = mantissa * _TENS[count] + number
        at += count
        if count < 8:
            return at, mantissa


@kernel
def read_integer(at: int) -> tuple[int, np.uint64]:
    """Digits without a superfluous leading zero: (address after them or FAIL, their number modulo 2^64)."""
    behind, mantissa = more_digits(at, _0)
    if behind == at or (load_byte(at) == 0x30 and behind > at + 1):
        return FAIL, _0
    return behind, mantissa


@kernel
def read_fraction(at: int, behind: int, mantissa: np.uint64) -> tuple[int, np.uint64, int]:
    """Read the fraction and exponent behind the whole part, [at, behind), of a number: (address after it or FAIL,
    mantissa, exponent).

    The whole part must have no superfluous leading zero. FAIL also for more than 19 significant digits, and for an
    exponent of more than 4 digits.
    """
    significant = behind - at if load_byte(at) != 0x30 else 0
    exponent = 0
    if load_byte(behind) == 0x2E:
        point = behind + 1
        first = point
        while significant == 0 and load_byte(first) == 0x30:
            first += 1
        behind, mantissa = more_digits(first, mantissa)
        if behind == point:
            return FAIL, _0, 0
        significant += behind - first
        exponent = point - behind
    if significant > MAX_DIGITS:
        return FAIL, _0, 0
    if load_byte(behind) | 0x20 == 0x65:
        sign = load_byte(behind + 1)
        start = behind + 2 if sign == 0x2B or sign == 0x2D else behind + 1
        behind, power = more_digits(start, _0)
        if behind == start or behind > start + 4:
            return FAIL, _0, 0
        exponent += -np.int64(power) if sign == 0x2D else np.int64(power)
    return behind, mantissa, exponent


@kernel
def nearest_float(mantissa: np.uint64, exponent: int) -> tuple[float, bool]:
    """The float64 nearest to mantissa * 10^exponent, and whether that is certain."""
    if mantissa <= _EXACT and -22 <= exponent <= 22:
        if exponent < 0:
            return np.float64(mantissa) / _FLOAT_TENS[-exponent], True
        return np.float64(mantissa) * _FLOAT_TENS[exponent], True
    if mantissa == _0:
        return 0.0, True
    if exponent < _MIN_POWER or exponent > _MAX_POWER:
        return 0.0, False
    return _nearest_by_product(mantissa, exponent)


@kernel
def _nearest_by_product(mantissa: np.uint64, exponent: int) -> tuple[float, bool]:
    """`nearest_float` by the algorithm of Lemire."""
    shift = leading_zeros(mantissa)
    word = mantissa << np.uint64(shift)
    high = product_high(word, _FIVES_HIGH[exponent - _MIN_POWER])
    low = word * _FIVES_HIGH[exponent - _MIN_POWER]
    if high & _IN_DOUBT == _IN_DOUBT:
        more = product_high(word, _FIVES_LOW[exponent - _MIN_POWER])
        low += more
        if low < more:
            high += _1
        if low == _ALL:
            return 0.0, False
    top = np.int64(high >> np.uint64(63))
    cut = np.uint64(top + 9)
    bits = high >> cut
    power = ((217706 * exponent) >> 16) + 63 + top - shift + 1023
    if power <= 0 or power >= 2046:
        return 0.0, False
    if low <= _1 and -4 <= exponent <= 23 and bits & _3 == _1 and bits << cut == high:
        bits ^= _1
    bits = (bits + (bits & _1)) >> _1
    if bits == _HIDDEN << _1:
        bits = _HIDDEN
        power += 1
    return float_of_bits(np.int64((bits ^ _HIDDEN) | (np.uint64(power) << np.uint64(52)))), True
