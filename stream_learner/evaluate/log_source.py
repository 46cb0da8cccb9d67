"""A training log as a source of examples: all that it holds now, in the order in which a learner folds it.

The order is (tick, partition, sequence). A learner folds a tick when every partition has passed it, so the last tick
here is the last one that every partition has passed. What operators decided to leave out is left out here too. If
retention has deleted the beginning of a partition, the rest is read. Nothing is waited for and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

import numpy as np

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.errors import TopicMissing
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.roles.common.log_reader import accepted_ticks
from stream_learner.roles.control.decisions import DecidedTicks, decisions_on

if TYPE_CHECKING:
    from stream_learner.config import Config

BLOCK_EXAMPLES: Final = 8_192
_NO_LIMIT: Final = 1 << 62


class LogSource:
    """The training log of a configuration, up to its end as of the first pass. A `pipeline.Source`."""

    bytes_total = None

    def __init__(self, config: Config) -> None:
        """Raises TopicMissing, BrokerUnreachable, and what `decisions_on` raises."""
        self._settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.evaluate")
        self._admin = Admin(self._settings)
        self._topic = config.examples_topic
        found = self._admin.describe([self._topic])
        if self._topic not in found:
            raise TopicMissing(f"there is no training log {self._topic}")
        self._partitions = found[self._topic].partitions
        self._decisions = decisions_on(self._settings, config.control_topic, self._topic, config.model)
        self.bytes_read = 0
        self._last_tick: int | None = None

    def blocks(self) -> Iterator[list[ExampleRecord]]:
        """The log from its beginning to its end: in the first pass the end as of now, in further passes the same end.

        Raises LogTrimmed, DamagedLog, NewerFormat, BrokerUnreachable.
        """
        self.bytes_read = 0
        with ExitStack() as stack:
            streams = [
                stack.enter_context(
                    closing(accepted_ticks(self._settings, self._admin.offsets, self._topic, partition))
                )
                for partition in range(self._partitions)
            ]
            decided = DecidedTicks(self._decisions)
            block: list[ExampleRecord] = []
            examples = 0
            last_tick = -1
            for tick in in_order_of_the_fold(streams, _NO_LIMIT if self._last_tick is None else self._last_tick):
                last_tick = tick.mark.last_tick
                if decided.leaves_out(tick):
                    continue
                block += [record for _, record in tick.records]
                examples += tick.examples
                if examples >= BLOCK_EXAMPLES:
                    yield self._counted(block)
                    block, examples = [], 0
            if block:
                yield self._counted(block)
            self._last_tick = last_tick

    def _counted(self, block: list[ExampleRecord]) -> list[ExampleRecord]:
        self.bytes_read += sum(record.keys.nbytes + record.indices.nbytes for record in block)
        return block


def read_log_block(block: list[ExampleRecord]) -> ExampleBlock:
    return ExampleBlock(block, np.ones(sum(map(len, block)), np.bool_))


def in_order_of_the_fold(streams: Sequence[Iterator[AcceptedTick]], limit: int = _NO_LIMIT) -> Iterator[AcceptedTick]:
    """The ticks of all partitions in the order (tick, partition), up to `limit` and to the last that all have
    passed."""
    heads: dict[int, AcceptedTick] = {}
    passed = [-1] * len(streams)

    def advance(partition: int) -> int:
        head = next(streams[partition], None)
        if head is None:
            heads.pop(partition, None)
            return min(limit, passed[partition])
        heads[partition] = head
        passed[partition] = head.mark.last_tick
        return limit

    for partition in range(len(streams)):
        limit = advance(partition)
    while heads:
        partition = min(heads, key=lambda p: (heads[p].mark.last_tick, p))
        head = heads[partition]
        if head.mark.last_tick > limit:
            return
        yield head
        limit = advance(partition)
