"""The laws on when a tick may close, and where: the closing rules of docs/join.md, by log and by the clock.

The logs do not tell which answer of a broker closed a tick. So a tick may close by the clock if any answer that its
writer had been given allows it. Nor do they tell how much a joiner had read; the arrivals of records give bounds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulation.evidence import Evidence, committed, law, passed_with
from simulation.joiners import Writer
from simulation.kafka import Entry
from simulation.process import CLICKS, IMPRESSIONS, LOG
from stream_learner.core.log.marks import Mark
from tests.oracles.events import Click, Impression


class _Closing(NamedTuple):
    """A mark and how it came about. by: when it was in the log. end: of its ticks, ms. closed: the end of the ticks
    before it, ms.
    """

    mark: Mark
    writer: Writer
    by: int
    end: int
    closed: int


def check_positions(evidence: Evidence) -> None:
    """Each tick closed no earlier than it may, and its cursor and its border stand where they must."""
    world, log = evidence.world, evidence.world.logs[LOG, evidence.partition]
    appended = {entry.offset: entry.at for entry in log.archive}
    tick_ms = evidence.settings["tick_ms"]
    clicks = _Side(evidence, CLICKS, evidence.clicks, evidence.clicked, 0)
    impressions = _Side(evidence, IMPRESSIONS, evidence.impressions, evidence.shown, evidence.settings["window_ms"])
    before_at = 0
    for tick in evidence.ticks:
        mark, by = tick.mark, appended[tick.mark_offset]
        ends = (mark.last_tick + 1) * tick_ms
        closing = _Closing(mark, world.writers[mark.attempt], by, ends, mark.first_tick * tick_ms)
        for side in (clicks, impressions):
            side.begin(closing, before_at)
        _check_cursor(clicks, closing)
        _check_border(impressions, closing)
        before_at = by


def _check_cursor(clicks: _Side, closing: _Closing) -> None:
    mark = closing.mark
    cursor = bisect_left(clicks.offsets, mark.click_cursor)
    reaching = bisect_left(clicks.passed, closing.end)
    by_log = max(reaching, clicks.done)
    law(cursor <= by_log, f"clicks beyond the end of tick {mark.last_tick} were read")
    if reaching >= clicks.arrived(closing.by) or cursor < by_log:
        law(clicks.may_close(closing, cursor), f"tick {mark.last_tick} closed before the clicks had passed its end")
    clicks.done = cursor


def _check_border(impressions: _Side, closing: _Closing) -> None:
    mark, read = closing.mark, impressions.arrived(closing.by)
    target = closing.end - impressions.window
    border = bisect_left(impressions.offsets, mark.next_impression)
    by_log_time = read > 0 and impressions.passed[read - 1] >= target
    if not by_log_time or impressions.border(read, target) != border:
        fitting = (n for n in range(read, border - 1, -1) if impressions.border(n, target) == border)
        most = next(fitting, None)
        law(most is not None, f"the border of tick {mark.last_tick} is not where it must be")
        passed = most is not None and impressions.may_close(closing, most)
        law(passed, f"tick {mark.last_tick} closed before the impressions had passed it")
    impressions.done = border


@dataclass
class _Attempt:
    """The present attempt. question: the first question that may have closed its next tick. closed: the end of the
    ticks before the attempt. begun_at: it read nothing before then.
    """

    id: int = -1
    question: int = 0
    closed: int = 0
    begun_at: int = 0


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
        self.lateness, self.agree = evidence.settings["lateness_ms"], evidence.settings["agree"]
        self.offsets = [entry.offset for entry in entries]
        self.times = [event.time_ms for event in events]
        self.at = [entry.at for entry in entries]
        self.usable_at = [at for at, time in zip(self.at, self.times, strict=True) if time is not None]
        self.passed = passed_with(self.times, self.agree)
        self.done = 0
        self._attempt = _Attempt()
        self._of_topic = [
            (entry.at, entry.time_ms)
            for partition in range(evidence.world.partitions)
            for entry in committed(evidence.world.logs[topic, partition])
        ]

    def arrived(self, by: int) -> int:
        """The largest number of records that can have been read by a time."""
        return bisect_right(self.at, by)

    def border(self, read: int, target: int) -> int:
        """The first record not emitted before that waits, when `read` records have been read; `read` without one.

        It waits if its own time is at or past the target, and fewer than half of `agree` in its row are before it.
        """
        usable = [n for n in range(self.done, read) if self.times[n] is not None]
        times = [self.times[n] or 0 for n in usable]
        for place, n in enumerate(usable):
            row = times[place : place + self.agree]
            if row[0] >= target and 2 * sum(time < target for time in row) < self.agree:
                return n
        return read

    def begin(self, closing: _Closing, before_at: int) -> None:
        """Go on to a mark. before_at: when its predecessor was in the log."""
        if self._attempt.id != closing.mark.attempt:
            asked = closing.writer.process.asked[self.place]
            last = max(bisect_right(asked, closing.writer.began) - 1, 0)
            begun_at = max(before_at, closing.writer.process.started)
            self._attempt = _Attempt(closing.mark.attempt, last, closing.closed, begun_at)

    def may_close(self, closing: _Closing, read: int) -> bool:
        """Whether an answer that its writer had, when it had read so many records, let the clock close the mark."""
        asked = closing.writer.process.asked[self.place]
        until = min(closing.by, self.at[read] if read < len(self.at) else closing.by)
        for number in range(self._attempt.question, bisect_right(asked, until)):
            why = self._why(closing, asked[number]) if self.world.close_idle else ""
            if why:
                self._attempt.question = number
                self.world.seen["ticks closed by the clock"] += not self.window
                self.world.seen[f"closed by the clock: {why}"] += 1
                return True
        return False

    def _why(self, closing: _Closing, asked: int) -> str:
        """The rule of the clock by which an answer to a question at `asked` closes the mark, "" if none does."""
        ahead = closing.writer.process.clock_ahead_ms
        latest = asked + ahead - self.world.grace_ms
        if latest < closing.end - self.window:
            return ""
        if self._is_quiet(asked):
            return "quiet"
        if latest - closing.closed <= self.lateness:
            return "caught up"
        if any(at <= closing.by and at + ahead - time <= self.lateness for at, time in self._of_topic):
            return "live"
        return "as fast as time passes" if self._slowly(asked) >= closing.end - self.window else ""

    def _is_quiet(self, asked: int) -> bool:
        """Whether no event can have been read for `idle_after`: none came, and no attempt began."""
        since = asked - self.world.idle_after_ms
        return self._attempt.begun_at <= since and bisect_right(self.usable_at, since) == bisect_left(
            self.usable_at, asked
        )

    def _slowly(self, asked: int) -> int:
        """Log time plus the time since it was reached, less grace: the most that it can be."""
        now = asked - self.world.grace_ms
        known = [(passed, at) for passed, at in zip(self.passed, self.at, strict=True) if at <= now]
        if self._attempt.closed:
            known.append((self._attempt.closed - self.window, self._attempt.begun_at))
        return max((passed + now - at for passed, at in known), default=-1)
