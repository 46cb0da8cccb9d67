"""Progressive metrics: how good each prediction was, before the example was learned from.

In: margins, labels, importances, log times of examples in the order of the fold. Out: sums and histograms, from which
the figures are computed when asked for.
This file must never see an example again, or depend on how examples are cut into records.

With h the importance, y the label, q the prediction, l the loss:

    average loss        sum h l / sum h
    log-loss            sum h (-y ln q - (1 - y) ln (1 - q)) / sum h       (where the prediction is a probability)
    normalized entropy  log-loss / H(sum h y / sum h), H(c) = -c ln c - (1 - c) ln (1 - c)    (He et al. 2014)
    calibration         sum h q / sum h y                                  (1 is best; where the prediction is a mean)
    AUC                 probability that a positive has a larger margin than a negative, ties counted half; a soft
                        label is a positive of weight h y and a negative of weight h (1 - y)
    mistakes            examples whose margin is on the wrong side of the label, or on neither; not weighted

Where the labels are -1 and 1, y stands here for 0 and 1. A figure whose divisor is 0, or that a loss does not have, is
None. Margins are counted in bins, and margins of one bin are ties. With logistic loss a bin is 1/32 wide, from -16 to
16 (what lies outside goes to the outermost): on click-through data that moves the AUC by less than 0.001. Where the
margin is itself the probability, 1/1024; with hinge and exponential loss 1/512 (1 + |p|)^2.

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

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_f64, load_i64, store_f64
from stream_learner.core.model.losses import (
    EXPONENTIAL,
    HALF_SQUARED,
    HELLINGER,
    HINGE,
    LOGARITHMIC,
    LOGISTIC,
    POISSON,
    SQUARED,
    class_of,
    label_read,
    loss_value,
    mistake,
    prediction,
)

EXAMPLES, REFUSED, IMPORTANCE, LABEL, PREDICTION, LOSS, POSITIVES, MISTAKES, LOG_LOSS = range(9)
SUMS: Final = 9
"""Float64 places of a block of sums; counts are exact up to 2^53."""
_SUMS_BEFORE: Final = 8
"""Places in states written before there was LOG_LOSS."""
BINS_PER_UNIT: Final = 32
LARGEST_MARGIN: Final = 16
BINS: Final = 2 * LARGEST_MARGIN * BINS_PER_UNIT
"""A histogram is f64[2, BINS]: importance of negatives, then of positives, by rising margin."""
BLOCK: Final = SUMS + 2 * BINS

_NO_SLICE: Final = -(1 << 62)
_PROBABILITIES: Final = (LOGISTIC, LOGARITHMIC, HELLINGER)
"""Losses whose prediction is the probability of a positive."""
_CLASSES: Final = (*_PROBABILITIES, HINGE, EXPONENTIAL)
"""Losses whose labels are two classes."""
_MEANS: Final = (*_PROBABILITIES, SQUARED, HALF_SQUARED, POISSON)
"""Losses whose prediction is the mean of the label."""


@kernel
def _bin(loss: int, p: float) -> int:
    """Which bin of the histogram a margin belongs to."""
    if loss == LOGISTIC:
        place = np.floor(min(max(p * BINS_PER_UNIT, -BINS / 2.0), BINS / 2.0 - 1.0)) + BINS // 2
    elif (loss == LOGARITHMIC) | (loss == HELLINGER):
        place = np.floor(min(max(p * BINS, 0.0), BINS - 1.0))
    else:
        place = np.floor(min((1.0 + p / (1.0 + abs(p))) * (BINS // 2), BINS - 1.0))
    return np.int64(place)


@kernel
def _count(block: int, place: int, amount: float) -> None:
    store_f64(block + 8 * place, load_f64(block + 8 * place) + amount)


@kernel
def _add(block: int, loss: int, p: float, y: float, h: float, q: float, value: float) -> None:
    """Count one example in a block of sums and histogram; its label as the loss has read it."""
    if p != p:
        _count(block, REFUSED, 1.0)
        return
    positive = class_of(loss, y)
    classes = positive == positive
    _count(block, EXAMPLES, 1.0)
    _count(block, IMPORTANCE, h)
    _count(block, LABEL, h * (positive if classes else y))
    _count(block, PREDICTION, h * q)
    _count(block, LOSS, h * value)
    _count(block, POSITIVES, 1.0 if y > 0.0 else 0.0)
    if not classes:
        return
    _count(block, MISTAKES, 1.0 if mistake(loss, p, y) else 0.0)
    if loss == HELLINGER:
        _count(block, LOG_LOSS, h * loss_value(LOGARITHMIC, 0.0, p, y))
    place = _bin(loss, p)
    _count(block, SUMS + place, h * (1.0 - positive))
    _count(block, SUMS + BINS + place, h * positive)


def _each(
    first: int,
    count: int,
    loss: int,
    option: float,
    columns: tuple[int, int, int, int],
    slice_ms: int,
    newest: int,
    total: int,
    open_slices: int,
) -> int:
    """See `_observe`; `columns`: addresses of margins, labels, importances, log times."""
    margins, labels, importances, log_times = columns
    for e in range(first, count):
        which = load_i64(log_times + 8 * e) // slice_ms
        if which > newest:
            return e
        p, h = load_f64(margins + 8 * e), load_f64(importances + 8 * e)
        y = label_read(loss, load_f64(labels + 8 * e))
        q, value = prediction(loss, p), loss_value(loss, option, p, y)
        _add(total, loss, p, y, h, q, value)
        _add(open_slices + (8 * BLOCK if which == newest else 0), loss, p, y, h, q, value)
    return count


_each_inlined = kernel(_each, forceinline=True)


@kernel
def _observe(
    first: int,
    count: int,
    loss: int,
    option: float,
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

    `total` and `open_slices` are addresses of one and two blocks; of these the second is the newest slice's. The usual
    loss has a loop of its own, from which the compiler leaves all others out.
    """
    columns = (margins, labels, importances, log_times)
    if loss == LOGISTIC:
        return _each_inlined(first, count, LOGISTIC, option, columns, slice_ms, newest, total, open_slices)
    return _each_inlined(first, count, loss, option, columns, slice_ms, newest, total, open_slices)


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
    average = _ratio(sums[LOSS], importance)
    rate = _ratio(label, importance)
    log_loss = None
    if loss in _PROBABILITIES:
        log_loss = _ratio(sums[LOG_LOSS], importance) if loss == HELLINGER else average
    base = entropy(min(max(rate, 0.0), 1.0)) if rate is not None and log_loss is not None else 0.0
    return {
        "examples": int(sums[EXAMPLES]),
        "refused": int(sums[REFUSED]),
        "positives": int(sums[POSITIVES]),
        "importance": importance,
        "label_rate": rate,
        "prediction_rate": _ratio(sums[PREDICTION], importance),
        "average_loss": average,
        "log_loss": log_loss,
        "normalized_entropy": log_loss / base if log_loss is not None and base > 0.0 else None,
        "calibration": _ratio(sums[PREDICTION], label) if loss in _MEANS else None,
        "auc": auc,
        "mistakes": int(sums[MISTAKES]) if loss in _CLASSES else None,
    }


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / whole if whole > 0.0 else None


class Progress:
    """Progressive metrics of one model, in total and by slice."""

    def __init__(self, loss: int, *, option: float = 0.0, slice_ms: int = 3_600_000, slices_kept: int = 48) -> None:
        """`loss`, `option`: a code of `losses`, and its option. `slices_kept` counts closed slices.

        Raises ValueError unless both numbers are > 0.
        """
        if slice_ms <= 0 or slices_kept <= 0:
            raise ValueError(f"slice_ms ({slice_ms}) and slices_kept ({slices_kept}) must be positive")
        self._loss = loss
        self._option = option
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
            done = _observe(done, count, self._loss, self._option, *columns, self._slice_ms, self._newest, *places)
            if done == count:
                return
            self._open(_time_at(log_times + 8 * done) // self._slice_ms)

    def summary(self) -> dict[str, Any]:
        """The figures of all examples so far."""
        return self._figures_of(0)

    def totals(self) -> tuple[int, float, float]:
        """Examples, the sum of their importances, the sum of their losses, so far."""
        sums = self._blocks[0]
        return int(sums[EXAMPLES]), float(sums[IMPORTANCE]), float(sums[LOSS])

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
        """Become what `state` was of. Another slice length ends the slices so far: only the total goes on.

        Raises ValueError, KeyError or TypeError for what is no such state.
        """
        self._blocks[:] = _widened(_unpacked(state["blocks"]).reshape(3, -1))
        self._newest, self._older, self._closed = _NO_SLICE, _NO_SLICE, []
        if state["slice_ms"] != self._slice_ms:
            self._blocks[1:] = 0.0
            return
        self._newest, self._older = state["newest"], state["older"]
        self._closed = [
            (start, _widened(_unpacked(sums)[None])[0], None if auc is None else float.fromhex(auc))
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


def _widened(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blocks, or sums, of a state as they are now: one written before there was LOG_LOSS gets a 0 for it."""
    if blocks.shape[1] in (SUMS, BLOCK):
        return blocks
    return np.insert(blocks, _SUMS_BEFORE, 0.0, axis=1)


def _packed(numbers: NDArray[np.float64]) -> str:
    return base64.b64encode(zlib.compress(numbers.astype("<f8").tobytes(), 1)).decode("ascii")


def _unpacked(text: str) -> NDArray[np.float64]:
    """What `_packed` made a text of. Raises ValueError for any other text, before it takes much memory."""
    unpacking = zlib.decompressobj()
    try:
        numbers = unpacking.decompress(base64.b64decode(text), 8 * 3 * BLOCK + 1)
    except zlib.error as error:
        raise ValueError(f"sums that cannot be unpacked: {error}") from None
    if not unpacking.eof:
        raise ValueError("sums that are cut off, or too many")
    return np.frombuffer(numbers, "<f8").astype(np.float64)


def warm() -> None:
    """Compile every kernel of this module."""
    one, time = np.zeros(1), np.zeros(1, np.int64)
    Progress(LOGISTIC).observe(address_of(one), address_of(one), address_of(one), address_of(time), 1)
