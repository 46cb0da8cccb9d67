"""The impressions of one partition that wait for their window to close, and the ids by which duplicates are known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Impressions
from stream_learner.core.join.batches import ImpressionBatch, ImpressionColumns, column
from stream_learner.core.join.click_memory import ClickMemory
from stream_learner.core.join.crowded import crowded_labels
from stream_learner.core.join.gather import ExamplePart, ExampleScratch, gather
from stream_learner.core.join.labels import (
    EARLY,
    FEATURES,
    TALLY,
    RuleFields,
    find_duplicates,
    label_impressions,
    label_rule,
)
from stream_learner.core.join.log_time import (
    NO_LOG_TIME,
    LogTime,
    count_before,
    first_candidate,
    take_row,
    written_log_times,
)
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import ImpressionCounts
from stream_learner.core.machine.id_table import IdTable

_NO_LABELS = np.zeros(0)
_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True)
class Emitted:
    """The outcomes of a run of impressions. early: how many examples are."""

    examples: ExampleBatch
    counts: ImpressionCounts
    early: int


class ImpressionBuffer:
    """Impressions read and not emitted, and the ids of those emitted in the last `dedupe`.

    position: the offset to read from next. next: offset of the first impression not emitted; those before it, which a
    resumed join reads again, only tell their ids. nbytes: memory of what waits. written_log_time: the log time written
    for the last one emitted. steps: ids are forgotten in steps of several ticks; for each step in which something was
    emitted, its number and the first impression emitted in it (offset).
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
        self._batches: deque[ImpressionBatch] = deque()
        self._due: int | None = None
        self._far_ms = _NEVER

    def tell_clock(self, brokers_ms: int | None) -> None:
        """Take the brokers' clock, None where none closes ticks: impressions far after it decide nothing for others."""
        far_ms = _NEVER if brokers_ms is None else brokers_ms + self._spec.lateness_ms
        if far_ms != self._far_ms:
            self._far_ms, self._due = far_ms, None

    @property
    def log_time(self) -> int:
        """How far log time has come with all impressions read."""
        return self._log_time.now

    @property
    def remembered_from(self) -> int:
        """Offset of the first impression whose id is remembered; `next` if none is."""
        return self.steps[0][1] if self.steps else self.next

    @property
    def first_due(self) -> int | None:
        """The latest time that the first impression not emitted waits for, as far as its row has been read.

        `NO_LOG_TIME` for a dead one, which goes with the next tick; None if all are emitted.
        """
        if self._due is None and self._batches:
            return self._find_due()
        return self._due

    def add(self, offsets: NDArray[np.int64], impressions: Impressions) -> None:
        """Append impressions. Raises ValueError as `LogTime.passed` does, or if `row_start` does not fit."""
        if len(offsets) == 0:
            return
        batch = self._prepare(column(offsets, np.int64), impressions)
        self.position = int(batch.columns.offsets[-1]) + 1
        if batch.columns.offsets[0] < self.next:
            batch.start = int(np.searchsorted(batch.columns.offsets, self.next))
            self._find_duplicates(batch, 0, batch.start)
        if batch.start < len(batch.columns.offsets):
            self._batches.append(batch)
            self.nbytes += batch.nbytes

    def end_of_those_before(self, time_ms: int) -> int:
        """The offset before which a cut emits whose border lies at `time_ms`: that of the first one that waits for it.

        The end of what has been read ends rows, too: where log time has passed `time_ms`, some earlier one waits.
        """
        end = self.next
        for place, batch in enumerate(self._batches):
            columns, index = batch.columns, batch.start
            while True:
                index = first_candidate(columns.status, columns.time_ms, index, time_ms, self._spec.agree, self._far_ms)
                if index == len(columns.offsets):
                    break
                if self._waits(place, index, time_ms):
                    return _end_before(batch, index, end)
                index += 1
            end = int(columns.offsets[-1]) + 1
        return end

    def _waits(self, place: int, index: int, time_ms: int) -> bool:
        """Whether fewer than half of the row that begins in the batch at `place` are before `time_ms`; its first is
        not.
        """
        agree, found, before, start = self._spec.agree, 1, 0, index + 1
        for batch in islice(self._batches, place, None):
            columns = batch.columns
            more, more_before = count_before(
                columns.status, columns.time_ms, start, agree - found, time_ms, self._far_ms
            )
            start = 0
            found, before = found + more, before + more_before
            if found == agree:
                break
        return 2 * before < agree

    def forget_before(self, tick: int) -> None:
        """Forget the ids that neither `tick` nor any later one needs."""
        step = self._spec.first_remembered_step(tick)
        while self.steps and self.steps[0][0] < step:
            self.steps.popleft()

    def emit(self, cut: Cut, clicks: ClickMemory, scratch: ExampleScratch) -> Emitted:
        """Decide all impressions before the border of a cut that closes windows, and let go of them."""
        tick, until = cut.first_tick, cut.next_impression
        parts = self._parts(until)
        read = sum(stop - batch.start for batch, stop in parts)
        scratch.reserve_examples(read)
        floor = tick * self._spec.tick_ms - self._spec.window_ms
        self._write_log_times(parts, floor, scratch)
        self._open_step(tick, until)
        tally = np.zeros(TALLY, np.int64)
        found: list[ExamplePart] = []
        n = before = 0
        late_before_ms = max(floor - self._spec.lateness_ms, cut.labels_from_ms)
        open_from_ms = (cut.last_tick + 1) * self._spec.tick_ms - self._spec.window_ms
        rule = label_rule(self._spec, late_before_ms, open_from_ms, cut.rules)
        for batch, stop in parts:
            start = batch.start
            self._find_duplicates(batch, start, stop)
            got = _label(batch, stop, rule, clicks, self._spec, scratch, n, tally)
            if got:
                found.append(ExamplePart(batch.columns, scratch.kept[n : n + got], before - start))
            n += got
            before += stop - start
            self._let_go(batch, stop)
        self.next = until
        self._due = None
        return Emitted(
            gather(found, n, int(tally[FEATURES]), scratch),
            ImpressionCounts(*tally[:EARLY].tolist()),
            int(tally[EARLY]),
        )

    def _find_due(self) -> int:
        first = self._batches[0]
        if first.columns.status[first.start] != 0:
            self._due = NO_LOG_TIME
            return NO_LOG_TIME
        row, found = np.empty(self._spec.agree, np.int64), 0
        for batch in self._batches:
            found = take_row(batch.columns.status, batch.columns.time_ms, batch.start, found, row, self._far_ms)
            if found == len(row):
                break
        before = (len(row) - 1) // 2  # so many of the row may be before it
        due = int(row[0]) if found <= before else min(int(row[0]), int(np.sort(row[:found])[before]))
        if found == len(row):
            self._due = due  # the row is complete: nothing that is read later changes it
        return due

    def _write_log_times(self, parts: list[tuple[ImpressionBatch, int]], floor: int, scratch: ExampleScratch) -> None:
        n = 0
        for batch, stop in parts:
            end = n + stop - batch.start
            scratch.read_status[n:end] = batch.columns.status[batch.start : stop]
            scratch.read_time_ms[n:end] = batch.columns.time_ms[batch.start : stop]
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
        """Note where the step of `tick` begins, if this cut is the first of the step that emits something."""
        step = tick // self._spec.step_ticks
        if self._spec.dedupe_ms and until > self.next and not (self.steps and self.steps[-1][0] >= step):
            self.steps.append((step, self.next))

    def _prepare(self, offsets: NDArray[np.int64], impressions: Impressions) -> ImpressionBatch:
        status, times = column(impressions.status, np.uint8), column(impressions.time_ms, np.int64)
        if len(impressions.row_start) != len(offsets) + 1 or impressions.row_start[-1] != len(impressions.keys):
            raise ValueError("row_start does not fit the offsets and the keys")
        if len(impressions.counted) not in (0, len(impressions.keys)):
            raise ValueError("only some features have a number under which they count")
        if len(impressions.values) not in (0, len(impressions.keys)):
            raise ValueError("only some features have a value")
        columns = ImpressionColumns(
            offsets,
            status,
            times,
            column(impressions.id_hash, np.uint64).view(np.int64),
            column(impressions.weight, np.float64),
            column(impressions.row_start, np.int64),
            column(impressions.keys, np.uint64),
            column(impressions.values, np.float64),
            column(impressions.counted, np.uint8),
            np.zeros(len(offsets), np.uint8),
        )
        return ImpressionBatch(columns, self._log_time.passed(offsets, status, times, self.position))

    def _find_duplicates(self, batch: ImpressionBatch, start: int, stop: int) -> None:
        """Set which impressions `start..stop-1` repeat an id that is remembered, and remember their ids."""
        if not self._spec.dedupe_ms:
            return
        columns, first, done = batch.columns, self.remembered_from, start
        while True:
            done = find_duplicates(
                self._seen.header, columns.offsets, columns.ids, columns.status, done, stop, first, columns.duplicate
            )
            if done == stop:
                return
            self._seen.grow(int(columns.ids[done]), first)

    def _parts(self, until: int) -> list[tuple[ImpressionBatch, int]]:
        """The batches with impressions before offset `until`, each with the index to stop before."""
        parts = []
        for batch in self._batches:
            stop = int(np.searchsorted(batch.columns.offsets, until))
            if stop > batch.start:
                parts.append((batch, stop))
            if stop < len(batch.columns.offsets):
                break
        return parts

    def _let_go(self, batch: ImpressionBatch, stop: int) -> None:
        batch.start = stop
        if stop == len(batch.columns.offsets):
            self._batches.popleft()
            self.nbytes -= batch.nbytes


def _end_before(batch: ImpressionBatch, index: int, before: int) -> int:
    """The offset after the impression before `index`; `before` if that is not in the batch or has been emitted."""
    return int(batch.columns.offsets[index - 1]) + 1 if index > batch.start else before


def _label(
    batch: ImpressionBatch,
    stop: int,
    rule: RuleFields,
    clicks: ClickMemory,
    spec: JoinSpec,
    scratch: ExampleScratch,
    at: int,
    tally: NDArray[np.int64],
) -> int:
    """Label the impressions before index `stop`; the examples among them go to `scratch` from `at` on."""
    columns = batch.columns
    return int(
        label_impressions(
            clicks.place,
            columns.ids,
            columns.status,
            columns.time_ms,
            columns.weight,
            columns.row_start,
            columns.duplicate,
            batch.start,
            stop,
            rule,
            _NO_LABELS if spec.dedupe_ms else crowded_labels(batch, stop, rule[0], clicks, spec),
            scratch.kept[at:],
            scratch.label[at:],
            scratch.weight[at:],
            tally,
        )
    )
