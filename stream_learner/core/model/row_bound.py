"""The bound on the rows of a model: which new keys get a row, and which features are left out of their examples.

The learner goes through the examples in the order of the log, and through the features of each in their order. A key
that has a row keeps it. A key that has none gets one, if there are fewer than `max_rows` rows; else its feature is left
out of this example, and the example is learned without it. A row counts from the first example that names its key,
whatever becomes of that example.

So who gets a row follows from the examples and their order alone, as the fold does: not from how they are cut into
records, nor from the order of a record's dictionary. The rows are in every checkpoint, also those whose columns are
still 0, so a learner that begins with a checkpoint decides as one that never stopped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.subset import DROPPED, without_keys
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.table.table import WeightTable

_UNNAMED = 0
_KNOWN = 1
_NEW = 2
_HELD_BACK = 3


@kernel
def _decide(indices: NDArray[np.uint16], state: NDArray[np.uint8], room: int) -> int:
    """Give the first `room` unknown keys a row, in the order in which the features `indices` name them.

    `state` u8[k] is `_KNOWN` or `_UNNAMED` for each key; unknown keys that are named become `_NEW` or `_HELD_BACK`.
    Returns how many features have a key that is held back.
    """
    held_back = 0
    for i in range(len(indices)):
        key = indices[i]
        if state[key] == _UNNAMED:
            state[key] = _NEW if room > 0 else _HELD_BACK
            room -= 1
        held_back += state[key] == _HELD_BACK
    return held_back


class RowBound:
    """The bound of one table. `held_back` counts the features that were left out, in all examples so far."""

    def __init__(self, max_rows: int) -> None:
        """max_rows: at least 1."""
        if max_rows < 1:
            raise ValueError(f"max_rows must be 1 or more, not {max_rows}")
        self.max_rows = max_rows
        self.held_back = 0

    def cut(self, record: ExampleRecord, table: WeightTable) -> ExampleRecord:
        """The record without the features that get no row; the record itself if all of them have or get one."""
        room = self.max_rows - table.count
        if len(record.keys) <= room:
            return record
        keys = np.ascontiguousarray(record.keys, np.uint64)
        state = table.known(keys).view(np.uint8)
        if len(keys) - int(np.count_nonzero(state)) <= room:
            return record
        held_back = _decide(np.array(record.indices, np.uint16), state, room)
        if not held_back:
            return record
        self.held_back += held_back
        kept = (state == _KNOWN) | (state == _NEW)
        place = np.where(kept, np.cumsum(kept) - 1, DROPPED).astype(np.int32)
        return without_keys(record, place)

    def claim(self, record: ExampleRecord, table: WeightTable, rows: int, tick: int) -> None:
        """Count the rows of a folded record that are still 0; `rows` is the address of their addresses."""
        count = len(record.keys)
        if not table.has_untouched(rows, count):
            return
        named = np.zeros(count, np.bool_)
        named[record.indices] = True
        table.claim(rows, count, named, tick)


def warm() -> None:
    """Compile the kernel of the bound."""
    _decide(np.zeros(1, np.uint16), np.zeros(1, np.uint8), 1)
