"""The oracle's arithmetic: `exp`, `log1p`, sums and mixing, each operation written out in the documented order.

It must never call libm for `exp` or `log`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable

MASK = (1 << 64) - 1
EXP_TERMS = [1.0 / math.factorial(i) for i in range(14)]
ATANH_TERMS = [1.0 / (2 * n + 1) for n in range(12)]


def mix(z: int) -> int:
    """The finalizer of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def bits(x: float) -> int:
    """The 64 bits of a double."""
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def exp_documented(x: float) -> float:
    """e**x for finite x, from multiplications and additions in the documented order."""
    x = min(max(x, -708.0), 708.0)
    k = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    c = EXP_TERMS
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    a0, a1, a2, a3 = 1.0 + r, c[2] + c[3] * r, c[4] + c[5] * r, c[6] + c[7] * r
    a4, a5, a6 = c[8] + c[9] * r, c[10] + c[11] * r, c[12] + c[13] * r
    b0, b1, b2 = a0 + a1 * r2, a2 + a3 * r2, a4 + a5 * r2
    d0, d1 = b0 + b1 * r4, b2 + a6 * r4
    power_of_two = struct.unpack("<d", struct.pack("<Q", (k + 1023) << 52))[0]
    return float((d0 + d1 * r8) * power_of_two)


def _atanh_series(base: float, s: float) -> float:
    """base + 2 atanh(s), by the documented series of twelve terms."""
    t = s * s
    t2 = t * t
    t4 = t2 * t2
    t8 = t4 * t4
    c = ATANH_TERMS
    a = [c[2 * j] + c[2 * j + 1] * t for j in range(6)]
    b0, b1, b2 = a[0] + a[1] * t2, a[2] + a[3] * t2, a[4] + a[5] * t2
    q = (b0 + b1 * t4) + b2 * t8
    return base + (2.0 * s) * q


def log1p_documented(u: float) -> float:
    """log(1 + u) for u >= 0; up to 1 by the loss's formula, beyond by the bits of 1 + u."""
    if u <= 0.41421356237309503:
        return _atanh_series(0.0, u / (2.0 + u))
    if u <= 1.0:
        return _atanh_series(0.6931471805599453, (u - 1.0) / (u + 3.0))
    m, e = math.frexp(1.0 + u)
    if m < 0.7071067811865476:
        m, e = m * 2.0, e - 1
    return _atanh_series(e * 0.6931471805599453, (m - 1.0) / (m + 1.0))


def dot(pairs: Iterable[tuple[float, float]]) -> float:
    """The sum of products over eight lanes, added up in the documented tree."""
    lanes = [0.0] * 8
    for i, (w, x) in enumerate(pairs):
        lanes[i % 8] += w * x
    l0, l1, l2, l3, l4, l5, l6, l7 = lanes
    return ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))


def sigmoid(p: float, exp: Callable[[float], float] = exp_documented) -> float:
    """1 / (1 + e**-p) without a large exponential."""
    if p >= 0:
        return 1.0 / (1.0 + exp(-p))
    e = exp(p)
    return e / (1.0 + e)


def softplus(
    x: float,
    exp: Callable[[float], float] = exp_documented,
    log1p: Callable[[float], float] = log1p_documented,
) -> float:
    """log(1 + e**x)."""
    return max(x, 0.0) + log1p(exp(-abs(x)))


def log_loss(
    p: float,
    y: float,
    exp: Callable[[float], float] = exp_documented,
    log1p: Callable[[float], float] = log1p_documented,
) -> float:
    """Cross entropy of label y in [0, 1] under the log-odds p."""
    return y * softplus(-p, exp, log1p) + (1.0 - y) * softplus(p, exp, log1p)


def size(x: float) -> int:
    """The size of a number: two for each power of two, by the parts of the number and not by its bits."""
    if abs(x) < 2.0**-1022:  # zero, and the numbers that have one exponent with it
        found = int(abs(x) >= 2.0**-1023)
    else:
        m, e = math.frexp(abs(x))
        found = 2 * (e + 1022) + (m >= 0.75)
    return found + 4096 * (x < 0)
