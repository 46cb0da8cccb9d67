"""A model larger than memory: an hour's worth of traffic folded with `learner.memory` set, checkpoints included.

The state is built by a process of its own and is on disk when the learner opens it. The traffic is replayed as fast as
it goes: what a live learner has an hour for happens within minutes, so the index of rows gets less time than it would.
No Kafka takes part. The system notes the highest resident memory; what it is now is asked ten times a second.

What is set is `learner.memory` and the share of the process itself. That is measured first, by the same program with a
model of 10,000 features: its highest resident memory, without what table and cache hold of so small a model.

Steps one by one, to replay over a state again (it goes on from where the last replay left it):
`python -m benchmarks.bench_memory build FOLDER FEATURES`, then
`python -m benchmarks.bench_memory replay FOLDER FEATURES MEMORY_MIB EXAMPLES EXAMPLES_PER_RECORD`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_fold import CLICK_RATE, FEATURES, SETTINGS, ZIPF, _record, _row, _spread
from stream_learner.adapters import machine as allocator
from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.model.table import kernels
from stream_learner.core.model.table.bounded import MIB, MemoryBudget
from stream_learner.core.parts import FOLD, compile_parts
from stream_learner.core.snapshots.pages import Prefix
from stream_learner.core.snapshots.rows import StateRows, rows_between
from stream_learner.roles.learner.row_index import RowIndexFollower

SHARDS = 4
IDENTITY = {"model": "bench"}
COLUMNS = 2
NARROWEST = 10
SMALL_FEATURES, SMALL_RECORDS = 10_000, 400
CHECKPOINT_TICKS = 120
PUBLICATION_TICKS = 10

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note."""
    settings = (2_000_000, 40, 20_000, 100) if quick else (100_000_000, 256, 3_600_000, 1000)
    return _measured(*settings)


def _measured(features: int, memory_mib: int, examples: int, rate: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as folder:
        small = str(Path(folder) / "small")
        _child("build", small, SMALL_FEATURES)
        process = _child("replay", small, SMALL_FEATURES, memory_mib, SMALL_RECORDS * rate, rate)
        built = _child("build", folder, features)
        found = _child("replay", folder, features, memory_mib, examples, rate)
    hours = examples / rate / 3600
    name = f"{features / 1e6:g}m"
    note = f"{built['rows']:,} features, learner.memory {memory_mib} MiB, {examples:,} examples of {FEATURES} features"
    pace = f"{note}: {hours:.2g} h of {rate} a second, a checkpoint every {CHECKPOINT_TICKS} s of it or earlier"
    process_mib = process["peak_mib"] - process["held_mib"]
    set_mib = memory_mib + process_mib
    what = f"highest resident memory over learner.memory and the share of the process ({process_mib:.0f} MiB)"
    before_mib = memory_mib + found["base_mib"]
    strict = f"the same, of the process only what it took before it opened the state ({found['base_mib']:.0f} MiB)"
    return [
        _row(f"memory_{name}_examples", found["rate"], "examples/s", pace),
        _row(f"memory_{name}_examples_cpu", found["cpu_rate"], "examples/s", "for each second of processor time"),
        _row(f"memory_{name}_resident", found["peak_mib"], "MiB", f"highest, of {set_mib:.0f} MiB set; {note}"),
        _row(f"memory_{name}_resident_share", found["peak_mib"] / set_mib, "x", what),
        _row(f"memory_{name}_resident_before", found["peak_mib"] / before_mib, "x", strict),
        _row(f"memory_{name}_resident_mean", found["mean_mib"] / set_mib, "x", "mean instead of highest"),
        _row(f"memory_{name}_resident_last", found["last_mib"] / set_mib, "x", "mean of the last tenth of the time"),
        _row(
            f"memory_{name}_missed", found["missed"], "rows/example", f"not in memory; fetched {found['fetched']:.2f}"
        ),
        _row(f"memory_{name}_missed_record", found["missed"] * rate, "rows/record", f"{rate} examples a record"),
        _row(f"memory_{name}_in_memory", found["resident"], "rows", f"in memory at the end of {found['count']:,}"),
        _row(
            f"memory_{name}_evicted", found["evicted"], "rows", "have left memory; 0 would mean that it was never full"
        ),
        _row(f"memory_{name}_checkpoints", found["checkpoints"], "", f"{found['waited']:.0%} of the time waited for"),
        _row(f"memory_{name}_longest", found["longest_s"], "s", "longest turn: a record folded, or a checkpoint begun"),
        _row(f"memory_{name}_index", found["index_s"], "s", "index of rows made anew from pages and deltas"),
        _row(f"memory_{name}_start", found["start_s"], "s", "from opening the state to the first record, index made"),
    ]


def _child(what: str, folder: str, *numbers: int) -> dict[str, Any]:
    """Run `build` or `replay` in a process of its own; what it prints."""
    command = [sys.executable, "-m", __name__, what, folder, *map(str, numbers)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])  # before it, the log
    return found


def _widths(features: int) -> NDArray[np.int64]:
    """How many values each field has: geometric, from `NARROWEST` on, together about so many."""
    low, high = 1.0, float(features)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.geomspace(NARROWEST, middle, FEATURES).sum() < features else (low, middle)
    return np.geomspace(NARROWEST, low, FEATURES).astype(np.int64)


def _traffic(features: int, examples: int, rate: int) -> Iterator[ExampleRecord]:
    """Records of `rate` examples; values of a field by Zipf's law, drawn without a table of its chances."""
    rng = np.random.default_rng(3)
    widths = _widths(features)
    starts = np.cumsum(widths) - widths
    power = 1.0 - ZIPF
    for start in range(0, examples, rate):
        u = rng.random((rate, FEATURES))
        ranks = (1.0 + u * ((widths + 1.0) ** power - 1.0)) ** (1.0 / power)
        values = np.minimum(ranks.astype(np.int64), widths) + starts
        yield _record(_spread(values.astype(np.uint64)), rng.random(rate) < CLICK_RATE, start)


def _open(folder: str, rows_bytes: int | None) -> CheckpointStore:
    return CheckpointStore.open(folder, IDENTITY, shards=SHARDS, ncols=COLUMNS, rows_bytes=rows_bytes)


def _build(folder: str, features: int) -> dict[str, Any]:
    """A checkpoint of all features, each touched in tick 0."""
    keys = np.sort(_spread(np.arange(1, int(_widths(features).sum()) + 1, dtype=np.uint64)))
    rng = np.random.default_rng(5)
    columns = rng.normal(size=(len(keys), COLUMNS))
    columns[:, 1] = np.abs(columns[:, 1]) + 1.0
    rows = StateRows(keys, columns, np.zeros(len(keys), np.int64))
    digest = int(kernels.sum_digests(address_of(keys), address_of(columns), len(keys), COLUMNS)) % (1 << 64)

    def below(prefix: Prefix) -> StateRows:
        return rows_between(rows, prefix.bits, prefix.last)

    head = {"rows": len(keys), "learner": {"rows_digest": f"{digest:016x}"}}
    with _open(folder, None) as store:
        store.begin(rows.part(0, 0), below, version=0, digest=0, head=head).commit()
    return {"rows": len(keys)}


class _Replay:
    """A learner with a bounded table over the state in a folder, driven as the role drives one."""

    def __init__(self, folder: str, budget: MemoryBudget) -> None:
        self.learner = Learner(FtrlProximal(**SETTINGS))
        self.store = _open(folder, budget.rocksdb_bytes)
        assert self.store.rows is not None
        begun = time.perf_counter()
        self.row_index = RowIndexFollower(self.store, self.store.rows, budget, self.learner)
        self.index_s = time.perf_counter() - begun
        loaded = self.store.load()
        assert loaded is not None
        self.row_index.take_over(loaded.head)
        self.table = self.row_index.table
        self.table.restart_changes(loaded.version, loaded.version)
        self.first_tick = loaded.version + 1
        self._writer: Any = None
        self._began = loaded.version
        self.checkpoints, self.published, self.waited_s, self.longest_s = 0, 0, 0.0, 0.0

    def fold(self, record: ExampleRecord, tick: int) -> None:
        begun = time.perf_counter()
        while self.row_index.must_wait and (self._writer is not None or self.row_index.behind):
            self._turn(tick - 1)
            time.sleep(0.001)
        self.waited_s += time.perf_counter() - begun
        begun = time.perf_counter()
        self.learner.fold(record, tick)
        self._turn(tick)
        if tick % PUBLICATION_TICKS == 0:
            self._publish(tick)
        self.longest_s = max(self.longest_s, time.perf_counter() - begun)

    def _turn(self, tick: int) -> None:
        if self._writer is not None:
            if not self._writer.step():
                self._writer.commit()
                self._writer = None
                self.row_index.committed()
                self.checkpoints += 1
        elif (tick - self._began >= CHECKPOINT_TICKS or self.row_index.must_wait) and not self.row_index.behind:
            self._began = tick
            changed = self.table.take_changed_for_checkpoint(tick)
            self.row_index.begin(changed)
            head = {"rows": self.table.count, "learner": {"rows_digest": f"{self.table.rows_digest:016x}"}}
            self._writer = self.store.begin(changed, self._below, version=tick, digest=0, head=head)

    def _publish(self, tick: int) -> None:
        """Take the rows of a publication from the table; pages are not part of it."""
        rows = self.table.take_changed_for_publication(tick)
        self.published += len(self.learner.weights(rows.columns).astype(np.float32))

    def _below(self, prefix: Prefix) -> StateRows:
        return self.table.rows_with_prefix(prefix.number, prefix.nbits)

    def close(self) -> None:
        self.row_index.close()
        self.store.close()


class _Resident(threading.Thread):
    """Asks the system for this process's resident memory, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[float] = []

    def run(self) -> None:
        while True:
            self.seen.append(resident_mib())
            time.sleep(0.1)


def resident_mib() -> float:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def _forget_highest() -> None:
    """Let the highest resident memory begin from what it is now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _highest_mib() -> float:
    """The highest resident memory since then."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _replay(folder: str, features: int, memory_mib: int, examples: int, rate: int) -> dict[str, Any]:
    allocator.keep_little()
    compile_parts([FOLD])
    traffic = _traffic(features, examples, rate)
    first = next(traffic)
    warmed = Learner(FtrlProximal(**SETTINGS))
    warmed.fold(first, 1)
    base_mib = resident_mib()
    del warmed
    _forget_highest()
    resident = _Resident()
    resident.start()
    begun = time.perf_counter()
    replay = _Replay(folder, MemoryBudget.of(memory_mib * MIB, COLUMNS))
    start_s = time.perf_counter() - begun
    begun, spent = time.perf_counter(), time.process_time()
    for tick, record in enumerate(traffic, replay.first_tick):
        replay.fold(record, tick)
    seconds, spent = time.perf_counter() - begun, time.process_time() - spent
    table, tenth = replay.table, max(1, len(resident.seen) // 10)
    found = {
        "base_mib": base_mib,
        "peak_mib": _highest_mib(),
        "held_mib": (table.bytes + replay.row_index.memory["cache"]) / MIB,
        "mean_mib": float(np.mean(resident.seen)),
        "last_mib": float(np.mean(resident.seen[-tenth:])),
        "rate": (examples - rate) / seconds,
        "cpu_rate": (examples - rate) / spent,
        "missed": table.missed / examples,
        "fetched": table.fetched / examples,
        "resident": table.resident,
        "evicted": table.evicted,
        "count": table.count,
        "checkpoints": replay.checkpoints,
        "waited": replay.waited_s / seconds,
        "longest_s": replay.longest_s,
        "index_s": replay.index_s,
        "start_s": start_s,
        "rocksdb": replay.row_index.memory,
    }
    replay.close()
    return found


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[3:]]
    print(json.dumps((_build if sys.argv[1] == "build" else _replay)(sys.argv[2], *numbers)))
