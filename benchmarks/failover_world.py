"""A model with everything that it needs in processes of their own, under traffic: for measuring what a failure costs.

It must never take a time itself that a role says in its log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.bench_loop import PARTITIONS, Site
from benchmarks.bulk_state import fill
from stream_learner.adapters.kafka import Admin
from stream_learner.config import load_config
from stream_learner.operations.topics import control_plan
from stream_learner.roles.scorer.scorer import Scorer
from stream_learner.traffic.benchmark import benchmark_clicks, benchmark_impressions

RATE = 2_000
BATCH = 200
LEASE_MS = 6_000
SESSION_MS = 6_000
PATIENCE_S = 300.0
SETTINGS = {"window": "5s", "skew": "1s", "tick": "200ms", "grace": "200ms", "dedupe": "5s", "close_idle": True}


class Process:
    """A role in a process of its own, which logs JSON into a file."""

    def __init__(self, command: str, file: Path, log: Path, state_dir: str = "") -> None:
        self.began_s = time.time()
        self.state_dir = state_dir
        self._log = log
        command_line = [sys.executable, "-m", "stream_learner", *command.split(), "-c", str(file)]
        # As where it is installed: with byte code from the second start on, whatever this process was told.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with log.open("wb") as out:
            self._process = subprocess.Popen(command_line, stdout=out, stderr=out, env=environment)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The events that it has logged under these names."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in said if event["event"] in names]

    def wait(self, name: str, count: int = 1) -> tuple[float, dict[str, Any]]:
        """The count-th event of this name, with its time. Raises RuntimeError, TimeoutError."""
        until(lambda: len(self.events(name)) >= count or self._ended(), f"{name} in {self._log.name}")
        event = self.events(name)[count - 1]
        return datetime.fromisoformat(event["time"]).timestamp(), event

    def processor_s(self) -> float:
        """Seconds of processor time that it has used, all threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _ended(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"ended with {self._process.returncode}: {self._log.read_text()[-1000:]}")
        return False

    def end(self, number: int = signal.SIGKILL) -> float:
        """Send a signal and wait for the end; the moment of the signal, in seconds since 1970."""
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
    served: list[tuple[float, int]] = field(default_factory=list)
    """The versions that were served, each with its time in seconds since 1970."""
    processes: list[Process] = field(default_factory=list)
    joining: Process = field(init=False)
    leading: Process = field(init=False)
    following: Process = field(init=False)

    def __post_init__(self) -> None:
        tree = yaml.safe_load(self.site.file.read_text(encoding="utf-8"))
        tree["join"].update(SETTINGS)
        tree["kafka"]["session.timeout.ms"] = SESSION_MS
        tree["snapshots"]["interval"] = "200ms"
        tree["topics"] = {"control": f"{self.site.model}.control"}
        tree["learner"] |= {"lease_timeout": f"{LEASE_MS}ms", "checkpoint_interval": "5s", "copy_interval": "5s"}
        tree["telemetry"] = {"log_format": "json", "http_port": 0}
        self._tree = tree
        Admin(self.site.settings).create([control_plan(load_config(self._file("model")))])

    def _file(self, name: str, **changes: dict[str, Any]) -> Path:
        """A configuration file with some sections changed."""
        file = self.folder / f"{name}.yaml"
        changed = {section: {**self._tree.get(section, {}), **values} for section, values in changes.items()}
        file.write_text(yaml.safe_dump(self._tree | changed), encoding="utf-8")
        return file

    @property
    def note(self) -> str:
        """The size of the model, for the rows."""
        return f"{self.features:,} features"

    def learner(self, state_dir: str, command: str) -> Process:
        """A learner on this state."""
        return self._start(command, state_dir, learner={"state_dir": state_dir})

    def joiner(self, name: str) -> Process:
        """A joiner that keeps its partitions while it is away."""
        return self._start("join", "", join={"instance_id": name})

    def _start(self, command: str, state_dir: str, **changes: dict[str, Any]) -> Process:
        name = f"{command.split()[0]}-{len(self.processes)}"
        self.processes.append(Process(command, self._file(name, **changes), self.folder / f"{name}.log", state_dir))
        return self.processes[-1]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything runs, the model has its size, and traffic comes, for as long as the block lasts."""
        first = str(self.folder / "a")
        fill(load_config(self._file("fill", learner={"state_dir": first})), self.site.settings, self.features)
        stop = threading.Event()
        traffic = threading.Thread(target=_produce, args=(self.site, stop))
        traffic.start()
        try:
            self.joining, self.leading = self.joiner("first"), self.learner(first, "learn --standby")
            self.leading.wait("took_over")
            with Scorer(
                self.site.settings.bootstrap,
                self.site.model,
                control_topic=self._tree["topics"]["control"],
                stale_after_ms=None,
                on_version=lambda version: self.served.append((time.time(), version)),
            ):
                self.following = self.learner(str(self.folder / "b"), "learn --standby")
                self.settle(members=2)
                yield
        finally:
            stop.set()
            traffic.join()
            for process in self.processes:
                process.close()

    def settle(self, members: int = 0) -> None:
        """Until versions come, and as many learners as given, where any are, have or ask for the lease."""
        group = f"{self.site.model}.lease"
        admin = AdminClient({"bootstrap.servers": self.site.settings.bootstrap})
        until(lambda: not members or _is_stable(admin, group, members), f"{members} members of {group}")
        before = len(self.served)
        until(lambda: len(self.served) > before + 10, "versions")

    def served_after(self, at_s: float) -> float:
        """The time at which the first version after a moment was served."""
        until(lambda: bool(self.served) and self.served[-1][0] > at_s, "a version")
        return next(moment for moment, _ in self.served if moment > at_s)

    def served_from_version(self, version: int) -> float:
        """The time at which this version, or a later one, was served."""
        until(lambda: bool(self.served) and self.served[-1][1] >= version, f"version {version}")
        return next(moment for moment, found in self.served if found >= version)


def until(true: Callable[[], bool], what: str) -> None:
    """Ask again and again. Raises TimeoutError."""
    ends_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > ends_s:
            raise TimeoutError(what)
        time.sleep(0.02)


def _is_stable(admin: AdminClient, group: str, members: int) -> bool:
    found = admin.describe_consumer_groups([group])[group].result()
    return found.state == ConsumerGroupState.STABLE and len(found.members) == members


def _produce(site: Site, stop: threading.Event) -> None:
    """Impressions at the rate, as time passes, each batch with the clicks on the one before."""
    producer = Producer({"bootstrap.servers": site.settings.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    first, due_s = 0, time.monotonic()
    while not stop.is_set():
        data, bounds = benchmark_impressions(BATCH, first=first)
        _send(producer, site.inputs[0], data, bounds.tolist(), range(first, first + BATCH))
        if first:
            data, bounds, index = benchmark_clicks(BATCH, first=first - BATCH)
            _send(producer, site.inputs[1], data, bounds.tolist(), (first - BATCH + index).tolist())
        producer.poll(0)
        first, due_s = first + BATCH, due_s + BATCH / RATE
        stop.wait(max(0.0, due_s - time.monotonic()))
    producer.flush(10)


def _send(producer: Producer, topic: str, data: bytes, edges: list[int], places: Any) -> None:
    for i, place in enumerate(places):
        producer.produce(topic, data[edges[i] : edges[i + 1]], partition=place % PARTITIONS)
