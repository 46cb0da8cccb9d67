"""FTRL-Proximal with per-coordinate learning rates, L1 and L2.

A local row is w, z, n, sqrt n. No operation may be fused, reordered or dropped: the digest of every model depends on
each.

Source: [G] Algorithm 1, listed in `core.model.optimizers`. With d the importance
times the slope of the loss, per feature of value x:

    w     = 0 if |z| <= l1, else -(z - sgn(z) l1) / ((beta + sqrt n) / alpha + l2)
    g     = d x
    sigma = (sqrt(n + g^2) - sqrt n) / alpha
    z    += g - sigma w, with the w that predicted
    n    += g^2

Convention: the penalty is l1 ||w||_1 + (l2/2) ||w||^2; division by alpha is multiplication by the double nearest to
1/alpha; w = 0 where the denominator is 0 (n = 0 with beta = l2 = 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    address_of,
    load_f64,
    load_f64_at,
    load_u16,
    store_f64,
    store_f64_at,
)
from stream_learner.core.model.losses import label_read, margin_read, slope
from stream_learner.core.model.optimizers.base import Optimizer
from stream_learner.core.model.optimizers.lanes import (
    LOCAL_BYTES,
    LONGEST_ROW,
    A,
    B,
    C,
    W,
    X,
    dot,
    dot_with_ones,
    gather,
    only_ones,
    padded,
    scatter,
    spread_values,
)
from stream_learner.core.model.optimizers.record import is_learned, label_range, opened, set_label_range
from stream_learner.core.model.optimizers.settings import L1, L2, Alpha, Beta
from stream_learner.core.model.table.kernels import Resolver, ask_for_first, resolve_some

_INVERSE_ALPHA, _BETA, _L1, _L2 = range(4)
_AT_ONCE: Final = 64
"""So many rows are found before their weights are computed."""
_LARGEST: Final = float(np.finfo(np.float64).max)


@kernel
def _weight(z: float, root_n: float, inverse_alpha: float, beta: float, l1: float, l2: float) -> float:
    """The weight of (z, sqrt n) in closed form, without a branch."""
    denominator = (beta + root_n) * inverse_alpha + l2
    w = -(z - np.copysign(l1, z)) / denominator
    return 0.0 if (abs(z) <= l1) | (denominator == 0.0) else w


@entry
def _weights(columns: int, count: int, parameters: int, out: int) -> None:
    """Weights f64[count] at `out` of rows (z, n)."""
    inverse_alpha, beta = load_f64(parameters), load_f64(parameters + 8 * _BETA)
    l1, l2 = load_f64(parameters + 8 * _L1), load_f64(parameters + 8 * _L2)
    for i in range(count):
        z, n = load_f64_at(columns, 16 * i), load_f64_at(columns, 16 * i + 8)
        store_f64_at(out, 8 * i, _weight(z, np.sqrt(n), inverse_alpha, beta, l1, l2))


@entry
def _prepare(local: int, count: int, parameters: int) -> int:
    """Fill w and sqrt n of local rows whose z and n are there; returns how many weights are not 0."""
    inverse_alpha, beta = load_f64(parameters), load_f64(parameters + 8 * _BETA)
    l1, l2 = load_f64(parameters + 8 * _L1), load_f64(parameters + 8 * _L2)
    nonzero = 0
    for i in range(count):
        o = LOCAL_BYTES * i
        root_n = np.sqrt(load_f64_at(local, o + 16))
        w = _weight(load_f64_at(local, o + 8), root_n, inverse_alpha, beta, l1, l2)
        store_f64_at(local, o, w)
        store_f64_at(local, o + 24, root_n)
        nonzero += w != 0.0
    return nonzero


@entry
def _resolve(
    directory: int, keys: int, count: int, shape: tuple[int, ...], rows: int, local: int, parameters: int
) -> tuple[int, int]:
    """`table.kernels.resolve`, and `_prepare` while local rows are in the first cache.

    Returns how many keys were done, and how many of them have a weight.
    """
    ask_for_first(directory, keys, count, shape, rows)
    done = nonzero = 0
    while done < count:
        last = min(done + _AT_ONCE, count)
        end = resolve_some(directory, keys, done, last, count, shape, rows, local, LOCAL_BYTES)
        nonzero += _prepare(local + LOCAL_BYTES * done, end - done, parameters)
        if end < last:
            return end, nonzero
        done = end
    return done, nonzero


@inlined
def _step(scratch: int, o: int, g: float, inverse_alpha: float, beta: float, l1: float, l2: float) -> bool:
    """One step on w, z, n, sqrt n at offset o of their planes; False if z or n is no longer finite."""
    n = load_f64_at(scratch, B + o) + g * g
    root_n = np.sqrt(n)
    sigma = (root_n - load_f64_at(scratch, C + o)) * inverse_alpha
    z = load_f64_at(scratch, A + o) + (g - sigma * load_f64_at(scratch, W + o))
    store_f64_at(scratch, W + o, _weight(z, root_n, inverse_alpha, beta, l1, l2))
    store_f64_at(scratch, A + o, z)
    store_f64_at(scratch, B + o, n)
    store_f64_at(scratch, C + o, root_n)
    return (abs(z) <= _LARGEST) & (n <= _LARGEST)


@kernel
def _update(scratch: int, length: int, d: float, inverse_alpha: float, beta: float, l1: float, l2: float) -> bool:
    """One step on the planes of `length` features; False if a z or n is no longer finite."""
    finite = True
    for j in range(min(padded(length), LONGEST_ROW)):
        g = d * load_f64_at(scratch, X + 8 * j)
        finite &= _step(scratch, 8 * j, g, inverse_alpha, beta, l1, l2)
    return finite


@kernel
def _update_ones(scratch: int, length: int, d: float, inverse_alpha: float, beta: float, l1: float, l2: float) -> bool:
    """`_update` where every x is 1, and 0 in the padding."""
    finite = True
    for j in range(min(padded(length), LONGEST_ROW)):
        finite &= _step(scratch, 8 * j, d if j < length else 0.0, inverse_alpha, beta, l1, l2)
    return finite


@entry
def _fold(
    record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int, parameters: int
) -> int:
    """Fold a record's examples in order, as `Fold.fold` promises."""
    inverse_alpha, beta = load_f64(parameters), load_f64(parameters + 8 * _BETA)
    l1, l2 = load_f64(parameters + 8 * _L1), load_f64(parameters + 8 * _L2)
    fields = opened(record)
    low, high = label_range(scalars)
    first = exception = refused = 0
    for e in range(fields.examples):
        length = np.int64(load_u16(fields.row_len + 2 * e))
        row = fields.indices + 2 * first
        gather(local, row, length, scratch)
        ones = only_ones(fields, first, length, exception)
        if ones:
            margin = dot_with_ones(scratch, padded(length))
        else:
            exception = spread_values(fields, scratch, first, length, exception)
            margin = dot(scratch, padded(length))
        first += length
        y, h = label_read(loss, load_f64(fields.labels + 8 * e)), load_f64(fields.importances + 8 * e)
        seen_low, seen_high = (min(low, y), max(high, y)) if y == y else (low, high)
        p = margin_read(loss, option, margin, seen_low, seen_high)
        if not is_learned(fields.learned, e):
            low, high = seen_low, seen_high
            store_f64(margins + 8 * e, p)
            continue
        d = h * slope(loss, option, p, y)
        good = (y == y) & (h >= 0.0) & (h <= _LARGEST)
        good &= (abs(p) <= _LARGEST) & (abs(d) <= _LARGEST)
        if good and ones:
            good = _update_ones(scratch, length, d, inverse_alpha, beta, l1, l2)
        elif good:
            good = _update(scratch, length, d, inverse_alpha, beta, l1, l2)
        if good:
            scatter(local, row, length, scratch)
            low, high = seen_low, seen_high
            store_f64(margins + 8 * e, p)
        else:
            refused += 1
            store_f64(margins + 8 * e, np.nan)
    set_label_range(scalars, low, high)
    return refused


@dataclass(frozen=True, slots=True)
class FtrlProximal(Optimizer):
    """Hyper-parameters: learning rate alpha > 0, its smoothing beta >= 0, penalties l1 >= 0 and l2 >= 0.

    Raises ValueError for values outside these, or whose 1/alpha is not finite.
    """

    alpha: Alpha = 0.1
    beta: Beta = 1.0
    l1: L1 = 1.0
    l2: L2 = 1.0

    name: ClassVar[str] = "ftrl_proximal"
    columns: ClassVar[tuple[str, ...]] = ("z", "n")

    def __post_init__(self) -> None:
        Optimizer.__post_init__(self)
        if not math.isfinite(1.0 / self.alpha):
            raise ValueError(f"alpha must be a number > 0 whose inverse is finite, not {self.alpha!r}")

    def _parameters(self) -> NDArray[np.float64]:
        return np.array([1.0 / self.alpha, self.beta, self.l1, self.l2])

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights f64[r] of rows (z, n) f64[r, 2]."""
        columns = np.ascontiguousarray(columns, np.float64)
        parameters, out = self._parameters(), np.empty(len(columns))
        _weights(address_of(columns), len(columns), address_of(parameters), address_of(out))
        return out

    def resolver(self) -> Resolver:
        """`_resolve`, which computes weight and sqrt n of each local row as it finds its row."""
        parameters = self._parameters()

        def resolve(
            directory: int, keys: int, count: int, shape: tuple[int, ...], rows: int, local: int
        ) -> tuple[int, int]:
            return _resolve(directory, keys, count, shape, rows, local, address_of(parameters))

        return resolve

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """Compute weight and sqrt n of each local row; returns how many weights are not 0."""
        parameters = self._parameters()
        return int(_prepare(local, count, address_of(parameters)))

    def fold(self, record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int) -> int:
        """Fold a record's examples in order; returns how many were refused."""
        parameters = self._parameters()
        return int(_fold(record, local, scratch, loss, option, scalars, margins, address_of(parameters)))
