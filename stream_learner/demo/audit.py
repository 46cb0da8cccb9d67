"""Reads the training log while it is written, and keeps the balance of every record.

Its figures come from the log alone, never from a role, as the report promises.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.kafka import READ_UNCOMMITTED, KafkaSettings, PartitionReader
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.marks import Mark, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.errors import BrokerUnreachable, RetryLater
from stream_learner.roles.common.lifecycle import Stopping

READ_RECORDS = 500
IDLE_S = 0.02

OnExamples = Callable[[int, NDArray[np.int64]], None]


class LogAudit:
    """Follows every partition by rule R. `run` needs a thread of its own; any thread may call the rest."""

    def __init__(self, settings: KafkaSettings, topic: str, partitions: int, on_examples: OnExamples) -> None:
        """on_examples: called for each tick of a partition with the tick and the log times of its examples, i64[n]
        ms."""
        self._settings = settings
        self._topic = topic
        self._on_examples = on_examples
        self._lock = threading.Lock()
        self._balance = Balance()
        self._last: dict[int, Mark] = {}
        self._examples: Counter[int] = Counter()
        self._positions = dict.fromkeys(range(partitions), 0)

    def run(self, stopping: Stopping) -> None:
        """Read until told to stop. Raises what a reader of the training log raises."""
        rules = {partition: RuleR(partition=partition) for partition in self._positions}
        readers = [
            PartitionReader(
                self._settings, self._topic, partition, 0, isolation=READ_UNCOMMITTED, name=f"audit-{partition}"
            )
            for partition in self._positions
        ]
        try:
            while not stopping.is_set():
                came = [self._read(reader, rules[reader.partition]) for reader in readers]
                if not any(came):
                    stopping.wait(IDLE_S)
        finally:
            for reader in readers:
                reader.close()

    def _read(self, reader: PartitionReader, rule: RuleR) -> bool:
        """Read one partition once. Returns whether there were records."""
        try:
            batch = reader.read(READ_RECORDS)
        except (BrokerUnreachable, RetryLater):
            return False
        if batch is not None:
            for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True):
                tick = rule.take(offset, value)
                if tick is not None:
                    self._take(tick)
        self._positions[reader.partition] = reader.position
        return batch is not None

    def _take(self, tick: AcceptedTick) -> None:
        mark = tick.mark
        with self._lock:
            self._balance.add(mark)
            self._last[mark.partition] = mark
            self._examples[mark.last_tick] += tick.examples
        for _, record in tick.records:
            self._on_examples(mark.last_tick, record.log_time_ms)

    def wait_for(self, ends: Mapping[int, int], timeout_s: float) -> bool:
        """Wait until every partition is read up to its end. Returns whether that happened in time."""
        until = time.monotonic() + timeout_s
        while any(self._positions[partition] < end for partition, end in ends.items()):
            if time.monotonic() > until:
                return False
            time.sleep(IDLE_S)
        return True

    @property
    def counts(self) -> TickCounts:
        """The sums over all accepted marks."""
        with self._lock:
            return TickCounts(self._balance.impressions, self._balance.clicks)

    @property
    def problems(self) -> list[str]:
        """The marks whose counts do not add up, a line each."""
        with self._lock:
            return self._balance.problems

    @property
    def passed(self) -> int:
        """The last tick that every partition has passed, -1 before the first."""
        with self._lock:
            marks = [self._last.get(partition) for partition in self._positions]
        return min(-1 if mark is None else mark.last_tick for mark in marks)

    def examples_up_to(self, tick: int) -> int:
        """The number of examples in the ticks up to this one, over all partitions."""
        with self._lock:
            return sum(count for at, count in self._examples.items() if at <= tick)

    def positions(self) -> dict[int, tuple[int, int]]:
        """By partition, the offsets of impressions and clicks that the accepted marks reach."""
        with self._lock:
            marks = {partition: self._last.get(partition) for partition in self._positions}
        return {
            partition: (0, 0) if mark is None else (mark.next_impression, mark.click_cursor)
            for partition, mark in marks.items()
        }
