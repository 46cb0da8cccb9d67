"""The join alone: decoded columns in, examples of ticks out.

Dedupe, probe for clicks, gather; no decoding, no Kafka. CPU time.
"""

from __future__ import annotations

import time

import numpy as np

from stream_learner.core.events.decoders import Clicks, Impressions
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.parts import JOIN, compile_parts

FEATURES = 39
BATCH = 1000
CLICK_SHARE = 0.02
POOL = 64
PER_MS = 50
"""Impressions in a millisecond of event time."""


def _pool(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Batches of features to be given in turn; together larger than the nearest caches."""
    row_start = np.arange(BATCH + 1, dtype=np.int64) * FEATURES
    size = BATCH * FEATURES
    return [(row_start, rng.integers(1, 2**63, size).astype(np.uint64), np.ones(size)) for _ in range(POOL)]


def _measure(name: str, batches: int, ids: int, window_ms: int, tick_ms: int, repeat_share: float) -> dict:
    """With `ids` distinct ids within `dedupe` of log time, once the tables have reached their size."""
    rng = np.random.default_rng(7)
    pool = _pool(rng)
    join = JoinState(
        JoinSpec(window_ms=window_ms, skew_ms=1000, tick_ms=tick_ms, dedupe_ms=max(1, ids // PER_MS)),
        impression_start=0,
        click_start=0,
    )
    scratch = ExampleScratch()
    warm_batches = 2 * ids // BATCH
    spent, examples, clicks_at, waiting, start_ms = 0, 0, 0, 0, 10**12
    for b in range(warm_batches + batches):
        offsets = np.arange(b * BATCH, (b + 1) * BATCH, dtype=np.int64)
        impressions = _impressions(rng, offsets, start_ms, pool[b % POOL], repeat_share)
        clicked = impressions.id_hash[rng.random(BATCH) < CLICK_SHARE]
        clicks = _clicks(rng, clicked, int(impressions.time_ms[-1]) + window_ms)
        click_offsets = np.arange(clicks_at, clicks_at + len(clicks), dtype=np.int64)
        clicks_at += len(clicks)
        begin = time.process_time_ns()
        join.add_impressions(offsets, impressions)
        join.add_clicks(click_offsets, clicks)
        made = 0
        while cut := join.next_cut(allow_empty=False):
            output = join.emit(cut, scratch)
            made += len(output.examples)
            waiting = output.counts.clicks.waiting
        if b >= warm_batches:
            spent += time.process_time_ns() - begin
            examples += made
    return {
        "name": f"join.{name}",
        "value": spent / (batches * BATCH),
        "unit": "ns/impression",
        "note": f"{ids / 1e6:g} M ids in dedupe, {waiting} clicks, {examples} examples, tick {tick_ms} ms",
    }


def _impressions(rng, offsets, start_ms, features, repeat_share) -> Impressions:
    numbers = offsets.astype(np.uint64)
    repeats = rng.random(BATCH) < repeat_share
    numbers[1:][repeats[1:]] = numbers[:-1][repeats[1:]]
    row_start, keys, values = features
    return Impressions(
        np.zeros(BATCH, np.uint8),
        start_ms + offsets // PER_MS,
        numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1),
        np.ones(BATCH),
        row_start,
        keys,
        values,
    )


def _clicks(rng, ids, time_ms) -> Clicks:
    n = len(ids)
    times = np.sort(time_ms - rng.integers(0, 1000, n)) if n else np.zeros(0, np.int64)
    if n:
        times[-1] = time_ms
    return Clicks(np.zeros(n, np.uint8), times, ids, np.ones(n))


def run(quick: bool) -> list[dict]:
    """Rows of name, value, unit, note."""
    compile_parts([JOIN])
    scale = 1 if quick else 4
    rows = [
        _measure("small", 100 * scale, 100_000, 60_000, 200, 0.0),
        _measure("duplicates", 100 * scale, 100_000, 60_000, 200, 0.02),
        _measure("small_ticks", 100 * scale, 100_000, 60_000, 20, 0.0),
        _measure("large", 100 * scale, 300_000 if quick else 3_000_000, 600_000, 200, 0.0),
    ]
    return rows


if __name__ == "__main__":
    for row in run(quick=True):
        print(f"{row['name']:20} {row['value']:8.1f} {row['unit']}   {row['note']}")
