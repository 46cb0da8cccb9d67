"""Compares a tick of two training logs, example by example.

Two examples are equal if a fold cannot tell them apart: in all columns, and in their order. They are paired by the hash
of their id; of several with one id, the first of one log with the first of the other, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    batches = [to_batch(record) for record in records]
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


def compare(first: ExampleBatch, second: ExampleBatch) -> TickDifference | None:
    """The differences between the examples of a tick in two logs; None if they are the same in the same order."""
    if all(np.array_equal(a, b) for a, b in zip(_columns(first), _columns(second), strict=True)):
        return None
    _, rows, partners = np.intersect1d(
        _pairing(first.id_hash), _pairing(second.id_hash), assume_unique=True, return_indices=True
    )
    in_order = np.argsort(rows)
    rows, partners = rows[in_order], partners[in_order]
    differing = {
        "label": first.label[rows] != second.label[partners],
        "weight": first.weight[rows] != second.weight[partners],
        "log_time": first.log_time_ms[rows] != second.log_time_ms[partners],
        "features": _features_differ(first, rows, second, partners),
    }
    some = np.logical_or.reduce(list(differing.values()))
    return TickDifference(
        np.setdiff1d(np.arange(len(first)), rows),
        np.setdiff1d(np.arange(len(second)), partners),
        rows[some],
        partners[some],
        {name: column[some] for name, column in differing.items()},
        bool((np.diff(partners) < 0).any()),
    )


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
