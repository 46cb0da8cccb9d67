"""Accepted ticks with examples and marks, as a learner is handed them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode, encode_examples
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick

Example = tuple[int, float, float, tuple[int, ...]]
"""Id hash, label, weight, feature keys."""


def example(rng: random.Random, share: float, keys: int = 50) -> Example:
    label = float(rng.random() < share)
    found = tuple(sorted(rng.sample(range(1, keys), rng.randrange(1, 6))))
    return rng.getrandbits(64) or 1, label, rng.choice([1.0, 1.0, 2.5]), found


def record(examples: Sequence[Example], partition: int = 0, tick: int = 0) -> ExampleRecord:
    row_start = np.cumsum([0, *(len(keys) for *_, keys in examples)])
    keys = np.array([key for *_, found in examples for key in found], np.uint64)
    batch = ExampleBatch(
        np.zeros(len(examples), np.int64),
        np.array([id_hash for id_hash, *_ in examples], np.uint64),
        np.array([label for _, label, *_ in examples]),
        np.array([weight for _, _, weight, _ in examples]),
        row_start.astype(np.int64),
        keys,
        np.where(keys % np.uint64(3) == 0, 0.5, 1.0),
    )
    out = decode(encode_examples(partition, tick, 1, batch)[0])
    assert isinstance(out, ExampleRecord)
    return out


def mark(partition: int, tick: int, examples: Sequence[Example] = (), *, first: int = -1, **clicks: int) -> Mark:
    positives = sum(label > 0 for _, label, *_ in examples)
    counts = TickCounts(
        ImpressionCounts(read=len(examples), examples=len(examples), positives=positives),
        ClickCounts(**{"matched": positives, **clicks}),
    )
    return Mark(partition, 1, tick if first < 0 else first, tick, 0, 0, 0, 1, 1, tick - 1, counts)


def accepted(tick: int, by_partition: Sequence[Sequence[Example]], records: int = 1) -> list[AcceptedTick]:
    """A tick of several partitions, the examples of each cut into so many records."""
    out = []
    for partition, examples in enumerate(by_partition):
        step = max(1, -(-len(examples) // records))
        parts = [examples[begin : begin + step] for begin in range(0, len(examples), step)]
        held = [(number, record(part, partition, tick)) for number, part in enumerate(parts)]
        out.append(AcceptedTick(mark(partition, tick, examples), 0, held))
    return out


def predictions(part: ExampleRecord) -> NDArray[np.float64]:
    """Predictions that depend on each example's features alone."""
    rows = np.split(part.keys[part.indices], np.cumsum(part.row_len)[:-1])
    return np.array([(int(row.sum()) % 97) / 300 for row in rows])
