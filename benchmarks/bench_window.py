"""Memory that clicks take while they may still count, beside the arithmetic of `docs/performance-growth.md`.

A partition's clicks of a billion impressions a day, 2 % of them clicked, for windows of a minute, half an hour and six
hours (not with `--quick`). Clicks come and go through the join until the tables have reached their size; then the
memory of the process is asked for. Each window is a process of its own: `python -m benchmarks.bench_window WINDOW_S`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_memory import resident_mib
from benchmarks.cost import BILLION
from benchmarks.rows import Row
from stream_learner.adapters import machine as allocator
from stream_learner.core.events.decoders import Clicks, Impressions
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.model.table.bounded import MIB
from stream_learner.core.parts import JOIN, compile_parts
from stream_learner.operations.doctor.sizing import Traffic, click_memory_bytes, remembered_clicks

WINDOWS_S = (60, 1_800, 21_600)
BATCH = 2_000
TICK_MS = 10_000
SPANS = 3
"""So many times the clicks that are remembered at once come and go."""


def run(quick: bool) -> list[Row]:
    """Rows for each window: bytes a click as measured, and as reckoned."""
    return [row for window_s in (WINDOWS_S[:2] if quick else WINDOWS_S) for row in rows_of(window_s)]


def rows_of(window_s: int) -> list[Row]:
    """How many clicks a window remembers, and bytes for each, as measured in a process of its own and as reckoned."""
    command = [sys.executable, "-m", __name__, str(window_s)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    found = json.loads(answer.splitlines()[-1])
    traffic = replace(BILLION, window_s=window_s)
    reckoned = click_memory_bytes(traffic) / remembered_clicks(traffic)
    note = f"{found['clicks']:,} clicks remembered"
    return [
        {"name": f"{window_s}: clicks", "value": found["clicks"], "unit": "", "note": note},
        {"name": f"{window_s}: bytes", "value": found["bytes"] / found["clicks"], "unit": "bytes/click", "note": note},
        {"name": f"{window_s}: at most", "value": reckoned, "unit": "bytes/click", "note": "by arithmetic"},
    ]


def measured(traffic: Traffic) -> dict[str, float]:
    """How many clicks a join remembers at the end, and by how many bytes the memory of this process has grown."""
    allocator.keep_little()
    compile_parts([JOIN])
    spec = JoinSpec(
        window_ms=int(traffic.window_s * 1000),
        skew_ms=int(traffic.skew_s * 1000),
        tick_ms=TICK_MS,
        dedupe_ms=0,
        lateness_ms=int(traffic.lateness_s * 1000),
        agree=1,
    )
    join, scratch, waiting = JoinState(spec, impression_start=0, click_start=0), ExampleScratch(), 0
    step_ms = 1000 / (traffic.a_s * traffic.click_share)
    before_mib = resident_mib()
    for batch in range(int(SPANS * remembered_clicks(traffic)) // BATCH):
        numbers = np.arange(batch * BATCH, (batch + 1) * BATCH, dtype=np.int64)
        times = 10**12 + (numbers * step_ms).astype(np.int64)
        join.add_clicks(numbers, Clicks(np.zeros(BATCH, np.uint8), times, _ids(numbers), np.ones(BATCH)))
        join.add_impressions(numbers[:1] // BATCH, _impression(numbers[-1:], times[-1:]))
        while cut := join.next_cut(allow_empty=True):
            waiting = join.emit(cut, scratch).counts.clicks.waiting
    return {"clicks": waiting, "bytes": (resident_mib() - before_mib) * MIB}


def _impression(number: NDArray[np.int64], time_ms: NDArray[np.int64]) -> Impressions:
    """An impression without features, so that the other topic's time goes on, too."""
    nothing = np.zeros(0, np.uint64), np.zeros(0)
    return Impressions(np.zeros(1, np.uint8), time_ms, _ids(number), np.ones(1), np.zeros(2, np.int64), *nothing)


def _ids(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    spread: NDArray[np.uint64] = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return spread


if __name__ == "__main__":
    print(json.dumps(measured(replace(BILLION, window_s=int(sys.argv[1])))))
