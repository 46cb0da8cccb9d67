"""Measures the time from the close of a window until a scorer predicts with what was learned from it. Times are epoch
ms."""

from __future__ import annotations

import threading
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

LONGEST_MS = 120_000
"""The longest delay; longer ones count as this."""
VERSIONS_KEPT = 4_096


class Freshness:
    """Matches examples with the first version that contains them. Either may come first, from different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: list[int] = []
        self._applied_ms: list[int] = []
        self._waiting: list[tuple[int, NDArray[np.int64]]] = []
        self._delays = np.zeros(LONGEST_MS + 1, np.int64)

    def applied(self, version: int, at_ms: int) -> None:
        """Note that a scorer has served `version` since `at_ms`; versions rise."""
        with self._lock:
            self._versions.append(version)
            self._applied_ms.append(at_ms)
            del self._versions[:-VERSIONS_KEPT], self._applied_ms[:-VERSIONS_KEPT]
            self._settle()

    def closed(self, tick: int, closed_ms: NDArray[np.int64]) -> None:
        """Note the times at which the windows of the examples of `tick` closed, i64[n]."""
        with self._lock:
            self._waiting.append((tick, closed_ms))
            self._settle()

    def percentiles(self, *shares: float) -> list[int] | None:
        """The delays in ms below which these shares of the examples lie; None before the first."""
        with self._lock:
            below = np.cumsum(self._delays)
        if below[-1] == 0:
            return None
        return [int(np.searchsorted(below, share * below[-1])) for share in shares]

    def _settle(self) -> None:
        if not self._versions:
            return
        served = self._versions[-1]
        settled = [entry for entry in self._waiting if entry[0] <= served]
        self._waiting = [entry for entry in self._waiting if entry[0] > served]
        for tick, closed_ms in settled:
            applied_ms = self._applied_ms[bisect_left(self._versions, tick)]
            np.add.at(self._delays, np.clip(applied_ms - closed_ms, 0, LONGEST_MS), 1)
