"""Whether the brokers are out of a role's reach: said once when that begins, once when it has ended.

In: reports of trouble, and answers that have come. Out: a log line at each end of an outage, and whether there is one.
This file must never take silence for an answer: librdkafka reports a broker that is away now and then, and is silent in
between.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stream_learner.edges.telemetry import Logger


class Outage:
    """One role's view of the brokers. Used by one thread; `since_s` may be asked from any.

    since_s: when it began, by the monotonic clock; None while brokers answer.
    """

    def __init__(self, log: Logger, began: str, ended: str, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        """began, ended: names of the log's events."""
        self.since_s: float | None = None
        self._log = log
        self._began = began
        self._ended = ended
        self._clock_s = clock_s
        self._reported_s = 0.0

    def report(self, reason: str) -> bool:
        """Something could not be done because brokers do not answer; whether that is news."""
        self._reported_s = self._clock_s()
        if self.since_s is not None:
            return False
        self.since_s = self._reported_s
        self._log.warning(self._began, reason=reason)
        return True

    def answered(self, at_s: float) -> None:
        """Brokers have answered at this time; an answer from before the last report says nothing."""
        if self.since_s is not None and at_s > self._reported_s:
            self._log.info(self._ended, seconds=round(self._clock_s() - self.since_s, 1))
            self.since_s = None
