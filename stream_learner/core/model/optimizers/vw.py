"""The default update of Vowpal Wabbit 9.11 and its parts, in float64: adaptive, normalized, invariant.

A local row is float64[8]: weight, w, G, s, r. The C library is never called, so that results have the same bits on
every machine. The tool's own float32 is an oracle of the tests.

Sources: [T]; [VW] describes older rules. With
flags A, Z, I, q = power_t, and every occurrence of a feature taken in its turn:

    p  = clip(kappa sum S(w, gamma) x) to the range of the labels seen, [-50, 50] at least for logistic and poisson
    d  = dl/dp, for Poisson at p within [-44, 44]; where the loss or the importance h is 0, only t += h
    A: G += h d^2 x^2 (h, not h^2)
    Z: if |x| > s: w is rescaled, if s > 0; s = |x|.  N += h sum x^2/s^2;  T += h
    r  = G^-q (A) (s^2)^(q-1) (Z);  m = (N/T)^(q-1) (Z);  with neither r = m = 1;  X = m sum r x^2
    e  = eta h (A), else eta h (t + h)^-q, and with neither A nor Z times initial_t^q
    u  = -d e, or with I the closed form of `invariant` for the losses, logistic by an approximate Lambert W
    l1, l2: c = -u/d; kappa *= 1 - l2 c; u /= kappa; gamma += l1 c
    w += u m r x;  t += h;  at the end of a pass eta *= decay

Columns and scalars are 0 at the start. So G, N, T and t are kept without their first value initial_t, and kappa is kept
as 0 while it is 1. An example whose loss is 0 is left out, even if its slope is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.arithmetic import finite, power
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_f64, load_f64_at, load_u16, store_f64, store_f64_at
from stream_learner.core.model import losses
from stream_learner.core.model.losses import LOSS_SCALARS
from stream_learner.core.model.optimizers import vw_losses
from stream_learner.core.model.optimizers.base import JOURNAL, ROW_BYTES, RULE_SCRATCH_BYTES, SCALAR_JOURNAL, Optimizer
from stream_learner.core.model.optimizers.lanes import X, spread_values
from stream_learner.core.model.optimizers.record import is_learned, label_range, opened, set_label_range
from stream_learner.core.model.optimizers.settings import L1, L2, Decay, Eta, Setting

_OWN: Final = 8 * len(LOSS_SCALARS)
_SCALARS: Final = 6
_N, _TOTAL, _T, _GRAVITY, _CONTRACTION, _PASSES = range(0, 8 * _SCALARS, 8)
_ADAPTIVE, _NORMALIZED, _INVARIANT, _ETA, _POWER, _INITIAL, _L1, _L2, _DECAY = range(0, 72, 8)
_W, _G, _S, _R = range(8, 40, 8)
_KEPT: Final = 5


@kernel
def _contraction(sc: int) -> float:
    kept = load_f64(sc + _CONTRACTION)
    return 1.0 if kept == 0.0 else kept


@kernel
def _seen_as(w: float, gravity: float, contraction: float) -> float:
    """kappa S(w, gamma): the weight that predictions use where the row keeps w."""
    if gravity != 0.0:
        w = np.copysign(abs(w) - gravity, w) if abs(w) > gravity else 0.0
    return contraction * w


@kernel
def _sum_squares(length: int, scratch: int) -> float:
    size = 0.0
    for j in range(length):
        x = load_f64_at(scratch, X + 8 * j)
        size += x * x
    return size


@kernel
def _dot(local: int, row: int, length: int, scratch: int, sc: int) -> float:
    """w.x; rows as they are go to the journal."""
    gravity, p = load_f64(sc + _GRAVITY), 0.0
    for j in range(length):
        place = local + ROW_BYTES * load_u16(row + 2 * j)
        for k in range(_KEPT):
            store_f64_at(scratch, JOURNAL + ROW_BYTES * j + 8 * k, load_f64_at(place, 8 * k))
        p += _seen_as(load_f64(place + _W), gravity, 1.0) * load_f64_at(scratch, X + 8 * j)
    return _contraction(sc) * p


@kernel
def _rescale(place: int, x: float, q: float, adaptive: bool) -> None:
    """Raise s to x, and rescale w so that the row means the same at the new scale."""
    s = load_f64(place + _S)
    if s > 0.0:
        ratio = s / x
        if q == 0.5:
            factor = ratio if adaptive else ratio * ratio
        else:
            factor = power(1.0 / (ratio * ratio), q - 1.0)
        store_f64(place + _W, load_f64(place + _W) * factor)
    store_f64(place + _S, x)


@kernel
def _rate(place: int, pa: int) -> float:
    """r of a row."""
    q, r = load_f64(pa + _POWER), 1.0
    adaptive = load_f64(pa + _ADAPTIVE) != 0.0
    if adaptive:
        g = load_f64(place + _G) + load_f64(pa + _INITIAL)
        r = 1.0 / np.sqrt(g) if q == 0.5 else power(g, -q)
    if load_f64(pa + _NORMALIZED) != 0.0:
        s = load_f64(place + _S)
        if q == 0.5:
            r = r / s if adaptive else r / (s * s)
        else:
            r = r * power(s * s, q - 1.0)
    return r


@kernel
def _measure(
    local: int, row: int, length: int, scratch: int, d: float, h: float, sc: int, pa: int
) -> tuple[float, float]:
    """Move G, s, N and T; returns X and m."""
    pull, q = h * (d * d), load_f64(pa + _POWER)
    adaptive, normalized = load_f64(pa + _ADAPTIVE) != 0.0, load_f64(pa + _NORMALIZED) != 0.0
    size = n_x = 0.0
    for j in range(length):
        place, x = local + ROW_BYTES * load_u16(row + 2 * j), load_f64_at(scratch, X + 8 * j)
        if x == 0.0:
            continue
        if adaptive:
            store_f64(place + _G, load_f64(place + _G) + pull * (x * x))
        if normalized:
            if abs(x) > load_f64(place + _S):
                _rescale(place, abs(x), q, adaptive)
            ratio = x / load_f64(place + _S)
            n_x += ratio * ratio
        r = _rate(place, pa)
        store_f64(place + _R, r)
        size += (x * x) * r
    if not normalized:
        return size, 1.0
    store_f64(sc + _N, load_f64(sc + _N) + h * n_x)
    store_f64(sc + _TOTAL, load_f64(sc + _TOTAL) + h)
    initial = load_f64(pa + _INITIAL)
    mean = (load_f64(sc + _TOTAL) + initial) / (load_f64(sc + _N) + initial)
    if q == 0.5:
        m = np.sqrt(mean) if adaptive else mean
    else:
        m = power(1.0 / mean, q - 1.0)
    return size * m, m


@kernel
def _regularized(u: float, d: float, sc: int, pa: int) -> float:
    """Add the penalties to contraction and gravity; returns u relative to the new contraction."""
    l1, l2 = load_f64(pa + _L1), load_f64(pa + _L2)
    if ((l1 == 0.0) & (l2 == 0.0)) | (not abs(u) > 1e-8):
        return u
    c = -u / d if abs(d) > 1e-8 else 0.0
    contraction = _contraction(sc) * (1.0 - l2 * c)
    store_f64(sc + _CONTRACTION, contraction)
    store_f64(sc + _GRAVITY, load_f64(sc + _GRAVITY) + c * l1)
    return u / contraction


@kernel
def _move(local: int, row: int, length: int, scratch: int, u: float, m: float, plain: bool, sc: int) -> bool:
    """w += u m r x; False if a row is no longer finite."""
    gravity, contraction, good = load_f64(sc + _GRAVITY), _contraction(sc), True
    for j in range(length):
        place, x = local + ROW_BYTES * load_u16(row + 2 * j), load_f64_at(scratch, X + 8 * j)
        if x != 0.0:
            w = load_f64(place + _W) + u * m * (x if plain else x * load_f64(place + _R))
            store_f64(place + _W, w)
            store_f64(place, _seen_as(w, gravity, contraction))
            good &= finite(w) & finite(load_f64(place + _G)) & finite(load_f64(place + _S))
    return good


@kernel
def _put_back(local: int, row: int, length: int, scratch: int, sc: int) -> None:
    """Undo an example, the last feature first: a feature that is there twice was copied twice."""
    for j in range(length - 1, -1, -1):
        place = local + ROW_BYTES * load_u16(row + 2 * j)
        for k in range(_KEPT):
            store_f64_at(place, 8 * k, load_f64_at(scratch, JOURNAL + ROW_BYTES * j + 8 * k))
    for k in range(_SCALARS):
        store_f64_at(sc, 8 * k, load_f64_at(scratch, SCALAR_JOURNAL + 8 * k))


@kernel
def _rate_now(h: float, sc: int, pa: int) -> float:
    """e: rate times importance."""
    q, initial = load_f64(pa + _POWER), load_f64(pa + _INITIAL)
    e = load_f64(pa + _ETA) * h
    for _ in range(int(load_f64(sc + _PASSES))):
        e *= load_f64(pa + _DECAY)
    if load_f64(pa + _ADAPTIVE) != 0.0:
        return e
    if load_f64(pa + _NORMALIZED) == 0.0:
        e *= power(initial, q)
    return e * power(initial + load_f64(sc + _T) + h, -q)


@kernel
def _learn(
    local: int,
    row: int,
    length: int,
    scratch: int,
    loss: int,
    option: float,
    p: float,
    y: float,
    h: float,
    sc: int,
    pa: int,
) -> bool:
    """Learn from an example whose rows are in the journal; False, with everything as it was, if that goes wrong."""
    for k in range(_SCALARS):
        store_f64_at(scratch, SCALAR_JOURNAL + 8 * k, load_f64_at(sc, 8 * k))
    good = True
    if loss == losses.POISSON:
        p = min(max(p, -vw_losses.STEEPEST), vw_losses.STEEPEST)
    if (h != 0.0) & vw_losses.has_loss(loss, option, p, y):
        d = vw_losses.slope(loss, option, p, y)
        plain = (load_f64(pa + _ADAPTIVE) == 0.0) & (load_f64(pa + _NORMALIZED) == 0.0)
        size, m = _sum_squares(length, scratch), 1.0
        if h * (d * d) == 0.0:
            size = 1.0
        elif not plain:
            size, m = _measure(local, row, length, scratch, d, h, sc, pa)
        u = 0.0
        if size != 0.0:
            e = _rate_now(h, sc, pa)
            u = vw_losses.aware(loss, option, p, y, e, size) if load_f64(pa + _INVARIANT) != 0.0 else -d * e
            u = _regularized(u, d, sc, pa)
        good = finite(u) and _move(local, row, length, scratch, u, m, plain, sc)
    store_f64(sc + _T, load_f64(sc + _T) + h)
    for k in range(_SCALARS):
        good &= finite(load_f64_at(sc, 8 * k))
    if not good:
        _put_back(local, row, length, scratch, sc)
    return good


@entry
def _fold(record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int, pa: int) -> int:
    """Fold a record's examples in order, as `Fold.fold` promises."""
    fields = opened(record)
    low, high = label_range(scalars)
    widest = vw_losses.WIDEST if (loss == losses.LOGISTIC) | (loss == losses.POISSON) else 0.0
    sc = scalars + _OWN
    first = exception = refused = 0
    for e in range(fields.examples):
        length = np.int64(load_u16(fields.row_len + 2 * e))
        row = fields.indices + 2 * first
        exception = spread_values(fields, scratch, first, length, exception)
        first += length
        y, h = vw_losses.label(loss, load_f64(fields.labels + 8 * e)), load_f64(fields.importances + 8 * e)
        below, above = (min(low, y), max(high, y)) if y == y else (low, high)
        p = _dot(local, row, length, scratch, sc)
        good = finite(p)
        p = min(max(p, min(below, -widest)), max(above, widest))
        learn = is_learned(fields.learned, e)
        if learn:
            good = good and (y == y) & (h >= 0.0) & finite(h)
            good = good and _learn(local, row, length, scratch, loss, option, p, y, h, sc, pa)
        if good:
            low, high = below, above
        refused += learn & (not good)
        store_f64(margins + 8 * e, p if good or not learn else np.nan)
    set_label_range(scalars, low, high)
    return refused


@entry
def _prepare(local: int, count: int, sc: int) -> int:
    """Fill in the weights of local rows; returns how many are not 0."""
    gravity, contraction, nonzero = load_f64(sc + _GRAVITY), _contraction(sc), 0
    for i in range(count):
        w = _seen_as(load_f64(local + ROW_BYTES * i + _W), gravity, contraction)
        store_f64(local + ROW_BYTES * i, w)
        store_f64(local + ROW_BYTES * i + _R, 0.0)
        nonzero += w != 0.0
    return nonzero


@entry
def _weights(columns: int, count: int, sc: int, out: int) -> None:
    gravity, contraction = load_f64(sc + _GRAVITY), _contraction(sc)
    for i in range(count):
        store_f64_at(out, 8 * i, _seen_as(load_f64_at(columns, 24 * i), gravity, contraction))


@dataclass(frozen=True, slots=True, kw_only=True)
class VwDescent(Optimizer):
    """Hyper-parameters as the tool has them: see the module.

    eta None: 0.5 if both adaptive and normalized, else 10. initial_t None: 0 if either, else 1. decay: factor of eta
    after each pass. Raises ValueError for numbers that are not finite or negative, and for eta 0.
    """

    adaptive: Annotated[bool, Setting("Whether each feature has a learning rate of its own.")] = True
    normalized: Annotated[bool, Setting("Whether the learning rate follows the size of a feature's values.")] = True
    invariant: Annotated[bool, Setting("Whether updates are importance aware.")] = True
    eta: Eta | None = None
    power_t: Annotated[float, Setting("Exponent with which the learning rate falls.", at_least=0)] = 0.5
    initial_t: Annotated[float, Setting("Examples that count as seen before the first.", at_least=0)] | None = None
    l1: L1 = 0.0
    l2: L2 = 0.0
    decay: Decay = 1.0

    name: ClassVar[str] = "vw"
    columns: ClassVar[tuple[str, ...]] = ("w", "g", "s")
    scalars: ClassVar[tuple[str, ...]] = ("n", "total", "t", "gravity", "contraction", "passes")
    losses: ClassVar[tuple[str, ...] | None] = ("squared", "logistic", "hinge", "quantile", "poisson")
    local_bytes: ClassVar[int] = ROW_BYTES
    scratch_bytes: ClassVar[int] = RULE_SCRATCH_BYTES

    def __post_init__(self) -> None:
        rate = self.eta if self.eta is not None else 0.5 if self.adaptive and self.normalized else 10.0
        plain = not (self.adaptive or self.normalized)
        initial = self.initial_t if self.initial_t is not None else float(plain)
        object.__setattr__(self, "eta", rate)
        object.__setattr__(self, "initial_t", initial)
        Optimizer.__post_init__(self)

    @property
    def moves(self) -> bool:  # type: ignore[override]
        """Penalties shrink all weights at every step."""
        return self.l1 > 0.0 or self.l2 > 0.0

    def reads_label_range(self, loss: str) -> bool:
        """Whether margins are clipped to the range of the labels; for logistic loss they are clipped to [-50, 50]."""
        return loss != "logistic"

    def _parameters(self) -> NDArray[np.float64]:
        switches = self.adaptive, self.normalized, self.invariant
        numbers = self.eta, self.power_t, self.initial_t, self.l1, self.l2, self.decay
        return np.array([*switches, *numbers], np.float64)

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights f64[r] of rows (w, g, s) f64[r, 3]."""
        columns, scalars = np.ascontiguousarray(columns, np.float64), np.ascontiguousarray(scalars, np.float64)
        out = np.empty(len(columns))
        _weights(address_of(columns), len(columns), address_of(scalars) + _OWN, address_of(out))
        return out

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """Compute the weight of each local row, with the scalars as they are; returns how many are not 0."""
        return int(_prepare(local, count, scalars + _OWN))

    def fold(self, record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int) -> int:
        """Fold a record's examples in order; returns how many were refused."""
        parameters = self._parameters()
        return int(_fold(record, local, scratch, loss, option, scalars, margins, address_of(parameters)))

    def end_pass(self, scalars: NDArray[np.float64]) -> None:
        """Count a pass: eta decays."""
        scalars[len(LOSS_SCALARS) + _PASSES // 8] += 1.0
