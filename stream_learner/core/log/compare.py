"""Compares examples of two training logs, one by one.

Two examples are equal if a fold cannot tell them apart: in all columns, and in their order. They are paired by the hash
of their id; of several with one id, the first of one log with the first of the other, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, to_batch

COLUMNS = ("label", "weight", "log_time", "features")
"""The columns in which a pair may differ."""

_PAIRING = np.dtype([("id", np.uint64), ("repeat", np.int64)])


@dataclass(frozen=True)
class TickDifference:
    """The differences between two batches. All numbers are indices of examples in a batch.

    only_first, only_second i64[]: examples without a partner. first, second i64[p]: the pairs that differ, in the order
    of the first batch. columns: for each of `COLUMNS` whether a pair differs in it, bool[p]. reordered: whether the
    pairs, equal ones included, have another order in the second batch.
    """

    only_first: NDArray[np.int64]
    only_second: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    columns: dict[str, NDArray[np.bool_]]
    reordered: bool

    @property
    def count(self) -> int:
        """How many differences there are: examples that only one batch has, pairs that differ, and the order."""
        return len(self.only_first) + len(self.only_second) + len(self.first) + self.reordered


def together(records: Iterable[ExampleRecord]) -> ExampleBatch:
    """The examples of all records of a tick, in order."""
    return joined([to_batch(record) for record in records])


def joined(batches: Sequence[ExampleBatch]) -> ExampleBatch:
    """The examples of several batches, one after the other."""
    if not batches:
        return ExampleBatch.empty()
    starts = np.concatenate([[0], *(np.diff(batch.row_start) for batch in batches)])
    return ExampleBatch(
        np.concatenate([batch.log_time_ms for batch in batches]),
        np.concatenate([batch.id_hash for batch in batches]),
        np.concatenate([batch.label for batch in batches]),
        np.concatenate([batch.weight for batch in batches]),
        np.cumsum(starts),
        np.concatenate([batch.keys for batch in batches]),
        np.concatenate([batch.values for batch in batches]),
    )


def chosen(batch: ExampleBatch, rows: NDArray[np.int64]) -> ExampleBatch:
    """Some examples of a batch, in the order of their indices `rows`."""
    starts = np.concatenate([[0], np.cumsum(np.diff(batch.row_start)[rows])])
    at = np.arange(starts[-1]) + np.repeat(batch.row_start[rows] - starts[:-1], np.diff(starts))
    return ExampleBatch(
        batch.log_time_ms[rows],
        batch.id_hash[rows],
        batch.label[rows],
        batch.weight[rows],
        starts,
        batch.keys[at],
        batch.values[at],
    )


def compare(first: ExampleBatch, second: ExampleBatch) -> TickDifference | None:
    """The differences between the examples of a tick in two logs; None if they are the same in the same order."""
    if all(np.array_equal(a, b) for a, b in zip(_columns(first), _columns(second), strict=True)):
        return None
    rows, partners = pairs(first.id_hash, second.id_hash)
    differing = columns_that_differ(first, rows, second, partners)
    some = np.logical_or.reduce(list(differing.values()))
    return TickDifference(
        np.setdiff1d(np.arange(len(first)), rows),
        np.setdiff1d(np.arange(len(second)), partners),
        rows[some],
        partners[some],
        {name: column[some] for name, column in differing.items()},
        bool((np.diff(partners) < 0).any()),
    )


def pairs(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of equal ids, the n-th of one array with the n-th of the other: indices in both, the first ones rising.

    >>> pairs(np.array([7, 8, 7], np.uint64), np.array([7, 9, 8], np.uint64))
    (array([0, 1]), array([0, 2]))
    """
    _, rows, partners = np.intersect1d(_pairing(first), _pairing(second), assume_unique=True, return_indices=True)
    in_order = np.argsort(rows)
    return rows[in_order], partners[in_order]


def columns_that_differ(
    first: ExampleBatch, rows: NDArray[np.int64], second: ExampleBatch, partners: NDArray[np.int64]
) -> dict[str, NDArray[np.bool_]]:
    """For each of `COLUMNS` whether the examples `rows` of one batch and `partners` of another differ in it."""
    return {
        "label": first.label[rows] != second.label[partners],
        "weight": first.weight[rows] != second.weight[partners],
        "log_time": first.log_time_ms[rows] != second.log_time_ms[partners],
        "features": _features_differ(first, rows, second, partners),
    }


def _columns(batch: ExampleBatch) -> tuple[NDArray[np.generic], ...]:
    return (
        batch.id_hash,
        batch.label,
        batch.weight,
        batch.log_time_ms,
        batch.row_start,
        batch.keys,
        batch.values,
    )


def _pairing(ids: NDArray[np.uint64]) -> NDArray[Any]:
    """Each id, with how many equal ones are before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ids)])
    lengths = np.diff(np.append(begins, len(ids)))
    out = np.empty(len(ids), _PAIRING)
    out["id"] = ids
    out["repeat"][order] = np.arange(len(ids)) - np.repeat(begins, lengths)
    return out


def _features_differ(
    first: ExampleBatch, rows: NDArray[np.int64], second: ExampleBatch, partners: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """For each pair of examples: True if keys, values or their order differ."""
    lengths = np.diff(first.row_start)[rows]
    differ = lengths != np.diff(second.row_start)[partners]
    same = np.flatnonzero(~differ)
    pair = np.repeat(same, lengths[same])
    within = np.arange(len(pair)) - np.repeat(np.cumsum(lengths[same]) - lengths[same], lengths[same])
    a, b = first.row_start[rows[pair]] + within, second.row_start[partners[pair]] + within
    differ[pair[(first.keys[a] != second.keys[b]) | (first.values[a] != second.values[b])]] = True
    return differ
