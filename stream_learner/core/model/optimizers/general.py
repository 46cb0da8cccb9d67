"""The one fold of every optimizer but FTRL-Proximal.

A local row is float64[8]: the weight, then the columns. What differs between optimizers is behind `switch`; no rule is
named here.

An example is folded in four steps, each over its features in their order; features of value 0 are passed over:
1. read: each row is brought up to the last step; w.x is summed, in order, for the prediction that is reported and for
   the one the gradient is taken at (they differ where weights are averaged), and the size of the example;
2. predict: the rule makes margins of the sums, the loss reads them, its slope is taken;
3. scale: the rule advances its scalars and says how long the step is;
4. step: each row takes it.
Rows and scalars are copied before; where anything comes out that is not finite, they are put back, and the example is
refused, as one is whose label or importance is not allowed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_f64, load_f64_at, load_u16, store_f64, store_f64_at
from stream_learner.core.model.losses import LOSS_SCALARS, label_read, margin_read, slope
from stream_learner.core.model.optimizers import switch
from stream_learner.core.model.optimizers.base import JOURNAL, ROW_BYTES, SCALAR_JOURNAL
from stream_learner.core.model.optimizers.lanes import X, spread_values
from stream_learner.core.model.optimizers.record import is_learned, label_range, opened, set_label_range
from stream_learner.core.model.optimizers.rules import RuleOptimizer
from stream_learner.core.model.optimizers.switch import code_of

_OWN = 8 * len(LOSS_SCALARS)


@kernel
def _copy(source: int, target: int, count: int) -> None:
    for i in range(count):
        store_f64_at(target, 8 * i, load_f64_at(source, 8 * i))


@kernel
def _read(
    rule: int, width: int, local: int, row: int, length: int, scratch: int, sc: int, pa: int
) -> tuple[float, float, float]:
    """Step 1; rows as they were go to the journal. Returns both sums and the size."""
    reported = gradient = size = 0.0
    for j in range(length):
        place = local + ROW_BYTES * load_u16(row + 2 * j)
        _copy(place, scratch + JOURNAL + ROW_BYTES * j, width)
        x = load_f64_at(scratch, X + 8 * j)
        if x != 0.0:
            w_reported, w_gradient, part = switch.read(rule, place, x, sc, pa)
            reported += w_reported * x
            gradient += w_gradient * x
            size += part
    return reported, gradient, size


@kernel
def _step(rule: int, local: int, row: int, length: int, scratch: int, u: float, sc: int, pa: int) -> bool:
    """Step 4; False if a row is no longer finite."""
    good = True
    for j in range(length):
        x = load_f64_at(scratch, X + 8 * j)
        if x != 0.0:
            good &= switch.step(rule, local + ROW_BYTES * load_u16(row + 2 * j), x, u, sc, pa)
    return good


@kernel
def _all_finite(numbers: int, count: int) -> bool:
    good = True
    for i in range(count):
        good &= finite(load_f64_at(numbers, 8 * i))
    return good


@kernel
def _put_back(width: int, local: int, row: int, length: int, scratch: int) -> None:
    """Undo an example, the last feature first: a feature that is there twice was copied twice."""
    for j in range(length - 1, -1, -1):
        _copy(scratch + JOURNAL + ROW_BYTES * j, local + ROW_BYTES * load_u16(row + 2 * j), width)


@kernel
def _learn(
    rule: int,
    width: int,
    local: int,
    row: int,
    length: int,
    scratch: int,
    loss: int,
    option: float,
    y: float,
    h: float,
    low: float,
    high: float,
    sc: int,
    count: int,
    pa: int,
    learned: bool,
) -> float:
    """All steps of one example, whose values x are in the scratch; returns its margin, NaN if it was refused.

    One that is not learned from is put back after step 2.
    """
    _copy(sc, scratch + SCALAR_JOURNAL, count)
    reported, gradient, size = _read(rule, width, local, row, length, scratch, sc, pa)
    margin = margin_read(loss, option, switch.predict(rule, reported, size, h, sc, pa), low, high)
    p = margin_read(loss, option, switch.predict(rule, gradient, size, h, sc, pa), low, high)
    d = slope(loss, option, p, y)
    good = learned & finite(margin) & finite(h * d)
    if good:
        u = switch.scale(rule, loss, option, p, y, h, d, size, sc, pa)
        good = finite(u) & _all_finite(sc, count)
        if good:
            good = _step(rule, local, row, length, scratch, u, sc, pa) and _all_finite(sc, count)
    if good:
        return margin
    _put_back(width, local, row, length, scratch)
    _copy(scratch + SCALAR_JOURNAL, sc, count)
    return np.nan if learned else margin


@entry
def _fold(
    rule: int,
    width: int,
    record: int,
    local: int,
    scratch: int,
    loss: int,
    option: float,
    scalars: int,
    count: int,
    margins: int,
    pa: int,
) -> int:
    """Fold a record's examples, as `Fold.fold` promises. width: columns and weight; count: the optimizer's scalars."""
    fields = opened(record)
    low, high = label_range(scalars)
    sc = scalars + _OWN
    first = exception = refused = 0
    for e in range(fields.examples):
        length = np.int64(load_u16(fields.row_len + 2 * e))
        exception = spread_values(fields, scratch, first, length, exception)
        row = fields.indices + 2 * first
        first += length
        y, h = label_read(loss, load_f64(fields.labels + 8 * e)), load_f64(fields.importances + 8 * e)
        margin = np.nan
        learn = is_learned(fields.learned, e)
        below, above = (min(low, y), max(high, y)) if y == y else (low, high)
        if ((y == y) & (h >= 0.0) & finite(h)) or not learn:
            margin = _learn(
                rule, width, local, row, length, scratch, loss, option, y, h, below, above, sc, count, pa, learn
            )
            if margin == margin:
                low, high = below, above
        refused += learn & (margin != margin)
        store_f64(margins + 8 * e, margin)
    set_label_range(scalars, low, high)
    return refused


@entry
def _prepare(rule: int, local: int, count: int, sc: int, pa: int) -> int:
    """Fill in the weights of local rows; returns how many are not 0."""
    nonzero = 0
    for i in range(count):
        row = local + ROW_BYTES * i
        w = switch.weight(rule, row + 8, sc, pa)
        store_f64(row, w)
        nonzero += w != 0.0
    return nonzero


@entry
def _weights(rule: int, columns: int, count: int, row_bytes: int, sc: int, pa: int, out: int) -> None:
    """Weights f64[count] at `out` of rows of columns `row_bytes` apart."""
    for i in range(count):
        store_f64_at(out, 8 * i, switch.weight(rule, columns + row_bytes * i, sc, pa))


class GeneralFold:
    """An optimizer of the general fold at work: see `base.Fold`."""

    def __init__(self, optimizer: RuleOptimizer) -> None:
        self._rule = code_of(optimizer)
        self._columns = len(optimizer.columns)
        self._scalars = len(optimizer.scalars)
        self._kept = np.asarray(optimizer.parameters(), np.float64)  # whole numbers may be given as integers
        self._parameters = address_of(self._kept)

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of rows, by the `weight` kernel of the rule."""
        columns, scalars = np.ascontiguousarray(columns, np.float64), np.ascontiguousarray(scalars, np.float64)
        out, sc = np.empty(len(columns)), address_of(scalars) + _OWN
        row_bytes = 8 * self._columns
        _weights(self._rule, address_of(columns), len(columns), row_bytes, sc, self._parameters, address_of(out))
        return out

    def resolver(self) -> None:
        """None: `prepare` goes through the local rows."""

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """Compute the weight of each local row, by the `weight` kernel of the rule."""
        return int(_prepare(self._rule, local, count, scalars + _OWN, self._parameters))

    def fold(self, record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int) -> int:
        """Fold a record's examples in order, by the kernels of the rule; returns how many were refused."""
        places = record, local, scratch, loss, option, scalars, self._scalars, margins, self._parameters
        return int(_fold(self._rule, 1 + self._columns, *places))
