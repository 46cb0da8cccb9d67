"""The fold in plain Python floats and dictionaries, written from the documented arithmetic; shares no code with it.

`math.sqrt` and `math.ldexp` by a power of two in range are exact IEEE operations, so the bits must agree.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

MASK = (1 << 64) - 1
FACTORIALS = [1.0 / math.factorial(i) for i in range(14)]
ODD = [1.0 / (2 * i + 1) for i in range(12)]


def exp(x: float) -> float:
    """e^x by range reduction and a polynomial of degree 13 in Estrin's order."""
    x = min(max(x, -708.0), 708.0)
    k = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    r2 = r * r
    r4 = r2 * r2
    pairs = [FACTORIALS[i] + FACTORIALS[i + 1] * r for i in range(0, 14, 2)]
    quads = [pairs[i] + pairs[i + 1] * r2 for i in (0, 2, 4)]
    low, high = quads[0] + quads[1] * r4, quads[2] + pairs[6] * r4
    return math.ldexp(low + high * (r4 * r4), k)


def twice_atanh(s: float) -> float:
    """2 atanh(s) as an even polynomial of degree 22 in Estrin's order, times 2 s."""
    t = s * s
    t2 = t * t
    t4 = t2 * t2
    pairs = [ODD[i] + ODD[i + 1] * t for i in range(0, 12, 2)]
    quads = [pairs[i] + pairs[i + 1] * t2 for i in (0, 2, 4)]
    return (2.0 * s) * ((quads[0] + quads[1] * t4) + quads[2] * (t4 * t4))


def log1p(u: float) -> float:
    """log(1 + u), u >= 0."""
    if u <= 1.0:
        if u > 0.41421356237309503:
            return 0.6931471805599453 + twice_atanh((u - 1.0) / (u + 3.0))
        return 0.0 + twice_atanh(u / (2.0 + u))
    m, e = math.frexp(1.0 + u)
    if m < 0.7071067811865476:
        m, e = m * 2.0, e - 1
    return e * 0.6931471805599453 + twice_atanh((m - 1.0) / (m + 1.0))


def sigmoid(p: float) -> float:
    """1 / (1 + e^-p)."""
    if p >= 0.0:
        return 1.0 / (1.0 + exp(-p))
    e = exp(p)
    return e / (1.0 + e)


def softplus(x: float) -> float:
    """log(1 + e^x)."""
    return max(x, 0.0) + log1p(exp(-abs(x)))


def log_loss(p: float, y: float) -> float:
    """Log-loss of margin p for a label in [0, 1]."""
    return y * softplus(-p) + (1.0 - y) * softplus(p)


def dot(weights: Sequence[float], values: Sequence[float]) -> float:
    """w.x by eight lanes and a fixed tree."""
    lanes = [0.0] * 8
    for i, (w, x) in enumerate(zip(weights, values, strict=True)):
        lanes[i % 8] += w * x
    a, b, c, d, e, f, g, h = lanes
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


class Ftrl:
    """FTRL-Proximal on logistic loss over a dictionary key -> [z, n]; `examples` are lists of (key, value) pairs."""

    def __init__(self, alpha: float, beta: float, l1: float, l2: float) -> None:
        self.inverse_alpha = 1.0 / alpha
        self.beta, self.l1, self.l2 = beta, l1, l2
        self.rows: dict[int, tuple[float, float]] = {}
        self.touched: dict[int, int] = {}
        self.examples = 0
        self.refused = 0

    def weight(self, key: int) -> float:
        """The weight of a feature now."""
        z, n = self.rows.get(key, (0.0, 0.0))
        denominator = (self.beta + math.sqrt(n)) * self.inverse_alpha + self.l2
        if abs(z) <= self.l1 or denominator == 0.0:
            return 0.0
        return -(z - math.copysign(self.l1, z)) / denominator

    def learn(self, features: Sequence[tuple[int, float]], y: float, h: float, tick: int) -> float:
        """Fold one example; returns the margin, NaN if it was refused. A label of -1 is read as 0."""
        y = 0.0 if y == -1.0 else y
        weights = [self.weight(key) for key, _ in features]
        p = dot(weights, [x for _, x in features])
        fresh = {}
        good = math.isfinite(p) and math.isfinite(h) and h >= 0.0 and 0.0 <= y <= 1.0
        if good:
            d = h * (sigmoid(p) - y)
            good = math.isfinite(d)
        if good:
            for (key, x), w in zip(features, weights, strict=True):
                g = d * x
                if g == 0.0:
                    continue
                z, n = self.rows.get(key, (0.0, 0.0))
                n1 = n + g * g
                if not math.isfinite(n1):
                    good = False
                    break
                sigma = (math.sqrt(n1) - math.sqrt(n)) * self.inverse_alpha
                z1 = z + (g - sigma * w)
                good &= math.isfinite(z1)
                fresh[key] = (z1, n1)
        if not good:
            self.refused += 1
            return math.nan
        self.examples += 1
        for key, row in fresh.items():
            if row != self.rows.get(key, (0.0, 0.0)):
                self.rows[key] = row
                self.touched[key] = tick
        return p

    def digest(self) -> int:
        """The model's digest."""
        total = 0
        for key, columns in self.rows.items():
            if any(columns):
                h = mix(key)
                for column in columns:
                    h = mix(h ^ struct.unpack("<Q", struct.pack("<d", column))[0])
                total = (total + h) & MASK
        return mix(total ^ mix(self.examples))


def mix(z: int) -> int:
    """The finalizer of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)
