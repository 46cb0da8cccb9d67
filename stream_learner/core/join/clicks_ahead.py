"""The clicks of one partition that have been read and not taken by a tick yet."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Clicks
from stream_learner.core.join.batches import ClickBatch, ClickColumns, column
from stream_learner.core.join.log_time import LogTime


class ClicksAhead:
    """Clicks in offset order. position: the offset to read from next. nbytes: memory held."""

    def __init__(self, position: int, agree: int, log_time: int) -> None:
        self.position = position
        self.nbytes = 0
        self._log_time = LogTime(agree, log_time)
        self._batches: deque[ClickBatch] = deque()

    @property
    def log_time(self) -> int:
        """How far log time has come with all clicks read, taken or not."""
        return self._log_time.now

    def add(self, offsets: NDArray[np.int64], clicks: Clicks) -> None:
        """Append clicks. Raises ValueError as `LogTime.passed` does."""
        if len(offsets) == 0:
            return
        offsets = column(offsets, np.int64)
        status, times = column(clicks.status, np.uint8), column(clicks.time_ms, np.int64)
        passed = self._log_time.passed(offsets, status, times, self.position)
        ids = column(clicks.id_hash, np.uint64).view(np.int64)
        batch = ClickBatch(ClickColumns(offsets, ids, status, times, column(clicks.value, np.float64)), passed)
        self._batches.append(batch)
        self.nbytes += batch.nbytes
        self.position = int(offsets[-1]) + 1

    def offset_reaching(self, time_ms: int) -> int | None:
        """Offset of the first click not taken with which log time has reached `time_ms`, None if there is none."""
        for batch in self._batches:
            if batch.passed[-1] >= time_ms:
                i = max(int(np.searchsorted(batch.passed, time_ms)), batch.start)
                return int(batch.columns.offsets[i])
        return None

    def earliest_from(self, offset: int) -> int | None:
        """The least time, ms, of the clicks from `offset` on that can be used and are not taken; None without one."""
        times = [
            batch.columns.time_ms[(batch.columns.offsets >= offset) & (batch.columns.status == 0)]
            for batch in self._batches
        ]
        return min((int(found.min()) for found in times if len(found)), default=None)

    def take_until(self, offset: int) -> list[tuple[ClickBatch, int]]:
        """The batches with clicks before `offset`, each with the index to stop before. Whole batches are let go."""
        parts: list[tuple[ClickBatch, int]] = []
        while self._batches:
            batch = self._batches[0]
            stop = int(np.searchsorted(batch.columns.offsets, offset))
            if stop > batch.start:
                parts.append((batch, stop))
            if stop < len(batch.columns.offsets):
                break
            self._batches.popleft()
            self.nbytes -= batch.nbytes
        return parts
