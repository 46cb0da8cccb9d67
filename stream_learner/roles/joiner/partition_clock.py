"""How far the time of an input partition has come when all its records have been read, by the wall clock.

The result is *progress*, ms since the epoch: no event before it is waited for. It never passes the clock minus `grace`.
Every time is an argument.

At the end of a partition at time `now`, progress is the clock minus `grace` if one of these holds:
  1. ticks have closed to within `lateness` of the clock: no event that is still in time can be lost by it;
  2. live: most of the last `VOTES` records were no older than `lateness` when they were read; a partition without a
     record yet goes by the last ones of its topic's other partitions in this process;
  3. quiet: no record that can be used has been read for `idle_after`.
Otherwise it is the last log time plus the time that has passed since then, minus `grace`: old events that are fed into
a running joiner get as much time to come as lies between them.

A record counts as having come when it was read. That is exact at the end of a partition. In a joiner that catches up it
is too late: a record seems older than it was, and progress is the slower of the two rules. The timestamps of records
are not used: a producer, or a mirror, may write old ones for records that come now.

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
"""The number of last records by which a partition is live or not; small, so that a slow partition tells soon."""


@dataclass(frozen=True)
class ClockRule:
    """grace_ms: a record may come so long after its event. lateness_ms: an older event is old. idle_after_ms: a
    partition without a record for so long is quiet.
    """

    grace_ms: int
    lateness_ms: int
    idle_after_ms: int


class Votes:
    """For each of the last records, whether it was live when it was read."""

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=VOTES)

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, live: list[bool]) -> None:
        """Add records in the order of reading."""
        self._last.extend(live)

    def clear(self) -> None:
        """Forget all records."""
        self._last.clear()

    @property
    def live(self) -> bool:
        """Whether most of them were live; False without any."""
        return 2 * sum(self._last) > len(self._last)


class PartitionClock:
    """Watches the records of one input partition. now_ms: the wall clock, in every method.

    of_topic: the votes of all partitions of the topic in this process, shared by their clocks.
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
        """Take the times of records that were read now, in their order; records that cannot be used are left out.

        log_time_ms: the log time with them, -1 before there is one.
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
        """The join was held until `ended_ms`: for `idle_after`, events that were held back may come, old and new."""
        self._votes.clear()
        self._came_ms = max(self._came_ms, ended_ms)
        self._reached_ms = max(self._reached_ms, ended_ms)
        self._log_time_until_ms = ended_ms + self._rule.idle_after_ms

    def progress(self, now_ms: int, closed_ms: int) -> int | None:
        """Progress at the end of the partition, reached at `now_ms`; None if nothing is known of it.

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
