"""A weight table of bounded memory: rows that do not fit are left to the cold rows, and fetched when they are named.

It gives what a `WeightTable` gives, to the bit; digest and count are of all rows, wherever they are. A row never leaves
memory before the cold rows have it. `core.model.table` explains how rows leave and come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.dictionary import MAX_KEYS
from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.table import kernels
from stream_learner.core.model.table.eviction import BoundedSubTables, rows_within
from stream_learner.core.model.table.kernels import row_bytes
from stream_learner.core.model.table.rows import StateRows, joined
from stream_learner.core.model.table.table import PUBLICATION, WeightTable

_BATCH: Final = 65_536
"""Rows that are fetched or loaded at once, at most."""
_NO_TICK: Final = 1 << 62
"""Later than every tick: with this as `since`, no change is listed."""
MIB: Final = 1 << 20
PROCESS_BYTES: Final = 320 * MIB
"""An estimate of what a learner takes beside its `MemoryBudget`: the interpreter and its libraries with their compiled
kernels, the work space for a record, Kafka's client. The log read ahead (`learner.buffer`) comes on top."""
LEAST_ROCKSDB_BYTES: Final = 4 * MIB
_ROWS_ROOM: Final = 3
"""A table has room for the dictionaries of three records at least: one that is being folded, and two whose rows may not
leave yet."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The parts of `learner.memory`.

    total_bytes   all of it
    table_bytes   5/8, for the weight table
    copies_bytes  1/4, for rows on their way: lists of changes, and the copies that a checkpoint or publication writes
    rocksdb_bytes 1/8, for RocksDB: block cache, with indexes and filters of files, and memtables
    most_changed  how many rows may have changed since the last checkpoint before the fold waits
    """

    total_bytes: int
    table_bytes: int
    copies_bytes: int
    rocksdb_bytes: int
    most_changed: int

    @classmethod
    def of(cls, total_bytes: int, ncols: int) -> MemoryBudget:
        """Divide so many bytes, for rows with `ncols` columns.

        Raises ValueError, which says how many would do, where the table could not hold the rows of one record.
        """
        budget = cls._cut(total_bytes, ncols)
        if not budget._suffices(ncols):
            needed = least_bytes(ncols)
            raise ValueError(
                f"{total_bytes / MIB:.1f} MiB cannot hold the features of a record ({MAX_KEYS} with {ncols} "
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
        return rows_within(self.table_bytes, ncols) >= max(_ROWS_ROOM * MAX_KEYS, 2 * self.most_changed)


def copied_bytes(ncols: int) -> int:
    """Memory for a changed row beside the table: its copy for a checkpoint, which stays until the index has it, another
    copy and a half for a publication and for what is encoded from either, and its keys in two lists that grow."""
    return 5 * row_bytes(ncols) // 2 + 2 * 2 * 8 + 32


def least_bytes(ncols: int) -> int:
    """The smallest `learner.memory` that a table can work with, in whole MiB."""
    size = MIB
    while not MemoryBudget._cut(size, ncols)._suffices(ncols):
        size += MIB
    return size


class ColdRows(Protocol):
    """Rows kept outside the table. Rows of later ticks may arrive at any moment; `tick` rises when all have."""

    @property
    def tick(self) -> int:
        """The tick that the cold rows stand for: every row is there as it was after this tick, or newer; -1: none."""
        ...

    def fetch(self, keys: NDArray[np.uint64]) -> StateRows:
        """The rows there are of these different keys u64[r], in any order."""
        ...

    def between(self, low: int, high: int) -> StateRows:
        """The rows with low <= key <= high, rising by key."""
        ...

    def changed_after(self, tick: int) -> NDArray[np.uint64]:
        """Keys of all rows that are there and were touched after a tick, each once, rising."""
        ...


class BoundedWeightTable(WeightTable):
    """A `WeightTable` whose rows in memory take `limit_bytes` at most. Not for several threads at once.

    `missed` counts the keys that a record named and memory did not hold, `fetched` those of them that were found among
    the cold rows.
    """

    def __init__(self, ncols: int, cold: ColdRows, *, limit_bytes: int, most_changed: int) -> None:
        """most_changed: so many rows may be dirty before `must_checkpoint`, or be listed for the next publication.

        Raises ValueError for a bound below the memory of an empty table.
        """
        self._bounded = BoundedSubTables(ncols, limit_bytes)
        super().__init__(ncols, self._bounded)
        self._cold = cold
        self._most_changed = most_changed
        self._unlisted = False
        """Whether more rows have changed since the last publication than are listed."""
        self.missed = 0
        self.fetched = 0

    @property
    def evicted(self) -> int:
        """How many rows have left memory so far."""
        return self._bounded.evicted

    @property
    def resident(self) -> int:
        """How many rows are in memory, those that never changed included."""
        return int(self._bounded.used.sum())

    @property
    def must_checkpoint(self) -> bool:
        """Whether so many rows have changed since the last checkpoint that the fold has to wait for the next one."""
        return self.changed_for_checkpoint >= self._most_changed

    def adopt(self, count: int, rows_digest: int) -> None:
        """Begin with the cold rows: how many they are, and the digest of all of them. Only for an empty table."""
        if self.count or self.resident:
            raise ValueError("only an empty table can take over cold rows")
        self.count, self._digest = count, rows_digest
        self._last_tick = self._cold.tick
        self._bounded.clean_tick = self._cold.tick

    def take_digest(self, rows_digest: int) -> None:
        """Replace the digest of all rows, for a checkpoint that does not say it."""
        self._digest = rows_digest

    def rows_digest_full(self) -> int:
        """`rows_digest` computed again from all rows, in memory and not."""
        total = 0
        for part in self.items():
            keys, columns = part.keys, np.ascontiguousarray(part.columns)
            total += int(kernels.sum_digests(address_of(keys), address_of(columns), len(keys), self.ncols))
        return total % (1 << 64)

    def known(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The keys that have a row. Rows that are not in memory are fetched, since they are resolved next."""
        addresses = np.empty(len(keys), np.int64)
        self._bring(address_of(keys), len(keys), address_of(addresses))
        return super().known(keys)

    def _bring(self, keys: int, count: int, rows: int) -> None:
        """Make room for u64[count] at address `keys`, and fetch the cold rows among them."""
        if not kernels.count_incoming(self._directory, keys, count, self._incoming_at):
            self._bounded.clean_tick = self._cold.tick
            self._bounded.reserve(self._incoming)
        # Room is made for every key before any comes back: a row that was fetched cannot leave before it is used.
        missing = count - kernels.find(self._directory, keys, count, self.ncols, rows)
        if missing:
            wanted = np.empty(missing, np.uint64)
            kernels.absent(keys, rows, count, address_of(wanted))
            self._fetch(wanted)

    def _fetch(self, wanted: NDArray[np.uint64]) -> None:
        rows = self._cold.fetch(wanted)
        self.missed += len(wanted)
        self.fetched += len(rows)
        # Fetched rows are in the count and in the digest since they changed first.
        keys, touched = np.ascontiguousarray(rows.keys), np.ascontiguousarray(rows.touched)
        self._set(keys, np.ascontiguousarray(rows.columns), touched)

    def _rows_of(self, keys: NDArray[np.uint64]) -> StateRows:
        """The rows of keys. Cold rows are copied, and do not come into memory."""
        rows = super()._rows_of(keys)
        # Memory has no such row, or it has not changed yet.
        elsewhere = np.flatnonzero((rows.touched < 0) & (rows.keys != 0))
        for start in range(0, len(elsewhere), _BATCH):
            some = elsewhere[start : start + _BATCH]
            wanted, back = np.unique(rows.keys[some], return_inverse=True)
            found = self._cold.fetch(wanted)
            at = np.searchsorted(wanted, found.keys)
            columns, touched = np.zeros((len(wanted), self.ncols)), np.full(len(wanted), kernels.NEVER, np.int64)
            columns[at], touched[at] = found.columns, found.touched
            rows.columns[some], rows.touched[some] = columns[back], touched[back]
        return rows

    def _rows_between(self, low: int, high: int) -> StateRows:
        here, there = super()._rows_between(low, high), self._cold.between(low, high)
        if not len(there):
            return here
        if not len(here):
            return there
        nearest = np.minimum(np.searchsorted(here.keys, there.keys), len(here) - 1)
        both = joined([here, there.where(here.keys[nearest] != there.keys)])
        order = np.argsort(both.keys, kind="stable")
        return StateRows(both.keys[order], both.columns[order], both.touched[order])

    def load(self, rows: StateRows) -> None:
        """Load rows. Raises what `WeightTable.load` raises, and ValueError for cold rows: touched up to their tick."""
        if len(rows) and rows.touched.min() <= self._cold.tick:
            raise ValueError(f"rows up to tick {self._cold.tick} are cold rows, and cannot be loaded")
        for start in range(0, max(1, len(rows)), _BATCH):
            part = rows.part(start, start + _BATCH)
            self.known(np.ascontiguousarray(part.keys, np.uint64))  # cold rows among them come into memory
            super().load(part)

    def _keys_after(self, tick: int) -> NDArray[np.uint64]:
        keys = super()._keys_after(tick)
        return keys if tick >= self._cold.tick else np.union1d(keys, self._cold.changed_after(tick))

    def write_back(self, rows: int, count: int, local: int, local_bytes: int, tick: int) -> int:
        """Write local rows back. The list for the next publication is given up when it gets too long.

        That happens where nobody publishes; `changed_for_publication` then searches the rows.
        """
        nonzero = super().write_back(rows, count, local, local_bytes, tick)
        listed = self._changes[PUBLICATION]
        if len(listed) > self._most_changed:
            since = listed.since
            self._restart(PUBLICATION, since, np.empty(0, np.uint64))
            self._since[PUBLICATION] = _NO_TICK
            self._unlisted = True
        return nonzero

    @property
    def changed_for_publication(self) -> int:
        """How many rows changed since the last publication; found by a scan where they are not listed any more."""
        listed = self._changes[PUBLICATION]
        return len(self._keys_after(listed.since)) if self._unlisted else len(listed)

    def take_changed_for_publication(self, tick: int) -> StateRows:
        """Take the rows to publish; a scan finds them where they are not listed any more."""
        if self._unlisted:
            since = self._changes[PUBLICATION].since
            self._restart(PUBLICATION, since, self._keys_after(since))
        return super().take_changed_for_publication(tick)

    def _restart(self, which: int, since: int, keys: NDArray[np.uint64]) -> None:
        super()._restart(which, since, keys)
        if which == PUBLICATION:
            self._unlisted = False
