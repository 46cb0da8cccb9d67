"""Batches of decoded events as the join keeps them, and their columns as its kernels take them.

A batch is used up from the front: `start` is the index of its first record that no tick has taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
Columns = tuple[NDArray[Any], ...]
"""The fields of `ImpressionColumns` or the like, as a kernel that is called from Python takes them (see `Place`)."""


def column(array: NDArray[Any], dtype: type[Scalar]) -> NDArray[Scalar]:
    """The array as kernels are compiled for: one dtype, contiguous, aligned, writeable; copied only if it is not."""
    if array.dtype == dtype and array.flags.carray:
        return array
    return np.require(array, dtype, ["C", "A", "W"])


class ClickColumns(NamedTuple):
    """The columns of a batch of clicks. status: 0 for a good record, else it is dead."""

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    value: NDArray[np.float64]


class ImpressionColumns(NamedTuple):
    """The columns of a batch of impressions. status: 0 for a good record, else it is dead.

    The features of record i are `keys` and `values` from `row_start[i]` to before `row_start[i + 1]`, and `counted`.
    `values` is empty if all of them are 1 and were left out, `counted` if nobody counts. duplicate: 1 for a record that
    repeats an id; known from the tick that emits it on.
    """

    offsets: NDArray[np.int64]
    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    ids: NDArray[np.int64]
    weight: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    counted: NDArray[np.uint8]
    duplicate: NDArray[np.uint8]


@dataclass(slots=True)
class ClickBatch:
    """A batch of clicks; those before index `start` have been taken.

    passed: how far log time has come with each click.
    """

    columns: ClickColumns
    passed: NDArray[np.int64]
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of the columns, bytes."""
        return 41 * len(self.columns.offsets)

    def end_of_those_before(self, time_ms: int, stop: int) -> int:
        """The first index from `start` on with which log time has come to `time_ms`, at most `stop`."""
        return min(max(int(np.searchsorted(self.passed, time_ms)), self.start), stop)


@dataclass(slots=True)
class ImpressionBatch:
    """A batch of impressions; those before index `start` have been emitted.

    passed: how far log time has come with each impression.
    """

    columns: ImpressionColumns
    passed: NDArray[np.int64]
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of the columns, bytes."""
        columns = self.columns
        features = 8 * len(columns.keys) + 8 * len(columns.values) + len(columns.counted)
        return 50 * len(columns.offsets) + features
