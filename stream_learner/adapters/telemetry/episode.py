"""`Episode`: logs one line when something begins and one when it is over, and nothing in between."""

from __future__ import annotations

from collections.abc import Mapping

from stream_learner.adapters.telemetry.logs import Logger


class Episode:
    """Something that lasts for a while, by a value that is looked at again and again. lasts: whether it has begun and
    is not over. Used by one thread.
    """

    def __init__(
        self,
        log: Logger,
        began: str,
        ended: str = "",
        *,
        limit: float = 0.0,
        ends_at: float | None = None,
        **about: object,
    ) -> None:
        """began, ended: names of the log's events; without `ended` it is `began` with `_no_more`. limit: it begins
        above. ends_at: it is over at this value or below; by default at half the limit, because a value near the limit
        is above and below it by chance. about: further fields of the first line.
        """
        self.lasts = False
        self._log, self._began, self._ended, self._about = log, began, ended or f"{began}_no_more", about
        self._limit, self._ends_at = limit, limit / 2 if ends_at is None else ends_at
        self._worst = -1

    def look(self, value: float, **fields: object) -> None:
        """Take the present value; `fields` are for the lines."""
        if value > self._limit:
            self.begin(**fields)
        elif value <= self._ends_at:
            self.end(**fields)

    def look_at_worst(
        self, seconds: Mapping[int, float], notes: Mapping[int, str] | None = None, **fields: object
    ) -> None:
        """Take the value of each partition. Both lines name the partition that was the worst when it began, and its
        present value. notes: for the first line, by partition.
        """
        most, worst = max(((value, partition) for partition, value in seconds.items()), default=(0.0, -1))
        if not self.lasts:
            self._worst = worst
            if notes:
                self._about["note"] = notes[worst]
        self.look(most, **fields, partition=self._worst, seconds=round(seconds.get(self._worst, 0.0), 1))

    def begin(self, **fields: object) -> None:
        """It has begun, or lasts."""
        if not self.lasts:
            self.lasts = True
            self._log.warning(self._began, **fields, **self._about)

    def end(self, **fields: object) -> None:
        """It is over, or has not begun."""
        if self.lasts:
            self.lasts = False
            self._log.info(self._ended, **fields)
