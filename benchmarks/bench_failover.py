"""How long it takes until another one, or the same one again, does the work of a process that was killed.

Processes as in production, with a model of 10 million features (`--quick`: 100,000), under live traffic of 2,000
impressions a second, 2 % of them clicked; each is ended in its turn, by kill -9 where nothing else is said. Times go
from the kill, or from the start of the process, to what its log says with its own clock, and to what a scorer serves.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench_loop import PARTITIONS, Site, kafka
from benchmarks.failover_world import LEASE_MS, SESSION_MS, SETTINGS, Process, World
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.core.parts import compile_kernels

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of every step: name, value, unit, note."""
    configure_logging(log_format="console", log_level="warning")
    compile_kernels()
    features = 100_000 if quick else 10_000_000
    with kafka() as bootstrap, tempfile.TemporaryDirectory(prefix="bench-failover-") as folder:
        world = World(Site(bootstrap, Path(folder)), Path(folder), features)
        with world.running():
            return [row for step in STEPS for row in step(world)]


def standby_after_a_kill(world: World) -> list[Row]:
    """The leader is killed: lease, fence, first version."""
    lost, taken = world.leading, world.following
    lost_s = lost.end()
    held_s, _ = taken.wait("lease_held")
    leads_s, _ = taken.wait("leads")
    took_s, took = taken.wait("took_over")
    served_s = world.served_from_version(took["version"])
    world.leading, world.following = taken, world.learner(lost.state_dir, "learn --standby")
    world.settle(members=2)
    lease_s = LEASE_MS / 1000
    return [
        _row("standby: kill to the lease held", held_s - lost_s, f"the lease is {lease_s:g} s"),
        _row("standby: lease held to the one before fenced", leads_s - held_s, world.note),
        _row("standby: fenced to the first version published", took_s - leads_s, world.note),
        _row("standby: published to served", served_s - took_s, world.note),
        _row("standby: kill to served, beyond the lease", served_s - lost_s - lease_s, f"{world.note}; goal: 3 s"),
    ]


def standby_after_a_stop(world: World) -> list[Row]:
    """The leader is told to stop."""
    stopped, taken = world.leading, world.following
    stopped_s = stopped.end(signal.SIGTERM)
    held_s, _ = taken.wait("lease_held")
    took_s, took = taken.wait("took_over")
    served_s = world.served_from_version(took["version"])
    world.leading = taken
    return [
        _row("standby: SIGTERM to the lease held", held_s - stopped_s, world.note),
        _row("standby: SIGTERM to the first version published", took_s - stopped_s, world.note),
        _row("standby: SIGTERM to served", served_s - stopped_s, world.note),
    ]


def learner_back(world: World) -> list[Row]:
    """The only learner is killed and started at once, on the state on its disk."""
    world.leading.end()
    world.leading = world.learner(world.leading.state_dir, "learn")
    rows, started, _ = _learner_rows(world, "learner back")
    note = f"{started['features']:,} features; goal: 5 s"
    return [*rows[:-2], {**rows[-2], "note": note}, rows[-1]]


def learner_with_empty_disk(world: World) -> list[Row]:
    """The only learner is killed and its disk lost; it is started at once and restores what was copied."""
    world.leading.end()
    shutil.rmtree(world.leading.state_dir)
    world.leading = world.learner(world.leading.state_dir, "learn")
    rows, started, learner = _learner_rows(world, "empty disk")
    restored = learner.events("state_restored")[0]["seconds"]
    load_s = started["load_seconds"]
    rate = {"name": "empty disk: restore rate", "value": round(started["features"] / load_s), "unit": "features/s"}
    return [
        _row("empty disk: pieces read from Kafka and written", restored, world.note),
        *rows,
        {**rate, "note": f"{world.note}; read, write, load, check the digest; goal: 500,000 features/s"},
    ]


def _learner_rows(world: World, name: str) -> tuple[list[Row], dict[str, Any], Process]:
    learner = world.leading
    started_s, started = learner.wait("learner_started")
    processor_s = learner.processor_s()
    served_s = world.served_after(started_s)
    load_s, fence_s = started["load_seconds"], started["fence_seconds"]
    start_s = started_s - learner.began_s
    rows = [
        _row(f"{name}: state there, loaded and its digest checked", load_s, world.note),
        _row(f"{name}: the one before fenced", fence_s, world.note),
        _row(f"{name}: process, imports, kernels, topics", start_s - load_s - fence_s, world.note),
        _row(f"{name}: processor time from its start to folding", processor_s, world.note),
        _row(f"{name}: start to folding", start_s, world.note),
        _row(f"{name}: start to a version served", served_s - learner.began_s, world.note),
    ]
    return rows, started, learner


def joiner_back(world: World) -> list[Row]:
    """The joiner is killed and started at once: it keeps its partitions."""
    world.joining.end()
    world.joining = joiner = world.joiner("first")
    started_s, _ = joiner.wait("joiner_started")
    given_s, _ = joiner.wait("assigned")
    back_s, _ = joiner.wait("partition_resumed", count=PARTITIONS)
    processor_s = joiner.processor_s()
    served_s = world.served_after(back_s)
    note = f"window {SETTINGS['window']}"
    return [
        _row("joiner back: process, imports, kernels, topics", started_s - joiner.began_s, note),
        _row("joiner back: its partitions given", given_s - started_s, note),
        _row("joiner back: log's end and window read again", back_s - given_s, note),
        _row("joiner back: processor time from its start to appending", processor_s, note),
        _row(
            "joiner back: start to appending", back_s - joiner.began_s, f"{note}; goal: 3 s beyond reading the clicks"
        ),
        _row("joiner back: start to a newer version served", served_s - joiner.began_s, note),
    ]


def joiner_lost(world: World) -> list[Row]:
    """One of two joiners is killed and stays away: the other one has its partitions when its session has ended."""
    other = world.joiner("second")
    other.wait("partition_resumed")
    world.settle()
    lost_s = world.joining.end()
    has_s, _ = other.wait("partition_resumed", count=PARTITIONS)
    served_s = world.served_after(has_s)
    world.joining = other
    session_s = SESSION_MS / 1000
    return [
        _row("joiner lost: kill to another appending", has_s - lost_s, f"the session is {session_s:g} s"),
        _row("joiner lost: the same, beyond the session", has_s - lost_s - session_s, ""),
        _row("joiner lost: kill to a newer version served", served_s - lost_s, ""),
    ]


STEPS: tuple[Callable[[World], list[Row]], ...] = (
    standby_after_a_kill,
    standby_after_a_stop,
    learner_back,
    learner_with_empty_disk,
    joiner_back,
    joiner_lost,
)


def _row(name: str, seconds: float, note: str) -> Row:
    return {"name": name, "value": round(seconds, 2), "unit": "s", "note": note}
