"""One partition under audit: what every check of it needs.

In: settings, a topic, a partition, a range. Out: the same, together, and findings that name the place.
This file must never hold what a check has found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stream_learner.edges.kafka import READ_UNCOMMITTED, KafkaSettings, PartitionReader
from stream_learner.roles.audit.findings import Finding, Findings
from stream_learner.roles.audit.request import Range
from stream_learner.roles.log_reader import records


@dataclass(frozen=True)
class AuditedPartition:
    """A partition of the training log `topic`. progress: is told of every further record."""

    settings: KafkaSettings
    topic: str
    partition: int
    range: Range
    findings: Findings
    progress: Callable[[int], None]

    def fail(self, check: str, what: str, offset: int | None = None, tick: int | None = None) -> None:
        """Something does not hold here."""
        self.findings.fail(Finding(check, what, self.topic, self.partition, offset, tick))

    def leave_out(self, check: str, why: str) -> None:
        """Something could not be checked here."""
        self.findings.leave_out(check, f"partition {self.partition}: {why}")

    @contextmanager
    def records(self, end: int) -> Iterator[Callable[[int], Iterator[tuple[int, bytes | None]]]]:
        """A function that gives offsets and values from an offset on, to before `end`; good within the block."""
        with PartitionReader(
            self.settings, self.topic, self.partition, 0, isolation=READ_UNCOMMITTED, name=f"audit-{self.partition}"
        ) as reader:

            def records_from(start: int) -> Iterator[tuple[int, bytes | None]]:
                reader.seek(start)
                yield from records(reader, end)

            yield records_from
