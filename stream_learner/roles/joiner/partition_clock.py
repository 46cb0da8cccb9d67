"""What the wall clock may say about one input partition: how far its time has come at the end of what there is.

In: the times of the records read and when they were read, the log time they made, the time as of which the end was
reached. Out: progress, ms since the epoch: before it no event is waited for. Every time is an argument.
This file must never let progress pass the clock minus `grace`, nor ask for the time.

At the end of a partition at time `now`, progress is the clock minus `grace` if one of these holds:
  1. ticks have closed to within `lateness` of the clock: no event that is still in time can be lost by it;
  2. live: most of the last `VOTES` records were no older than `lateness` when they were read; a partition that has had
     none yet goes by the last ones of its topic's other partitions in this process;
  3. quiet: no record that can be used has been read for `idle_after`.
Else it is the last log time plus the time that has passed since it was reached, minus `grace` here too, and never more
than the clock minus `grace`: old events that are fed into a running joiner are given the time to come.

A record is taken to have come when it was read. That is exact at the end, and too late for a joiner that catches up:
then a record seems older than it was, and progress is the slower of the two. Record timestamps are not asked: a
producer, or a mirror, may write old ones for records that come now.

| after                                  | progress at the end                                                     |
|----------------------------------------|-------------------------------------------------------------------------|
| a restart, down for less than lateness | at once the clock: the last mark says so (1)                            |
| a restart, down for longer             | the clock with the first few records that are live, or once it is quiet |
| a mirror, shortly behind               | the clock, whatever the timestamps of its records (2)                   |
| a mirror, further behind than lateness | the mirror's own time: its events are old when they come                |
| no record ever                         | the clock, when others of its topic are live (2) or after `idle_after`  |
| `let_go`: the join has been held       | log time and what has passed since, for `idle_after`                    |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VOTES = 16
"""So many of the last records say whether a partition is live; few enough for a slow one to tell at once."""


@dataclass(frozen=True)
class ClockRule:
    """How long after an event its record may come, what an old event is, and when a partition is quiet."""

    grace_ms: int
    lateness_ms: int
    idle_after_ms: int


class Votes:
    """Whether the last records were live when they were read."""

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=VOTES)

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, live: list[bool]) -> None:
        """Add records in their order."""
        self._last.extend(live)

    def clear(self) -> None:
        """Forget them."""
        self._last.clear()

    @property
    def live(self) -> bool:
        """Whether most were; not without any."""
        return 2 * sum(self._last) > len(self._last)


class PartitionClock:
    """Watches the records of one input partition. `now_ms`, here and below: the wall clock.

    of_topic: shared by the clocks of all partitions of the topic in this process.
    """

    def __init__(self, rule: ClockRule, now_ms: int, of_topic: Votes) -> None:
        self._rule = rule
        self._votes = Votes()
        self._of_topic = of_topic
        self._came_ms = now_ms
        self._log_time_ms = -1
        self._reached_ms = now_ms
        self._log_time_until_ms = now_ms

    def note(self, times_ms: NDArray[np.int64], log_time_ms: int, now_ms: int) -> None:
        """Records with these times, in their order, were read now, and brought log time to `log_time_ms`.

        Records that cannot be used are left out: their times mean nothing. -1: no log time yet.
        """
        if len(times_ms):
            self._came_ms = now_ms
            live = (now_ms - times_ms[-VOTES:] <= self._rule.lateness_ms).tolist()
            self._votes.add(live)
            self._of_topic.add(live)
        if log_time_ms > self._log_time_ms:
            self._log_time_ms = log_time_ms
            self._reached_ms = now_ms

    def let_go(self, ended_ms: int) -> None:
        """The join was held until then: what was held back may come first, old and new, for `idle_after`."""
        self._votes.clear()
        self._came_ms = max(self._came_ms, ended_ms)
        self._reached_ms = max(self._reached_ms, ended_ms)
        self._log_time_until_ms = ended_ms + self._rule.idle_after_ms

    def progress(self, now_ms: int, closed_ms: int) -> int | None:
        """How far time has come, at the end of the partition as of `now_ms`; None if nothing is known of it.

        closed_ms: the end of the last tick that was closed, 0 for none.
        """
        latest = now_ms - self._rule.grace_ms
        if now_ms >= self._log_time_until_ms and self._may_follow(now_ms, closed_ms):
            return latest
        if self._log_time_ms < 0:
            return None
        return min(self._log_time_ms + max(latest - self._reached_ms, 0), latest)

    def _may_follow(self, now_ms: int, closed_ms: int) -> bool:
        rule = self._rule
        caught_up = now_ms - rule.grace_ms - closed_ms <= rule.lateness_ms
        votes = self._votes or self._of_topic
        return caught_up or votes.live or now_ms - self._came_ms >= rule.idle_after_ms
