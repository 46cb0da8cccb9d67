"""How long it takes until another one, or the same one again, does the work of a process that was killed.

Processes as in production, with a model of 1 million features (`--quick`: 100,000), then 10 million, under live
traffic of 2,000 impressions a second; each is ended in its turn, by kill -9 where nothing else is said. Times go from
the kill, or from the restart, to what its log says with its own clock, and to what a scorer serves.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from benchmarks.bench_loop import PARTITIONS, Site, kafka
from stream_learner.core.warmup import compile_kernels
from stream_learner.edges.kafka import Admin, TopicPlan
from stream_learner.roles.scorer import Scorer
from stream_learner.traffic.benchmark import benchmark_impressions

Row = dict[str, Any]
RATE = 2_000
FIELDS = 39
LEASE_MS = 6_000
SESSION_MS = 6_000
PATIENCE_S = 900.0
SETTINGS = {"window": "2s", "skew": "1s", "tick": "200ms", "grace": "200ms", "dedupe": "5s", "close_idle": True}


def run(quick: bool) -> list[Row]:
    """Rows of every step, for each size of the model."""
    compile_kernels()
    return [row for features in ((100_000,) if quick else (1_000_000, 10_000_000)) for row in _at(features)]


def _at(features: int) -> list[Row]:
    with kafka() as bootstrap, tempfile.TemporaryDirectory(prefix="bench-failover-") as folder:
        world = World(Site(bootstrap, Path(folder)), Path(folder), features)
        with world.running():
            return [row for step in STEPS for row in step(world)]


class Process:
    """A role in a process of its own."""

    def __init__(self, world: World, command: str, **changes: dict[str, Any]) -> None:
        self.began_s = time.time()
        self.state_dir = str(changes.get("learner", {}).get("state_dir", ""))
        world.count += 1
        name = f"{command.split()[0]}-{world.count}"
        file = world.folder / f"{name}.yaml"
        tree = yaml.safe_load(world.site.file.read_text(encoding="utf-8"))
        for section, values in changes.items():
            tree[section] = {**tree.get(section, {}), **values}
        file.write_text(yaml.safe_dump(tree), encoding="utf-8")
        self._log = world.folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stream_learner", *command.split(), "-c", str(file)], stdout=log, stderr=log
            )

    def events(self, *names: str) -> list[dict[str, Any]]:
        """What it has said under these names."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in said if event["event"] in names]

    def wait(self, *names: str, count: int = 1) -> tuple[float, dict[str, Any]]:
        """When it said one of these for the count-th time, in seconds since 1970, and what."""
        until(lambda: len(self.events(*names)) >= count or self._ended(), f"{names} in {self._log}")
        event = self.events(*names)[count - 1]
        return datetime.fromisoformat(event["time"]).timestamp(), event

    def _ended(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"ended with {self._process.returncode}: {self._log.read_text()[-1000:]}")
        return False

    def end(self, number: int = signal.SIGKILL) -> float:
        """Send a signal and wait for the end; the moment of it, in seconds since 1970."""
        at_s = time.time()
        self._process.send_signal(number)
        self._process.wait()
        return at_s

    def close(self) -> None:
        """It is gone afterwards."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


@dataclass
class World:
    """A model under traffic: its joiner, the learner that leads, the one that follows, and a scorer."""

    site: Site
    folder: Path
    features: int
    count: int = 0
    served: list[tuple[float, int]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        tree = yaml.safe_load(self.site.file.read_text(encoding="utf-8"))
        control = f"{self.site.model}.control"
        tree["join"].update(SETTINGS)
        tree["kafka"]["session.timeout.ms"] = SESSION_MS
        tree["snapshots"] = {"interval": "200ms"}
        tree["topics"] = {"control": control}
        tree["learner"] |= {"lease_timeout": f"{LEASE_MS}ms", "checkpoint_interval": "5s", "copy_interval": "5s"}
        tree["telemetry"] = {"log_format": "json"}
        self.site.file.write_text(yaml.safe_dump(tree), encoding="utf-8")
        Admin(self.site.settings).create([TopicPlan(control, 1, configs={"cleanup.policy": "compact"})])

    @property
    def note(self) -> str:
        """The size of the model, for the rows."""
        return f"{self.features:,} features"

    def start(self, command: str, **changes: dict[str, Any]) -> Process:
        """A process of this model."""
        self.processes.append(Process(self, command, **changes))
        return self.processes[-1]

    def learner(self, state_dir: str) -> Process:
        """A learner that leads or follows, on this state."""
        return self.start("learn --standby", learner={"state_dir": state_dir})

    def joiner(self, name: str) -> Process:
        """A joiner that keeps its partitions while it is away."""
        return self.start("join", join={"instance_id": name})

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything runs, the model has its size, and traffic comes, for as long as the block lasts."""
        stop = threading.Event()
        producer = Producer({"bootstrap.servers": self.site.settings.bootstrap, "linger.ms": 5})
        _fill(producer, self.site, self.features)
        traffic = threading.Thread(target=_produce, args=(producer, self.site, stop))
        on_version: Callable[[int], None] = lambda version: self.served.append((time.time(), version))  # noqa: E731
        try:
            self.joining, self.leading = self.joiner("first"), self.learner(str(self.folder / "a"))
            with Scorer(
                self.site.settings.bootstrap, self.site.model, max_staleness_ms=None, on_version=on_version
            ) as s:
                until(lambda: s.version >= 0 and s.weights >= 0.9 * self.features, "the model has its size")
                self.leading.wait("checkpoint", count=len(self.leading.events("checkpoint")) + 2)
                self.following = self.learner(str(self.folder / "b"))
                traffic.start()
                self.settle()
                yield
        finally:
            stop.set()
            if traffic.ident is not None:
                traffic.join()
            for process in self.processes:
                process.close()

    def settle(self) -> None:
        """Until versions come regularly, and the standby is a candidate."""
        until(lambda: bool(self.following.events("learner_started")), "the standby has loaded its state")
        before = len(self.served)
        until(lambda: len(self.served) > before + 10, "versions come")
        time.sleep(3)

    def served_after(self, at_s: float) -> float:
        """When the first version after a moment was served that is not of a transaction under way."""
        until(lambda: bool(self.served and self.served[-1][0] > at_s + 0.5), "a version")
        return next(moment for moment, _ in self.served if moment > at_s + 0.5)


def standby_after_a_kill(world: World) -> list[Row]:
    """The leader is killed: lease, fence, first version."""
    lost, taken = world.leading, world.following
    lost_s = lost.end()
    held_s, _ = taken.wait("lease_held")
    leads_s, _ = taken.wait("leads")
    took_s, _ = taken.wait("took_over")
    served_s = world.served_after(held_s - 0.5)
    world.leading, world.following = taken, world.learner(lost.state_dir)
    world.settle()
    beyond = f"{world.note}; beyond the lease of {LEASE_MS / 1000:g} s"
    return [
        _row("standby: the lease has ended and is noticed", held_s - lost_s, world.note),
        _row("standby: the one before is fenced, the last version known", leads_s - held_s, world.note),
        _row("standby: first version published", took_s - leads_s, world.note),
        _row("standby: from the kill to a version served", served_s - lost_s, world.note),
        _row("standby: take-over beyond the lease", served_s - lost_s - LEASE_MS / 1000, beyond),
    ]


def standby_after_a_stop(world: World) -> list[Row]:
    """The leader is told to stop."""
    stopped, taken = world.leading, world.following
    stopped_s = stopped.end(signal.SIGTERM)
    took_s, _ = taken.wait("took_over")
    world.leading, world.following = taken, world.learner(stopped.state_dir)
    world.settle()
    return [_row("standby: from SIGTERM to its first version", took_s - stopped_s, world.note)]


def learner_alone(world: World) -> list[Row]:
    """Both learners are gone, one comes back to its state; then with an empty disk."""
    rows = []
    for process in (world.following, world.leading):
        process.end()
    back = world.learner(world.leading.state_dir)
    started_s, _ = back.wait("learner_started")
    folded_s, _ = back.wait("checkpoint")
    rows.append(_row("learner: from its start to folding, state on its disk", started_s - back.began_s, world.note))
    rows.append(_row("learner: from its start to the next checkpoint", folded_s - back.began_s, world.note))
    back.wait("took_over")
    back.end()
    shutil.rmtree(back.state_dir)
    empty = world.learner(back.state_dir)
    started_s, _ = empty.wait("learner_started")
    restored = empty.events("state_restored")
    rows.append(_row("learner: from its start to folding, empty disk", started_s - empty.began_s, world.note))
    if restored:
        rate = world.features / restored[0]["seconds"]
        rows.append(
            {**_row("learner: restored from the copy", 0, world.note), "value": round(rate), "unit": "features/s"}
        )
    empty.wait("took_over")
    world.leading, world.following = empty, world.learner(world.following.state_dir)
    world.settle()
    return rows


def joiner_back(world: World) -> list[Row]:
    """The joiner is killed and started at once: it keeps its partitions."""
    world.joining.end()
    world.joining = world.joiner("first")
    back_s = max(world.joining.wait("partition_resumed", count=n + 1)[0] for n in range(PARTITIONS))
    return [
        _row(
            "joiner: from its start to appending again", back_s - world.joining.began_s, f"{SETTINGS['window']} window"
        )
    ]


def joiner_lost(world: World) -> list[Row]:
    """One of two joiners is killed and stays away: the other one has its partitions when its session has ended."""
    other = world.joiner("second")
    other.wait("partition_resumed")
    lost_s = world.joining.end()
    has_s, _ = other.wait("partition_resumed", count=PARTITIONS)
    world.joining = other
    beyond = f"beyond the session of {SESSION_MS / 1000:g} s"
    return [
        _row("joiner: from the kill until another one appends to its partitions", has_s - lost_s, ""),
        _row("joiner: the same", has_s - lost_s - SESSION_MS / 1000, beyond),
    ]


STEPS: tuple[Callable[[World], list[Row]], ...] = (
    standby_after_a_kill,
    standby_after_a_stop,
    learner_alone,
    joiner_back,
    joiner_lost,
)


def until(true: Callable[[], bool], what: str) -> None:
    """Ask again and again. Raises TimeoutError."""
    ends_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > ends_s:
            raise TimeoutError(what)
        time.sleep(0.01)


def _row(name: str, seconds: float, note: str) -> Row:
    return {"name": name, "value": round(seconds, 2), "unit": "s", "note": note}


def _fill(producer: Producer, site: Site, features: int) -> None:
    """Impressions of which hardly two have a feature in common: as many features as there are to be."""
    left, first = features // FIELDS, 0
    while left > 0:
        some = min(left, 20_000)
        data, bounds = benchmark_impressions(some, zipf=1e-6, keys=1 << 34, first=first)
        _send(producer, site, data, bounds.tolist(), first)
        left, first = left - some, first + some
    producer.flush(300)


def _produce(producer: Producer, site: Site, stop: threading.Event) -> None:
    """Impressions at the rate, as time passes."""
    batch, first = RATE // 20, 10**9
    due_s = time.monotonic()
    while not stop.is_set():
        data, bounds = benchmark_impressions(batch, first=first)
        _send(producer, site, data, bounds.tolist(), first)
        first, due_s = first + batch, due_s + 0.05
        stop.wait(max(0.0, due_s - time.monotonic()))


def _send(producer: Producer, site: Site, data: bytes, edges: list[int], first: int) -> None:
    for i in range(len(edges) - 1):
        while True:
            try:
                producer.produce(site.inputs[0], data[edges[i] : edges[i + 1]], partition=(first + i) % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    producer.poll(0)


if __name__ == "__main__":
    os.write(1, (json.dumps(run(quick="--quick" in sys.argv), indent=1) + "\n").encode())
