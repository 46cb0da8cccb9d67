"""How long after its window closed an example is in the weights that a scorer answers with.

Live traffic of 5,000 impressions a second, 2 % clicks, ticks of 200 ms; joiner and learner in one process as
`stream-learner run` has them, a scorer in another. A tick counts from its end, by the events' own times, to the moment
at which the first version that contains it is served.

And how long examples wait for the training log where partitions are many and events few, by default settings but a
window of a minute: from the end of an impression's window to the moment at which every partition has passed its tick.
`LABELS_TREE` names the root of another version, whose joiner is then measured. `freshness:live` and
`freshness:partitions` measure one of both; `--quick` the first.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import yaml
from confluent_kafka import Producer

from benchmarks.bench_loop import PARTITIONS, Site, kafka
from benchmarks.label_run import Version
from benchmarks.label_streams import Stream, StreamRun, at_once
from benchmarks.rows import Row
from stream_learner.core.parts import compile_kernels
from stream_learner.roles.scorer.scorer import Scorer
from stream_learner.traffic.benchmark import benchmark_clicks, benchmark_impressions

RATE = 5_000
STEP_S = 0.01
TICK_MS = 200
GRACE_MS = 200
CLICK_DELAY_S = 0.5
FEW_PER_S = 2
FEW_S = 180
SETTINGS = {"window": "2s", "skew": "1s", "tick": f"{TICK_MS}ms", "grace": f"{GRACE_MS}ms", "close_idle": True}


SIZES = ((1, 1), (16, 1), (16, 16), (64, 1), (64, 64))
"""Partitions, and how many of them have events."""


def run(quick: bool, subjects: Sequence[str] = ("live", "partitions")) -> list[Row]:
    """Rows: p50 and p99 of freshness, then of partitions with few events."""
    rows = _live(quick) if "live" in subjects else []
    return rows + (_partitions() if "partitions" in subjects and not (quick and "live" in subjects) else [])


def _partitions() -> list[Row]:
    version = Version(Path(os.environ.get("LABELS_TREE") or Path(__file__).parents[1]).resolve())
    rows = []
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(SIZES)) as pool:
        runs = [
            StreamRun(
                Stream(
                    f"{used} of {partitions} partitions with events",
                    at_once,
                    judged_s=FEW_S,
                    partitions=partitions,
                    used=used,
                    per_s=FEW_PER_S,
                ),
                version,
                bootstrap,
                Path(folder),
            )
            for partitions, used in SIZES
        ]
        for found in pool.map(lambda one: one.row(), runs):
            name = found["name"].removeprefix("labels lost, live: ")
            note = f"{found['impressions']} impressions, {FEW_PER_S} a second; grace and poll included"
            rows += [
                {"name": f"wait p{q}, {name}", "value": found[f"wait_p{q}_s"], "unit": "s", "note": note}
                for q in (50, 99)
            ]
    return rows


def _live(quick: bool) -> list[Row]:
    seconds = 10 if quick else 40
    compile_kernels()
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
        site = Site(bootstrap, Path(folder))
        _configure(site)
        process = subprocess.Popen([sys.executable, "-m", "stream_learner", "run", "-c", str(site.file)])
        try:
            samples = _measure(site, seconds)
        finally:
            process.terminate()
            process.wait(30)
    if not samples:
        raise RuntimeError(f"no tick was served within {seconds} s of traffic")
    note = f"{len(samples)} ticks of {TICK_MS} ms, {RATE} impressions/s, grace {GRACE_MS} ms included"
    return [
        {"name": f"freshness p{q}", "value": round(float(np.percentile(samples, q))), "unit": "ms", "note": note}
        for q in (50, 99)
    ]


def _configure(site: Site) -> None:
    tree = yaml.safe_load(site.file.read_text(encoding="utf-8"))
    tree["join"].update(SETTINGS)
    tree["snapshots"]["interval"] = f"{TICK_MS}ms"
    tree["telemetry"] = {"log_level": "warning"}
    site.file.write_text(yaml.safe_dump(tree), encoding="utf-8")


def _measure(site: Site, seconds: int) -> list[float]:
    """Ages of ticks when they were first served, ms, without those of the first seconds."""
    served: list[tuple[float, int]] = []
    with Scorer(
        site.settings.bootstrap, site.model, on_version=lambda version: served.append((time.time() * 1000, version))
    ):
        began_ms = time.time() * 1000
        _produce(site, seconds)
        time.sleep(1)
    warm_ms = began_ms + min(5_000, seconds * 300)
    samples: list[float] = []
    for (_, before), (at_ms, version) in itertools.pairwise(served):
        ends = [(tick + 1) * TICK_MS for tick in range(max(before + 1, version - 50), version + 1)]
        samples += [at_ms - end for end in ends if end > warm_ms]
    return samples


def _produce(site: Site, seconds: int) -> None:
    """Send impressions at the rate as time passes, and each click some time after its impression."""
    count = RATE * seconds
    data, bounds = benchmark_impressions(count)
    clicks, click_bounds, index = benchmark_clicks(count)
    producer = Producer(
        {
            "bootstrap.servers": site.settings.bootstrap,
            "linger.ms": 5,
            "compression.type": "lz4",
            "enable.idempotence": True,
        }
    )
    began = time.monotonic()
    sent = clicked = 0
    while sent < count:
        time.sleep(STEP_S)
        passed = time.monotonic() - began
        due = min(int(passed * RATE), count)
        for i in range(sent, due):
            producer.produce(site.inputs[0], data[bounds[i] : bounds[i + 1]], partition=i % PARTITIONS)
        sent = due
        while clicked < len(index) and index[clicked] < (passed - CLICK_DELAY_S) * RATE:
            value = clicks[click_bounds[clicked] : click_bounds[clicked + 1]]
            producer.produce(site.inputs[1], value, partition=int(index[clicked]) % PARTITIONS)
            clicked += 1
        producer.poll(0)
    producer.flush(10)
