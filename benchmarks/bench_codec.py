"""Records of the training log: the dictionary of keys, encoding, decoding, and reading by rule R. No Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.dictionary import Scratch, number_keys
from stream_learner.core.log.examples import ExampleBatch, decode, encode_examples
from stream_learner.core.log.marks import GENESIS, ImpressionCounts, TickCounts
from stream_learner.core.log.rule_r import RuleR
from stream_learner.core.log.rule_w import Attempt
from stream_learner.core.parts import TRAINING_LOG, compile_parts

FEATURES = 39
ZIPF = 1.05
FEWEST_VALUES, MOST_VALUES = 10, 200_000
"""Distinct values of the narrowest and of the widest field; the others lie between them by equal ratios."""

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note, for several numbers of examples a batch."""
    compile_parts([TRAINING_LOG])
    keys = _keys(20_000 if quick else 200_000)
    rows: list[Row] = []
    for size in (100, 1000) if quick else (100, 1000, 4000, 10_000):
        rows += _measure(_batches(keys, size), size)
    return rows


def _measure(batches: list[ExampleBatch], size: int) -> list[Row]:
    scratch = Scratch()
    total = size * len(batches)
    dictionary_ns = _ns(lambda batch: _number(batch, scratch), batches) / total
    encode_ns = _ns(lambda batch: encode_examples(0, 5, 77, batch, scratch=scratch), batches) / total
    records = [record for batch in batches for record in encode_examples(0, 5, 77, batch, scratch=scratch)]
    decode_ns = _ns(decode, records) / total
    rule_ns = _rule_ns(batches, scratch) / total
    of = f"{FEATURES} features, {size} examples a batch"
    return [
        _row(f"dictionary_{size}", dictionary_ns, "ns/example", of),
        _row(f"encode_{size}", encode_ns, "ns/example", f"{of}, dictionary included"),
        _row(f"decode_{size}", decode_ns, "ns/example", f"{of}, everything checked"),
        _row(f"rule_r_{size}", rule_ns, "ns/example", f"{of}, decoding included, a mark each"),
        _row(f"bytes_{size}", sum(map(len, records)) / total, "B/example", f"{of}, {len(records)} records"),
    ]


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": f"codec.{name}", "value": round(value, 1), "unit": unit, "note": note}


def _ns(work: Callable[[Any], Any], inputs: list[Any]) -> int:
    """CPU time of one pass over the inputs, after one of them has been tried."""
    work(inputs[0])
    begin = time.process_time_ns()
    for one in inputs:
        work(one)
    return time.process_time_ns() - begin


def _number(batch: ExampleBatch, scratch: Scratch) -> None:
    if len(scratch.indices) < len(batch.keys):
        scratch.reserve(len(batch.keys))
    row = 0
    while row < len(batch):
        row, *_, scratch.slots, stamp = number_keys(
            scratch.table,
            scratch.slots,
            scratch.next_stamp(),
            batch.row_start,
            row,
            len(batch),
            batch.keys,
            batch.values,
            15,
            8,
            900_000,
            scratch.keys,
            scratch.indices,
            scratch.positions,
            scratch.values,
        )
        scratch.stamp = stamp + 1


def _rule_ns(batches: list[ExampleBatch], scratch: Scratch) -> int:
    """CPU time of reading a log of one tick a batch."""
    attempt = Attempt(0, 77, GENESIS, 0, scratch=scratch)
    log = [record for tick, batch in enumerate(batches) for record in _tick(attempt, tick, batch)]
    rule = RuleR(partition=0)
    begin = time.process_time_ns()
    for offset, value in enumerate(log):
        rule.take(offset, value)
    spent = time.process_time_ns() - begin
    if rule.accepted_marks != len(batches):
        raise RuntimeError(f"{rule.accepted_marks} ticks accepted of {len(batches)}")
    return spent


def _tick(attempt: Attempt, tick: int, batch: ExampleBatch) -> list[bytes]:
    counts = TickCounts(ImpressionCounts(read=len(batch), examples=len(batch)))
    return attempt.stamp(
        batch,
        first_tick=tick,
        last_tick=tick,
        next_impression=0,
        first_click=0,
        click_cursor=0,
        counts=counts,
    )


def _keys(examples: int) -> NDArray[np.uint64]:
    """Keys of a table of examples: each field's values by Zipf's law, spread over 64 bits as a hash would."""
    rng = np.random.default_rng(7)
    columns = []
    for field in range(FEATURES):
        values = int(FEWEST_VALUES * (MOST_VALUES / FEWEST_VALUES) ** (field / (FEATURES - 1)))
        weights = np.cumsum(1 / np.arange(1, values + 1) ** ZIPF)
        drawn = np.searchsorted(weights, rng.random(examples) * weights[-1])
        columns.append(drawn.astype(np.uint64) * np.uint64(FEATURES) + np.uint64(field + 1))
    keys: NDArray[np.uint64] = np.stack(columns, axis=1).reshape(-1) * np.uint64(0xBF58476D1CE4E5B9)
    keys ^= keys >> np.uint64(31)
    return keys


def _batches(keys: NDArray[np.uint64], size: int) -> list[ExampleBatch]:
    """Batches of `size` examples each, a tenth of them positive."""
    step = size * FEATURES
    row_start = np.arange(size + 1, dtype=np.int64) * FEATURES
    label = (np.arange(size) % 10 == 0).astype(np.float64)
    ids = np.arange(1, size + 1, dtype=np.uint64)
    times, ones, values = np.arange(size, dtype=np.int64), np.ones(size), np.ones(step)
    return [
        ExampleBatch(times, ids, label, ones, row_start, keys[at : at + step], values)
        for at in range(0, len(keys) - step + 1, step)
    ]
