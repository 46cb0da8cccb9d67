"""How far a backfill has come, how fast it goes, and what it waits for.

Pure: the caller gives what it knows of the partitions and the model, and both clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from stream_learner.roles.joiner.report import PartitionView

RATE_OVER_S = 10.0
QUIET_S = 2.0
"""After this long without a further tick, the status says what the backfill waits for."""


@dataclass(frozen=True)
class Goal:
    """The span to learn. start_ms: the time of the first impression, None if it is not known. until_ms, until_tick:
    the end, None for none. All in event time. joins: whether it makes the training log that it folds.
    """

    start_ms: int | None
    until_ms: int | None
    until_tick: int | None
    window_ms: int
    tick_ms: int
    joins: bool = True


@dataclass(frozen=True)
class BackfillStatus:
    """How far a backfill has come.

    seconds: since this run began. passed_ms: impressions before this event time are learned, None before the first
    example. share: of the event time that there is to learn, up to now if there is no end. left_s: seconds left, at the
    pace of the last seconds. lag_s: seconds from `passed_ms` to the wall clock, less the window. waits: what it
    waits for, "" while it goes on.
    """

    seconds: float
    passed_ms: int | None
    share: float | None
    left_s: float | None
    lag_s: float | None
    impressions: int
    impressions_per_s: float
    examples: int
    examples_per_s: float
    waits: str = ""


class _Measured(NamedTuple):
    """The work done by a time of the monotonic clock."""

    now_s: float
    impressions: int
    examples: int
    passed_ms: int


class _Rates(NamedTuple):
    """Impressions, examples and ms of event time that pass in a second."""

    impressions_per_s: float
    examples_per_s: float
    passed_ms_per_s: float


class BackfillProgress:
    """Makes the status, again and again."""

    def __init__(self, goal: Goal, began_s: float) -> None:
        self._goal = goal
        self._began_s = began_s
        self._ticked_s: float | None = None
        self._tick = -1
        self._start_ms = goal.start_ms
        self._impressions = 0
        self._seen: dict[int, int] = {}
        self._past: deque[_Measured] = deque()

    def status(
        self,
        views: Sequence[PartitionView],
        tick: int,
        examples: int,
        now_s: float,
        wall_ms: int,
        paused: Sequence[str] = (),
        held: Sequence[str] = (),
    ) -> BackfillStatus:
        """tick: the last one folded, -1 before the first; examples: learned by the model so far. paused: models that
        have come to the end and whose publication is paused. held: what holds models."""
        self._count(views)
        if tick > self._tick or self._ticked_s is None:
            self._tick, self._ticked_s = tick, now_s
        passed_ms = self._shown_before(tick) if examples else None
        if self._start_ms is None:
            self._start_ms = passed_ms
        rates = self._rates(now_s, examples, passed_ms)
        goal_ms = wall_ms if self._goal.until_ms is None else self._goal.until_ms
        share = self._share(passed_ms, goal_ms)
        pace = rates.passed_ms_per_s
        left_s = (goal_ms - passed_ms) / pace if passed_ms is not None and pace > 0 else None
        lag_s = None if passed_ms is None else max(wall_ms - self._goal.window_ms - passed_ms, 0) / 1000
        quiet = now_s - self._ticked_s > QUIET_S and not self._at_end
        waits = "; ".join(held) or (_waits_for_resume(paused) if paused else self._waits_for(views) if quiet else "")
        return BackfillStatus(
            seconds=now_s - self._began_s,
            passed_ms=passed_ms,
            share=share,
            left_s=None if left_s is None else max(left_s, 0.0),
            lag_s=lag_s,
            impressions=self._impressions,
            impressions_per_s=rates.impressions_per_s,
            examples=examples,
            examples_per_s=rates.examples_per_s,
            waits=waits,
        )

    @property
    def _at_end(self) -> bool:
        return self._goal.until_tick is not None and self._tick >= self._goal.until_tick

    def _shown_before(self, tick: int) -> int:
        """The time, ms, before which all impressions have their example in a tick up to `tick`."""
        return (tick + 1) * self._goal.tick_ms - self._goal.window_ms

    def _count(self, views: Sequence[PartitionView]) -> None:
        """Add what was read since the last status; a partition that was begun again counts from 0."""
        for view in views:
            before = self._seen.get(view.partition, 0)
            self._impressions += view.impressions - (before if view.impressions >= before else 0)
            self._seen[view.partition] = view.impressions

    def _rates(self, now_s: float, examples: int, passed_ms: int | None) -> _Rates:
        """The rates over the last `RATE_OVER_S`, all 0 before there are two measurements."""
        if passed_ms is not None:
            self._past.append(_Measured(now_s, self._impressions, examples, passed_ms))
        while len(self._past) > 2 and now_s - self._past[1].now_s >= RATE_OVER_S:
            self._past.popleft()
        if len(self._past) < 2:
            return _Rates(0.0, 0.0, 0.0)
        first, last = self._past[0], self._past[-1]
        seconds = max(last.now_s - first.now_s, 1e-3)
        return _Rates(
            (last.impressions - first.impressions) / seconds,
            (last.examples - first.examples) / seconds,
            (last.passed_ms - first.passed_ms) / seconds,
        )

    def _share(self, passed_ms: int | None, goal_ms: int) -> float | None:
        if self._start_ms is None or goal_ms <= self._start_ms:
            return None
        return min(max(((passed_ms or 0) - self._start_ms) / (goal_ms - self._start_ms), 0.0), 1.0)

    def _waits_for(self, views: Sequence[PartitionView]) -> str:
        """A text that names the partition furthest behind, and the input of it that is behind."""
        if not self._goal.joins:
            return "waits for the training log to go on"
        behind = [view for view in views if self._goal.until_tick is None or view.next_tick <= self._goal.until_tick]
        if not behind:
            return "waits for the last ticks to be folded" if views else "waits for the group to give it partitions"
        view = min(behind, key=lambda each: each.next_tick)
        if view.next_tick < 0:
            return f"waits for partition {view.partition}, whose last ticks are made again"
        end_ms = (view.next_tick + 1) * self._goal.tick_ms
        if view.click_log_time_ms < end_ms:
            return f"waits for the clicks of partition {view.partition} to pass {clock(end_ms)}"
        shown_ms = end_ms - self._goal.window_ms
        if view.impression_log_time_ms < shown_ms:
            return f"waits for the impressions of partition {view.partition} to pass {clock(shown_ms)}"
        return f"waits for partition {view.partition}"


def _waits_for_resume(paused: Sequence[str]) -> str:
    commands = " and ".join(f"`stream-learner resume --model {model}`" for model in paused)
    return f"all is learned, and publication is paused: waits for {commands}"


def clock(time_ms: int) -> str:
    """An event time as text, in UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{time_ms % 1000:03d}" if time_ms % 1000 else "")


def as_fields(status: BackfillStatus) -> Mapping[str, object]:
    """The status as the fields of a log line."""
    return {
        "seconds": round(status.seconds, 1),
        "passed": None if status.passed_ms is None else clock(status.passed_ms),
        "share": None if status.share is None else round(status.share, 4),
        "impressions_per_s": round(status.impressions_per_s),
        "examples": status.examples,
        "examples_per_s": round(status.examples_per_s),
        "left_s": None if status.left_s is None else round(status.left_s),
        "lag_s": None if status.lag_s is None else round(status.lag_s),
        **({"waits": status.waits} if status.waits else {}),
    }
