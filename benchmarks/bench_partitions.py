"""What many partitions cost a joiner and a learner: threads, open files, connections, memory, speed.

The events are those of `bench_loop`, over 1 and over 64 partitions (16 with `--quick`). `KAFKA_BOOTSTRAP` is used if
set, else three nodes are started as the tests do. Each role runs alone, kept to one core, and is looked at every 50 ms;
the figures are the highest seen.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_loop import Site, result_of, row
from stream_learner.wording import count_of
from tests.kafka_broker.broker import Broker

NODES = 3
LOOK_S = 0.05
UNITS = {"threads": "", "open files": "", "connections": "", "resident memory": "MiB"}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: for each number of partitions, what the joiner and the learner take, and their speed."""
    count = 200_000 if quick else 600_000
    with _cluster() as bootstrap, tempfile.TemporaryDirectory() as folder:
        return [
            figure
            for partitions in (1, 16 if quick else 64)
            for figure in _measure(Site(bootstrap, Path(folder), partitions=partitions), count)
        ]


@contextmanager
def _cluster() -> Iterator[str]:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    with Broker(NODES) as broker:
        yield broker.bootstrap


def _measure(site: Site, count: int) -> list[dict[str, Any]]:
    site.produce(count)
    rows = []
    for role in ("join", "learn"):
        where = f"{role}, {count_of(site.partitions, 'partition')}"
        process = site.start(role, count, core=0)
        with _Watched(process) as watched:
            figures = result_of(process)
        rows += [{"name": f"{where}: {what}", "value": watched.most[what], "unit": UNITS[what]} for what in UNITS]
        rows.append(row(where, count, figures))
    return rows


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
