"""What many partitions cost a joiner, a learner and the brokers: threads, open files, connections, memory, time.

The same events of `bench_loop` over 1 to 256 partitions (1 and 16 with `--quick`) on one broker, and over 16 on three
that keep three copies of everything. Each role runs alone, kept to one core, and is looked at every 50 ms; the figures
are the highest seen. What a role does once, such as finding the end of each partition's log, is measured with so few
events that there is nothing else, and taken off. The brokers' time is also that of their taking the events in.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench_loop import Site, result_of, row
from benchmarks.brokers import TIME, Brokers, brokers
from stream_learner.errors import RetryLater
from stream_learner.wording import count_of

SIZES = (1, 4, 16, 64, 256)
NODES, COPIED = 3, 16
"""So many partitions are measured on so many brokers, too."""
FEW = 4_096
DONE_ONCE = ("cpu_seconds", TIME, "instructions")
"""The figures of which a part is done once, however many impressions there are."""
LOOK_S = 0.05
UNITS = {"threads": "", "open files": "", "connections": "", "resident memory": "MiB"}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: for each number of partitions, what the joiner, the learner and the brokers take, and the roles' speed."""
    sizes, count = ((1, COPIED), 200_000) if quick else (SIZES, 400_000)
    with tempfile.TemporaryDirectory() as name:
        rows = _on(1, sizes, Path(name), count)
        return rows if "KAFKA_BOOTSTRAP" in os.environ else rows + _on(NODES, (COPIED,), Path(name), count)


def _on(nodes: int, sizes: Sequence[int], folder: Path, count: int) -> list[dict[str, Any]]:
    """The rows of these numbers of partitions on so many brokers; each keeps a copy."""
    with brokers(nodes) as those:
        _measure(Site(those.bootstrap, folder), count, those)  # so that the brokers have compiled what they do
        return [row for size in sizes for row in _or_why_not(those, folder, size, count, nodes)]


def _or_why_not(those: Brokers, folder: Path, partitions: int, count: int, nodes: int) -> list[dict[str, Any]]:
    """The rows of so many partitions, or one that says why this machine has none."""
    more = f", {nodes} brokers" if nodes > 1 else ""
    try:
        return _rows(those, folder, partitions, count, more)
    except (RuntimeError, RetryLater, AssertionError, subprocess.TimeoutExpired) as error:
        what = f"{count_of(partitions, 'partition')}{more}, left out"
        return [{"name": what, "value": 0.0, "unit": "", "note": " ".join(str(error).split())[:200]}]


def _rows(those: Brokers, folder: Path, partitions: int, count: int, more: str) -> list[dict[str, Any]]:
    """The rows of so many partitions: what is done once, taken from a run with few impressions, and the rest."""
    few, many = (_measure(Site(those.bootstrap, folder, partitions=partitions), n, those) for n in (FEW, count))
    rows = []
    for does, figures in many.items():
        where = f"{does}, {count_of(partitions, 'partition')}{more}"
        more_of_it = {name: figures[name] - few[does][name] for name in DONE_ONCE if name in figures}
        rows += [
            {"name": f"{where}: {what}", "value": figures[what], "unit": UNITS[what]}
            for what in UNITS
            if what in figures
        ]
        if "cpu_seconds" in figures:
            rows.append(row(where, count - FEW, {**figures, **more_of_it}))
            rows.append({"name": f"{where}: once", "value": few[does]["cpu_seconds"] * 1000, "unit": "ms of CPU"})
        if TIME in figures:
            each = more_of_it[TIME] / (count - FEW) * 1e9
            rows.append({"name": f"{where}: brokers", "value": each, "unit": "ns of CPU an impression"})
    return rows


def _measure(site: Site, count: int, those: Brokers) -> dict[str, dict[str, float]]:
    """The figures of sending, joining and learning so many impressions."""
    found = {"send": those.beside(lambda: _sent(site, count))}
    for role in ("join", "learn"):
        process = site.start(role, count, core=0)
        with _Watched(process) as watched:
            found[role] = those.beside(partial(result_of, process)) | watched.most
    return found


def _sent(site: Site, count: int) -> dict[str, float]:
    """Send the events; the seconds that took."""
    began_s = time.monotonic()
    site.produce(count)
    return {"seconds": time.monotonic() - began_s}


class _Watched:
    """Looks at a process while the block lasts; `most` has the highest figures."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.most: dict[str, float] = dict.fromkeys(UNITS, 0.0)
        self._folder = Path("/proc") / str(process.pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                found = self._look()
            except (OSError, KeyError):  # it has ended
                return
            self.most = {what: max(self.most[what], value) for what, value in found.items()}

    def _look(self) -> dict[str, float]:
        status = dict(line.split(":", 1) for line in (self._folder / "status").read_text().splitlines())
        files = [_target(each) for each in (self._folder / "fd").iterdir()]
        return {
            "threads": float(status["Threads"]),
            "open files": float(len(files)),
            "connections": float(sum(name.startswith("socket:") for name in files)),
            "resident memory": float(status["VmRSS"].split()[0]) / 1024,
        }


def _target(link: Path) -> str:
    """The target of an open file, "" if it was closed meanwhile."""
    try:
        return str(link.readlink())
    except OSError:
        return ""
