"""Progressive metrics: how good each prediction was, before the example was learned from.

Sums and histograms are kept as examples are folded, and figures are computed from them when asked for. They do not
depend on how examples are cut into records. With h the importance, y the label, q the prediction, l the loss:

    average loss        sum h l / sum h
    log-loss            sum h (-y ln q - (1 - y) ln (1 - q)) / sum h       (where the prediction is a probability)
    normalized entropy  log-loss / H(sum h y / sum h), H(c) = -c ln c - (1 - c) ln (1 - c)    (He et al. 2014)
    calibration         sum h q / sum h y                                  (1 is best; where the prediction is a mean)
    AUC                 probability that a positive has a larger margin than a negative, ties counted half; a soft
                        label is a positive of weight h y and a negative of weight h (1 - y)
    mistakes            examples whose margin is on the wrong side of the label, or on neither; not weighted

Labels of -1 and 1 count here as y = 0 and 1. A figure whose divisor is 0, or that a loss does not have, is None.

Margins are counted in bins, and margins of one bin are ties. With logistic loss a bin is 1/32 wide, from -16 to 16, and
the outermost bins take what is beyond them: on click-through data that moves the AUC by less than 0.001. Where the
margin is itself the probability a bin is 1/1024 wide, with hinge and exponential loss 1/512 (1 + |p|)^2.

All figures are also kept by slice: a slice covers the log times [s slice_ms, (s + 1) slice_ms). The two latest slices
are open and keep a histogram each; a late example, older than both, counts in the older of them. Closed slices keep
their sums and final AUC; the oldest are dropped.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_f64, load_i64, make_record_at
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

BINS_PER_UNIT: Final = 32
LARGEST_MARGIN: Final = 16
BINS: Final = 2 * LARGEST_MARGIN * BINS_PER_UNIT
"""A histogram is f64[2, BINS]: importance of negatives, then of positives, by rising margin."""
_NAMES: Final = (
    "examples", "refused", "importance", "label", "prediction", "loss", "positives", "mistakes", "log_loss",
)  # fmt: skip
SUMS: Final = np.dtype([(name, np.float64) for name in _NAMES])
"""Sums over examples, and counts of them, which are exact up to 2^53."""
BLOCK: Final = np.dtype([*SUMS.descr, ("histogram", np.float64, (2, BINS))])
"""The sums and the histogram that are kept of all examples, and of an open slice."""
_BLOCK_BYTES: Final = BLOCK.itemsize
_NUMBERS: Final = _BLOCK_BYTES // 8
_block_at: Final = make_record_at(BLOCK)
LOG_LOSS: Final = _NAMES.index("log_loss")
"""States written before there was this sum have one number less at this index."""

_NO_SLICE: Final = -(1 << 62)
_PROBABILITIES: Final = (LOGISTIC, LOGARITHMIC, HELLINGER)
"""Losses whose prediction is the probability of a positive."""
_CLASSES: Final = (*_PROBABILITIES, HINGE, EXPONENTIAL)
"""Losses whose labels are two classes."""
_MEANS: Final = (*_PROBABILITIES, SQUARED, HALF_SQUARED, POISSON)
"""Losses whose prediction is the mean of the label."""


@kernel
def _bin(loss: int, p: float) -> np.uint64:
    """The bin of the histogram for a margin; unsigned, so that the compiler has no negative index to look for."""
    if loss == LOGISTIC:
        index = np.floor(min(max(p * BINS_PER_UNIT, -BINS / 2.0), BINS / 2.0 - 1.0)) + BINS // 2
    elif (loss == LOGARITHMIC) | (loss == HELLINGER):
        index = np.floor(min(max(p * BINS, 0.0), BINS - 1.0))
    else:
        index = np.floor(min((1.0 + p / (1.0 + abs(p))) * (BINS // 2), BINS - 1.0))
    return np.uint64(index)


@kernel
def _add(block: Any, loss: int, p: float, y: float, h: float, q: float, value: float) -> None:
    """Count one example in a BLOCK; y is the label as `label_read` gave it, q the prediction, value the loss."""
    if p != p:
        block.refused += 1.0
        return
    positive = class_of(loss, y)
    classes = positive == positive
    block.examples += 1.0
    block.importance += h
    block.label += h * (positive if classes else y)
    block.prediction += h * q
    block.loss += h * value
    block.positives += 1.0 if y > 0.0 else 0.0
    if not classes:
        return
    block.mistakes += 1.0 if mistake(loss, p, y) else 0.0
    if loss == HELLINGER:
        block.log_loss += h * loss_value(LOGARITHMIC, 0.0, p, y)
    index = _bin(loss, p)
    block.histogram[0, index] += h * (1.0 - positive)
    block.histogram[1, index] += h * positive


def _each(
    first: int,
    count: int,
    loss: int,
    option: float,
    columns: tuple[int, int, int, int],
    slice_ms: int,
    newest: int,
    blocks: int,
) -> int:
    """`_observe` for one loss; `columns`: addresses of margins, labels, importances, log times."""
    margins, labels, importances, log_times = columns
    total, older_slice = _block_at(blocks), _block_at(blocks + _BLOCK_BYTES)
    newest_slice = _block_at(blocks + 2 * _BLOCK_BYTES)
    for e in range(first, count):
        which = load_i64(log_times + 8 * e) // slice_ms
        if which > newest:
            return e
        p, h = load_f64(margins + 8 * e), load_f64(importances + 8 * e)
        y = label_read(loss, load_f64(labels + 8 * e))
        q, value = prediction(loss, p), loss_value(loss, option, p, y)
        _add(total, loss, p, y, h, q, value)
        _add(newest_slice if which == newest else older_slice, loss, p, y, h, q, value)
    return count


_each_inlined = kernel(_each, forceinline=True)


@entry
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
    blocks: int,
) -> int:
    """Count the examples first .. count - 1, up to one that opens a newer slice; returns its index, or `count`.

    `blocks` is the address of BLOCK[3]: of all examples, of the older and of the newest open slice. The logistic loss
    has a loop of its own, in which the compiler has no other loss to tell apart.
    """
    columns = (margins, labels, importances, log_times)
    if loss == LOGISTIC:
        return _each_inlined(first, count, LOGISTIC, option, columns, slice_ms, newest, blocks)
    return _each_inlined(first, count, loss, option, columns, slice_ms, newest, blocks)


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
    """The figures in this module's docstring, from the sums of a block."""
    named = sums.view(SUMS)[0]
    importance, label = float(named["importance"]), float(named["label"])
    average = _ratio(named["loss"], importance)
    rate = _ratio(label, importance)
    log_loss = None
    if loss in _PROBABILITIES:
        log_loss = _ratio(named["log_loss"], importance) if loss == HELLINGER else average
    base = entropy(min(max(rate, 0.0), 1.0)) if rate is not None and log_loss is not None else 0.0
    return {
        "examples": int(named["examples"]),
        "refused": int(named["refused"]),
        "positives": int(named["positives"]),
        "importance": importance,
        "label_rate": rate,
        "prediction_rate": _ratio(named["prediction"], importance),
        "average_loss": average,
        "log_loss": log_loss,
        "normalized_entropy": log_loss / base if log_loss is not None and base > 0.0 else None,
        "calibration": _ratio(named["prediction"], label) if loss in _MEANS else None,
        "auc": auc,
        "mistakes": int(named["mistakes"]) if loss in _CLASSES else None,
    }


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / whole if whole > 0.0 else None


class _ClosedSlice(NamedTuple):
    """Slice `number`, which starts at number * slice_ms: its sums, in the order of SUMS, and its AUC."""

    number: int
    sums: NDArray[np.float64]
    auc: float | None


class Progress:
    """Progressive metrics of one model, in total and by slice."""

    def __init__(self, loss: int, *, option: float = 0.0, slice_ms: int = 3_600_000, slices_kept: int = 48) -> None:
        """loss, option: a code of `losses`, and its option. slices_kept: how many closed slices are kept.

        Raises ValueError unless slice_ms and slices_kept are > 0.
        """
        if slice_ms <= 0 or slices_kept <= 0:
            raise ValueError(f"slice_ms ({slice_ms}) and slices_kept ({slices_kept}) must be positive")
        self._loss = loss
        self._option = option
        self._slice_ms = slice_ms
        self._slices_kept = slices_kept
        self._blocks = np.zeros(3, BLOCK)
        self._blocks_at = address_of(self._blocks)
        self._numbers = self._blocks.view(np.float64).reshape(3, -1)
        """The same memory without names: sums, then histograms."""
        self._newest = _NO_SLICE
        self._older = _NO_SLICE
        self._closed: list[_ClosedSlice] = []

    def observe(self, margins: int, labels: int, importances: int, log_times: int, count: int) -> None:
        """Count `count` examples: addresses of f64 margins (NaN: refused), labels, importances, i64 log times (ms)."""
        columns = (margins, labels, importances, log_times)
        slice_ms, blocks = self._slice_ms, self._blocks_at
        done = 0
        while True:
            done = _observe(done, count, self._loss, self._option, *columns, slice_ms, self._newest, blocks)
            if done == count:
                return
            self._open(_time_at(log_times + 8 * done) // slice_ms)

    def summary(self) -> dict[str, Any]:
        """The figures of all examples so far."""
        return self._figures_of(0)

    def totals(self) -> tuple[int, float, float]:
        """The number of examples so far, the sum of their importances, and the sum of their losses."""
        total = self._blocks[0]
        return int(total["examples"]), float(total["importance"]), float(total["loss"])

    def slices(self) -> list[dict[str, Any]]:
        """The figures of every slice kept, oldest first, each with `start_ms`; the last two may still change."""
        found = [(one.number, figures(self._loss, one.sums, one.auc)) for one in self._closed]
        found += [
            (number, self._figures_of(block))
            for number, block in ((self._older, 1), (self._newest, 2))
            if _seen(self._blocks[block])
        ]
        return [{"start_ms": number * self._slice_ms, **its_figures} for number, its_figures in found]

    def state(self) -> dict[str, Any]:
        """All state, exact, in JSON's types; `restore` takes it."""
        return {
            "slice_ms": self._slice_ms,
            "newest": self._newest,
            "older": self._older,
            "blocks": _packed(self._numbers),
            "closed": [
                [one.number, _packed(one.sums), None if one.auc is None else one.auc.hex()] for one in self._closed
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave. If the length of slices differs, only the total goes on.

        Raises ValueError, KeyError or TypeError for what is no such state.
        """
        self._numbers[:] = _widened(_unpacked(state["blocks"]).reshape(3, -1))
        self._newest, self._older, self._closed = _NO_SLICE, _NO_SLICE, []
        if state["slice_ms"] != self._slice_ms:
            self._numbers[1:] = 0.0
            return
        self._newest, self._older = state["newest"], state["older"]
        self._closed = [
            _ClosedSlice(number, _widened(_unpacked(sums)[None])[0], None if auc is None else float.fromhex(auc))
            for number, sums, auc in state["closed"]
        ][-self._slices_kept :]

    def _figures_of(self, block: int) -> dict[str, Any]:
        return figures(self._loss, self._sums(block), area_under_curve(self._blocks[block]["histogram"]))

    def _sums(self, block: int) -> NDArray[np.float64]:
        return self._numbers[block, : len(_NAMES)]

    def _open(self, which: int) -> None:
        """Open slice `which`, newer than all; the older of the two open ones is closed."""
        if _seen(self._blocks[1]):
            auc = area_under_curve(self._blocks[1]["histogram"])
            self._closed.append(_ClosedSlice(self._older, self._sums(1).copy(), auc))
            del self._closed[: -self._slices_kept]
        self._older = which - 1 if self._newest == _NO_SLICE else self._newest
        self._newest = which
        self._numbers[1] = self._numbers[2]
        self._numbers[2] = 0.0


def _seen(block: np.void) -> bool:
    return bool(block["examples"] + block["refused"] > 0.0)


@entry
def _time_at(address: int) -> int:
    return load_i64(address)


def _widened(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blocks, or sums, of a state with all sums: one written before there was LOG_LOSS gets 0 for it."""
    if numbers.shape[1] in (len(_NAMES), _NUMBERS):
        return numbers
    return np.insert(numbers, LOG_LOSS, 0.0, axis=1)


def _packed(numbers: NDArray[np.float64]) -> str:
    return base64.b64encode(zlib.compress(numbers.astype("<f8").tobytes(), 1)).decode("ascii")


def _unpacked(text: str) -> NDArray[np.float64]:
    """The numbers in a text of `_packed`. Raises ValueError for any other text, before it takes much memory."""
    unpacking = zlib.decompressobj()
    try:
        numbers = unpacking.decompress(base64.b64decode(text), 3 * _BLOCK_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"sums that cannot be unpacked: {error}") from None
    if not unpacking.eof:
        raise ValueError("sums that are cut off, or too many")
    return np.frombuffer(numbers, "<f8").astype(np.float64)
