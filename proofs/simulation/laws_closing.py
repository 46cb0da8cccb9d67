"""The laws on when windows and ticks may close, and where: docs/join-rules.md and docs/stream-clock.md.

The logs do not tell which answer of a broker closed a window. So windows may close by the clock if any answer that
their writer had been given allows it. How far the stream can have been is bounded by what the writer's process had
read: `laws_clock`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from math import inf
from typing import NamedTuple

from proofs.simulation.evidence import Evidence, law, passed_with
from proofs.simulation.joiners import Writer
from proofs.simulation.kafka import Entry
from proofs.simulation.laws_clock import ClockBounds
from proofs.simulation.process import CLICKS, IMPRESSIONS, LOG
from stream_learner.core.log.marks import Mark
from tests.oracles.events import Click, Impression


class _Closing(NamedTuple):
    """A mark that closes windows, and how it came about. by: when it was in the log. end: W, ms."""

    mark: Mark
    writer: Writer
    by: int
    end: int


def check_positions(evidence: Evidence) -> None:
    """Windows closed no earlier than they may, ticks neither, and cursors and borders stand where they must."""
    world, log = evidence.world, evidence.world.logs[LOG, evidence.partition]
    appended = {entry.offset: entry.at for entry in log.archive}
    tick_ms = evidence.settings["tick_ms"]
    _check_stream_time(evidence)
    clicks = _Side(evidence, CLICKS, evidence.clicks, evidence.clicked, 0)
    impressions = _Side(evidence, IMPRESSIONS, evidence.impressions, evidence.shown, evidence.settings["window_ms"])
    ticks = _BrokersTicks(evidence)
    closed = -1
    for tick in evidence.ticks:
        mark, writer = tick.mark, world.writers[tick.mark.attempt]
        closing = _Closing(mark, writer, appended[tick.mark_offset], (mark.stream_tick + 1) * tick_ms)
        for side in (clicks, impressions):
            side.begin(closing)
        ticks.check(closing, min(side.asked_from(closing) for side in (clicks, impressions)))
        if mark.stream_tick > closed:
            _check_cursor(clicks, closing)
            _check_border(impressions, closing)
        closed = mark.stream_tick


def _check_stream_time(evidence: Evidence) -> None:
    """W never goes back, nor past the mark's last tick; with the same W no position moves, and there is no record."""
    world, marks = evidence.world, evidence.marks
    coupled = not world.close_idle or world.until_tick is not None
    for mark in marks:
        law(mark.stream_tick <= mark.last_tick, f"windows are closed past tick {mark.last_tick}, their mark's last")
        law(not coupled or mark.stream_tick == mark.last_tick, f"tick {mark.last_tick} is not that of the stream")
        is_run = mark.first_tick < mark.last_tick
        law(not (coupled and is_run and mark.counts.impressions.read), f"the run up to tick {mark.last_tick} emits")
    first = marks[0].counts if marks and marks[0].stream_tick < 0 else None
    law(first is None or not first.impressions.read + first.clicks.read, "the first mark closes no window, and takes")
    for before, after in pairwise(marks):
        law(before.stream_tick <= after.stream_tick, f"stream time goes back with tick {after.last_tick}")
        if before.stream_tick == after.stream_tick:
            stands = (before.next_impression, before.click_cursor) == (after.next_impression, after.click_cursor)
            read = after.counts.impressions.read + after.counts.clicks.read
            law(stands and not read, f"tick {after.last_tick} closes no window, and holds something")
            world.seen["marks that close no window"] += 1
        world.seen["marks that close several ticks of stream time and emit"] += (
            after.stream_tick > before.stream_tick + 1 and after.records > 0
        )


def _check_cursor(clicks: _Side, closing: _Closing) -> None:
    mark = closing.mark
    cursor = bisect_left(clicks.offsets, mark.click_cursor)
    reaching = bisect_left(clicks.passed, closing.end)
    by_log = max(reaching, clicks.done)
    law(cursor <= by_log, f"clicks beyond the windows of tick {mark.last_tick} were read")
    if reaching >= clicks.arrived(closing.by) or cursor < by_log:
        passed = clicks.may_close(closing, cursor)
        law(passed, f"tick {mark.last_tick} closed windows before the clicks had passed them")
    clicks.done = cursor


def _check_border(impressions: _Side, closing: _Closing) -> None:
    mark, read = closing.mark, impressions.arrived(closing.by)
    target = closing.end - impressions.window
    border = bisect_left(impressions.offsets, mark.next_impression)
    by_log_time = read > 0 and impressions.passed[read - 1] >= target
    if not by_log_time or not impressions.may_stand(border, read, target, closing):
        fitting = (n for n in range(read, border - 1, -1) if impressions.may_stand(border, n, target, closing))
        most = next(fitting, None)
        law(most is not None, f"the border of tick {mark.last_tick} is not where it must be")
        passed = most is not None and impressions.may_close(closing, most)
        law(passed, f"tick {mark.last_tick} closed windows before the impressions had passed them")
    impressions.done = border


@dataclass
class _Attempt:
    """The present attempt. question: the first question that may have closed its next windows."""

    id: int = -1
    question: int = 0


class _Side:
    """One input of a partition. done: the number of records that earlier marks have taken."""

    def __init__(
        self,
        evidence: Evidence,
        topic: str,
        entries: list[Entry],
        events: Sequence[Impression] | Sequence[Click],
        window: int,
    ) -> None:
        self.world, self.place, self.window = evidence.world, (topic, evidence.partition), window
        self.agree = evidence.settings["agree"]
        self.offsets = [entry.offset for entry in entries]
        self.times = [event.time_ms for event in events]
        self.at = [entry.at for entry in entries]
        self.passed = passed_with(self.times, self.agree)
        self.done = 0
        self._bounds = ClockBounds(evidence.world, evidence.partition)
        self._attempt = _Attempt()

    def arrived(self, by: int) -> int:
        """The largest number of records that can have been read by a time."""
        return bisect_right(self.at, by)

    def border(self, read: int, target: int, far_ms: float) -> int:
        """The first record not emitted before that waits, when `read` records have been read; `read` without one.

        It waits if its own time is at or past the target, and fewer than half of `agree` in its row are before it.
        Those after `far_ms` are in no row but their own.
        """
        usable = [n for n in range(self.done, read) if self.times[n] is not None]
        times = [self.times[n] or 0 for n in usable]
        for place, n in enumerate(usable):
            if times[place] >= target:
                others = islice((time for time in times[place + 1 :] if time <= far_ms), self.agree - 1)
                if 2 * sum(time < target for time in others) < self.agree:
                    return n
        return read

    def may_stand(self, border: int, read: int, target: int, closing: _Closing) -> bool:
        """Whether the border is there by what the brokers' clock may have been when the windows were closed."""
        if self.border(read, target, inf) == border:
            return True
        ahead = self._bounds.brokers_between_ms(closing.writer, closing.by)
        if not self.world.close_idle or ahead is None:
            return False
        lateness_ms = self.world.spec.lateness_ms
        least, most = closing.writer.began + ahead[0] + lateness_ms, closing.by + ahead[1] + lateness_ms
        between = {time for time in self.times[self.done : read] if time is not None and least < time <= most}
        return any(self.border(read, target, far_ms) == border for far_ms in (least, *between))

    def begin(self, closing: _Closing) -> None:
        """Go on to a mark."""
        if self._attempt.id != closing.mark.attempt:
            asked = closing.writer.process.asked[self.place]
            self._attempt = _Attempt(closing.mark.attempt, max(bisect_left(asked, closing.writer.began) - 1, 0))

    def asked_from(self, closing: _Closing) -> int:
        """When the first question was asked whose answer may have closed ticks of the present attempt."""
        asked = closing.writer.process.asked[self.place]
        return min([closing.writer.began, *asked[self._attempt.question :][:1]])

    def may_close(self, closing: _Closing, read: int) -> bool:
        """Whether an answer that its writer had, when it had read so many records, let the clock close the windows."""
        asked = closing.writer.process.asked[self.place]
        until = min(closing.by, self.at[read] if read < len(self.at) else closing.by)
        for number in range(self._attempt.question, bisect_right(asked, until)):
            why = self._bounds.allow(closing.writer, closing.by, asked[number], closing.end - self.window)
            if why:
                self._attempt.question = number
                self.world.seen["windows closed by the clock"] += not self.window
                self.world.seen[f"closed by the clock: {why}"] += 1
                return True
        return False


@dataclass
class _BrokersTicks:
    """Ticks that closed ahead of the brokers' clock: at half their pace, so many since `since` by the attempt `of`."""

    evidence: Evidence
    of: int = -1
    since: int = 0
    count: int = 0
    bounds: ClockBounds = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = ClockBounds(self.evidence.world, self.evidence.partition)

    def check(self, closing: _Closing, asked_from: int) -> None:
        """Ticks go by the brokers' clock, unless windows close with them, a full buffer is emitted, or it was set back.

        Of an attempt that knows no clock yet, one tick may close.
        """
        world, mark = self.evidence.world, closing.mark
        tick_ms = world.spec.tick_ms
        if mark.attempt != self.of:
            self.of, self.since, self.count = mark.attempt, asked_from, 0
        if mark.last_tick <= mark.stream_tick:
            return
        ahead_ms = self.bounds.brokers_ahead_ms(closing.writer, closing.by)
        if ahead_ms is not None and (mark.last_tick + 1) * tick_ms <= closing.by + ahead_ms - world.grace_ms:
            return
        law(mark.first_tick == mark.last_tick, f"the ticks up to {mark.last_tick} are ahead of the brokers' clock")
        if mark.counts.impressions.read and world.buffer_bytes < self.bounds.NO_BUFFER_IS_FULL_BYTES:
            world.seen["ticks closed for a full buffer"] += 1
            return
        world.seen["ticks closed ahead of the brokers' clock"] += 1
        spent_ms = 2 * self.count * tick_ms
        law(spent_ms <= closing.by - self.since, f"tick {mark.last_tick} and others go on faster than at half pace")
        self.count += 1
