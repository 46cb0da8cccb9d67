"""Two ticks of two training logs, example by example.

In: the examples that each has. Out: which of them only one has, and in what the others differ.
This file must never let examples pass as equal that a fold would tell apart: neither in a column nor in their order.

Examples are paired by their id's hash; of several with one id, the first of one side with the first of the other, and
so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, to_batch

COLUMNS = ("label", "weight", "log_time", "features")
"""In what a pair may differ."""

_PAIRING = np.dtype([("id", np.uint64), ("repeat", np.int64)])


@dataclass(frozen=True)
class TickDifference:
    """How two batches differ; all numbers are rows of them.

    only_first, only_second i64[]: rows without a partner. first, second i64[p]: the pairs that differ, in the order of
    the first; columns: for each of `COLUMNS` whether they differ in it, bool[p]. reordered: whether the pairs are in
    another order in the second, equal ones included.
    """

    only_first: NDArray[np.int64]
    only_second: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    columns: dict[str, NDArray[np.bool_]]
    reordered: bool

    @property
    def count(self) -> int:
        """How many differences there are: examples that only one has, pairs, the order."""
        return len(self.only_first) + len(self.only_second) + len(self.first) + self.reordered


def together(records: Iterable[ExampleRecord]) -> ExampleBatch:
    """The examples of the records of a tick, in order, however they were cut."""
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
    """How the examples of a tick differ between two logs, None where they are the same in the same order."""
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
    """Each id with how many of its kind came before."""
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
    """Whether each pair of rows has other keys, values, or an order of them."""
    lengths = np.diff(first.row_start)[rows]
    differ = lengths != np.diff(second.row_start)[partners]
    same = np.flatnonzero(~differ)
    pair = np.repeat(same, lengths[same])
    within = np.arange(len(pair)) - np.repeat(np.cumsum(lengths[same]) - lengths[same], lengths[same])
    a, b = first.row_start[rows[pair]] + within, second.row_start[partners[pair]] + within
    differ[pair[(first.keys[a] != second.keys[b]) | (first.values[a] != second.values[b])]] = True
    return differ
