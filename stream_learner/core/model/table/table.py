"""The weight table: an optimizer's state columns by feature key, in memory.

The table is the source of truth for the rows between checkpoints; its only writers are `write_back` (the fold) and
`load` (a restart). It never knows an optimizer, or what a column means. `core.model.table` explains how it works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.digest import changes_bytes
from stream_learner.core.model.table import changes, kernels
from stream_learner.core.model.table.kernels import NEVER, SUB_TABLES, Resolver
from stream_learner.core.model.table.regions import SubTables
from stream_learner.core.model.table.rows import StateRows

CHECKPOINT: Final = 0
PUBLICATION: Final = 1
_MASK: Final = 0xFFFFFFFFFFFFFFFF


class ChangeList:
    """Keys of the rows changed after tick `since`; each once, in the order in which they first changed."""

    def __init__(self) -> None:
        self.since = NEVER
        self._keys = np.empty(0, np.uint64)
        self._address = address_of(self._keys)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def room_for(self, more: int) -> int:
        """Address at which up to `more` keys may be appended; `appended_to` says how many were."""
        if self._count + more > len(self._keys):
            grown = np.empty(max(2 * len(self._keys), self._count + more), np.uint64)
            grown[: self._count] = self._keys[: self._count]
            self._keys, self._address = grown, address_of(grown)
        return self._address + 8 * self._count

    def appended_to(self, end: int) -> None:
        """Count the keys that were written up to address `end`."""
        self._count = (end - self._address) // 8

    def restart(self, since: int, keys: NDArray[np.uint64]) -> None:
        """List these keys instead, of the rows that changed after tick `since`."""
        self.since, self._keys, self._address, self._count = since, keys, address_of(keys), len(keys)

    def sorted_keys(self) -> NDArray[np.uint64]:
        """A copy of the keys, rising."""
        return np.sort(self._keys[: self._count])


class WeightTable:
    """Rows by key. Not for several threads at once.

    A row exists from the first example that names its key, but is counted, listed and handed out only once it has
    changed. Keys are u64 and never 0.
    """

    def __init__(self, ncols: int, tables: SubTables | None = None) -> None:
        """`tables`: the memory of the rows, by default one that grows with them."""
        self.ncols = ncols
        self.count = 0
        self._shape = (0,) * ncols
        self._tables = tables or SubTables(ncols)
        self._digest = 0
        self._last_tick = NEVER
        self._closed_tick = NEVER
        self._changes = (ChangeList(), ChangeList())
        self._incoming = np.zeros(SUB_TABLES, np.int64)
        self._since = np.full(2, NEVER, np.int64)
        self._ends = np.zeros(4, np.int64)
        self._directory = address_of(self._tables.directory)
        self._incoming_at, self._since_at = address_of(self._incoming), address_of(self._since)
        self._ends_at = address_of(self._ends)
        self._held_changes = np.empty(changes_bytes(ncols), np.uint8)
        self._held_changes_at = address_of(self._held_changes)

    @property
    def bytes(self) -> int:
        """Memory held for rows."""
        return self._tables.held_bytes

    @property
    def rows_digest(self) -> int:
        """Sum of the row digests modulo 2^64, kept with every change."""
        return self._digest

    def rows_digest_full(self) -> int:
        """`rows_digest` computed again from all rows."""
        return int(kernels.scan_digest(self._directory, self.ncols))

    def check_tick(self, tick: int) -> None:
        """Raise ValueError for a tick before the last one written, or one whose changes were taken already."""
        if tick < self._last_tick or tick <= self._closed_tick:
            last, closed = self._last_tick, self._closed_tick
            raise ValueError(f"tick {tick} after tick {last}; changes up to tick {closed} were taken")

    def resolve(self, keys: int, count: int, rows: int, local: int = 0, local_bytes: int = 0) -> None:
        """Find or insert u64[count] at address `keys`; int64[count] at `rows` gets addresses of rows.

        The addresses hold until the next call that can insert. Keys must not be 0, and not repeat. With `local`, the
        columns are copied into local rows there, `local_bytes` apart (`kernels` has their layout).
        """

        def resolver(
            directory: int, keys: int, count: int, shape: tuple[int, ...], rows: int, local: int
        ) -> tuple[int, int]:
            return kernels.resolve(directory, keys, count, shape, rows, local, local_bytes), 0

        self.resolve_by(resolver, keys, count, rows, local)

    def resolve_by(self, resolver: Resolver, keys: int, count: int, rows: int, local: int) -> int:
        """`resolve` into local rows that `resolver` completes; returns how many have a weight that is not 0."""
        self._bring(keys, count, rows)
        done, nonzero = resolver(self._directory, keys, count, self._shape, rows, local)
        while done < count:
            self._tables.widen(int(kernels.sub_table_at(keys + 8 * done)))
            done, nonzero = resolver(self._directory, keys, count, self._shape, rows, local)
        return nonzero

    def _bring(self, keys: int, count: int, rows: int) -> None:
        """Make room for u64[count] at address `keys`; int64[count] at `rows` is free to work in."""
        if not kernels.count_incoming(self._directory, keys, count, self._incoming_at):
            self._tables.reserve(self._incoming)

    def write_back(self, rows: int, count: int, local: int, local_bytes: int, tick: int) -> int:
        """Carry changed columns of local rows into the rows just resolved, as changes of `tick`.

        Returns how many of the local rows have a weight that is not 0. `check_tick` says which ticks are allowed.
        """
        for which, listed in enumerate(self._changes):
            self._ends[which] = listed.room_for(count)
        self._ends[2:] = self.count, 0
        self._last_tick = tick
        places = self._since_at, self._ends_at, self._held_changes_at
        grown = changes.write_back(rows, count, self._shape, local, local_bytes, tick, *places)
        self._digest = (self._digest + int(grown)) & _MASK
        for which, listed in enumerate(self._changes):
            listed.appended_to(int(self._ends[which]))
        self.count = int(self._ends[2])
        return int(self._ends[3])

    def known(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of the keys u64[k]: True if it has a row that changed or was claimed."""
        found = np.empty(len(keys), np.bool_)
        kernels.known(self._directory, address_of(keys), len(keys), self.ncols, address_of(found))
        return found

    def claim(self, rows: int, count: int, wanted: NDArray[np.bool_], tick: int) -> None:
        """Count rows just resolved as changed in `tick`, though their columns are still 0.

        `wanted` bool[count] marks the rows that this is about. A row that changed before stays as it is.
        """
        for which, listed in enumerate(self._changes):
            self._ends[which] = listed.room_for(count)
        self._ends[2:] = self.count, 0
        self._last_tick = max(self._last_tick, tick)
        changes.claim(rows, count, self.ncols, address_of(wanted), tick, self._since_at, self._ends_at)
        for which, listed in enumerate(self._changes):
            listed.appended_to(int(self._ends[which]))
        self.count = int(self._ends[2])

    def has_untouched(self, rows: int, count: int) -> bool:
        """Whether one of the rows just resolved never changed, nor was claimed."""
        return bool(changes.count_untouched(rows, count, self.ncols))

    def rows_of(self, keys: NDArray[np.uint64]) -> StateRows:
        """Rows of u64[r] keys, in their order; an absent or never changed key has zeros and touched -1."""
        return self._rows_of(np.array(keys, np.uint64))

    def _rows_of(self, keys: NDArray[np.uint64]) -> StateRows:
        """`rows_of`, where the array of keys may become a part of the result."""
        addresses = np.empty(len(keys), np.int64)
        kernels.find(self._directory, address_of(keys), len(keys), self.ncols, address_of(addresses))
        return self._copy(keys, addresses)

    def rows_with_prefix(self, bits: int, nbits: int) -> StateRows:
        """All changed rows whose key begins with the `nbits` (0..64) bits of `bits`, rising by key."""
        if not 0 <= nbits <= 64 or not 0 <= bits < 1 << nbits:
            raise ValueError(f"{bits} is not a prefix of {nbits} bits")
        low = bits << (64 - nbits)
        return self._rows_between(low, low | (_MASK >> nbits))

    def items(self) -> Iterator[StateRows]:
        """All changed rows in 256 parts, rising by key."""
        for sub in range(SUB_TABLES):
            yield self.rows_with_prefix(sub, 8)

    def expect(self, rows: int) -> None:
        """Take memory for `rows` more rows at once, before they are loaded. A hint: more may come."""
        self._tables.expect(rows)

    def load(self, rows: StateRows) -> None:
        """Set rows of keys without repeats, in any order, touched in ticks >= 0.

        Fastest with rising keys, and after `expect`. Loaded rows are not listed as changed: call `restart_changes`
        when all are in. Raises ValueError for other shapes, or a key of 0.
        """
        keys = np.ascontiguousarray(rows.keys, np.uint64)
        columns = np.ascontiguousarray(rows.columns, np.float64)
        touched = np.ascontiguousarray(rows.touched, np.int64)
        if columns.shape != (len(keys), self.ncols) or touched.shape != keys.shape or keys.ndim != 1:
            raise ValueError(f"{keys.shape} keys, {columns.shape} columns and {touched.shape} ticks do not agree")
        if len(keys) and (not keys.all() or touched.min() < 0):
            raise ValueError("a row to load has key 0, or was never touched")
        fresh, grown = self._set(keys, columns, touched)
        self._last_tick = max(self._last_tick, int(touched.max(initial=NEVER)))
        self.count += fresh
        self._digest = (self._digest + grown) & _MASK

    def _set(
        self, keys: NDArray[np.uint64], columns: NDArray[np.float64], touched: NDArray[np.int64]
    ) -> tuple[int, int]:
        """Set rows. Returns how many had never changed, and by what the sum of digests grew."""
        grown, count, width = np.zeros(2, np.int64), len(keys), 8 * self.ncols
        keys_at, columns_at, touched_at, grown_at = map(address_of, (keys, columns, touched, grown))
        done = 0
        while done < count:
            at, left = keys_at + 8 * done, count - done
            arrays = columns_at + width * done, touched_at + 8 * done, grown_at
            done += kernels.load(self._directory, at, left, self._shape, *arrays)
            if done < count:
                self._make_room(keys_at + 8 * done, count - done)
        return int(grown[0]), int(grown[1])

    def _make_room(self, keys: int, count: int) -> None:
        """Make room for u64[count] at address `keys`, the first of which found none."""
        sub = int(kernels.sub_table_at(keys))
        if self._tables.is_full(sub):
            kernels.count_incoming(self._directory, keys, count, self._incoming_at)
            self._tables.reserve(self._incoming)
        else:
            self._tables.widen(sub)

    def restart_changes(self, checkpoint_tick: int, publication_tick: int) -> None:
        """List anew, by a scan, the rows changed after the last checkpoint's and publication's ticks (-1: none).

        Either tick may be ahead of the rows. What the fold changes up to that tick was changed before, is changed again
        to the same values, and is not listed.
        """
        for which, since in ((CHECKPOINT, checkpoint_tick), (PUBLICATION, publication_tick)):
            self._restart(which, since, self._keys_after(since))

    def _keys_after(self, tick: int) -> NDArray[np.uint64]:
        """Keys of all rows touched after a tick, each once."""
        if tick >= self._last_tick:
            return np.empty(0, np.uint64)
        count = kernels.scan_touched(self._directory, self.ncols, tick, 0)
        keys = np.empty(count, np.uint64)
        if count:
            kernels.scan_touched(self._directory, self.ncols, tick, address_of(keys))
        return keys

    @property
    def changed_for_checkpoint(self) -> int:
        """How many rows changed since the last checkpoint."""
        return len(self._changes[CHECKPOINT])

    @property
    def changed_for_publication(self) -> int:
        """How many rows changed since the last publication."""
        return len(self._changes[PUBLICATION])

    def take_changed_for_checkpoint(self, tick: int) -> StateRows:
        """Copies of the rows changed since the last checkpoint, and begin a new list of changes after `tick`.

        `tick` is the last one folded: raises ValueError if there are changes of a later one.
        """
        return self._take(CHECKPOINT, tick)

    def take_changed_for_publication(self, tick: int) -> StateRows:
        """Copies of the rows changed since the last publication, and begin a new list of changes after `tick`.

        Raises what `take_changed_for_checkpoint` raises.
        """
        return self._take(PUBLICATION, tick)

    def _take(self, which: int, tick: int) -> StateRows:
        if tick < max(self._changes[which].since, self._last_tick):
            raise ValueError(f"tick {tick} cannot be taken: there are changes of, or were taken up to, a later one")
        rows = self._rows_of(self._changes[which].sorted_keys())
        self._restart(which, tick, np.empty(0, np.uint64))
        self._closed_tick = max(self._closed_tick, tick)
        return rows

    def _restart(self, which: int, since: int, keys: NDArray[np.uint64]) -> None:
        self._changes[which].restart(since, keys)
        self._since[which] = since

    def _rows_between(self, low: int, high: int) -> StateRows:
        """Changed rows with low <= key <= high, rising by key."""
        first, last = np.uint64(low), np.uint64(high)
        addresses = np.empty(kernels.count_slots(self._directory, first, last, self.ncols), np.int64)
        count = kernels.rows_between(self._directory, first, last, self.ncols, address_of(addresses))
        return self._copy(np.empty(count, np.uint64), addresses[:count])

    def _copy(self, keys: NDArray[np.uint64], addresses: NDArray[np.int64]) -> StateRows:
        """Copies of the rows at these addresses. Where the address is 0, the key is the one given here."""
        rows = StateRows(keys, np.zeros((len(keys), self.ncols)), np.full(len(keys), NEVER, np.int64))
        arrays = rows.keys, rows.columns, rows.touched
        kernels.copy_out(address_of(addresses), len(keys), self.ncols, *(address_of(array) for array in arrays))
        return rows
