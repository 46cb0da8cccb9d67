"""Exponential, logarithm and their relatives, in one fixed order of IEEE additions and multiplications.

The bits of a result are the same on every machine and for every instruction set; the error is a relative 1e-15. This
file must never call the C library's mathematics, fuse a multiplication with an addition, or change the order of an
operation: every digest of every model depends on it.

The polynomials are Taylor series in Estrin's form, after reduction to |r| <= ln(2)/2 (exp) and to
v in [sqrt(1/2), sqrt(2)) with log v = 2 atanh((v - 1)/(v + 1)) (log, log1p).
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import bits_of_float, float_of_bits

LN2 = 0.6931471805599453
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
INVERSE_LN2 = 1.4426950408889634
EXP_LIMIT = 708.0
SQRT2_MINUS_1 = 0.41421356237309503

C2, C3, C4, C5, C6, C7 = 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0
C8, C9, C10 = 1.0 / 40320.0, 1.0 / 362880.0, 1.0 / 3628800.0
C11, C12, C13 = 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0

A1, A2, A3, A4, A5, A6 = 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0
A7, A8, A9, A10, A11 = 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0, 1.0 / 23.0

_MANTISSA = 0x000FFFFFFFFFFFFF
_ONE = 0x3FF0000000000000
_SQRT2_BITS = 0x3FF6A09E667F3BCD
_SMALLEST_NORMAL = 2.2250738585072014e-308
_TWO_TO_54 = 18014398509481984.0
_LARGEST = float(np.finfo(np.float64).max)
_SQRT_HALF_MINUS_1 = -0.2928932188134524
_HALF_LN2 = 0.34657359027997264


@kernel
def exp(x: float) -> float:
    """e^x for x clamped to [-708, 708], where neither overflow nor a subnormal number is reached. NaN stays NaN."""
    if x != x:
        return x
    x = min(max(x, -EXP_LIMIT), EXP_LIMIT)
    k = np.floor(x * INVERSE_LN2 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    a0 = 1.0 + r
    a1 = C2 + C3 * r
    a2 = C4 + C5 * r
    a3 = C6 + C7 * r
    a4 = C8 + C9 * r
    a5 = C10 + C11 * r
    a6 = C12 + C13 * r
    b0 = a0 + a1 * r2
    b1 = a2 + a3 * r2
    b2 = a4 + a5 * r2
    d0 = b0 + b1 * r4
    d1 = b2 + a6 * r4
    p = d0 + d1 * r8
    return p * float_of_bits((np.int64(k) + 1023) << 52)


@kernel
def _atanh_twice(s: float) -> float:
    """2 atanh(s) for |s| <= 0.1716, the series to s^23."""
    t = s * s
    t2 = t * t
    t4 = t2 * t2
    t8 = t4 * t4
    a0 = 1.0 + A1 * t
    a1 = A2 + A3 * t
    a2 = A4 + A5 * t
    a3 = A6 + A7 * t
    a4 = A8 + A9 * t
    a5 = A10 + A11 * t
    b0 = a0 + a1 * t2
    b1 = a2 + a3 * t2
    b2 = a4 + a5 * t2
    q = (b0 + b1 * t4) + b2 * t8
    return (2.0 * s) * q


@kernel
def log1p_unit(u: float) -> float:
    """log(1 + u) for u in [0, 1], which is the range that the log-loss needs."""
    large = u > SQRT2_MINUS_1
    s = (u - 1.0) / (u + 3.0) if large else u / (2.0 + u)
    base = LN2 if large else 0.0
    return base + _atanh_twice(s)


@kernel
def _log_normal(v: float) -> float:
    """log v for a normal number v > 0, split as v = m 2^e with m in [sqrt(1/2), sqrt(2))."""
    bits = bits_of_float(v)
    exponent = (bits >> 52) - 1023
    mantissa = (bits & _MANTISSA) | _ONE
    if mantissa >= _SQRT2_BITS:
        mantissa -= 1 << 52
        exponent += 1
    m = float_of_bits(mantissa)
    s = (m - 1.0) / (m + 1.0)
    return np.float64(exponent) * LN2 + _atanh_twice(s)


@entry
def log(v: float) -> float:
    """log v; -infinity for 0, NaN for v < 0; infinity and NaN stay as they are."""
    if v >= _SMALLEST_NORMAL:
        return _log_normal(v) if v <= _LARGEST else v
    if v > 0.0:
        return _log_normal(v * _TWO_TO_54) - 54.0 * LN2
    return -np.inf if v == 0.0 else np.nan


@entry
def log1p(u: float) -> float:
    """log(1 + u); -infinity for u = -1, NaN for u < -1. For u in [0, 1] it is `log1p_unit`.

    For u above 1 and below sqrt(1/2) - 1 it rounds the sum 1 + u first.
    """
    if u >= 0.0:
        return log1p_unit(u) if u <= 1.0 else log(1.0 + u)
    return _atanh_twice(u / (2.0 + u)) if u >= _SQRT_HALF_MINUS_1 else log(1.0 + u)


@kernel
def expm1(x: float) -> float:
    """e^x - 1 without cancellation near 0, for x clamped as in `exp`."""
    if not abs(x) <= _HALF_LN2:
        return exp(x) - 1.0
    x2 = x * x
    x4 = x2 * x2
    a1 = C2 + C3 * x
    a2 = C4 + C5 * x
    a3 = C6 + C7 * x
    a4 = C8 + C9 * x
    a5 = C10 + C11 * x
    a6 = C12 + C13 * x
    b0 = a1 + a2 * x2
    b1 = a3 + a4 * x2
    b2 = a5 + a6 * x2
    return x + x2 * ((b0 + b1 * x4) + b2 * (x4 * x4))


@kernel
def power(x: float, y: float) -> float:
    """x^y for x >= 0, exact for y = 0, 1/2, 1; else e^(y log x), whose relative error grows with |y log x| 1e-16."""
    if y == 0.0:
        return 1.0
    if y == 1.0:
        return x
    if y == 0.5:
        return np.sqrt(x)
    if x == 0.0:
        return 0.0 if y > 0.0 else np.inf
    return exp(y * log(x))


@kernel
def log1p_of_scaled(b: float, m: float) -> float:
    """log(1 + b e^m) for b >= 0, without overflow, also for an m beyond the range of `exp`."""
    scaled = b * exp(m)
    direct = b == 0.0 or (m <= EXP_LIMIT and scaled <= 1e300)
    return log1p(scaled) if direct else softplus(log(b) + m)


@kernel
def margin_gain(m: float, b: float) -> float:
    """The d >= 0 that solves d + e^m (e^d - 1) = b for b >= 0.

    A logistic margin m grows by d in an implicit step with b = importance * rate * X. In terms of Lambert's W,
    d = log W(e^a) - m with a = b + m + e^m; this form has no cancellation and holds for every m. Newton's method
    starts to the right of the root of a convex function, so it only goes down. For m > 0 the equation is divided by
    e^m.
    """
    if b == 0.0:
        return 0.0
    shift, weight = min(m, 0.0), exp(-max(m, 0.0))
    target, foot = b * weight, exp(shift)
    delta = min(b, log1p_of_scaled(b, -m))
    for _ in range(100):
        risen = exp(shift + delta)
        grown = foot * expm1(delta) if delta < 1.0 else risen - foot
        change = (weight * delta + grown - target) / (weight + risen)
        delta -= change
        if not abs(change) > 2e-16 * delta:
            break
    return max(delta, 0.0)


@kernel
def sigmoid(p: float) -> float:
    """1 / (1 + e^-p), without cancellation on either side."""
    e = exp(-abs(p))
    return 1.0 / (1.0 + e) if p >= 0.0 else e / (1.0 + e)


@kernel
def softplus(x: float) -> float:
    """log(1 + e^x)."""
    return max(x, 0.0) + log1p_unit(exp(-abs(x)))


@kernel
def finite(x: float) -> bool:
    """Whether x is neither infinite nor NaN."""
    return abs(x) <= _LARGEST


@kernel
def sum_lanes(l0: float, l1: float, l2: float, l3: float, l4: float, l5: float, l6: float, l7: float) -> float:
    """The total of the eight lanes of a dot product; lane j holds w_i x_i for i = j mod 8, added in order from 0.0."""
    return ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))
