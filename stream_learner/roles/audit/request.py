"""What is to be audited: which partitions, from where, up to where.

In: ticks, offsets or times as they were asked for. Out: for each partition, which of its marks are in the range.
This file must never ask a broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_learner.core.marks import Mark
from stream_learner.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """Marks of a partition: those of ticks of [from_tick, until_tick] that lie in [from_offset, until_offset).

    None for no bound. Offsets are those of the training log. Where a run of empty ticks shares a mark, the mark is of
    the last one, as its examples are.
    """

    from_tick: int | None = None
    until_tick: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None

    def has_begun(self, offset: int, mark: Mark) -> bool:
        """Whether an accepted mark is at or after the beginning."""
        if self.from_tick is not None and mark.last_tick < self.from_tick:
            return False
        return self.from_offset is None or offset >= self.from_offset

    def is_over(self, offset: int, mark: Mark) -> bool:
        """Whether an accepted mark lies behind the end."""
        if self.until_tick is not None and mark.last_tick > self.until_tick:
            return True
        return self.until_offset is not None and offset >= self.until_offset

    @property
    def has_end(self) -> bool:
        """Whether it may end before the log does."""
        return self.until_tick is not None or self.until_offset is not None


@dataclass(frozen=True)
class Request:
    """partitions: which, all if empty. replay: make examples and digests again. limit: most findings to list."""

    range: Range = Range()
    partitions: tuple[int, ...] = ()
    replay: bool = False
    limit: int = 100

    def __post_init__(self) -> None:
        """Raise ConfigError for a range that ends before it begins, or offsets of several partitions."""
        wanted = self.range
        pairs = ((wanted.from_tick, wanted.until_tick, 0), (wanted.from_offset, wanted.until_offset, 1))
        for begin, end, least in pairs:
            if begin is not None and end is not None and end - begin < least:
                raise ConfigError(f"the range ends at {end}, before its beginning at {begin}")
        if (wanted.from_offset is not None or wanted.until_offset is not None) and len(self.partitions) != 1:
            raise ConfigError(
                "offsets are those of one partition of the training log",
                action="Name the partition with --partition, or give the range in ticks or times.",
            )
