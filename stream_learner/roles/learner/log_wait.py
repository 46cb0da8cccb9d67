"""`LogWait`: logs once for which partitions of the training log the fold has been waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stream_learner.roles.learner.log_follower import LogFollower

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger

AFTER_S = 30.0
"""How long the fold waits before it is logged; three ticks, if that is longer."""
MOST_NAMED = 20


class LogWait:
    """Ask it in every turn. It logs nothing while every partition is as far as the others."""

    def __init__(self, log: Logger, tick_ms: int, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._after_s = max(AFTER_S, 3 * tick_ms / 1000)
        self._clock_s = clock_s
        self._passed: int | None = None
        self._since_s = clock_s()
        self.partitions: list[int] = []
        """The partitions that were logged, empty while the fold goes on."""

    def look(self, follower: LogFollower) -> None:
        """Note how far the log has been passed."""
        if follower.passed != self._passed:
            self._passed, self._since_s = follower.passed, self._clock_s()
            if self.partitions:
                self._log.info("log_goes_on", tick=follower.passed, partitions=self.partitions)
            self.partitions = []
        elif not self.partitions and self._clock_s() - self._since_s >= self._after_s:
            self.partitions = follower.holding_back()[:MOST_NAMED]
            if self.partitions:
                self._log.warning(
                    "waiting_for_log",
                    partitions=self.partitions,
                    tick=follower.passed + 1,
                    reason="no tick is folded before every partition of the training log has passed it",
                )
