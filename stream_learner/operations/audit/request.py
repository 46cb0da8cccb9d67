"""The partitions and the range of marks that were asked for, and the object that all checks of a partition share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, PartitionReader
from stream_learner.core.log.marks import Mark
from stream_learner.errors import ConfigError
from stream_learner.operations.audit.findings import Finding, Findings
from stream_learner.roles.common.log_reader import records


@dataclass(frozen=True)
class Range:
    """The marks of a partition with a tick in [from_tick, until_tick] and an offset in [from_offset, until_offset).

    None for no bound. Offsets are those of the training log. The tick of a mark that a run of empty ticks
    shares is the last of them.
    """

    from_tick: int | None = None
    until_tick: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None

    def has_begun(self, offset: int, mark: Mark) -> bool:
        """Whether an accepted mark is at or after the beginning of the range."""
        if self.from_tick is not None and mark.last_tick < self.from_tick:
            return False
        return self.from_offset is None or offset >= self.from_offset

    def is_over(self, offset: int, mark: Mark) -> bool:
        """Whether an accepted mark is behind the end of the range."""
        if self.until_tick is not None and mark.last_tick > self.until_tick:
            return True
        return self.until_offset is not None and offset >= self.until_offset


@dataclass(frozen=True)
class AuditRequest:
    """partitions: those to check, all if empty. replay: whether to make examples and digests again. limit: how many
    findings to list at most."""

    range: Range = Range()
    partitions: tuple[int, ...] = ()
    replay: bool = False
    limit: int = 100

    def __post_init__(self) -> None:
        """Raise ConfigError for a range that ends before it begins, and for offsets with more than one partition."""
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


@dataclass(frozen=True)
class AuditedPartition:
    """A partition of the training log, for its checks. progress: is called with the number of records read."""

    settings: KafkaSettings
    topic: str
    partition: int
    range: Range
    findings: Findings
    progress: Callable[[int], None]

    def fail(self, check: str, what: str, offset: int | None = None, tick: int | None = None) -> None:
        """Report a finding in this partition."""
        self.findings.fail(Finding(check, what, self.topic, self.partition, offset, tick))

    def leave_out(self, check: str, why: str) -> None:
        """Note that something could not be checked in this partition, and why."""
        self.findings.leave_out(check, f"partition {self.partition}: {why}")

    @contextmanager
    def records(self, end: int) -> Iterator[Callable[[int], Iterator[tuple[int, bytes | None]]]]:
        """Yield a function that reads offsets and values from an offset to before `end`; usable within the block."""
        with PartitionReader(
            self.settings, self.topic, self.partition, 0, isolation=READ_UNCOMMITTED, name=f"audit-{self.partition}"
        ) as reader:

            def records_from(start: int) -> Iterator[tuple[int, bytes | None]]:
                reader.seek(start)
                yield from records(reader, end)

            yield records_from
