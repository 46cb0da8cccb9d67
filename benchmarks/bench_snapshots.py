"""Publish a model, apply it in a replica, predict with it: planning and bytes, without a broker."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.parts import REPLICA, compile_parts
from stream_learner.core.snapshots.pages import PagePlanner, PagePolicy, shard_prefix
from stream_learner.core.snapshots.records import Stamp, publication
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.rows import WeightRows, rows_between

SHARDS = 4
FEATURES = 39
ZIPF = 1.05
CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": {}, "metrics": {}}

Row = dict[str, Any]
Records = list[tuple[int, bytes, bytes | None]]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note."""
    compile_parts([REPLICA])
    rows = _at("1m", 1_000_000, quick)
    return rows if quick else rows + _at("10m", 10_000_000, quick)


class _Source:
    """A model of random weights, and its publications."""

    def __init__(self, features: int) -> None:
        self.rng = np.random.default_rng(11)
        keys = np.unique(self.rng.integers(1, 2**64, features, dtype=np.uint64))
        self.rows = WeightRows(keys, self.rng.standard_normal(len(keys)).astype(np.float32))
        self._planners: list[PagePlanner[WeightRows]] = [
            PagePlanner(shard_prefix(shard, SHARDS), PagePolicy()) for shard in range(SHARDS)
        ]
        self._tick = 0

    def publish(self, count: int) -> Records:
        """Change `count` weights; gives the records of the publication."""
        changed = np.sort(self.rng.choice(len(self.rows), count, replace=False))
        self.rows.weights[changed] += np.float32(0.25)
        delta = self.rows.where(changed)
        self._tick += 1
        records: Records = []
        for shard, planner in enumerate(self._planners):
            root = planner.root
            plan = planner.plan(
                rows_between(delta, root.bits, root.last),
                lambda prefix: rows_between(self.rows, prefix.bits, prefix.last),
            )
            planner.commit(plan)
            stamp = Stamp(shard, SHARDS, plan.sequence, 1, self._tick)
            content = CONTENT if shard == 0 else None
            records += [(shard, key, value) for key, value in publication(plan, stamp, 1, content)]
        return records


def _at(name: str, features: int, quick: bool) -> list[Row]:
    source = _Source(features)
    replica = Replica([0] * SHARDS)
    note = f"{len(source.rows):,} weights, {SHARDS} shards"
    first = source.publish(0)
    load_s, _ = _take(replica, first)
    rows = [
        _row(f"replica_load_{name}", load_s, "s", f"{note}, from bytes of the topic"),
        _row(f"replica_memory_{name}", replica.bytes / replica.rows, "bytes/row", note),
    ]
    for count in (1_000, 100_000):
        published, applied, sizes = [], [], []
        for _ in range(3 if quick else 9):
            begun = time.perf_counter()
            records = source.publish(count)
            published.append(time.perf_counter() - begun)
            sizes.append(sum(len(value or b"") for _, _, value in records))
            applied.append(_take(replica, records)[0])
        changed = f"{note}, {count:,} changed; median"
        rows.append(_row(f"publish_{name}_{count}", _median(published) * 1e3, "ms", f"{changed}, plan and encode"))
        rows.append(_row(f"publish_{name}_{count}_size", _median(sizes) / 1e6, "MB", changed))
        rows.append(_row(f"apply_{name}_{count}", _median(applied) * 1e3, "ms", f"{changed}, decode and both banks"))
    return rows + _predict(name, replica, source, 20_000 if quick else 100_000, note)


def _take(replica: Replica, records: Records) -> tuple[float, bool]:
    begun = time.perf_counter()
    for offset, (shard, key, value) in enumerate(records):
        replica.take(shard, offset, key, value)
    return time.perf_counter() - begun, replica.ready


def _predict(name: str, replica: Replica, source: _Source, events: int, note: str) -> list[Row]:
    """Events of distinct random features, drawn from a Zipf distribution over all keys; each is used once."""
    keys = source.rng.permutation(source.rows.keys)[_zipf(source.rng, len(source.rows), events * FEATURES)]
    values, row_start = np.ones(len(keys)), np.arange(0, len(keys) + 1, FEATURES)
    half = events // 2 * FEATURES
    begun = time.process_time()
    replica.predict(keys[:half], values[:half], row_start[: events // 2 + 1])
    many_s = time.process_time() - begun
    one_values, one_start, spent = values[:FEATURES], row_start[:2], []
    for event in range(events // 2, min(events, events // 2 + 20_000)):
        one = keys[event * FEATURES : (event + 1) * FEATURES]
        begun_ns = time.perf_counter_ns()
        replica.predict(one, one_values, one_start)
        spent.append(time.perf_counter_ns() - begun_ns)
    what = f"{note}, {FEATURES} hashed features, Zipf {ZIPF}"
    return [
        _row(f"predict_many_{name}", events // 2 / many_s, "events/s", f"{what}, CPU time"),
        _row(f"predict_one_{name}_p50", float(np.percentile(spent, 50)) / 1e3, "µs", what),
        _row(f"predict_one_{name}_p99", float(np.percentile(spent, 99)) / 1e3, "µs", what),
    ]


def _zipf(rng: np.random.Generator, ranks: int, count: int) -> NDArray[np.int64]:
    """Ranks from 0, with probability in proportion to 1 / (rank + 1) ** ZIPF (by inversion of its integral)."""
    exponent = 1.0 - ZIPF
    top = (ranks + 1.0) ** exponent
    drawn = (1.0 + rng.random(count) * (top - 1.0)) ** (1.0 / exponent)
    return np.minimum(drawn.astype(np.int64) - 1, ranks - 1)


def _median(values: list[float] | list[int]) -> float:
    return float(np.median(values))


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": name, "value": value, "unit": unit, "note": note}
