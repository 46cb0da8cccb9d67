"""One joiner and several of one group beside each other: what an impression costs, all of them together.

The events of `bench_loop` in four partitions, which the joiners share evenly from the start; as many joiners as there
are cores, each on its own, and the broker on all of them. Processor time says what a group costs, the clock how much of
it is really at once; the broker takes part in that.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bench_loop import Site, line_of
from benchmarks.brokers import TIME, Brokers, Figures, brokers
from benchmarks.rows import Row
from stream_learner.wording import count_of

PARTITIONS = 4
JOINERS = (1, 2, 4)
WAIT_MS = 5000
"""So long the broker waits for more members of a new group, so that none begins with the partitions of another."""
REPEATS = 3
PATIENCE_S = 30.0


def run(quick: bool) -> list[Row]:
    """Rows for each number of joiners: processor time of theirs and of the broker's, and impressions a second."""
    count = 200_000 if quick else 1_000_000
    cores = sorted(os.sched_getaffinity(0))
    with (
        brokers(properties={"group.initial.rebalance.delay.ms": str(WAIT_MS)}) as those,
        tempfile.TemporaryDirectory() as folder,
    ):
        inputs = Site(those.bootstrap, Path(folder), partitions=PARTITIONS)
        inputs.produce(count)
        rows: list[Row] = []
        for joiners in (number for number in JOINERS if number <= len(cores)):
            found = [_joined(inputs, Path(folder), those, count, cores[:joiners]) for _ in range(REPEATS)]
            rows += _rows(joiners, count, sorted(found, key=lambda one: one["cpu_seconds"])[REPEATS // 2])
        return rows


def _joined(inputs: Site, folder: Path, those: Brokers, count: int, cores: Sequence[int]) -> Figures:
    """The figures of a joiner on each of these cores, together; none leaves the group before all are done."""
    site = Site(those.bootstrap, folder, like=inputs, partitions=PARTITIONS)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_process([*site.command("join", count // len(cores), core), "stay"])) for core in cores
        ]
        for process in processes:
            line_of(process)
        return those.beside(lambda: together([_figures(process) for process in processes]))


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process whose input ends with the block."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        try:
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()


def _figures(process: subprocess.Popen[str]) -> Figures:
    line = line_of(process)
    if not line:
        raise RuntimeError(f"a joiner ended with {process.wait()}")
    figures: Figures = json.loads(line)
    return figures


def together(each: Sequence[Figures]) -> Figures:
    """The figures of several that work at once. Raises RuntimeError if they did not share evenly."""
    seconds = max(one["ended_at"] for one in each) - min(one["began_at"] for one in each)
    shares = [one["partitions"] for one in each]
    if len(set(shares)) > 1:
        raise RuntimeError(f"the joiners had {shares} partitions")
    names = ("cpu_seconds", "instructions")
    return {"seconds": seconds, **{name: sum(one[name] for one in each) for name in names if name in each[0]}}


def _rows(joiners: int, count: int, figures: Figures) -> list[Row]:
    who = count_of(joiners, "joiner")
    note = f"{count:,} impressions, median of {REPEATS}"
    rows = [
        {"name": f"{who}: processor time", "value": figures["cpu_seconds"] / count * 1e9, "unit": "ns/impression"},
        {"name": f"{who}: impressions", "value": count / figures["seconds"], "unit": "1/s"},
    ]
    for name, figure, factor in (("brokers", TIME, 1e9), ("instructions", "instructions", 1.0)):
        if figure in figures:
            unit = "ns/impression" if figure == TIME else "an impression"
            rows.append({"name": f"{who}: {name}", "value": figures[figure] / count * factor, "unit": unit})
    return [{**row, "note": note} for row in rows]
