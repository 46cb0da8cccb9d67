"""The training log as a test reads it: by rule R, in plain Python where the oracle has to be compared.

It must never accept what rule R does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, PartitionReader
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.errors import BrokerUnreachable, RetryLater
from tests.oracles import loop

PlainExample = tuple[int, int, int, float, float, tuple[tuple[int, float], ...]]
"""Tick, log time, id hash, label, weight, features."""


class LogReader:
    """One partition of a training log, read on when it is asked to."""

    def __init__(self, settings: KafkaSettings, topic: str, partition: int) -> None:
        self.partition = partition
        self.rule = RuleR(partition=partition)
        self.ticks: list[AcceptedTick] = []
        self.records = 0
        self._reader = PartitionReader(settings, topic, partition, 0, isolation=READ_UNCOMMITTED)

    def read(self, up_to: int) -> LogReader:
        """Take in everything before an offset."""
        while self._reader.position < up_to:
            try:
                batch = self._reader.read(5_000, 0.1)
            except (BrokerUnreachable, RetryLater):
                continue  # Nothing was skipped: the reader goes on by itself.
            if batch is None:
                continue
            self.records += len(batch.values)
            for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True):
                tick = self.rule.take(offset, value)
                if tick is not None:
                    self.ticks.append(tick)
        return self

    @property
    def position(self) -> int:
        """The offset behind what was read."""
        return self._reader.position

    @property
    def last_tick(self) -> int:
        """The last tick that is closed, -1 before the first."""
        return self.rule.last.last_tick

    @property
    def marks(self) -> list[Mark]:
        """All accepted marks."""
        return [tick.mark for tick in self.ticks]

    @property
    def attempts(self) -> int:
        """How many attempts the accepted marks are of."""
        return len({mark.attempt for mark in self.marks})

    def examples(self) -> list[PlainExample]:
        """All examples in their order."""
        return [example for tick in self.ticks for example in _examples(tick)]

    def close(self) -> None:
        self._reader.close()


def _examples(tick: AcceptedTick) -> Iterator[PlainExample]:
    for _, record in tick.records:
        values = [1.0] * len(record.indices)
        for place, value in zip(record.positions.tolist(), record.values.tolist(), strict=True):
            values[place] = value
        keys = record.keys[record.indices].tolist()
        start = 0
        columns = (record.log_time_ms, record.id_hash, record.label, record.weight, record.row_len)
        for log_time, id_hash, label, weight, length in zip(*(c.tolist() for c in columns), strict=True):
            stop = start + length
            row = tuple(zip(keys[start:stop], values[start:stop], strict=True))
            yield tick.mark.last_tick, log_time, id_hash, label, weight, row
            start = stop


def plain_examples(examples: Iterable[loop.Example]) -> list[PlainExample]:
    """The oracle's examples in the form of the log's."""
    return [(e.tick, e.log_time_ms, e.id_hash, e.label, e.weight, e.features) for e in examples]


def counts_of(joined: loop.Joined) -> tuple[dict[str, Any], dict[str, Any]]:
    """The oracle's counts of impressions and of clicks, those that are 0 left out."""
    return {k: v for k, v in joined.impressions.items() if v}, {k: v for k, v in joined.clicks.items() if v}
