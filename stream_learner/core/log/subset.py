"""Leaves some feature keys out of records of the training log.

The result is the record as a joiner would have made it that had never made these features: all examples stay, even
those without any feature left, and nothing changes its order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.machine.entries import F64, I32, U16, U32, ReadOnly, entry, read_only

DROPPED = -1
"""The place of a key that is left out."""


@entry
def _number_kept(keys: ReadOnly[np.uint64], dropped: ReadOnly[np.uint64], place: I32) -> int:
    """Write the new index of each key to `place`, `DROPPED` for those left out; returns how many are kept."""
    kept = 0
    for i in range(len(keys)):
        low, high = 0, len(dropped)
        while low < high:
            middle = (low + high) // 2
            if dropped[middle] < keys[i]:
                low = middle + 1
            else:
                high = middle
        if low < len(dropped) and dropped[low] == keys[i]:
            place[i] = DROPPED
        else:
            place[i] = kept
            kept += 1
    return kept


@entry
def _cut(
    place: I32,
    indices: ReadOnly[np.uint16],
    row_len: ReadOnly[np.uint16],
    positions: ReadOnly[np.uint32],
    values: ReadOnly[np.float64],
    out_indices: U16,
    out_row_len: U16,
    out_positions: U32,
    out_values: F64,
) -> tuple[int, int]:
    """Copy the features whose key is kept, with their values; returns how many features and values there are."""
    m, v, at, given = 0, 0, 0, 0
    for e in range(len(row_len)):
        begun = m
        for _ in range(row_len[e]):
            number = place[indices[at]]
            has_value = given < len(positions) and positions[given] == at
            if number != DROPPED:
                out_indices[m] = number
                if has_value:
                    out_positions[v] = m
                    out_values[v] = values[given]
                    v += 1
                m += 1
            given += has_value
            at += 1
        out_row_len[e] = m - begun
    return m, v


class FeatureSubset:
    """Leaves some keys out of records; one thread at a time."""

    def __init__(self, dropped: NDArray[np.uint64]) -> None:
        """dropped: the keys to leave out, u64[k], rising, each once. Raises ValueError if they do not rise."""
        self.dropped = read_only(np.ascontiguousarray(dropped, np.uint64))
        if bool((self.dropped[1:] <= self.dropped[:-1]).any()):
            raise ValueError("the keys to leave out must rise")
        self._place = np.empty(0, np.int32)

    def apply(self, record: ExampleRecord) -> ExampleRecord:
        """The record without these keys, or the record itself if it has none of them. It must have been checked."""
        if len(record.keys) > len(self._place):
            self._place = np.empty(2 * len(record.keys), np.int32)
        place = self._place[: len(record.keys)]
        if _number_kept(read_only(record.keys), self.dropped, place) == len(record.keys):
            return record
        return without_keys(record, place)


def without_keys(record: ExampleRecord, place: NDArray[np.int32]) -> ExampleRecord:
    """The record without some keys. place: i32[k], the new index of each key, rising; `DROPPED` for those left out."""
    indices, row_len = np.empty(len(record.indices), np.uint16), np.empty(len(record.row_len), np.uint16)
    positions, values = np.empty(len(record.positions), np.uint32), np.empty(len(record.values))
    given, lengths = read_only(record.indices), read_only(record.row_len)
    given_positions, given_values = read_only(record.positions), read_only(record.values)
    m, v = _cut(place, given, lengths, given_positions, given_values, indices, row_len, positions, values)
    return replace(
        record,
        keys=record.keys[place != DROPPED],
        counted=record.counted if record.bound is None else record.counted[place != DROPPED],
        indices=indices[:m],
        row_len=row_len,
        positions=positions[:v],
        values=values[:v],
    )
