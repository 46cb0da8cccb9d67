"""Examples as they go to the models: a block of a file, or a tick of a training log, as records that can be folded.

In: parsed columns. Out: blocks. This file must never change the order of examples, or drop one.

A record names its features by 16-bit indices into a dictionary of its distinct keys, as in the training log; so a
block with more than 65,536 distinct keys becomes several records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.dictionary import Scratch, number_keys
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord
from stream_learner.evaluate.formats.base import Fault, Parsed

_NO_LIMIT = 1 << 62


@dataclass(slots=True)
class ExampleBlock:
    """Some examples in their order.

    records: all of them, cut where a dictionary is full. labelled bool[n]: False where there is only something to
    predict. tags: one for each, or none at all. faults: lines left out, in `file`. parsed: the columns, where a
    model asks for them. end: the bytes of the source read for it and all before it.
    """

    records: list[ExampleRecord]
    labelled: NDArray[np.bool_]
    tags: Sequence[bytes] = ()
    faults: Sequence[Fault] = ()
    file: str = ""
    parsed: Parsed | None = None

    def __len__(self) -> int:
        return len(self.labelled)


class RecordMaker:
    """From columns to records. Not for several threads at once."""

    def __init__(self) -> None:
        self._scratch = Scratch()

    def records(self, batch: ExampleBatch) -> list[ExampleRecord]:
        """Records of all examples of a batch, which they share no memory with."""
        if len(self._scratch.indices) < len(batch.keys):
            self._scratch.reserve(2 * len(batch.keys))
        found: list[ExampleRecord] = []
        row = 0
        while row < len(batch):
            row, record = self._record(batch, row)
            found.append(record)
        return found

    def _record(self, batch: ExampleBatch, row: int) -> tuple[int, ExampleRecord]:
        """One record from `row` on, and the row after it."""
        scratch = self._scratch
        features = len(batch.keys)
        slots = min(scratch.slots, max(256, 1 << (4 * features).bit_length()))
        end, k, m, v, _, scratch.slots, stamp = number_keys(
            scratch.table,
            slots,
            scratch.stamp,
            batch.row_start,
            row,
            len(batch),
            batch.keys,
            batch.values,
            0,
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
