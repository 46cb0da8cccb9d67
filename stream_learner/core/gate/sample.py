"""Chooses the examples of a tick that are predicted, and those that belong to a slice.

The sample is a function of the ids of a tick's examples: neither their order nor the cut into records changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.machine.entries import F64, I16, I32, I64, U16, U32, U64, Matrix, ReadOnly, entry, read_only
from stream_learner.core.machine.hashing import mix
from stream_learner.core.machine.kernels import kernel

LEAST: Final = 16
"""So many examples of a tick are predicted in any case, if it has them."""
ONE_OF: Final = 32
"""Of a large tick, at most one example in this many is predicted."""
SCALE: Final = 65_536.0
"""Sums over the sample are in units of one part in this many."""
_LARGEST: Final = float(1 << 24)
_BITS = np.uint64(24)
_ALL: Final = 1 << 24


@entry
def _choose(id_hash: ReadOnly[np.uint64], below: int, out: I64) -> int:
    """Write the places of the examples whose mixed hash has less than `below` in its upper 24 bits; how many."""
    count = 0
    for i in range(len(id_hash)):
        out[count] = i
        count += np.int64(mix(id_hash[i]) >> (np.uint64(64) - _BITS)) < below
    return count


@entry
def _cut(
    rows: I64,
    row_len: ReadOnly[np.uint16],
    indices: ReadOnly[np.uint16],
    positions: ReadOnly[np.uint32],
    values: ReadOnly[np.float64],
    place: I32,
    out_keys: I64,
    out_indices: U16,
    out_positions: U32,
    out_values: F64,
) -> tuple[int, int, int]:
    """Copy some rows with a dictionary of their own; returns how many keys, features and values they have.

    place i32[k]: all -1; `out_keys` gets the old index of each new one.
    """
    k, m, v, at, given, row = 0, 0, 0, 0, 0, 0
    for r in range(len(rows)):
        while row < rows[r]:
            at += row_len[row]
            row += 1
        while given < len(positions) and positions[given] < at:
            given += 1
        for i in range(at, at + row_len[row]):
            index = indices[i]
            if place[index] < 0:
                place[index] = k
                out_keys[k] = index
                k += 1
            out_indices[m] = place[index]
            if given < len(positions) and positions[given] == i:
                out_positions[v], out_values[v] = m, values[given]
                v += 1
                given += 1
            m += 1
    return k, m, v


@entry
def _count_slices(
    keys: ReadOnly[np.uint64],
    indices: ReadOnly[np.uint16],
    row_len: ReadOnly[np.uint16],
    label: ReadOnly[np.float64],
    wanted: U64,
    place: I16,
    out: Matrix[np.int64],
) -> None:
    """Add to out[s] how many examples have the key wanted[s] (rising), and how many of these have a label above 0."""
    there = 0
    for i in range(len(keys)):
        low, high = 0, len(wanted)
        while low < high:
            middle = (low + high) // 2
            if wanted[middle] < keys[i]:
                low = middle + 1
            else:
                high = middle
        found = low < len(wanted) and wanted[low] == keys[i]
        place[i] = low if found else -1
        there += found
    if there == 0:
        return
    at = 0
    for e in range(len(row_len)):
        for i in range(at, at + row_len[e]):
            slot = place[indices[i]]
            if slot >= 0:
                out[slot, 0] += 1
                out[slot, 1] += label[e] > 0.0
        at += row_len[e]


@entry
def add_products(predicted: F64, label: ReadOnly[np.float64], weight: ReadOnly[np.float64], totals: I64) -> None:
    """Add to totals i64[4] the sums of w p, w y, w y p and w p p; each product is rounded, so that sums are exact."""
    for i in range(len(label)):
        p, y, w = _within(predicted[i], 1.0), _within(label[i], 1.0), _within(weight[i], _LARGEST) * SCALE
        totals[0] += np.int64(np.rint(w * p))
        totals[1] += np.int64(np.rint(w * y))
        totals[2] += np.int64(np.rint(w * (y * p)))
        totals[3] += np.int64(np.rint(w * (p * p)))


@kernel
def _within(number: float, most: float) -> float:
    """A number, but none below 0 or beyond `most`; 0 for NaN."""
    return min(number, most) if number > 0.0 else 0.0


def sampled(records: Sequence[ExampleRecord], most: int) -> list[tuple[ExampleRecord, NDArray[np.int64]]]:
    """The records of a tick, each with the rows of the sample, rising; records without any are left out.

    About `most` rows at most, one in `ONE_OF` of a large tick, and `LEAST` of a small one.
    """
    total = sum(map(len, records))
    wanted = min(most, max(LEAST, total // ONE_OF))
    if not wanted or not total:
        return []
    below = _ALL * wanted // max(total, wanted)
    while True:
        chosen = [(record, _chosen(record, below)) for record in records]
        # Ids that repeat share their hash: then fewer values of it are taken.
        if sum(len(rows) for _, rows in chosen) <= 4 * wanted or not below:
            return [(record, rows) for record, rows in chosen if len(rows)]
        below //= 2


def _chosen(record: ExampleRecord, below: int) -> NDArray[np.int64]:
    if below >= _ALL:
        return np.arange(len(record))
    out = np.empty(len(record) + 1, np.int64)
    return out[: _choose(read_only(record.id_hash), below, out)]


def cut_rows(record: ExampleRecord, rows: NDArray[np.int64]) -> ExampleRecord:
    """The examples of some rows, rising, with the keys that they use in order of first occurrence."""
    if len(rows) == len(record):
        return record
    features = int(record.row_len[rows].sum(dtype=np.int64))
    keys, indices = np.empty(features, np.int64), np.empty(features, np.uint16)
    positions, values = np.empty(features, np.uint32), np.empty(features)
    place = np.full(len(record.keys), -1, np.int32)
    given, lengths = read_only(record.indices), read_only(record.row_len)
    given_positions, given_values = read_only(record.positions), read_only(record.values)
    out = keys, indices, positions, values
    k, m, v = _cut(rows, lengths, given, given_positions, given_values, place, *out)
    return replace(
        record,
        log_time_ms=record.log_time_ms[rows],
        id_hash=record.id_hash[rows],
        label=record.label[rows],
        weight=record.weight[rows],
        keys=record.keys[keys[:k]],
        counted=record.counted if record.bound is None else record.counted[keys[:k]],
        indices=indices[:m],
        row_len=record.row_len[rows],
        positions=positions[:v],
        values=values[:v],
    )


def slice_counts(records: Sequence[ExampleRecord], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Examples and positives i64[s, 2] that have the key wanted[s]; wanted u64[s], rising, each once."""
    out = np.zeros((len(wanted), 2), np.int64)
    for record in records:
        if len(wanted):
            place = np.empty(len(record.keys), np.int16)
            keys, indices = read_only(record.keys), read_only(record.indices)
            row_len, label = read_only(record.row_len), read_only(record.label)
            _count_slices(keys, indices, row_len, label, wanted, place, out)
    return out
