"""The fold, from decoded records of the training log to rows of the weight table; beside Vowpal Wabbit and River."""

from __future__ import annotations

import importlib
import importlib.util
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.model.table.rows import StateRows
from stream_learner.core.parts import FOLD, compile_parts

FEATURES = 39
ZIPF = 1.05
FEWEST_VALUES = 10
CLICK_RATE = 0.05
SETTINGS = {"alpha": 0.1, "beta": 1.0, "l1": 1.0, "l2": 1.0}

Row = dict[str, Any]
Keys = NDArray[np.uint64]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note."""
    compile_parts([FOLD])
    rows = _state_of(1_000_000, 30_000 if quick else 400_000, "1m")
    if not quick:
        rows += _state_of(10_000_000, 400_000, "10m")
    return rows + _side_by_side(10_000 if quick else 100_000)


def _state_of(keys: int, examples: int, name: str) -> list[Row]:
    """A model that knows all its keys: load, fold in batches of two sizes, digest. No example is seen twice."""
    rng = np.random.default_rng(7)
    table = Keyed(keys)
    rows = []
    for size in (1000, 4000):
        learner = Learner(FtrlProximal(**SETTINGS))
        load_s = _load(learner, table.known)
        spent_ns, distinct = 0, 0
        for record in table.records(examples, size, rng):
            begun = time.process_time_ns()
            learner.fold(record, learner.examples // 10_000 + 1)
            spent_ns += time.process_time_ns() - begun
            distinct += len(record.keys)
        note = f"{len(table.known):,} features, {FEATURES} an example, {size} examples a record, one pass, CPU time"
        rows.append(_row(f"fold_{name}_{size}", examples / spent_ns * 1e9, "examples/s", note))
        touched = f"{distinct / examples:.1f} rows of the table an example"
        rows.append(_row(f"fold_{name}_{size}_each", spent_ns / examples, "ns/example", touched))
    started = time.perf_counter()
    learner.digest_full()
    digest_s = time.perf_counter() - started
    size_note = f"{learner.table.bytes / learner.table.count:.0f} bytes a feature"
    rows.append(_row(f"load_{name}", load_s, "s", f"rows into the table, rising keys, {size_note}"))
    rows.append(_row(f"digest_full_{name}", digest_s, "s", "digest made again from all rows"))
    return rows


def _side_by_side(examples: int) -> list[Row]:
    """From an empty model, the same examples for everybody, in one process on one core."""
    rng = np.random.default_rng(11)
    table = Keyed(1_000_000)
    records = list(table.records(examples, 4000, rng))
    learner = Learner(FtrlProximal(**SETTINGS))
    begun = time.process_time_ns()
    for record in records:
        learner.fold(record, 0)
    ours = examples / (time.process_time_ns() - begun) * 1e9
    note = f"{examples:,} examples from an empty model, CPU time"
    loss = learner.progress.summary()["log_loss"]
    rows = [_row("ours_from_empty", ours, "examples/s", f"{note}; log-loss {loss:.6f}")]
    if importlib.util.find_spec("vowpalwabbit"):
        rate, loss = _vw(records)
        rows.append(_row("vw_ftrl_from_cache", rate, "examples/s", f"{note} of both its threads; log-loss {loss:.6f}"))
        rows.append(_row("times_vw", ours / rate, "x", "ours_from_empty / vw_ftrl_from_cache"))
    if importlib.util.find_spec("river"):
        rate = _river(records[0])
        rows.append(_row("river_ftrl", rate, "examples/s", f"the first {len(records[0]):,} of the same, CPU time"))
        rows.append(_row("times_river", ours / rate, "x", "ours_from_empty / river_ftrl"))
    return rows


def _vw(records: list[ExampleRecord]) -> tuple[float, float]:
    """Examples a second of `vw --ftrl` reading its own cache, and its average log-loss; it has 2^20 weights."""
    workspace = importlib.import_module("vowpalwabbit").Workspace

    with tempfile.TemporaryDirectory() as directory:
        text, cache = Path(directory, "examples.txt"), Path(directory, "examples.cache")
        with text.open("w") as lines:
            for features, label in _examples(records):
                lines.write(f"{1 if label else -1} |f {' '.join(str(key % (1 << 20)) for key in features)}\n")
        flags = (
            f"--ftrl --ftrl_alpha {SETTINGS['alpha']} --ftrl_beta {SETTINGS['beta']} --l1 {SETTINGS['l1']} "
            f"--l2 {SETTINGS['l2']} --loss_function logistic -b 20 --quiet --cache_file {cache}"
        )
        writer = workspace(f"{flags} -d {text} -k")
        writer.run_parser()
        writer.finish()
        reader = workspace(flags)
        begun = time.process_time_ns()
        reader.run_parser()
        spent_ns = time.process_time_ns() - begun
        examples, loss = reader.get_weighted_examples(), reader.get_sum_loss()
        reader.finish()
    return examples / spent_ns * 1e9, loss / examples


def _river(record: ExampleRecord) -> float:
    """Examples a second of River's logistic regression with its FTRL-Proximal."""
    from river import linear_model, optim

    model = linear_model.LogisticRegression(optim.FTRLProximal(**SETTINGS), intercept_lr=0.0)
    examples = [(dict.fromkeys(map(str, features), 1.0), bool(label)) for features, label in _examples([record])]
    begun = time.process_time_ns()
    for features, label in examples:
        model.predict_proba_one(features)
        model.learn_one(features, label)
    return len(examples) / (time.process_time_ns() - begun) * 1e9


class Keyed:
    """39 fields of very different width, Zipf-distributed, that have about so many keys together."""

    def __init__(self, keys: int) -> None:
        widest = FEWEST_VALUES * _ratio(keys) ** (FEATURES - 1)
        self._widths = np.geomspace(FEWEST_VALUES, widest, FEATURES).astype(np.int64)
        self._starts = np.cumsum(self._widths) - self._widths
        self._chances = [np.cumsum(np.arange(1, w + 1) ** -ZIPF) for w in self._widths]
        self.known = np.sort(_spread(np.arange(1, int(self._widths.sum()) + 1, dtype=np.uint64)))

    def records(self, examples: int, size: int, rng: np.random.Generator) -> Iterator[ExampleRecord]:
        """Records of up to `size` examples, the last may be shorter; all values 1."""
        for start in range(0, examples, size):
            count = min(size, examples - start)
            columns = [
                np.searchsorted(chances, rng.random(count) * chances[-1]) + first + 1
                for chances, first in zip(self._chances, self._starts, strict=True)
            ]
            keys = _spread(np.stack(columns, axis=1).astype(np.uint64))
            yield _record(keys, rng.random(count) < CLICK_RATE, start)


def _record(keys: Keys, clicked: NDArray[np.bool_], start: int) -> ExampleRecord:
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.uint16)
    place[order] = np.arange(len(order))
    count = len(keys)
    return ExampleRecord(
        partition=0,
        tick=0,
        attempt=1,
        sequence=0,
        log_time_ms=np.arange(start, start + count, dtype=np.int64),
        id_hash=np.arange(1, count + 1, dtype=np.uint64),
        label=clicked.astype(np.float64),
        weight=np.ones(count),
        keys=distinct[order],
        indices=place[inverse].ravel(),
        row_len=np.full(count, FEATURES, np.uint16),
        positions=np.zeros(0, np.uint32),
        values=np.zeros(0),
    )


def _examples(records: list[ExampleRecord]) -> Iterator[tuple[list[int], float]]:
    for record in records:
        features = record.keys[record.indices].reshape(-1, FEATURES).tolist()
        yield from zip(features, record.label.tolist(), strict=True)


def _spread(numbers: Keys) -> Keys:
    """Numbers to hashes, one to one."""
    z = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: Keys = z ^ (z >> np.uint64(31))
    return spread


def _ratio(keys: int) -> float:
    """The ratio of neighbouring widths at which a geometric series of 39 from the narrowest makes so many keys."""
    low, high = 1.0, 3.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        total = FEWEST_VALUES * (middle**FEATURES - 1.0) / (middle - 1.0)
        low, high = (middle, high) if total < keys else (low, middle)
    return low


def _load(learner: Learner, keys: Keys) -> float:
    rows = StateRows(keys, np.full((len(keys), 2), 0.01), np.zeros(len(keys), np.int64))
    begun = time.perf_counter()
    learner.table.expect(len(keys))
    learner.table.load(rows)
    return time.perf_counter() - begun


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": name, "value": value, "unit": unit, "note": note}
