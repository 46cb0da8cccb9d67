"""A weight table of bounded memory: what does not fit lies on a cold side, from where rows come back when needed.

In: what `WeightTable` takes, and the cold side as an object. Out: what `WeightTable` gives, to the bit.
This file must never let a row leave memory before the cold side has it, nor know what the cold side is.

A row is in memory, or on the cold side, or on both; memory is never older. A row that changed after the cold side's
tick is *dirty*: it must stay. Digest and count are of all rows, wherever they lie.
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
from stream_learner.core.model.table.rows import StateRows, joined
from stream_learner.core.model.table.table import PUBLICATION, WeightTable

_BATCH: Final = 65_536
"""Rows that are fetched or loaded at once, at most."""
_NO_TICK: Final = 1 << 62
"""Beyond every tick: what changes is not listed."""
MIB: Final = 1 << 20
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
    and a half for a publication and what is encoded from either, its places in two lists that grow."""
    return 5 * 8 * (2 + ncols) // 2 + 2 * 2 * 8 + 32


def least_bytes(ncols: int) -> int:
    """The smallest `learner.memory` that can be worked with, in whole MiB."""
    size = MIB
    while not MemoryBudget._cut(size, ncols)._suffices(ncols):
        size += MIB
    return size


class ColdRows(Protocol):
    """Rows kept outside the table. It may get rows of later ticks at any moment; `tick` rises when all are there."""

    @property
    def tick(self) -> int:
        """Every row touched up to this tick is there, as it was last changed up to it; -1: none."""
        ...

    def fetch(self, keys: NDArray[np.uint64]) -> StateRows:
        """Of u64[r] different keys, the rows that are there, in any order."""
        ...

    def between(self, low: int, high: int) -> StateRows:
        """The rows with low <= key <= high, rising by key."""
        ...

    def changed_after(self, tick: int) -> NDArray[np.uint64]:
        """Keys of all rows touched after a tick that are there, each once, rising."""
        ...


class BoundedWeightTable(WeightTable):
    """A `WeightTable` whose rows in memory take `limit_bytes` at most. Not for several threads at once.

    `missed` counts the keys that a record named and memory did not hold, `fetched` those of them that the cold side
    had.
    """

    def __init__(self, ncols: int, cold: ColdRows, *, limit_bytes: int, most_changed: int) -> None:
        """most_changed: how many rows may be dirty before `must_checkpoint`, or be listed for the next publication.

        Raises ValueError for a bound that holds nothing.
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
        """Whether so many rows are dirty that the fold has to wait for a checkpoint."""
        return self.changed_for_checkpoint >= self._most_changed

    def adopt(self, count: int, rows_digest: int) -> None:
        """Begin with what the cold side holds: so many rows, of that digest. Only for an empty table."""
        if self.count or self.resident:
            raise ValueError("only an empty table can take over the rows of a cold side")
        self.count, self._digest = count, rows_digest
        self._last_tick = self._cold.tick
        self._bounded.clean_tick = self._cold.tick

    def take_digest(self, rows_digest: int) -> None:
        """Go on from a digest of all rows that was made anew."""
        self._digest = rows_digest

    def rows_digest_full(self) -> int:
        """The digest made again from all rows, in memory and not."""
        total = 0
        for part in self.items():
            keys, columns = part.keys, np.ascontiguousarray(part.columns)
            total += int(kernels.sum_digests(address_of(keys), address_of(columns), len(keys), self.ncols))
        return total % (1 << 64)

    def resolve(self, keys: int, count: int, rows: int, local: int = 0, local_bytes: int = 0) -> None:
        """See `WeightTable.resolve`; rows that only the cold side has come back before."""
        if not kernels.count_incoming(self._places, keys, count, self._incoming_at):
            self._bounded.clean_tick = self._cold.tick
            self._bounded.reserve(self._incoming)
        # Room is made for every key before any comes back: a row that was fetched cannot leave before it is used.
        missing = count - kernels.find(self._places, keys, count, self.ncols, rows)
        if missing:
            wanted = np.empty(missing, np.uint64)
            kernels.absent(keys, rows, count, address_of(wanted))
            self._bring_back(wanted)
        self._find_or_insert(keys, count, rows, local, local_bytes)

    def _bring_back(self, wanted: NDArray[np.uint64]) -> None:
        rows = self._cold.fetch(wanted)
        self.missed += len(wanted)
        self.fetched += len(rows)
        keys, columns, touched = (np.ascontiguousarray(part) for part in (rows.keys, rows.columns, rows.touched))
        places = np.empty(len(keys), np.int64)
        self._find_or_insert(address_of(keys), len(keys), address_of(places), 0, 0)
        known = np.zeros(1, np.int64)
        # They were counted, and are in the digest, since they changed.
        kernels.fill_rows(
            address_of(places), len(keys), self._shape, address_of(columns), address_of(touched), address_of(known)
        )

    def _rows_of(self, keys: NDArray[np.uint64]) -> StateRows:
        """See `WeightTable.rows_of`; nothing comes back into memory."""
        rows = super()._rows_of(keys)
        # A row that never changed, or is not in memory at all.
        elsewhere = np.flatnonzero((rows.touched < 0) & (rows.keys != 0))
        for start in range(0, len(elsewhere), _BATCH):
            places = elsewhere[start : start + _BATCH]
            wanted, back = np.unique(rows.keys[places], return_inverse=True)
            found = self._cold.fetch(wanted)
            at = np.searchsorted(wanted, found.keys)
            columns, touched = np.zeros((len(wanted), self.ncols)), np.full(len(wanted), kernels.NEVER, np.int64)
            columns[at], touched[at] = found.columns, found.touched
            rows.columns[places], rows.touched[places] = columns[back], touched[back]
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
        """See `WeightTable.load`. Raises ValueError also for rows not touched after the cold side's tick."""
        if len(rows) and rows.touched.min() <= self._cold.tick:
            raise ValueError(f"rows up to tick {self._cold.tick} are the cold side's, and cannot be loaded")
        for start in range(0, max(1, len(rows)), _BATCH):
            super().load(rows.part(start, start + _BATCH))

    def _keys_after(self, tick: int) -> NDArray[np.uint64]:
        keys = super()._keys_after(tick)
        return keys if tick >= self._cold.tick else np.union1d(keys, self._cold.changed_after(tick))

    def write_back(self, rows: int, count: int, local: int, local_bytes: int, tick: int) -> int:
        """See `WeightTable.write_back`. Where nobody publishes, the list of what to publish ends at `most_changed`."""
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
        """How many rows changed since the last publication; looks for them where they are not listed any more."""
        listed = self._changes[PUBLICATION]
        return len(self._keys_after(listed.since)) if self._unlisted else len(listed)

    def take_changed_for_publication(self, tick: int) -> StateRows:
        """See `WeightTable.take_changed_for_publication`; looks for them where they are not listed any more."""
        if self._unlisted:
            since = self._changes[PUBLICATION].since
            self._restart(PUBLICATION, since, self._keys_after(since))
        return super().take_changed_for_publication(tick)

    def _restart(self, which: int, since: int, keys: NDArray[np.uint64]) -> None:
        super()._restart(which, since, keys)
        if which == PUBLICATION:
            self._unlisted = False


def warm() -> None:
    """Compile the kernels of a bounded table that a table without a bound does not use."""

    class Nothing:
        tick = kernels.NEVER

        def fetch(self, keys: NDArray[np.uint64]) -> StateRows:
            return StateRows(keys[:0], np.empty((0, 2)), np.empty(0, np.int64))

        def between(self, low: int, high: int) -> StateRows:
            return self.fetch(np.empty(0, np.uint64))

        def changed_after(self, tick: int) -> NDArray[np.uint64]:
            return np.empty(0, np.uint64)

    table = BoundedWeightTable(2, Nothing(), limit_bytes=1 << 20, most_changed=1)
    keys = np.arange(1, 16_001, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places = np.empty(len(keys), np.int64)
    for start in range(0, len(keys), 1_000):  # more than fit, so that rows leave
        part = keys[start : start + 1_000]
        table.resolve(address_of(part), len(part), address_of(places))
    table.rows_digest_full()
