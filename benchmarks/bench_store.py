"""Checkpoints on disk: the first one, later ones, and the restart from them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.parts import FOLD, compile_parts
from stream_learner.core.snapshots.pages import Prefix
from stream_learner.core.snapshots.rows import StateRows, rows_between

SHARDS = 4
IDENTITY = {"model": "bench"}

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note."""
    compile_parts([FOLD])
    rows = _at("1m", 1_000_000)
    return rows if quick else rows + _at("10m", 10_000_000)


def _at(name: str, features: int) -> list[Row]:
    rng = np.random.default_rng(13)
    keys = np.unique(rng.integers(1, 2**64, features, dtype=np.uint64))
    state = StateRows(keys, rng.random((len(keys), 2)), np.zeros(len(keys), np.int64))
    note = f"{len(keys):,} features, two columns, {SHARDS} shards"
    with tempfile.TemporaryDirectory(prefix="bench-store-") as folder:
        with _open(folder) as store:
            rows = [_row(f"checkpoint_all_{name}", _write(store, state, state, 1)[0], "s", f"{note}, all rows")]
            later = []
            for tick in range(2, 6):
                chosen = np.zeros(len(keys), np.bool_)
                chosen[rng.choice(len(keys), len(keys) // 10, replace=False)] = True
                state.columns[chosen] += 1.0
                later.append(_write(store, state, state.where(chosen), tick))
        seconds, longest = np.median(np.array(later), axis=0)
        tenth = f"{note}, a tenth of them changed; median of {len(later)}"
        rows.append(_row(f"checkpoint_tenth_{name}", float(seconds), "s", tenth))
        rows.append(_row(f"checkpoint_step_{name}", float(longest) * 1e3, "ms", f"{tenth}, longest single write"))
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        rows.append(_row(f"checkpoint_disk_{name}", size / len(keys), "bytes/feature", f"{note}, after those"))
        rows.append(_row(f"restart_{name}", _restart(folder), "s", f"{note}, open, read, fill the table"))
    return rows


def _open(folder: str) -> CheckpointStore:
    return CheckpointStore.open(folder, IDENTITY, shards=SHARDS, ncols=2)


def _write(store: CheckpointStore, state: StateRows, changed: StateRows, tick: int) -> tuple[float, float]:
    """Seconds for a checkpoint, and for its longest step."""

    def below(prefix: Prefix) -> StateRows:
        return rows_between(state, prefix.bits, prefix.last)

    begun, longest, more = time.perf_counter(), 0.0, True
    writer = store.begin(changed, below, version=tick, digest=tick, head={"rows": len(state)})
    while more:
        step = time.perf_counter()
        more = writer.step()
        longest = max(longest, time.perf_counter() - step)
    writer.commit()
    return time.perf_counter() - begun, longest


def _restart(folder: str) -> float:
    begun = time.perf_counter()
    learner = Learner(FtrlProximal())
    with _open(folder) as store:
        loaded = store.load()
        if loaded is None:
            raise RuntimeError("the checkpoint is gone")
        learner.table.expect(loaded.head["rows"])
        for rows in loaded.rows:
            learner.table.load(rows)
    return time.perf_counter() - begun


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": name, "value": value, "unit": unit, "note": note}
