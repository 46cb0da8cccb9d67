"""Numbers written as text inside kernels: whole numbers, and the shortest decimal that reads as a float.

The text is that of orjson: digits with a point where the number is neither large nor small, else an exponent.

Shortest decimals: Giulietti, "The Schubfach way to render doubles" (2021), sections 9.5 to 9.9. A float c * 2^q stands
for all numbers that round to it. With k = floor(log10(2^q)) that interval holds at most one multiple of 10^(k+1), which
is then the shortest; else the multiple of 10^k that is closest to the float is.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import bits_of_float, product_high, store_byte, store_u64, trailing_zeros

_LOWEST = -292
_POINT, _PLUS, _MINUS, _ZERO, _EXPONENT = 0x2E, 0x2B, 0x2D, 0x30, 0x65
_0, _1, _2, _10, _63 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(10), np.uint64(63)
_10_000 = np.uint64(10_000)
_ZEROS = np.uint64(0x3030303030303030)
_LOW_63 = np.uint64((1 << 63) - 1)
_FRACTION = (1 << 52) - 1
_TENS = np.array([10**i for i in range(20)], np.uint64)


def _leading_bits(power: int) -> int:
    """10^power as 2^125 <= g < 2^126: its leading bits, rounded up."""
    five = 5 ** abs(power)
    if power >= 0:
        return (five << 126 >> five.bit_length()) + 1
    return (1 << five.bit_length() + 125) // five + 1


_POWERS = [_leading_bits(power) for power in range(_LOWEST, 325)]
_HIGH = np.array([power >> 63 for power in _POWERS], np.uint64)
_LOW = np.array([power & (1 << 63) - 1 for power in _POWERS], np.uint64)


@inlined
def _product(power: int, factor: np.uint64) -> np.uint64:
    """factor * 10^power to its leading bits, the lowest of them set if bits below were cut off (round to odd)."""
    high, low = _HIGH[power - _LOWEST], _LOW[power - _LOWEST]
    middle = (high * factor >> _1) + product_high(low, factor)
    top = product_high(high, factor) + (middle >> _63)
    return top | (((middle & _LOW_63) + _LOW_63) >> _63)


@kernel
def _shortest(mantissa: int, exponent: int, at_edge: bool) -> tuple[np.uint64, int]:
    """Digits and power of ten of the shortest decimal for mantissa * 2^exponent; the digits may end in zeros.

    at_edge: whether the float below is only half as far away as the one above.
    """
    power = (exponent * 661_971_961_083 - (274_743_187_321 if at_edge else 0)) >> 41
    shift = np.uint64(exponent + ((-power * 913_124_641_741) >> 38) + 2)
    odd = np.uint64(mantissa & 1)
    four = np.uint64(mantissa) << _2
    value = _product(-power, four << shift)
    below = _product(-power, (four - (_1 if at_edge else _2)) << shift) + odd
    above = _product(-power, (four + _2) << shift)
    digits = value >> _2
    tens = digits // _10 * _10
    low_fits = below <= tens << _2
    if low_fits != (((tens + _10) << _2) + odd <= above):
        return (tens if low_fits else tens + _10), power
    low_fits = below <= digits << _2
    if low_fits != (((digits + _1) << _2) + odd <= above):
        return (digits if low_fits else digits + _1), power
    middle = (digits << _2) + _2
    down = value < middle or (value == middle and digits & _1 == _0)
    return (digits if down else digits + _1), power


@inlined
def _count(number: np.uint64) -> int:
    count = 1
    while count < 20 and number >= _TENS[count]:
        count += 1
    return count


@inlined
def write_digits(number: np.uint64, count: int, out: int) -> int:
    """The last `count` digits of a number. Returns the address after them."""
    at = out + count
    while at > out:
        at -= 1
        store_byte(at, _ZERO + np.int64(number % _10))
        number //= _10
    return out + count


@inlined
def _eight_digits(number: np.uint64) -> np.uint64:
    """The digits of a number below 10^8 as the bytes of a word, the first of them the lowest. It halves all parts at
    once: into lanes of four digits, of two, of one.
    """
    four = number // _10_000
    lanes = four | (number - four * _10_000) << np.uint64(32)
    two = (lanes * np.uint64(10_486) >> np.uint64(20)) & np.uint64(0x7F0000007F)
    lanes = two | (lanes - two * np.uint64(100)) << np.uint64(16)
    one = (lanes * np.uint64(103) >> np.uint64(10)) & np.uint64(0x000F000F000F000F)
    return one | (lanes - one * _10) << np.uint64(8)


@kernel
def write_integer(number: int, out: int) -> int:
    """Write an integer, in at most 20 bytes; up to 7 more are written over. Returns the address after it."""
    magnitude = np.uint64(number)
    if number < 0:
        store_byte(out, _MINUS)
        out += 1
        magnitude = _0 - magnitude
    if magnitude >= _TENS[8]:
        return write_digits(magnitude, _count(magnitude), out)
    digits = _eight_digits(magnitude)
    zeros = min(trailing_zeros(digits) >> 3, 7)
    store_u64(out, (digits | _ZEROS) >> np.uint64(8 * zeros))
    return out + 8 - zeros


@inlined
def _write_zeros(count: int, out: int) -> int:
    for i in range(count):
        store_byte(out + i, _ZERO)
    return out + count


@inlined
def write_byte(byte: int, out: int) -> int:
    """Write a byte. Returns the address after it."""
    store_byte(out, byte)
    return out + 1


@kernel
def _write_decimal(digits: np.uint64, power: int, smallest: int, largest: int, out: int) -> int:
    """Write digits * 10^power. smallest, largest: how many digits stand before the point where there is no exponent."""
    while digits % _10 == _0:
        digits //= _10
        power += 1
    count = _count(digits)
    before = count + power
    if power >= 0 and before <= largest:
        out = _write_zeros(power, write_digits(digits, count, out))
        return _write_zeros(1, write_byte(_POINT, out))
    if 0 < before <= largest:
        out = write_digits(digits // _TENS[-power], before, out)
        return write_digits(digits % _TENS[-power], -power, write_byte(_POINT, out))
    if smallest < before <= 0:
        out = _write_zeros(-before, write_byte(_POINT, _write_zeros(1, out)))
        return write_digits(digits, count, out)
    out = write_digits(digits // _TENS[count - 1], 1, out)
    if count > 1:
        out = write_digits(digits % _TENS[count - 1], count - 1, write_byte(_POINT, out))
    store_byte(out, _EXPONENT)
    if before > 0:
        store_byte(out + 1, _PLUS)
        out += 1
    return write_integer(before - 1, out + 1)


@kernel
def write_float(number: float, out: int) -> int:
    """Write a finite float64, in at most 25 bytes. Returns the address after it."""
    bits = bits_of_float(number)
    if bits < 0:
        store_byte(out, _MINUS)
        out += 1
    if number == 0.0:
        return _write_zeros(1, write_byte(_POINT, _write_zeros(1, out)))
    exponent, mantissa = bits >> 52 & 0x7FF, bits & _FRACTION
    at_edge = mantissa == 0 and exponent > 1
    if exponent > 0:
        mantissa += _FRACTION + 1
    digits, power = _shortest(mantissa, max(exponent, 1) - 1075, at_edge)
    return _write_decimal(digits, power, -5, 16, out)


@kernel
def write_float32(bits: int, out: int) -> int:
    """Write the finite float32 that has these bits, an int64 in [0, 2^32), in at most 17 bytes."""
    if bits >> 31:
        store_byte(out, _MINUS)
        out += 1
    exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0 and mantissa == 0:
        return _write_zeros(1, write_byte(_POINT, _write_zeros(1, out)))
    at_edge = mantissa == 0 and exponent > 1
    if exponent > 0:
        mantissa += 0x800000
    digits, power = _shortest(mantissa, max(exponent, 1) - 150, at_edge)
    return _write_decimal(digits, power, -6, 13, out)
