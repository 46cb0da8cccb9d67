"""The programs that are measured, each in a process of its own and kept to one core, and whether its result is right.

A program gets a third of the impressions first where its process has to warm up, then all of them. What it prints last
are its figures.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.bench_loop import Site, result_of
from benchmarks.brokers import TIME, Brokers, Figures
from benchmarks.peers.maven import ToolMissing, java_command
from benchmarks.peers.traffic import END, PARTITIONS, WINDOW_MS, Traffic, end_ms, send, traffic
from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan
from tests.kafka_broker.broker import delete_topics, die_with_parent

PATIENCE_S = 900
LATER_S = 0.3
"""Kafka Streams gives out what has no partner at most once a second, and only as records come."""
WARM_SHARE = 3


class Inputs:
    """Two topics full of traffic."""

    def __init__(self, bootstrap: str, data: Traffic) -> None:
        self.name = f"peers-{uuid.uuid4().hex[:8]}"
        self.bootstrap = bootstrap
        self.data = data
        self.inputs = (f"{self.name}-impressions", f"{self.name}-clicks")
        keep = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}
        create(bootstrap, *self.inputs, **keep)
        for topic, records in zip(self.inputs, (data.impressions, data.clicks), strict=True):
            send(producer(bootstrap), topic, records)

    def end_again(self, through: Producer, late: int) -> None:
        """One more record that closes the windows for each partition, later than those before."""
        for topic in self.inputs:
            for partition in range(PARTITIONS):
                key = END + b"%d-later-%d" % (partition, late)
                value = b'{"id":"%s"}' % key
                through.produce(topic, value, key, partition, timestamp=end_ms(late))
        through.flush(10)


@dataclass(frozen=True)
class World:
    """The traffic for all programs, and the smaller one to warm up with."""

    folder: Path
    whole: Inputs
    warm: Inputs
    brokers: Brokers

    @classmethod
    def of(cls, brokers: Brokers, folder: Path, count: int) -> World:
        """Topics with so many impressions, and with a third of it, on brokers that have compiled what they do."""
        whole, warm = (Inputs(brokers.bootstrap, traffic(n)) for n in (count, count // WARM_SHARE))
        world = cls(folder, whole, warm, brokers)
        _our_site(world, warm).both(warm.data.count, brokers)
        return world


@dataclass(frozen=True)
class Program:
    """A program, what it does of the loop, how it is set, and what it lacks beside this project."""

    name: str
    does: str
    settings: str
    lacks: str
    measure: Callable[[World], Figures]
    runs: int = 1
    """Short programs run several times; the median counts."""

    def figures(self, world: World) -> Figures:
        """Those of the run of median processor time. Raises RuntimeError if the result of a run is wrong."""
        found = [check(self.measure(world), world.whole.data) for _ in range(self.runs)]
        return sorted(found, key=lambda one: one["cpu_seconds"])[self.runs // 2]


def producer(bootstrap: str) -> Producer:
    """A producer of large compressed batches; what it sends again neither changes places nor is there twice."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 20, "batch.size": 1_000_000}
    return Producer({**settings, "enable.idempotence": True, "queue.buffering.max.messages": 2_000_000})


def create(bootstrap: str, *names: str, **configs: str) -> None:
    """Make topics that have the partitions of the traffic."""
    plans = [TopicPlan(name, PARTITIONS, configs=configs) for name in names]
    Admin(KafkaSettings({"bootstrap.servers": bootstrap})).create(plans)


def check(figures: Figures, data: Traffic) -> Figures:
    """The figures of a program that did all of the work. Raises RuntimeError if its result is wrong."""
    found = (figures.get("examples", data.count), figures.get("positives", data.positives))
    if found != (data.count, data.positives):
        raise RuntimeError(
            f"wrong result: {found[0]} examples and {found[1]} positives, not {data.count} and {data.positives}"
        )
    return figures


def our_join(world: World) -> Figures:
    """The joiner alone; its result is what the learner finds in the log, `our_learner`."""
    return _our_site(world).measured("join", world.whole.data.count, world.brokers)


def our_reader(world: World) -> Figures:
    """What the joiner's client alone takes."""
    return _our_site(world).measured("read", world.whole.data.count, world.brokers)


def our_learner(world: World) -> Figures:
    """The learner alone, from a training log that a joiner has filled."""
    site, count = _our_site(world), world.whole.data.count
    result_of(site.start("join", count, core=0))
    return site.measured("learn", count, world.brokers)


def our_loop(world: World) -> Figures:
    """Joiner and learner, each on whatever core there is."""
    return _our_site(world).both(world.whole.data.count, world.brokers)


def by_hand(package: str, learner: str) -> Callable[[World], Figures]:
    """The loop written by hand in Python, with a learner of a package."""

    def measure(world: World) -> Figures:
        _need(package)
        whole = world.whole
        command = [sys.executable, "-m", "benchmarks.peers.by_hand", learner]
        command += [whole.bootstrap, *whole.inputs, str(whole.data.count)]
        return world.brokers.beside(lambda: _figures(command))

    return measure


def flink(world: World) -> Figures:
    """The whole loop in Flink."""
    jobs = [part for at in (world.warm, world.whole) for part in (*at.inputs, str(at.data.count))]
    command = java_command("flink", "Loop", world.folder, world.whole.bootstrap, str(WINDOW_MS), *jobs)
    return _after_warming(world, world.brokers.beside(lambda: _figures(command)))


def kafka_streams(world: World) -> Figures:
    """The left join of Kafka Streams. It has topics of its own, since it needs more records at their ends."""
    bootstrap = world.whole.bootstrap
    own = [Inputs(bootstrap, at.data) for at in (world.warm, world.whole)]
    joins = []
    for at in own:
        output = f"{at.name}-joined"
        create(bootstrap, output)
        joins += [*at.inputs, output, str(at.data.count)]
    try:
        command = java_command("kafka-streams", "Join", world.folder, bootstrap, str(WINDOW_MS), *joins)
        return _after_warming(world, world.brokers.beside(lambda: _figures(command, own)))
    finally:
        _delete_all_of(own)


PROGRAMS = (
    Program("stream-learner-join", "join", "joiner, JSON to training log", "", our_join, 3),
    Program(
        "kafka-streams",
        "join",
        "4.1.1, left join of bytes that it does not parse, RocksDB, at least once, 1 thread, commits every 30 s",
        "features, exact output, counted outcomes",
        kafka_streams,
    ),
    Program("stream-learner-learn", "learning", "learner, from a full training log", "", our_learner, 3),
    Program(
        "stream-learner-read", "reading", "the joiner's client alone, which drops what it has read", "", our_reader, 3
    ),
    Program(
        "stream-learner", "whole loop", "joiner and learner, two processes, through the training log", "", our_loop, 3
    ),
    Program(
        "flink",
        "whole loop",
        "1.20.1 in a MiniCluster, heap state, checkpoints every 10 s, object reuse, Jackson's parser of tokens, FTRL in"
        " arrays of 2^22",
        "durable weights, training log, snapshots",
        flink,
    ),
    Program(
        "python-vw",
        "whole loop",
        "orjson, dictionary, pyvw --ftrl -b 22 from text, collector off",
        "durable state, exact result after a restart, training log, snapshots",
        by_hand("vowpalwabbit", "vowpal-wabbit"),
    ),
    Program(
        "python-river",
        "whole loop",
        "orjson, dictionary, River's FTRLProximal, learns without predicting, collector off",
        "durable state, exact result after a restart, training log, snapshots",
        by_hand("river", "river"),
    ),
)


def _our_site(world: World, inputs: Inputs | None = None) -> Site:
    window = f"{WINDOW_MS // 1000}s"
    return Site(world.whole.bootstrap, world.folder, inputs or world.whole, PARTITIONS, window=window, dedupe=window)


def _after_warming(world: World, figures: Figures) -> Figures:
    """The figures of a program that has had both inputs: of the brokers' time, the share of the whole one."""
    count = world.whole.data.count
    share = count / (count + world.warm.data.count)
    return {name: value * share if name == TIME else value for name, value in figures.items()}


def _delete_all_of(topics: Sequence[Inputs]) -> None:
    """Delete the topics, and those that a program has made for them."""
    there = AdminClient({"bootstrap.servers": topics[0].bootstrap}).list_topics(timeout=30).topics
    delete_topics(topics[0].bootstrap, [name for name in there if name.startswith(tuple(one.name for one in topics))])


def _need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ToolMissing(f"needs the package {package}")


def _figures(command: list[str], ends: Sequence[Inputs] = ()) -> Figures:
    """What a program prints last. Meanwhile more records come to the ends of the topics of `ends`."""
    with _on_one_core(command) as process:
        if ends:
            _end_until_it_ends(process, ends)
        output, errors = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise RuntimeError(f"ended with {process.returncode}: {errors.strip()[-1000:]}")
    found: Figures = json.loads(output.splitlines()[-1])
    return found


def _end_until_it_ends(process: subprocess.Popen[str], ends: Sequence[Inputs]) -> None:
    """Send records to the ends of topics until the process has ended."""
    through, late = producer(ends[0].bootstrap), 0
    until_s = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until_s:
        late += 1
        for inputs in ends:
            inputs.end_again(through, late)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LATER_S)


@contextmanager
def _on_one_core(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process on the first core that this one may use; it does not outlive the block."""
    dies = die_with_parent()
    core = min(os.sched_getaffinity(0))

    def prepare() -> None:
        os.sched_setaffinity(0, {core})
        if dies is not None:
            dies()

    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, preexec_fn=prepare, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
