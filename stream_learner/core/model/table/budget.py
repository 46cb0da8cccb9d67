"""What of `learner.memory` is given to what.

In: the setting, the number of state columns. Out: bounds of the table, of the rows changed between two checkpoints, of
RocksDB. This file must never measure anything.

    5/8   the table: rows in open addressing
    1/4   rows on their way: lists of what changed, the copies that a checkpoint or a publication writes from
    1/8   RocksDB: block cache, with indexes and filters of files, and memtables

Besides, a learner takes what does not grow with the model: the interpreter and its libraries with their compiled
kernels, a record's work space and Kafka's client (`PROCESS_BYTES`), and the log read ahead (`learner.buffer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream_learner.core.model.table.eviction import rows_within

MIB: Final = 1 << 20
LARGEST_DICTIONARY: Final = 65_536
PROCESS_BYTES: Final = 320 * MIB
"""What a learner takes besides: an estimate."""
LEAST_ROCKSDB_BYTES: Final = 4 * MIB
_ROWS_ROOM: Final = 3
"""A table has room for three dictionaries at least: one being folded, the rest of two that may not leave yet."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Parts of `total_bytes`; `most_changed` rows may have changed since the last checkpoint before the fold waits."""

    total_bytes: int
    table_bytes: int
    copies_bytes: int
    rocksdb_bytes: int
    most_changed: int

    @classmethod
    def of(cls, total_bytes: int, ncols: int) -> MemoryBudget:
        """Raises ValueError, with what is needed, where the table could not hold the rows of one record."""
        budget = cls._cut(total_bytes, ncols)
        if not budget._suffices(ncols):
            needed = least_bytes(ncols)
            raise ValueError(
                f"{total_bytes / MIB:.1f} MiB cannot hold the features of a record ({LARGEST_DICTIONARY} with {ncols} "
                f"columns each) and what is being written: it takes {needed // MIB} MiB or more"
            )
        return budget

    @classmethod
    def _cut(cls, total_bytes: int, ncols: int) -> MemoryBudget:
        rocksdb = max(LEAST_ROCKSDB_BYTES, total_bytes // 8)
        copies = total_bytes // 4
        return cls(total_bytes, total_bytes - rocksdb - copies, copies, rocksdb, copies // copied_bytes(ncols))

    def _suffices(self, ncols: int) -> bool:
        if self.table_bytes <= 0:
            return False
        return rows_within(self.table_bytes, ncols) >= max(_ROWS_ROOM * LARGEST_DICTIONARY, 2 * self.most_changed)


def copied_bytes(ncols: int) -> int:
    """Memory for a changed row beside the table: its copy for a checkpoint, which stays until the index has it, another
    and a half for a publication and what is encoded from either, its places in two lists that grow."""
    return 5 * 8 * (2 + ncols) // 2 + 2 * 2 * 8 + 32


def least_bytes(ncols: int) -> int:
    """The smallest `learner.memory` that can be worked with, in whole MiB."""
    size = MIB
    while not MemoryBudget._cut(size, ncols)._suffices(ncols):
        size += MIB
    return size
