"""The fold and its memory as the model grows: from 10,000 features to 100 million, as far as memory reaches.

The examples are those of `bench_fold`: 39 features by Zipf's law, 4,000 examples a record, none seen twice. The model
knows all its features before, so what is measured is a model that has stopped growing.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np

from benchmarks.bench_fold import SETTINGS, Keyed, _load, _row
from benchmarks.rows import Row
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.parts import FOLD, compile_parts

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
RECORD = 4000
WHILE_IT_IS_MADE = 110
"""Bytes a feature that this needs beside the table, at most."""


def run(quick: bool) -> list[Row]:
    """Rows for each size that fits into the memory that is free; sizes above a million only if it is not quick."""
    compile_parts([FOLD])
    examples = 40_000 if quick else 200_000
    rows: list[Row] = []
    for keys in SIZES[:3] if quick else SIZES:
        if keys * WHILE_IT_IS_MADE <= _available():
            rows += _measure(keys, examples)
    return rows


def _available() -> int:
    """Bytes of memory that nobody needs now."""
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.M)
    return int(found[1]) * 1024 if found else 0


def _measure(keys: int, examples: int) -> list[Row]:
    rng = np.random.default_rng(7)
    world = Keyed(keys)
    learner = Learner(FtrlProximal(**SETTINGS))
    _load(learner, world.known)
    spent_ns, distinct = 0, 0
    for record in world.records(examples, RECORD, rng):
        begun = time.process_time_ns()
        learner.fold(record, learner.examples // 10_000 + 1)
        spent_ns += time.process_time_ns() - begun
        distinct += len(record.keys)
    known = f"{len(world.known):,} features"
    rows = f"{known}, {distinct / examples:.1f} rows of the table an example, CPU time"
    return [
        _row(f"growth_fold_{keys}", spent_ns / examples, "ns/example", rows),
        _row(f"growth_bytes_{keys}", learner.table.bytes / learner.table.count, "bytes/feature", known),
    ]
