"""The state of one partition's join: impressions and clicks go in, ticks with their examples come out.

What a cut emits is a function of the inputs and the cuts before it, never of what has been read ahead: so the training
log is a function of the input topics. The state never asks for the time or the end of a partition; the joiner tells it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Clicks, Impressions
from stream_learner.core.join.click_memory import DEAD, DUPLICATE, EARLY, LATE, MATCHED, UNMATCHED, ClickMemory
from stream_learner.core.join.clicks_ahead import ClicksAhead
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.impressions import ImpressionBuffer
from stream_learner.core.join.log_time import NO_LOG_TIME
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import (
    LOG_TIME_RULES,
    ClickCounts,
    InputIdentity,
    Mark,
    ResumePoint,
    TickCounts,
    packed_size,
)

_RESUME_FIXED_BYTES = 104
_NO_END = sys.maxsize


class NotRead(ValueError):
    """A cut covers records that have not been added yet: add them, then emit it."""


class WrongResume(ValueError):
    """The clicks in the topic are not those the resume point was made of: records are missing or the topic is another.

    Operator action: check that the input topics were not trimmed or made anew; restart from an older resume point.
    """


class Early(NamedTuple):
    """So many examples, and clicks that matched nothing, went before their own time: docs/stream-clock.md."""

    examples: int = 0
    clicks: int = 0


NOTHING_EARLY = Early()


@dataclass(slots=True)
class TickOutput:
    """The examples and counts that a cut emits.

    first_click: offset of the first click not forgotten, `cut.click_cursor` if there is none. early: what went before
    its own time.
    """

    cut: Cut
    examples: ExampleBatch
    counts: TickCounts
    first_click: int
    early: Early = NOTHING_EARLY


class JoinState:
    """The clicks taken and ahead, the impressions that wait, and the ids of the last `dedupe`, of one partition.

    A fresh state begins at given offsets. A resumed one (`resume`) begins with a mark that is a resume point, and is
    `rebuilt` once the records that the mark still needs have been added again.

    next_tick: the first tick of stream time whose windows are not closed. labels_from_ms: impressions with a time
    before it are late, because clicks could not be read; it may be set, and never goes back.
    """

    def __init__(
        self,
        spec: JoinSpec,
        *,
        impression_start: int,
        click_start: int,
        first_tick: int = 0,
        until_tick: int | None = None,
    ) -> None:
        """Begin empty at these offsets; the first cut begins with `first_tick`. All ticks here are of stream time.

        until_tick: the last tick to make, None for no end. A run of empty ticks ends there, so that a mark does,
        however far the inputs have been read.
        """
        self.spec = spec
        self.next_tick = first_tick
        self.labels_from_ms = 0
        self._until_tick = _NO_END if until_tick is None else until_tick
        self._click_cursor = click_start
        self._impressions = ImpressionBuffer(
            spec, position=impression_start, next_offset=impression_start, log_time=NO_LOG_TIME
        )
        self._ahead = ClicksAhead(click_start, spec.agree, NO_LOG_TIME)
        self._clicks = ClickMemory(spec, NO_LOG_TIME)
        self._codes: NDArray[np.uint8] | None = None

    @classmethod
    def resume(cls, spec: JoinSpec, mark: Mark, *, until_tick: int | None = None) -> JoinState:
        """The state after a mark that is a resume point.

        Add impressions from `resume.dedupe_from` and clicks from `mark.first_click` on; the state is `rebuilt` when
        they reach the mark's positions, and goes on from there. Raises ValueError if the mark has no resume point,
        or one of other rules, of another spec, or without its codes.
        """
        point = mark.resume
        if point is None:
            raise ValueError("the mark is not a resume point")
        if point.rules < LOG_TIME_RULES:
            raise ValueError(f"the resume point is of the rules {point.rules} of the join, none can go on from there")
        if point.join_fingerprint != spec.fingerprint:
            raise ValueError("the resume point was made by a join with other settings")
        if point.detached:
            raise ValueError("the resume point's codes have not been put back")
        join = cls(spec, impression_start=point.dedupe_from, click_start=mark.first_click, until_tick=until_tick)
        join.next_tick = mark.stream_tick + 1
        join.labels_from_ms = mark.labels_from_ms
        join._click_cursor = mark.click_cursor
        join._impressions = ImpressionBuffer(
            spec,
            position=point.dedupe_from,
            next_offset=mark.next_impression,
            log_time=point.impression_log_time,
            steps=point.steps,
        )
        join._ahead = ClicksAhead(mark.first_click, spec.agree, point.click_log_time)
        join._clicks = ClickMemory(spec, point.click_log_time, point.click_usual_time)
        join._codes = point.codes
        join._restore_clicks()
        return join

    @property
    def next_impression_to_read(self) -> int:
        """Offset at which reading impressions goes on."""
        return self._impressions.position

    @property
    def next_click_to_read(self) -> int:
        """Offset at which reading clicks goes on."""
        return self._ahead.position

    @property
    def next_impression(self) -> int:
        """Offset of the first impression that no emitted cut covers."""
        return self._impressions.next

    @property
    def click_cursor(self) -> int:
        """Offset before which clicks have been taken by emitted cuts."""
        return self._click_cursor

    @property
    def rebuilt(self) -> bool:
        """Whether all that a resumed join reads again has been added. A fresh one has nothing to read again."""
        return self._codes is None and self._impressions.position >= self._impressions.next

    @property
    def closed_ms(self) -> int:
        """The stream time up to which windows are closed, ms."""
        return self.next_tick * self.spec.tick_ms

    @property
    def ended(self) -> bool:
        """Whether the tick `until_tick` has been emitted."""
        return self.next_tick > self._until_tick

    @property
    def buffered_bytes(self) -> int:
        """Memory of impressions that wait and of clicks read ahead, bytes."""
        return self._impressions.nbytes + self._ahead.nbytes

    @property
    def impressions_wait(self) -> bool:
        """Whether impressions have been read that no cut has emitted."""
        return self._impressions.nbytes > 0

    @property
    def impression_log_time(self) -> int:
        """How far log time has come with the impressions read, ms; -1 before the first row is complete."""
        return self._impressions.log_time

    @property
    def click_log_time(self) -> int:
        """How far log time has come with the clicks read, ahead or taken, ms; -1 before the first row is complete."""
        return self._ahead.log_time

    def earliest_click_ahead(self, offset: int) -> int | None:
        """The least time, ms, of the clicks from `offset` on that no cut has taken; None where none can be used."""
        return self._ahead.earliest_from(offset)

    def add_impressions(self, offsets: NDArray[np.int64], batch: Impressions) -> None:
        """Add impressions in offset order; gaps are allowed. Arrays are kept, not copied: do not change them.

        Raises ValueError if offsets do not rise from `next_impression_to_read` on, or a time is negative.
        """
        self._impressions.add(offsets, batch)

    def add_clicks(self, offsets: NDArray[np.int64], batch: Clicks) -> None:
        """Add clicks in offset order; gaps are allowed. Arrays are kept, not copied: do not change them.

        Raises ValueError as `add_impressions` does, and `WrongResume` if they do not fit the resume point.
        """
        self._ahead.add(offsets, batch)
        self._restore_clicks()

    def set_impression_position(self, offset: int) -> None:
        """Note that impressions have been read up to this offset: what was not added is no record, but a gap."""
        self._impressions.position = max(self._impressions.position, offset)

    def set_click_position(self, offset: int) -> None:
        """Note that clicks have been read up to this offset: what was not added is no record, but a gap."""
        self._ahead.position = max(self._ahead.position, offset)
        self._restore_clicks()

    def wants_impressions(self, buffer_bytes: int, click_idle_ms: int | None = None, *, to_end: bool = False) -> bool:
        """Whether to read more impressions now.

        True while some of the next tick may be missing, or while only impressions hold back the first tick that is not
        empty; else as far as click progress has come, or all with `to_end`, while `buffered_bytes` is below
        `buffer_bytes`.
        """
        if self._impressions.position < self._impressions.next:
            return True
        reach = self._reach(None)
        progress = _latest(self._ahead.log_time, click_idle_ms)
        goal = self._end_of(self._goal_tick())
        if reach < self._end_of(self.next_tick) or reach < goal <= progress:
            return True
        wanted = to_end or reach < progress // self.spec.tick_ms * self.spec.tick_ms
        return wanted and self.buffered_bytes < buffer_bytes

    def wants_clicks(self, buffer_bytes: int) -> bool:
        """Whether to read more clicks now: while the next tick needs them, else while the buffer has room."""
        if self._codes is not None or self._ahead.log_time < self._end_of(self._goal_tick()):
            return True
        return self.buffered_bytes < buffer_bytes

    def next_cut(
        self,
        click_idle_ms: int | None = None,
        impression_idle_ms: int | None = None,
        *,
        allow_empty: bool = True,
        together: bool = False,
        stands: bool = False,
        brokers_ms: int | None = None,
    ) -> Cut | None:
        """The next cut that may be emitted, or None.

        click_idle_ms, impression_idle_ms: where the stream is by its clock (docs/stream-clock.md), ms since the epoch,
        to which clicks and impressions are known to be there; None where only log time tells.

        The cut is the next tick, if that emits impressions. Else it is a run of empty ticks that ends before the first
        tick that emits some, or with the last tick to make; with `allow_empty` it ends with the last tick that can
        close if neither can be reached yet. With `together` all windows that can close do so in one cut, which closes
        none where none can, or where the stream `stands`. brokers_ms: the brokers' clock, where it closes ticks.
        """
        if not self.rebuilt or self.ended:
            return None
        self._impressions.tell_clock(brokers_ms)
        progress = min(_latest(self._ahead.log_time, click_idle_ms), self._reach(impression_idle_ms))
        closeable = min(progress // self.spec.tick_ms - 1, self._until_tick)
        if stands or closeable < self.next_tick:
            return self._cut(self.next_tick - 1, self.next_impression) if together else None
        full = self._first_full_tick()
        if full is not None and (full == self.next_tick or (together and full <= closeable)):
            last = closeable if together else full
            return self._cut(last, self._impressions.end_of_those_before(self._border_ms(last)))
        last = closeable if full is None else min(closeable, full - 1)
        if not (allow_empty or together) and last not in (self._until_tick, None if full is None else full - 1):
            return None
        return self._cut(last, self.next_impression)

    def cut_of(self, mark: Mark) -> Cut:
        """The cut that an accepted mark after the last one records."""
        return Cut(
            self.next_tick, mark.stream_tick, mark.next_impression, mark.click_cursor, mark.labels_from_ms, mark.rules
        )

    def covers(self, cut: Cut) -> bool:
        """Whether everything that a cut needs has been added; else `emit` raises `NotRead`."""
        return (
            self.rebuilt
            and self._impressions.position >= cut.next_impression
            and self._ahead.position >= cut.click_cursor
        )

    def emit(self, cut: Cut, scratch: ExampleScratch | None = None) -> TickOutput:
        """Emit a cut that `next_cut` returned, or one that a mark records (`cut_of`).

        1. Take the clicks before `click_cursor`.
        2. Decide the impressions before `next_impression`.
        3. Forget the clicks that go with the end of `last_tick`, and the ids that no later tick needs.

        A cut that closes no window does nothing.

        With `scratch`, which saves fresh memory for every tick, the examples are valid until it is used again.
        Raises NotRead if `covers` is false, ValueError if the cut does not follow the last one. Nothing has changed
        then; after any other error the join must be dropped.
        """
        self._check(cut)
        impressions, outcomes = self._impressions, np.zeros(EARLY + 1, np.int64)
        if not cut.closes:
            return TickOutput(
                cut, ExampleBatch.empty(), TickCounts(clicks=self._click_counts(0, outcomes)), self._first_click()
            )
        # Step 1
        read = self._take_clicks(cut, outcomes)
        # Step 2
        impressions.forget_before(cut.first_tick)
        emitted = impressions.emit(cut, self._clicks, scratch or ExampleScratch())
        # Step 3
        self._clicks.forget(self._end_of(cut.last_tick), outcomes, cut.rules)
        self.next_tick = cut.last_tick + 1
        self.labels_from_ms = max(self.labels_from_ms, cut.labels_from_ms)
        impressions.forget_before(self.next_tick)
        counts = TickCounts(emitted.counts, self._click_counts(read, outcomes))
        early = Early(emitted.early, int(outcomes[EARLY]))
        return TickOutput(cut, emitted.examples, counts, self._first_click(), early)

    @property
    def resume_bytes(self) -> int:
        """About how many bytes a resume point would take now."""
        return _RESUME_FIXED_BYTES + 16 * len(self._impressions.steps) + packed_size(len(self._clicks))

    def resume_point(self, inputs: InputIdentity) -> ResumePoint:
        """The resume point for the mark of the cut emitted last."""
        return ResumePoint(
            **inputs._asdict(),
            join_fingerprint=self.spec.fingerprint,
            impression_log_time=self._impressions.written_log_time,
            dedupe_from=self._impressions.remembered_from,
            click_log_time=self._clicks.forgotten_log_time,
            click_usual_time=self._clicks.forgotten_usual_time,
            codes=self._clicks.codes(),
            steps=tuple(self._impressions.steps),
        )

    def _reach(self, idle_ms: int | None) -> int:
        """Impressions have been read for all ticks that end by this time; below 0 if for none."""
        log_time = _latest(self._impressions.log_time, idle_ms)
        return log_time + self.spec.window_ms if log_time >= 0 else NO_LOG_TIME

    def _end_of(self, tick: int) -> int:
        return (tick + 1) * self.spec.tick_ms

    def _border_ms(self, tick: int) -> int:
        return max(self._end_of(tick) - self.spec.window_ms, 0)

    def _cut(self, last_tick: int, next_impression: int) -> Cut:
        cursor = self._cursor_at(self._end_of(last_tick)) if last_tick >= self.next_tick else self._click_cursor
        return Cut(self.next_tick, last_tick, next_impression, cursor, self.labels_from_ms)

    def _goal_tick(self) -> int:
        """The first tick that emits an impression, at most the last one to make; the next tick if nothing waits."""
        full = self._first_full_tick()
        return self.next_tick if full is None else max(self.next_tick, min(full, self._until_tick))

    def _first_full_tick(self) -> int | None:
        """The first tick that emits an impression, as far as impressions have been read; None if none waits."""
        due = self._impressions.first_due
        if due is None or due == NO_LOG_TIME:
            return None if due is None else self.next_tick
        return max(self.next_tick, (due + self.spec.window_ms) // self.spec.tick_ms)

    def _cursor_at(self, end_ms: int) -> int:
        """The click cursor of a tick with this end: the first click with which log time reaches it, or after all."""
        reaching = self._ahead.offset_reaching(end_ms)
        if reaching is not None:
            return reaching
        return self._click_cursor if self._ahead.log_time >= end_ms else self._ahead.position

    def _check(self, cut: Cut) -> None:
        moved = cut.next_impression - self._impressions.next, cut.click_cursor - self._click_cursor
        if cut.first_tick != self.next_tick or cut.last_tick < cut.first_tick - 1 or min(moved) < 0:
            raise ValueError(
                f"{cut} does not follow tick {self.next_tick - 1}, impressions up to {self._impressions.next}"
                f" and clicks up to {self._click_cursor}"
            )
        if any(moved) and not cut.closes:
            raise ValueError(f"{cut} closes no window, and moves a position")
        if not self.covers(cut):
            raise NotRead(
                f"{cut} needs more than impressions up to {self._impressions.position}"
                f" and clicks up to {self._ahead.position}"
            )

    def _take_clicks(self, cut: Cut, outcomes: NDArray[np.int64]) -> int:
        """Take the clicks before the cursor: at once, or as the ticks of a run that emits nothing would one by one.

        Returns how many there are.
        """
        before = self._clicks.end
        tick = cut.first_tick
        at_once = cut.next_impression > self._impressions.next
        for batch, stop in self._ahead.take_until(cut.click_cursor):
            while batch.start < stop:
                end = stop if at_once or tick >= cut.last_tick else batch.end_of_those_before(self._end_of(tick), stop)
                self._clicks.take(batch, end, tick * self.spec.tick_ms, rules=cut.rules)
                if batch.start < stop:
                    tick = min(int(batch.passed[batch.start]) // self.spec.tick_ms, cut.last_tick)
                    self._clicks.forget(tick * self.spec.tick_ms, outcomes, cut.rules)
        self._click_cursor = cut.click_cursor
        return self._clicks.end - before

    def _click_counts(self, read: int, outcomes: NDArray[np.int64]) -> ClickCounts:
        return ClickCounts(
            read=read,
            matched=int(outcomes[MATCHED]),
            duplicates=int(outcomes[DUPLICATE]),
            orphans=int(outcomes[UNMATCHED]),
            late=int(outcomes[LATE]),
            dead=int(outcomes[DEAD]),
            waiting=len(self._clicks),
        )

    def _first_click(self) -> int:
        first = self._clicks.first_offset
        return self._click_cursor if first is None else first

    def _restore_clicks(self) -> None:
        """Take the clicks before the mark's cursor again, with their codes, as far as they have been added."""
        if self._codes is None:
            return
        for batch, stop in self._ahead.take_until(self._click_cursor):
            n = stop - batch.start
            if n > len(self._codes):
                raise WrongResume("more clicks between the mark's positions than it has codes")
            codes = np.zeros(stop, np.uint8)
            codes[batch.start :] = self._codes[:n]
            self._codes = self._codes[n:]
            self._clicks.take(batch, stop, 0, codes)
        if self._ahead.position >= self._click_cursor:
            if len(self._codes):
                raise WrongResume(f"{len(self._codes)} clicks between the mark's positions are gone")
            self._codes = None


def resume_anew(spec: JoinSpec, tick: int, inputs: InputIdentity, *, dedupe_from: int) -> ResumePoint:
    """The resume point of a mark that begins anew after a `tick` of stream time: it remembers no click and no id.

    dedupe_from: the first impression that the ticks after it may emit (offset). As the log time written last counts the
    one that the tick itself would write first, so that with the window as before it never goes back.
    """
    return ResumePoint(
        **inputs._asdict(),
        join_fingerprint=spec.fingerprint,
        impression_log_time=max(tick * spec.tick_ms - spec.window_ms, NO_LOG_TIME),
        dedupe_from=dedupe_from,
        click_log_time=NO_LOG_TIME,
        codes=np.zeros(0, np.uint8),
    )


def _latest(log_time: int, idle_ms: int | None) -> int:
    return log_time if idle_ms is None else max(log_time, idle_ms)
