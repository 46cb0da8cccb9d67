"""What both inputs of the join have in common: columns as kernels want them, and log time.

In: decoded columns in offset order. Out: the same, checked, and how far log time has come with each record.
This file must never know impressions from clicks.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.join.kernels import NEGATIVE_TIME, OUT_OF_ORDER, log_time_of, log_times, new_state

NO_LOG_TIME = -1
"""Log time where no good record has been read yet. Times are never negative."""

Scalar = TypeVar("Scalar", bound=np.generic)


def column(array: NDArray[Any], dtype: type[Scalar]) -> NDArray[Scalar]:
    """The array as kernels are compiled for: one dtype, contiguous, aligned, writeable; copied only if it is not."""
    if array.dtype == dtype and array.flags.carray:
        return array
    return np.require(array, dtype, ["C", "A", "W"])


class LogTime:
    """How far the log time of one input has come, fed with its records in offset order.

    now: the largest least time of all rows that are complete, ms; `NO_LOG_TIME` before the first.
    """

    __slots__ = ("_agree", "_state", "now")

    def __init__(self, agree: int, log_time: int) -> None:
        """agree: the length of a row. log_time: where it had come before the first record; `NO_LOG_TIME` if nowhere."""
        self._agree = agree
        self._state = new_state(agree, log_time)
        self.now = log_time

    def passed(
        self, offsets: NDArray[np.int64], status: NDArray[np.uint8], times: NDArray[np.int64], position: int
    ) -> NDArray[np.int64]:
        """How far it has come with each of these records; i64[n], never decreasing.

        Raises ValueError if the columns differ in length, if offsets do not rise from `position` on, or if a good
        record has a negative time; nothing may be fed any more then.
        """
        if not len(offsets) == len(status) == len(times):
            raise ValueError(f"{len(offsets)} offsets, {len(status)} records")
        out = np.empty(len(offsets), np.int64)
        wrong = log_times(offsets, status, times, position, self._agree, self._state, out)
        if wrong == OUT_OF_ORDER:
            raise ValueError(f"offsets must rise from position {position} on")
        if wrong == NEGATIVE_TIME:
            raise ValueError("a good record has a negative time")
        self.now = log_time_of(self._state)
        return out
