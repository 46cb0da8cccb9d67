"""The loop on a real Kafka: JSON to training log, training log to model, and both at once.

39 features, about 600 bytes of JSON, 2 % clicks. Joiner alone and learner alone are kept to one core while the broker
has the other; for the whole loop joiner, learner and broker share whatever cores there are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml
from confluent_kafka import Producer

from benchmarks.brokers import TIME, Brokers, brokers
from benchmarks.counters import EVENTS
from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan
from stream_learner.config import load_config
from stream_learner.errors import RetryLater
from stream_learner.operations.topics import plans
from stream_learner.traffic.benchmark import benchmark_clicks, benchmark_fields, benchmark_impressions
from tests.waiting import wait_until

PARTITIONS = 2
PER_S = 20_000
"""Impressions per second of event time."""
START_MS = 1_700_000_000_000
CHUNK = 50_000


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: join and learn alone, then the whole loop."""
    count = 200_000 if quick else 1_000_000
    with brokers() as those, tempfile.TemporaryDirectory() as folder:
        site = Site(those.bootstrap, Path(folder))
        site.produce(count)
        alone = [site.measured(role, count, those) for role in ("join", "learn")]
        whole = Site(those.bootstrap, Path(folder), like=site)
        return [
            row("join from Kafka JSON to training log, one core", count, alone[0]),
            row("learn from training log, one core", count, alone[1]),
            row("whole loop, broker included", count, whole.both(count, those)),
        ]


@contextmanager
def kafka() -> Iterator[str]:
    """The address of `brokers`."""
    with brokers() as those:
        yield those.bootstrap


class Inputs(Protocol):
    """What has input topics, of impressions and of clicks."""

    inputs: tuple[str, str]


class Site:
    """A model on a broker, over its own input topics or another's; `join` are settings of the join."""

    def __init__(
        self, bootstrap: str, folder: Path, like: Inputs | None = None, partitions: int = PARTITIONS, **join: str
    ) -> None:
        self.partitions = partitions
        self.model = f"bench-{uuid.uuid4().hex[:8]}"
        self.inputs = like.inputs if like else (f"{self.model}-impressions", f"{self.model}-clicks")
        self.file = folder / f"{self.model}.yaml"
        tree = {
            "model": self.model,
            "kafka": {"bootstrap.servers": bootstrap, "session.timeout.ms": 30_000},
            "input": {"impressions": {"topic": self.inputs[0]}, "clicks": {"topic": self.inputs[1]}},
            "join": {"window": "10s", "tick": "1s", "dedupe": "30s", "close_idle": False, **join},
            "features": {"categorical": list(benchmark_fields()[0])},
            "learner": {"state_dir": str(folder / self.model), "optimizer": {"alpha": 0.05}},
            "snapshots": {"first": {"examples": 0}},
        }
        self.file.write_text(yaml.safe_dump(tree), encoding="utf-8")
        self.config = load_config(self.file)
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap})
        admin = Admin(self.settings)
        own = plans(self.config, partitions)
        if like is None:
            keep = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}
            own += [TopicPlan(name, partitions, configs=keep) for name in self.inputs]
        admin.create(own)
        wait_until(lambda: _answers(admin, own), "the leaders of new topics")

    def produce(self, count: int) -> None:
        """The input, in the order of event time, and at the end of each partition what closes all windows."""
        producer = Producer(
            {
                "bootstrap.servers": self.settings.bootstrap,
                "compression.type": "lz4",
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 2_000_000,
            }
        )
        impressions, clicks = self.inputs
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            data, bounds = benchmark_impressions(size, first=first)
            numbers = np.arange(first, first + size)
            _send(producer, impressions, data, bounds, numbers, numbers % self.partitions)
            data, bounds, index = benchmark_clicks(size, first=first)
            numbers = first + index
            _send(producer, clicks, data, bounds, numbers + PER_S, numbers % self.partitions)
            producer.poll(0)
        end_ms = START_MS + count * 1000 // PER_S + 60_000
        for partition in range(self.partitions):
            for topic in self.inputs:
                for number in range(self.config.join.agree):
                    end = b'{"id":"end-%d-%d"}' % (partition, number)
                    producer.produce(topic, end, partition=partition, timestamp=end_ms)
        assert producer.flush(120) == 0

    def measured(self, role: str, count: int, those: Brokers) -> dict[str, float]:
        """A role on one core, from topics that are full."""
        process = self.start(role, count, core=0)
        return those.beside(lambda: result_of(process))

    def both(self, count: int, those: Brokers) -> dict[str, float]:
        """Joiner and learner side by side, from the first impression to the last example folded."""
        learner, joiner = self.start("learn", count), self.start("join", count)
        return those.beside(lambda: _together(result_of(joiner), result_of(learner)))

    def start(self, role: str, count: int, core: int | None = None) -> subprocess.Popen[str]:
        """A process of `loop_process`, which is ready to begin."""
        process = subprocess.Popen(self.command(role, count, core), stdout=subprocess.PIPE, text=True)
        if line_of(process) != "ready\n":
            raise RuntimeError(f"{role} ended with {process.wait()}")
        return process

    def command(self, role: str, count: int, core: int | None = None) -> list[str]:
        """The command of a process of `loop_process`."""
        command = [sys.executable, "-m", "benchmarks.loop_process", role, str(self.file), str(count)]
        return command if core is None else [*command, str(core)]


def _answers(admin: Admin, topics: Iterable[TopicPlan]) -> bool:
    """Whether the leaders of all partitions know that they are: on a busy machine some learn it late."""
    try:
        admin.offsets.high_watermarks((plan.name, number) for plan in topics for number in range(plan.partitions))
    except RetryLater:
        return False
    return True


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line of what a process says, "" at its end."""
    assert process.stdout is not None
    return process.stdout.readline()


def result_of(process: subprocess.Popen[str]) -> dict[str, float]:
    """The figures of a process of `loop_process`, waited for."""
    try:
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def _together(joined: dict[str, float], learned: dict[str, float]) -> dict[str, float]:
    """The figures of a joiner and a learner as those of one."""
    seconds = max(joined["ended_at"], learned["ended_at"]) - joined["began_at"]
    sums = {name: joined[name] + learned[name] for name in ("cpu_seconds", *EVENTS) if name in joined}
    return {**learned, **sums, "seconds": seconds}


def row(name: str, count: int, figures: dict[str, float]) -> dict[str, Any]:
    """A row about so many impressions."""
    each = {name: figures[name] / count for name in ("cpu_seconds", TIME, "instructions") if name in figures}
    brokers_too = f", {each[TIME] * 1e9:.0f} ns of the brokers'" if TIME in each else ""
    counted = f", {each['instructions']:,.0f} instructions" if "instructions" in each else ""
    return {
        "name": name,
        "value": round(count / figures["seconds"]),
        "unit": "impressions/s",
        "note": f"{count} impressions in {figures['seconds']:.1f} s, {each['cpu_seconds'] * 1e9:.0f} ns of CPU each"
        f"{brokers_too}{counted}",
    }


def _send(
    producer: Producer, topic: str, data: bytes, bounds: np.ndarray, places: np.ndarray, partitions: np.ndarray
) -> None:
    """Record i goes to a partition, with the time of the impression at `places[i]`."""
    times = (START_MS + places * 1000 // PER_S).tolist()
    edges = bounds.tolist()
    for i, (time_ms, partition) in enumerate(zip(times, partitions.tolist(), strict=True)):
        while True:
            try:
                producer.produce(topic, data[edges[i] : edges[i + 1]], partition=partition, timestamp=time_ms)
                break
            except BufferError:
                producer.poll(0.05)
