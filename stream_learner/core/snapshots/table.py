"""Weights in memory for many readers and one writer: two banks of weights over one set of keys.

A reader never waits, and no bank is written while a reader may be in it. `core.snapshots` explains why this holds,
`kernels` has the layout of the rows and the loops over them. How the writer changes the weights:

  Step 1. Write the changes into the bank that is not current. New keys go into empty slots with weight 0 in the
          current bank. A sub-table that is full is copied into a larger block, and the directory's word swapped.
  Step 2. Put the version beside that bank and make it the current one.
  Step 3. Wait until the readers that entered before have left. Free the blocks that were swapped out before.
  Step 4. Write the changes into the other bank too. Blocks swapped out here wait for the next Step 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.losses import LOGISTIC
from stream_learner.core.model.table.regions import Region
from stream_learner.core.snapshots.kernels import (
    BOTH_BANKS,
    CODE_BITS,
    CONTROL_BYTES,
    LINE,
    NO_VERSION,
    ROW_BYTES,
    SUB_BITS,
    SUB_TABLES,
    VERSIONS,
    capacity_of,
    clear_range,
    copy_rows,
    current_weight,
    enter,
    leave,
    point,
    predict_rows,
    readers_in,
    serve,
    weights_in,
    write_weights,
)

_FIRST_CODE = 16
_SPARE_ROWS = 16
_CHUNK_BYTES = 32 << 20
_ROWS_TO_JUDGE_BY = 64
_MOST_EXPECTED = 1 << 20


def _code_for(rows: int) -> int:
    """The smallest code of a capacity that takes so many rows at a load of three quarters."""
    code = 0
    while 3 * capacity_of(code) < 4 * rows:
        code += 1
    return code


class _Arena:
    """Zeroed memory for blocks, cut from large pieces that the system may back with huge pages."""

    def __init__(self) -> None:
        self._region = Region(_CHUNK_BYTES)
        self._taken = 0

    def block(self, code: int, spare: int) -> _Block:
        """An empty block, of a capacity by its code and with spare rows."""
        size = -(-(capacity_of(code) + spare) * ROW_BYTES // LINE) * LINE
        region = self._region
        if size > _CHUNK_BYTES // 4:
            return _Block(Region(size), 0, code, spare, size)
        if self._taken + size > _CHUNK_BYTES:
            region = self._region = Region(_CHUNK_BYTES)
            self._taken = 0
        self._taken += size
        return _Block(region, self._taken - size, code, spare, size)


class _Block:
    """The memory of one sub-table, given back by `release`, or with its region."""

    def __init__(self, region: Region, start: int, code: int, spare: int, size: int) -> None:
        self.code, self.spare, self.size = code, spare, size
        self.address = region.address + start
        self.last = self.address + size - ROW_BYTES
        self._region = region

    @property
    def word(self) -> int:
        """Its word in the directory."""
        return (self.address << CODE_BITS) | self.code

    def release(self) -> None:
        """Give the memory back. Only when no reader can be in it."""
        self._region.release(self.address, self.size)


class Change(NamedTuple):
    """Rows to write: keys u64[r], weights f32[r]. With a span (first key, last key) they replace all rows in it."""

    span: tuple[int, int] | None
    keys: NDArray[np.uint64]
    weights: NDArray[np.float32]


class KeyedWeights(NamedTuple):
    """Keys u64[r] and their weights f32[r]."""

    keys: NDArray[np.uint64]
    weights: NDArray[np.float32]


class RowPredictions(NamedTuple):
    """Predictions of n hashed events: p_click f64[n], all of one version; known i64[n]: how many features are known."""

    p_click: NDArray[np.float64]
    version: int
    known: NDArray[np.int64]


class ReplicaTable:
    """The weights of one model. One thread writes; any number read."""

    def __init__(self, pause: Callable[[], None]) -> None:
        """`pause` is called again and again while the writer waits for readers to leave."""
        self._pause = pause
        self._control_memory = np.zeros(CONTROL_BYTES + LINE, np.uint8)
        address = address_of(self._control_memory)
        self.control = address + -address % LINE
        self._arena = _Arena()
        self._blocks = [self._arena.block(_FIRST_CODE, _SPARE_ROWS) for _ in range(SUB_TABLES)]
        self._directory = np.array([block.word for block in self._blocks], np.int64)
        self.directory = address_of(self._directory)
        self._used = np.zeros((2, SUB_TABLES), np.int64)
        self._used[1] = [block.last for block in self._blocks]
        self._swapped_out: list[_Block] = []
        self._least_code = _FIRST_CODE
        serve(self.control, 0, NO_VERSION, LOGISTIC)

    @property
    def rows(self) -> int:
        """Keys held, with those whose weight became 0 lately."""
        return int(self._used[0].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the rows."""
        return sum(block.size for block in self._blocks)

    @property
    def version(self) -> int:
        """The version served, NO_VERSION before the first."""
        return int(np.int64(self._versions()[self._bank()]))

    def predict(
        self, keys: NDArray[np.uint64], values: NDArray[np.float64], row_start: NDArray[np.int64]
    ) -> RowPredictions:
        """What `predict_rows` makes; arrays are C-contiguous and writeable."""
        p_click, known = np.empty(len(row_start) - 1), np.empty(len(row_start) - 1, np.int64)
        version = predict_rows(keys, values, row_start, p_click, known, self.directory, self.control)
        return RowPredictions(p_click, version, known)

    def weight(self, key: int) -> float:
        """The current weight of a key, 0.0 if it has none."""
        return float(current_weight(self.directory, self.control, np.uint64(key)))

    def largest_weights(self, count: int) -> KeyedWeights:
        """Keys u64 and weights f32 of the `count` weights of largest magnitude in the version served, largest first.

        Of equal ones the smaller key comes first. Fewer where fewer are not 0, none before the first version. Looks at
        every row as one reader does, so the writer waits in Step 3 until it is done.
        """
        largest = KeyedWeights(np.empty(0, np.uint64), np.empty(0, np.float32))
        bank = enter(self.control)
        try:
            for sub in range(SUB_TABLES if self.version != NO_VERSION else 0):
                largest = _largest(count, largest, self._rows_of(sub, bank))
        finally:
            leave(self.control, bank)
        return largest

    def all_rows(self) -> KeyedWeights:
        """All rows of the version served that have a weight, rising by key; none before the first version.

        Only while nobody writes.
        """
        keys, weights, count = np.empty(self.rows, np.uint64), np.empty(self.rows, np.float32), 0
        bank = enter(self.control)
        try:
            for sub in range(SUB_TABLES if self.version != NO_VERSION else 0):
                found, their = self._rows_of(sub, bank)
                order = np.argsort(found)
                end = count + len(found)
                keys[count:end], weights[count:end], count = found[order], their[order], end
        finally:
            leave(self.control, bank)
        return KeyedWeights(keys[:count], weights[:count])

    def _rows_of(self, sub: int, bank: int) -> KeyedWeights:
        """The rows of a sub-table that have a weight, for a reader in `bank`; asks again if it grows meanwhile."""
        room = 64
        while True:
            keys, weights = np.empty(room, np.uint64), np.empty(room, np.float32)
            found = weights_in(self.directory, sub, bank, keys, weights)
            if found <= room:
                return KeyedWeights(keys[:found], weights[:found])
            room = found

    def load(self, keys: NDArray[np.uint64], weights: NDArray[np.float32]) -> None:
        """Write rows into both banks at once. Only while nobody predicts."""
        self._write(keys, weights, BOTH_BANKS)
        self._release()

    def load_range(self, first: int, last: int, keys: NDArray[np.uint64], weights: NDArray[np.float32]) -> None:
        """Make these the only non-zero rows with keys in [first, last]. Only while nobody predicts.

        Hashed keys spread evenly, so their number also tells how large the sub-tables will get: each grows to that size
        at once.
        """
        clear_range(self.directory, self._used, np.uint64(first), np.uint64(last), BOTH_BANKS)
        if len(keys) >= _ROWS_TO_JUDGE_BY:
            expected = (len(keys) << (64 - SUB_BITS)) // (last - first + 1)
            self._least_code = _code_for(min(_MOST_EXPECTED, int(1.2 * expected)))
        self.load(keys, weights)
        self._least_code = _FIRST_CODE

    def apply(self, changes: list[Change], version: int, loss: int = LOGISTIC) -> None:
        """Make the changes, in order, for all readers at once, under a new version (Steps 1 to 4).

        loss: the code of the loss by whose link that version predicts.
        """
        current = self._bank()
        self._make(changes, 1 - current)
        serve(self.control, 1 - current, version, loss)
        while readers_in(self.control, current):
            self._pause()
        self._release()
        self._make(changes, current)

    def _make(self, changes: list[Change], bank: int) -> None:
        for span, keys, weights in changes:
            if span is not None:
                clear_range(self.directory, self._used, np.uint64(span[0]), np.uint64(span[1]), bank)
            self._write(keys, weights, bank)

    def _write(self, keys: NDArray[np.uint64], weights: NDArray[np.float32], bank: int) -> None:
        key_at, weight_at, count = address_of(keys), address_of(weights), len(keys)
        done = 0
        while (done := write_weights(self.directory, self._used, key_at, weight_at, done, count, bank)) < count:
            self._grow(int(keys[done]) >> (64 - SUB_BITS))

    def _grow(self, sub: int) -> None:
        """Copy a sub-table into a larger block without its rows of weight 0, and lead readers to it."""
        old = self._blocks[sub]
        code, spare = old.code, old.spare
        if 4 * int(self._used[0, sub]) >= 3 * capacity_of(code):
            code = max(self._least_code, code + 4)
        else:
            spare *= 2
        copied = -1
        while copied < 0:
            new = self._arena.block(code, spare)
            copied = copy_rows(old.address, old.last, new.word, new.last)
            spare *= 2
        self._blocks[sub] = new
        self._used[:, sub] = copied, new.last
        point(self.directory, sub, new.word)
        self._swapped_out.append(old)

    def _release(self) -> None:
        for block in self._swapped_out:
            block.release()
        self._swapped_out.clear()

    def _bank(self) -> int:
        return int(self._control_view()[0])

    def _versions(self) -> NDArray[np.int64]:
        return self._control_view()[VERSIONS // 8 : VERSIONS // 8 + 2]

    def _control_view(self) -> NDArray[np.int64]:
        start = self.control - address_of(self._control_memory)
        return self._control_memory[start : start + CONTROL_BYTES].view(np.int64)


def _largest(count: int, largest: KeyedWeights, more: KeyedWeights) -> KeyedWeights:
    """The `count` rows of largest weight of both, largest first, of equal ones the smaller key first.

    `largest`: those of the rows before, in this order.
    """
    if len(largest.keys) == count:
        enough = np.abs(more.weights) >= abs(largest.weights[-1])
        more = KeyedWeights(more.keys[enough], more.weights[enough])
    keys, weights = np.concatenate((largest.keys, more.keys)), np.concatenate((largest.weights, more.weights))
    first = np.lexsort((keys, -np.abs(weights)))[:count]
    return KeyedWeights(keys[first], weights[first])
