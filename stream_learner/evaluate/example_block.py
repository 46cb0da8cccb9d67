"""A block of examples as the models take it: records as in a training log.

A record names its features by 16-bit indices into a dictionary of its distinct keys. A block with more than 65,536
distinct keys therefore becomes several records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.dictionary import Scratch, number_keys
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord
from stream_learner.evaluate.formats.base import Fault

_NO_LIMIT = 1 << 62


@dataclass(slots=True)
class ExampleBlock:
    """The examples of a block of a file or a log, in their order.

    records: all examples; a new record begins where a dictionary is full. labelled bool[n]: False if an example is only
    to be predicted. tags: one for each example, or an empty list. faults: the lines of `file` that were left out.
    """

    records: list[ExampleRecord]
    labelled: NDArray[np.bool_]
    tags: Sequence[bytes] = ()
    faults: Sequence[Fault] = ()
    file: str = ""

    def __len__(self) -> int:
        return len(self.labelled)


class RecordMaker:
    """Makes records from columns. One thread at a time."""

    def __init__(self) -> None:
        self._scratch = Scratch()

    def records(self, batch: ExampleBatch) -> list[ExampleRecord]:
        """Records of all examples of a batch. They share no memory with it."""
        if len(self._scratch.indices) < len(batch.keys):
            self._scratch.reserve(2 * len(batch.keys))
        found: list[ExampleRecord] = []
        row = 0
        while row < len(batch):
            row, record = self._record(batch, row)
            found.append(record)
        return found

    def _record(self, batch: ExampleBatch, row: int) -> tuple[int, ExampleRecord]:
        """The example behind the last one of the record, and the record, which begins with the example `row`."""
        scratch = self._scratch
        features = len(batch.keys)
        slots = min(scratch.slots, max(256, 1 << (4 * features).bit_length()))
        end, k, m, v, _, scratch.slots, stamp = number_keys(
            scratch.table,
            slots,
            scratch.next_stamp(),
            batch.row_start,
            row,
            len(batch),
            batch.keys,
            batch.values,
            0,
            8,
            _NO_LIMIT,
            scratch.keys,
            scratch.indices,
            scratch.positions,
            scratch.values,
        )
        scratch.stamp = stamp + 1
        rows = slice(row, end)
        return end, ExampleRecord(
            partition=0,
            tick=0,
            attempt=1,
            sequence=0,
            log_time_ms=batch.log_time_ms[rows].copy(),
            id_hash=batch.id_hash[rows].copy(),
            label=batch.label[rows].copy(),
            weight=batch.weight[rows].copy(),
            keys=scratch.keys[:k].copy(),
            indices=scratch.indices[:m].copy(),
            row_len=np.diff(batch.row_start[row : end + 1]).astype(np.uint16),
            positions=scratch.positions[:v].copy(),
            values=scratch.values[:v].copy(),
        )
