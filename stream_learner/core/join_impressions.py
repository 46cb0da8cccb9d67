"""The impressions of one partition that wait for their window to close.

In: columns of decoded impressions in offset order; the clicks remembered when a tick is emitted. Out: the examples of
the tick, what became of the other records, and where to read from to know the duplicates again.
This file must never decide when a tick closes, nor keep an impression that has been emitted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events import Impressions
from stream_learner.core.examples import ExampleBatch, ImpressionCounts
from stream_learner.core.id_table import IdTable
from stream_learner.core.join_clicks import ClickMemory
from stream_learner.core.join_columns import DeadRecord, column, dead_records, running_log_time
from stream_learner.core.join_kernel import (
    DEAD_IMPRESSIONS,
    DUPLICATES,
    EXAMPLES,
    FEATURES,
    POSITIVES,
    SAMPLED_OUT,
    find_duplicates,
    label_rows,
)
from stream_learner.core.join_rows import ExampleScratch, ImpressionRows, KeptRows, gather
from stream_learner.core.join_spec import JoinSpec

SAMPLE_EVERY = 4096
"""Every so many impressions their offset and log time are kept, as a place to read from to know the duplicates."""


@dataclass(slots=True)
class Emitted:
    """What became of a run of impressions."""

    examples: ExampleBatch
    counts: ImpressionCounts
    dead: list[DeadRecord]


class ImpressionBuffer:
    """Impressions read and not emitted, and the memory of ids by which duplicates are known.

    Impressions before `keep_from` only fill that memory.
    """

    def __init__(self, *, position: int, log_time: int, keep_from: int, dedupe_ms: int) -> None:
        self.position = position
        self.log_time = log_time
        self.next = keep_from
        self.nbytes = 0
        self._emitted_log_time = log_time
        self._dedupe_ms = dedupe_ms
        self._seen = IdTable()
        self._rows: deque[ImpressionRows] = deque()
        self._samples: deque[tuple[int, int]] = deque([(position, log_time)])
        self._since_sample = 0

    def __len__(self) -> int:
        return sum(len(rows.offsets) - rows.start for rows in self._rows)

    @property
    def seen_nbytes(self) -> int:
        """Memory by which duplicates are known, bytes."""
        return self._seen.nbytes

    @property
    def first_log_time(self) -> int | None:
        """Log time of the first impression that waits, None if none does."""
        return int(self._rows[0].log_time[self._rows[0].start]) if self._rows else None

    def add(self, offsets: NDArray[np.int64], batch: Impressions) -> None:
        """Append a batch. Raises ValueError as `running_log_time` does, or if `row_start` does not fit."""
        if len(offsets) == 0:
            return
        rows = self._prepare(column(offsets, np.int64), batch)
        self._find_duplicates(rows)
        self._sample(rows)
        self.position = int(rows.offsets[-1]) + 1
        self.log_time = int(rows.log_time[-1])
        if rows.offsets[0] < self.next:
            rows.start = int(np.searchsorted(rows.offsets, self.next))
            self._emitted_log_time = int(rows.log_time[rows.start - 1])
        if rows.start < len(rows.offsets):
            self._rows.append(rows)
            self.nbytes += rows.nbytes

    def end_of_those_before(self, log_time: int) -> int:
        """The offset after the last waiting impression whose log time is below `log_time`; `next` if there is none."""
        end = self.next
        for rows in self._rows:
            stop = int(np.searchsorted(rows.log_time, log_time))
            if stop > rows.start:
                end = int(rows.offsets[stop - 1]) + 1
            if stop < len(rows.offsets):
                break
        return end

    def emit(self, until: int, clicks: ClickMemory, spec: JoinSpec, scratch: ExampleScratch) -> Emitted:
        """Decide and let go of all impressions before offset `until`."""
        slices = self._slices(until)
        read = sum(stop - rows.start for rows, stop in slices)
        scratch.reserve_rows(read)
        tally = np.zeros(6, np.int64)
        parts: list[KeptRows] = []
        dead: list[DeadRecord] = []
        n = 0
        for rows, stop in slices:
            got = _label(rows, stop, clicks, spec, scratch, n, tally)
            if got:
                parts.append(KeptRows(rows, scratch.kept[n : n + got]))
            n += got
            if tally[DEAD_IMPRESSIONS] > len(dead):
                dead += dead_records(rows.offsets, rows.status, rows.start, stop)
            self._let_go(rows, stop)
        self.next = until
        return Emitted(gather(parts, n, int(tally[FEATURES]), scratch), _counts(read, tally), dead)

    def dedupe_point(self) -> tuple[int, int]:
        """A place to read from to know the duplicates among all impressions not emitted, and log time before it."""
        horizon = self._emitted_log_time - self._dedupe_ms
        while len(self._samples) > 1 and self._samples[1][0] <= self.next and self._samples[1][1] < horizon:
            self._samples.popleft()
        return self._samples[0]

    def _prepare(self, offsets: NDArray[np.int64], batch: Impressions) -> ImpressionRows:
        status, times = column(batch.status, np.uint8), column(batch.time_ms, np.int64)
        if len(batch.row_start) != len(offsets) + 1 or batch.row_start[-1] != len(batch.keys):
            raise ValueError("row_start does not fit the offsets and the keys")
        return ImpressionRows(
            offsets,
            status,
            times,
            column(batch.id_hash, np.uint64).view(np.int64),
            column(batch.weight, np.float64),
            column(batch.row_start, np.int64),
            column(batch.keys, np.uint64),
            column(batch.values, np.float64),
            running_log_time(offsets, status, times, self.position, self.log_time),
            np.empty(len(offsets), np.uint8),
        )

    def _find_duplicates(self, rows: ImpressionRows) -> None:
        done, n = 0, len(rows.offsets)
        while True:
            done = find_duplicates(
                self._seen.header,
                rows.ids,
                rows.status,
                rows.log_time,
                done,
                self._dedupe_ms,
                rows.duplicate,
            )
            if done == n:
                return
            self._seen.grow(int(rows.ids[done]), max(0, int(rows.log_time[done]) - self._dedupe_ms))

    def _sample(self, rows: ImpressionRows) -> None:
        n = len(rows.offsets)
        i = SAMPLE_EVERY - self._since_sample
        while i < n:
            self._samples.append((int(rows.offsets[i]), int(rows.log_time[i - 1]) if i else self.log_time))
            self._since_sample = -i
            i += SAMPLE_EVERY
        self._since_sample += n

    def _slices(self, until: int) -> list[tuple[ImpressionRows, int]]:
        slices = []
        for rows in self._rows:
            stop = int(np.searchsorted(rows.offsets, until))
            if stop > rows.start:
                slices.append((rows, stop))
            if stop < len(rows.offsets):
                break
        return slices

    def _let_go(self, rows: ImpressionRows, stop: int) -> None:
        self._emitted_log_time = int(rows.log_time[stop - 1])
        rows.start = stop
        if stop == len(rows.offsets):
            self._rows.popleft()
            self.nbytes -= rows.nbytes


def _label(
    rows: ImpressionRows,
    stop: int,
    clicks: ClickMemory,
    spec: JoinSpec,
    scratch: ExampleScratch,
    at: int,
    tally: NDArray[np.int64],
) -> int:
    return int(
        label_rows(
            clicks.table.header,
            clicks.blocks,
            clicks.block_mask,
            clicks.first,
            rows.ids,
            rows.status,
            rows.time_ms,
            rows.weight,
            rows.row_start,
            rows.duplicate,
            rows.start,
            stop,
            spec.skew_ms,
            spec.window_ms,
            spec.keep_negatives,
            spec.keep_below,
            scratch.kept[at:],
            scratch.label[at:],
            scratch.weight[at:],
            tally,
        )
    )


def _counts(read: int, tally: NDArray[np.int64]) -> ImpressionCounts:
    return ImpressionCounts(
        read=read,
        examples=int(tally[EXAMPLES]),
        positives=int(tally[POSITIVES]),
        duplicates=int(tally[DUPLICATES]),
        sampled_out=int(tally[SAMPLED_OUT]),
        dead=int(tally[DEAD_IMPRESSIONS]),
    )
