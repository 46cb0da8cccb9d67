"""Batches of impressions as they wait, and the rows of a tick gathered from them.

In: decoded columns; which rows of which batches are examples, with label and weight. Out: an `ExampleBatch`.
This file must never copy rows that lie together in one batch: they are handed on as views.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.join.kernels import copy_rows
from stream_learner.core.log.examples import ExampleBatch

_ROW_BYTES = 50
_ROWS_KEPT = 1 << 15
_FEATURES_KEPT = 1 << 20
"""A scratch of less than eight times these is never made smaller."""


@dataclass(slots=True)
class ImpressionRows:
    """A batch of impressions as kernels want it; rows before `start` have been emitted.

    passed: how far log time has come with each. duplicate: which repeat an id, known from the tick that emits them on.
    """

    offsets: NDArray[np.int64]
    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    ids: NDArray[np.int64]
    weight: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    passed: NDArray[np.int64]
    duplicate: NDArray[np.uint8]
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of the columns, bytes."""
        return _ROW_BYTES * len(self.offsets) + 16 * len(self.keys)


@dataclass(slots=True)
class KeptRows:
    """Rows of a batch, rising, at least one of them, that become examples.

    first_read: place among all rows read for the tick of the batch's row 0, which may lie before the first of them.
    """

    rows: ImpressionRows
    kept: NDArray[np.int64]
    first_read: int

    @property
    def is_one_run(self) -> bool:
        return int(self.kept[-1] - self.kept[0]) + 1 == len(self.kept)


class ExampleScratch:
    """Memory for the examples of a tick, used again for the next one; one thread at a time. `read_*`: of every
    impression that the tick decides, before it is known which of them become examples.

    What lies in it is valid until the next tick is emitted with it. Memory that has never been touched costs more
    than the copy into it.
    """

    __slots__ = (
        "_features",
        "_rows",
        "ids",
        "kept",
        "keys",
        "label",
        "log_time",
        "read_log_time",
        "read_status",
        "read_time_ms",
        "row_start",
        "values",
        "weight",
    )

    def __init__(self) -> None:
        self._rows = self._features = -1

    def reserve_rows(self, rows: int) -> None:
        """Make room for so many impressions to be decided; what was there before is lost."""
        if _fits(rows, self._rows, _ROWS_KEPT):
            return
        self._rows = rows + rows // 4
        self.kept = np.empty(self._rows, np.int64)
        self.label = np.empty(self._rows, np.float64)
        self.weight = np.empty(self._rows, np.float64)
        self.log_time = np.empty(self._rows, np.int64)
        self.read_log_time = np.empty(self._rows, np.int64)
        self.read_status = np.empty(self._rows, np.uint8)
        self.read_time_ms = np.empty(self._rows, np.int64)
        self.ids = np.empty(self._rows, np.int64)
        self.row_start = np.zeros(self._rows + 1, np.int64)

    def reserve_features(self, features: int) -> None:
        """Make room for the features of all rows kept; what was there before is lost."""
        if _fits(features, self._features, _FEATURES_KEPT):
            return
        self._features = features + features // 4
        self.keys = np.empty(self._features, np.uint64)
        self.values = np.empty(self._features, np.float64)


def _fits(wanted: int, there: int, kept: int) -> bool:
    """Enough, and not the far too much that one large tick has left behind."""
    return wanted <= there <= 8 * max(wanted, kept)


def gather(parts: list[KeptRows], n: int, features: int, scratch: ExampleScratch) -> ExampleBatch:
    """The `n` rows of all parts, whose labels and weights lie in `scratch`, with `features` features in all."""
    if not parts:
        return ExampleBatch.empty()
    if len(parts) == 1 and parts[0].is_one_run:
        return _slice(parts[0], scratch)
    scratch.reserve_features(features)
    at = 0
    for part in parts:
        rows = part.rows
        copy_rows(
            part.kept,
            rows.ids,
            rows.row_start,
            rows.keys,
            rows.values,
            scratch.read_log_time,
            part.first_read,
            at,
            scratch.log_time,
            scratch.ids,
            scratch.row_start,
            scratch.keys,
            scratch.values,
        )
        at += len(part.kept)
    return ExampleBatch(
        scratch.log_time[:n],
        scratch.ids[:n].view(np.uint64),
        scratch.label[:n],
        scratch.weight[:n],
        scratch.row_start[: n + 1],
        scratch.keys[:features],
        scratch.values[:features],
    )


def _slice(part: KeptRows, scratch: ExampleScratch) -> ExampleBatch:
    rows, a, b, n = part.rows, int(part.kept[0]), int(part.kept[-1]) + 1, len(part.kept)
    start, end = int(rows.row_start[a]), int(rows.row_start[b])
    first = part.first_read
    return ExampleBatch(
        scratch.read_log_time[first + a : first + b],
        rows.ids[a:b].view(np.uint64),
        scratch.label[:n],
        scratch.weight[:n],
        rows.row_start[a : b + 1] - start,
        rows.keys[start:end],
        rows.values[start:end],
    )
