"""Progressive metrics: how good each prediction was, before the example was learned from.

In: margins, labels, importances, log times of examples in the order of the fold. Out: sums and histograms, from which
the figures are computed when asked for.
This file must never see an example again, or depend on how examples are cut into records.

With h the importance, y the label, q the prediction, l the loss:

    log-loss            sum h l / sum h                                    (natural logarithm)
    normalized entropy  log-loss / H(sum h y / sum h), H(c) = -c ln c - (1 - c) ln (1 - c)    (He et al. 2014)
    calibration         sum h q / sum h y                                  (1 is best)
    AUC                 probability that a positive has a larger margin than a negative, ties counted half; a soft
                        label is a positive of weight h y and a negative of weight h (1 - y)

A figure whose divisor is 0 is None. Margins are counted in bins of 1/32 from -16 to 16 (what lies outside goes to the
outermost), and margins of one bin are ties: on click-through data that moves the AUC by less than 0.001.

The same by slice: a slice covers the log times [s slice_ms, (s + 1) slice_ms). The two latest keep a histogram each;
an example older than both (a late one) counts in the older of them; older slices keep their sums and final AUC, as
many as are wanted.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.kernels import kernel
from stream_learner.core.losses import LOGISTIC, loss_value, prediction
from stream_learner.core.memory import address_of, load_f64, load_i64, store_f64

EXAMPLES, REFUSED, IMPORTANCE, LABEL, PREDICTION, LOSS, POSITIVES = range(7)
SUMS: Final = 8
"""Float64 places of a block of sums; counts are exact up to 2^53."""
BINS_PER_UNIT: Final = 32
LARGEST_MARGIN: Final = 16
BINS: Final = 2 * LARGEST_MARGIN * BINS_PER_UNIT
"""A histogram is f64[2, BINS]: importance of negatives, then of positives, by rising margin."""
BLOCK: Final = SUMS + 2 * BINS

_NO_SLICE: Final = -(1 << 62)


@kernel
def _add(block: int, loss: int, p: float, y: float, h: float, q: float, value: float) -> None:
    """Count one example in a block of sums and histogram."""
    if p != p:
        store_f64(block + 8 * REFUSED, load_f64(block + 8 * REFUSED) + 1.0)
        return
    store_f64(block + 8 * EXAMPLES, load_f64(block + 8 * EXAMPLES) + 1.0)
    store_f64(block + 8 * IMPORTANCE, load_f64(block + 8 * IMPORTANCE) + h)
    store_f64(block + 8 * LABEL, load_f64(block + 8 * LABEL) + h * y)
    store_f64(block + 8 * PREDICTION, load_f64(block + 8 * PREDICTION) + h * q)
    store_f64(block + 8 * LOSS, load_f64(block + 8 * LOSS) + h * value)
    store_f64(block + 8 * POSITIVES, load_f64(block + 8 * POSITIVES) + (1.0 if y > 0.0 else 0.0))
    if loss != LOGISTIC:
        return
    place = np.int64(np.floor(min(max(p * BINS_PER_UNIT, -BINS / 2.0), BINS / 2.0 - 1.0))) + BINS // 2
    negatives = block + 8 * (SUMS + place)
    positives = negatives + 8 * BINS
    store_f64(negatives, load_f64(negatives) + h * (1.0 - y))
    store_f64(positives, load_f64(positives) + h * y)


@kernel
def _observe(
    first: int,
    count: int,
    loss: int,
    margins: int,
    labels: int,
    importances: int,
    log_times: int,
    slice_ms: int,
    newest: int,
    total: int,
    open_slices: int,
) -> int:
    """Count the examples first .. count-1, up to one that opens a newer slice; returns its place, or `count`.

    `total` and `open_slices` are addresses of one and two blocks; of these the second is the newest slice's.
    """
    for e in range(first, count):
        which = load_i64(log_times + 8 * e) // slice_ms
        if which > newest:
            return e
        p, y, h = load_f64(margins + 8 * e), load_f64(labels + 8 * e), load_f64(importances + 8 * e)
        q, value = prediction(loss, p), loss_value(loss, p, y)
        _add(total, loss, p, y, h, q, value)
        _add(open_slices + (8 * BLOCK if which == newest else 0), loss, p, y, h, q, value)
    return count


def area_under_curve(histogram: NDArray[np.float64]) -> float | None:
    """AUC of f64[2, bins] (negatives, positives, by rising margin), ties counted half; None without one of them."""
    negatives, positives = (side / total if (total := side.sum()) > 0.0 else None for side in histogram)
    if negatives is None or positives is None:
        return None
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + 0.5 * negatives)).sum())


def entropy(rate: float) -> float:
    """Entropy in nats of a coin that shows heads at this rate."""
    return -sum(c * math.log(c) for c in (rate, 1.0 - rate) if c > 0.0)


def figures(loss: int, sums: NDArray[np.float64], auc: float | None) -> dict[str, Any]:
    """The figures of the module's docstring from a block's sums."""
    importance, label = float(sums[IMPORTANCE]), float(sums[LABEL])
    average = float(sums[LOSS]) / importance if importance > 0.0 else None
    rate = label / importance if importance > 0.0 else None
    base = entropy(min(max(rate, 0.0), 1.0)) if rate is not None and loss == LOGISTIC else 0.0
    return {
        "examples": int(sums[EXAMPLES]),
        "refused": int(sums[REFUSED]),
        "positives": int(sums[POSITIVES]),
        "importance": importance,
        "label_rate": rate,
        "prediction_rate": float(sums[PREDICTION]) / importance if importance > 0.0 else None,
        "average_loss": average,
        "log_loss": average if loss == LOGISTIC else None,
        "normalized_entropy": average / base if average is not None and base > 0.0 else None,
        "calibration": float(sums[PREDICTION]) / label if label > 0.0 else None,
        "auc": auc,
    }


class Progress:
    """Progressive metrics of one model, in total and by slice."""

    def __init__(self, loss: int, *, slice_ms: int = 3_600_000, slices_kept: int = 48) -> None:
        """`loss`: a code of `losses`. `slices_kept` counts closed slices; raises ValueError unless both are > 0."""
        if slice_ms <= 0 or slices_kept <= 0:
            raise ValueError(f"slice_ms ({slice_ms}) and slices_kept ({slices_kept}) must be positive")
        self._loss = loss
        self._slice_ms = slice_ms
        self._slices_kept = slices_kept
        self._blocks = np.zeros((3, BLOCK))
        self._total, self._open_slices = address_of(self._blocks), address_of(self._blocks[1])
        self._newest = _NO_SLICE
        self._older = _NO_SLICE
        self._closed: list[tuple[int, NDArray[np.float64], float | None]] = []

    def observe(self, margins: int, labels: int, importances: int, log_times: int, count: int) -> None:
        """Count `count` examples: addresses of f64 margins (NaN: refused), labels, importances, i64 log times (ms)."""
        columns = (margins, labels, importances, log_times)
        places = (self._total, self._open_slices)
        done = 0
        while True:
            done = _observe(done, count, self._loss, *columns, self._slice_ms, self._newest, *places)
            if done == count:
                return
            self._open(_time_at(log_times + 8 * done) // self._slice_ms)

    def summary(self) -> dict[str, Any]:
        """The figures of all examples so far."""
        return self._figures_of(0)

    def slices(self) -> list[dict[str, Any]]:
        """The figures of every slice kept, oldest first, each with `start_ms`; the last two may still change."""
        rows = [(start, figures(self._loss, sums, auc)) for start, sums, auc in self._closed]
        rows += [
            (start, self._figures_of(block))
            for start, block in ((self._older, 1), (self._newest, 2))
            if _seen(self._blocks[block])
        ]
        return [{"start_ms": start * self._slice_ms, **row} for start, row in rows]

    def state(self) -> dict[str, Any]:
        """Everything, without loss, in JSON's types; `restore` takes it."""
        return {
            "slice_ms": self._slice_ms,
            "newest": self._newest,
            "older": self._older,
            "blocks": _packed(self._blocks),
            "closed": [[start, _packed(sums), None if auc is None else auc.hex()] for start, sums, auc in self._closed],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` was of. Another slice length ends the slices so far: only the total goes on."""
        self._blocks[:] = _unpacked(state["blocks"]).reshape(3, BLOCK)
        self._newest, self._older, self._closed = _NO_SLICE, _NO_SLICE, []
        if state["slice_ms"] != self._slice_ms:
            self._blocks[1:] = 0.0
            return
        self._newest, self._older = state["newest"], state["older"]
        self._closed = [
            (start, _unpacked(sums), None if auc is None else float.fromhex(auc))
            for start, sums, auc in state["closed"]
        ][-self._slices_kept :]

    def _figures_of(self, block: int) -> dict[str, Any]:
        sums, histogram = self._blocks[block, :SUMS], self._blocks[block, SUMS:].reshape(2, BINS)
        return figures(self._loss, sums, area_under_curve(histogram))

    def _open(self, which: int) -> None:
        """Begin slice `which`, newer than all; the older of the open ones is closed."""
        if _seen(self._blocks[1]):
            auc = area_under_curve(self._blocks[1, SUMS:].reshape(2, BINS))
            self._closed.append((self._older, self._blocks[1, :SUMS].copy(), auc))
            del self._closed[: -self._slices_kept]
        self._older = which - 1 if self._newest == _NO_SLICE else self._newest
        self._newest = which
        self._blocks[1] = self._blocks[2]
        self._blocks[2] = 0.0


def _seen(block: NDArray[np.float64]) -> bool:
    return bool(block[EXAMPLES] + block[REFUSED] > 0.0)


@kernel
def _time_at(address: int) -> int:
    return load_i64(address)


def _packed(numbers: NDArray[np.float64]) -> str:
    return base64.b64encode(zlib.compress(numbers.astype("<f8").tobytes(), 1)).decode("ascii")


def _unpacked(text: str) -> NDArray[np.float64]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<f8").astype(np.float64)


def warm() -> None:
    """Compile every kernel of this module."""
    one, time = np.zeros(1), np.zeros(1, np.int64)
    Progress(LOGISTIC).observe(address_of(one), address_of(one), address_of(one), address_of(time), 1)
