"""The impressions of one partition that wait for their window to close.

In: columns of decoded impressions in offset order; the clicks remembered when a tick is emitted. Out: the examples of
the tick, what became of the other records, and where to read from to know the duplicates again.
This file must never decide when a tick closes, nor keep an impression that has been emitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Impressions
from stream_learner.core.join.clicks import ClickMemory
from stream_learner.core.join.columns import NO_LOG_TIME, LogTime, column
from stream_learner.core.join.crowded import crowded_labels
from stream_learner.core.join.kernels import (
    DEAD_IMPRESSIONS,
    DUPLICATES,
    EXAMPLES,
    FEATURES,
    LATE_IMPRESSIONS,
    POSITIVES,
    SAMPLED_OUT,
    find_duplicates,
    label_rows,
    least_of_row,
    run_start,
    written_log_times,
)
from stream_learner.core.join.rows import ExampleScratch, ImpressionRows, KeptRows, gather
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.examples import ExampleBatch, ImpressionCounts
from stream_learner.core.machine.id_table import IdTable

_NO_LABELS = np.zeros(0)


@dataclass(slots=True)
class Emitted:
    """What became of a run of impressions."""

    examples: ExampleBatch
    counts: ImpressionCounts


class ImpressionBuffer:
    """Impressions read and not emitted, and the memory of ids by which duplicates are known.

    next: offset of the first one not emitted; those before it only fill that memory. written_log_time: the log time
    written for the last one emitted. steps: where each step of the ticks by which ids are forgotten begins, the number
    of the step and the first impression emitted in it.
    """

    def __init__(
        self, spec: JoinSpec, *, position: int, next_offset: int, log_time: int, steps: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.position = position
        self.next = next_offset
        self.nbytes = 0
        self.written_log_time = log_time
        self.steps = deque(steps)
        self._spec = spec
        self._log_time = LogTime(spec.agree, log_time)
        self._seen = IdTable()
        self._rows: deque[ImpressionRows] = deque()
        self._due: int | None = None

    def __len__(self) -> int:
        return sum(len(rows.offsets) - rows.start for rows in self._rows)

    @property
    def log_time(self) -> int:
        """How far log time has come with all impressions read."""
        return self._log_time.now

    @property
    def seen_nbytes(self) -> int:
        """Memory by which duplicates are known, bytes."""
        return self._seen.nbytes

    @property
    def remembered_from(self) -> int:
        """Offset of the first impression whose id is remembered; `next` if none is."""
        return self.steps[0][1] if self.steps else self.next

    @property
    def first_due(self) -> int | None:
        """The least time in the row of the first impression that waits, as far as that has been read.

        `NO_LOG_TIME` for a dead one, which goes with the next tick; None if none waits.
        """
        if self._due is None and self._rows:
            return self._find_due()
        return self._due

    def add(self, offsets: NDArray[np.int64], batch: Impressions) -> None:
        """Append a batch. Raises ValueError as `LogTime.passed` does, or if `row_start` does not fit."""
        if len(offsets) == 0:
            return
        rows = self._prepare(column(offsets, np.int64), batch)
        self.position = int(rows.offsets[-1]) + 1
        if rows.offsets[0] < self.next:
            rows.start = int(np.searchsorted(rows.offsets, self.next))
            self._find_duplicates(rows, 0, rows.start)
        if rows.start < len(rows.offsets):
            self._rows.append(rows)
            self.nbytes += rows.nbytes

    def end_of_those_before(self, time_ms: int) -> int:
        """The offset after the last impression that a tick emits if its border lies at `time_ms`; `next` if none is.

        Where no row that is complete has passed that time, the end of what has been read ends rows, too.
        """
        read: list[ImpressionRows] = []
        stop, most = 0, self._spec.agree - 1
        for rows in self._rows:
            read.append(rows)
            stop = len(rows.offsets)
            if rows.passed[-1] >= time_ms:
                stop, most = int(np.searchsorted(rows.passed, time_ms)) + 1, self._spec.agree
                break
        if not read:
            return self.next
        end = int(read[-1].offsets[stop - 1]) + 1
        while read and most:
            rows = read.pop()
            row, most = run_start(rows.status, rows.time_ms, rows.start, stop, time_ms, most)
            if row < stop:
                before = read[-1] if read else None
                end = _end_before(rows, row, self.next if before is None else int(before.offsets[-1]) + 1)
            stop = len(read[-1].offsets) if read else 0
        return end

    def forget_before(self, tick: int) -> None:
        """Forget the ids of which `tick` and all after it need know no more."""
        step = self._spec.first_remembered_step(tick)
        while self.steps and self.steps[0][0] < step:
            self.steps.popleft()

    def emit(self, tick: int, until: int, clicks: ClickMemory, scratch: ExampleScratch) -> Emitted:
        """Decide and let go of all impressions before offset `until`, in one tick."""
        slices = self._slices(until)
        read = sum(stop - rows.start for rows, stop in slices)
        scratch.reserve_rows(read)
        floor = tick * self._spec.tick_ms - self._spec.window_ms
        self._write_log_times(slices, floor, scratch)
        self._open_step(tick, until)
        tally = np.zeros(7, np.int64)
        parts: list[KeptRows] = []
        n = before = 0
        for rows, stop in slices:
            start, late_before_ms = rows.start, floor - self._spec.lateness_ms
            self._find_duplicates(rows, start, stop)
            got = _label(rows, stop, late_before_ms, clicks, self._spec, scratch, n, tally)
            if got:
                parts.append(KeptRows(rows, scratch.kept[n : n + got], before - start))
            n += got
            before += stop - start
            self._let_go(rows, stop)
        self.next = until
        self._due = None
        return Emitted(gather(parts, n, int(tally[FEATURES]), scratch), _counts(read, tally))

    def _find_due(self) -> int:
        first = self._rows[0]
        if first.status[first.start] != 0:
            self._due = NO_LOG_TIME
            return NO_LOG_TIME
        least, most = int(first.time_ms[first.start]), self._spec.agree
        for rows in self._rows:
            least, most = least_of_row(rows.status, rows.time_ms, rows.start, most, least)
            if most == 0:
                self._due = least  # the row is complete: nothing that is read later changes it
                break
        return least

    def _write_log_times(self, slices: list[tuple[ImpressionRows, int]], floor: int, scratch: ExampleScratch) -> None:
        n = 0
        for rows, stop in slices:
            end = n + stop - rows.start
            scratch.read_status[n:end] = rows.status[rows.start : stop]
            scratch.read_time_ms[n:end] = rows.time_ms[rows.start : stop]
            n = end
        if n:
            self.written_log_time = written_log_times(
                scratch.read_status[:n],
                scratch.read_time_ms[:n],
                self._spec.agree,
                max(self.written_log_time, floor),
                scratch.read_log_time[:n],
            )

    def _open_step(self, tick: int, until: int) -> None:
        """Note where the tick's step begins, if it is the first of it that emits something."""
        step = tick // self._spec.step_ticks
        if self._spec.dedupe_ms and until > self.next and not (self.steps and self.steps[-1][0] >= step):
            self.steps.append((step, self.next))

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
            self._log_time.passed(offsets, status, times, self.position),
            np.zeros(len(offsets), np.uint8),
        )

    def _find_duplicates(self, rows: ImpressionRows, start: int, stop: int) -> None:
        """Say which rows `start..stop-1` repeat an id that is remembered, and remember theirs."""
        if not self._spec.dedupe_ms:
            return
        first, done = self.remembered_from, start
        while True:
            done = find_duplicates(
                self._seen.header, rows.offsets, rows.ids, rows.status, done, stop, first, rows.duplicate
            )
            if done == stop:
                return
            self._seen.grow(int(rows.ids[done]), first)

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
        rows.start = stop
        if stop == len(rows.offsets):
            self._rows.popleft()
            self.nbytes -= rows.nbytes


def _end_before(rows: ImpressionRows, row: int, before: int) -> int:
    """The offset after the waiting row before `row`; `before` if that lies in no batch or in the one before."""
    return int(rows.offsets[row - 1]) + 1 if row > rows.start else before


def _label(
    rows: ImpressionRows,
    stop: int,
    late_before_ms: int,
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
            late_before_ms,
            spec.skew_ms,
            spec.window_ms,
            spec.dedupe_ms > 0,
            spec.keep_negatives,
            spec.keep_below,
            _NO_LABELS if spec.dedupe_ms else crowded_labels(rows, stop, late_before_ms, clicks, spec),
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
        late=int(tally[LATE_IMPRESSIONS]),
    )
