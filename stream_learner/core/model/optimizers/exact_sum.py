"""An exact sum of numbers e^x: terms can be added and removed in any order without rounding errors.

The sum lies at an address, float64[SUM_SCALARS], zero at the start; exponents x are in [-LARGEST_X, LARGEST_X]. An
addend is e^x rounded to 53 bits; after that nothing is rounded. The value is read as a mantissa and a power of two.

The sum is one integer of LIMBS limbs of 48 bits, the least first, each a whole number in a float64, in units of
2^-UNIT, like the long accumulator of Kulisch. So removing an addend restores the sum before it was added to the last
bit, even if the addend was e^2000 times the rest: no drift, no overflow. The value that is read has a relative error of
at most 1e-15.
Place 0 holds the number of limbs in use.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream_learner.core.machine.arithmetic import INVERSE_LN2, LN2_HIGH, LN2_LOW, exp
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import float_of_bits
from stream_learner.core.model.optimizers.cells import number, set_number

LARGEST_X: Final = 2000.0
LIMBS: Final = 124
SUM_SCALARS: Final = 1 + LIMBS
UNIT: Final = 2944
"""e^-2000 is about 2^-2886, and its mantissa needs 53 bits more. Above e^2000 the limbs hold 2^120 addends."""

_LIMB_BITS: Final = 48
_LIMB: Final = 2.0**48
_LIMB_INVERSE: Final = 2.0**-48
_MANTISSA: Final = 2.0**53


@kernel
def two_to(k: int) -> float:
    """2^k for k <= 1023; 0 below -1022."""
    return float_of_bits((k + 1023) << 52) if k >= -1022 else 0.0


@kernel
def exp_parts(x: float) -> tuple[float, int]:
    """e^x as m 2^k, m in [0.7, 1.42]."""
    k = np.floor(x * INVERSE_LN2 + 0.5)
    return exp((x - k * LN2_HIGH) - k * LN2_LOW), np.int64(k)


@kernel
def _carry_on(at: int, limb: int, part: float, carry: float) -> float:
    """Add part and carry to a limb; returns the carry into the next one."""
    value = number(at, 1 + limb) + part + carry
    carry = np.floor(value * _LIMB_INVERSE)
    set_number(at, 1 + limb, value - carry * _LIMB)
    return carry


@kernel
def add(at: int, x: float, sign: float) -> None:
    """Add e^x (sign 1.0), or remove an e^x that was added before (sign -1.0)."""
    m, k = exp_parts(x)
    bit = k - 53 + UNIT
    limb = bit // _LIMB_BITS
    rest = m * _MANTISSA * two_to(bit - limb * _LIMB_BITS)
    high = np.floor(rest * (_LIMB_INVERSE * _LIMB_INVERSE))
    rest -= high * (_LIMB * _LIMB)
    middle = np.floor(rest * _LIMB_INVERSE)
    carry = _carry_on(at, limb, sign * (rest - middle * _LIMB), 0.0)
    carry = _carry_on(at, limb + 1, sign * middle, carry)
    carry = _carry_on(at, limb + 2, sign * high, carry)
    limb += 3
    while carry != 0.0 and limb < LIMBS:
        carry = _carry_on(at, limb, 0.0, carry)
        limb += 1
    used = max(np.int64(number(at, 0)), limb)
    while used > 0 and number(at, used) == 0.0:
        used -= 1
    set_number(at, 0, np.float64(used))


@kernel
def parts(at: int) -> tuple[float, int]:
    """The sum as s 2^k with s in [2^-48, 1); s = 0 if it is 0."""
    used = np.int64(number(at, 0))
    s = 0.0
    for limb in range(max(used - 3, 0), used):
        s = (s + number(at, 1 + limb)) * _LIMB_INVERSE
    return s, _LIMB_BITS * used - UNIT
