"""The logger that librdkafka's clients are given; it thins out repeated lines.

Of each kind of repeated trouble it shows one line in a while, and every other line as it is. A line is never held back
if there was none of its kind within the period.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PERIOD_S = 30.0
REPEATED = frozenset(
    {"FAIL", "ERROR", "REQTMOUT", "GETPID", "FETCHERR", "FETCH", "COORD", "METADATA", "PARTCNT", "SSL", "OIDC"}
)
"""Facilities that log hundreds of lines while a broker is away. The roles report that as an error anyway."""


class RepeatFilter(logging.Filter):
    """Shows a line of a repeated kind if there was none of that kind for `period_s`."""

    def __init__(self, period_s: float = PERIOD_S, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._period_s = period_s
        self._clock_s = clock_s
        self._last_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is shown. Its first word is librdkafka's facility."""
        facility = record.getMessage().partition(" ")[0]
        if facility not in REPEATED:
            return True
        now_s = self._clock_s()
        if now_s - self._last_s.get(facility, -self._period_s) < self._period_s:
            return False
        self._last_s[facility] = now_s
        return True


log = logging.getLogger("stream_learner.kafka")
log.addFilter(RepeatFilter())
