"""The brokers' clock, as the times tell it at which brokers appended the last records of the training log.

Ticks go by it, never windows. Brokers may disagree, and one may be set anew: the median of the last reports counts.
"""

from __future__ import annotations

from collections import deque

REPORTS = 15


class BrokersClock:
    """base: the brokers' clock less the monotonic one, ms; None before the first report. Used by one thread."""

    def __init__(self) -> None:
        self.base: int | None = None
        self._bases: deque[int] = deque(maxlen=REPORTS)

    def assume(self, now_ms: int, m: int) -> None:
        """Take `now_ms` as the brokers' clock until there is a report."""
        if self.base is None:
            self.base = now_ms - m

    def note(self, appended_ms: int, m: int) -> None:
        """Take the time of a record that a broker appended, as told at `m`."""
        self._bases.append(appended_ms - m)
        self.base = sorted(self._bases)[len(self._bases) // 2]

    def now_ms(self, m: int) -> int | None:
        """The brokers' clock at `m`; None before the first report."""
        return None if self.base is None else m + self.base
