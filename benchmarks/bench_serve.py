"""`stream-learner serve` under load, by HTTP and gRPC, beside River behind FastAPI, plain echoes and the library.

39 features, about 600 bytes of JSON; a weight for every feature, 20,000 of them changed by a new version every second.
The load is `wrk`'s: one thread, 8 connections for the rate, one for the times of a request that meets no other.
Server, load and broker share whatever cores there are. Each server is one process; they take turns, five times, and
medians are told. The processor's time is the server's own, threads and system included. River and the echo are uvicorn
with uvloop and httptools; River has no versions, no limits and no token. The echo of gRPC is grpcio with an empty
handler. How long requests take when a server is not busy to the last is told by itself: at a rate that is the same for
all, of connections that pause at random between their requests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench_loop import Site, kafka
from benchmarks.serve_grpc import Calls, is_up
from stream_learner.adapters.kafka import Record, TransactionalPublisher
from stream_learner.core.events.decoders import EventSpec, ImpressionDecoder
from stream_learner.core.parts import compile_kernels
from stream_learner.core.snapshots.pages import PagePlanner, PagePolicy, Prefix, shard_prefix
from stream_learner.core.snapshots.records import Stamp, publication
from stream_learner.core.snapshots.rows import WeightRows, rows_between
from stream_learner.roles.scorer.scorer import Scorer
from stream_learner.traffic.benchmark import benchmark_impressions
from tests.cli_e2e.world import free_port

INSTANCES = (1, 100, 1_000)
EVENTS = 20_000
CHANGED = 20_000
CONNECTIONS = 8
ROUNDS = 5
PAUSES_MS = {1: 4, 100: 100}
"""The mean pause of a connection, for the numbers of events that River can keep up with."""
PACED = 16
"""Connections that pause."""
CALLS = (1, 100)
"""Numbers of events that are asked for over gRPC."""
SCRIPT = Path(__file__).with_name("serve_load.lua")
Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows for each number of instances: requests a second of the servers and the library, processor beside River's."""
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is not installed: apt-get install wrk")
    seconds = 1 if quick else 4
    compile_kernels()
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
        site = Site(bootstrap, Path(folder))
        data, bounds = benchmark_impressions(EVENTS)
        texts = [data[bounds[i] : bounds[i + 1]] for i in range(EVENTS)]
        with Updates(site, data, bounds), served(site) as (ours, by_grpc), river() as peer, echoing() as echo:
            rows = []
            for count in INSTANCES:
                bodies = Bodies(Path(folder) / str(count), texts, count)
                found = _take_turns([ours, peer, echo], bodies, seconds)
                for name, loads in zip(NAMES, found, strict=True):
                    rows.append(_row(f"{name}, {count} a request", loads))
                rows.append(_beside(f"processor of River's to ours, {count} a request", *found[:2]))
                rows += _paced([ours, peer, echo], bodies, count, seconds) if count in PAUSES_MS else []
                rows.append(_library(site, texts, count, seconds))
            with grpc_echoing() as echo:
                for count in CALLS:
                    found = _take_turns([by_grpc, echo], Calls(Path(folder), site.model, texts, count), seconds)
                    for name, loads in zip(GRPC_NAMES, found, strict=True):
                        rows.append(_row(f"{name}, {count} a request", loads))
            return rows


NAMES = ("serve", "FastAPI + River", "Starlette echo")
GRPC_NAMES = ("serve by gRPC", "empty gRPC handler")


class Running(NamedTuple):
    """A server's address and process."""

    url: str
    process: int

    def cpu_s(self) -> float:
        """The processor's time that it has taken so far."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """What was measured in one turn: by many connections, by one, and the processor's time for a request of many."""

    many: dict[str, float]
    one: dict[str, float]
    cpu_us: float


def _take_turns(servers: list[Running], bodies: Bodies | Calls, seconds: int) -> list[list[Load]]:
    """The loads of each server."""
    for server in servers:
        bodies.load(server.url, CONNECTIONS, 1)
    found: list[list[Load]] = [[] for _ in servers]
    for _ in range(ROUNDS):
        for server, loads in zip(servers, found, strict=True):
            before_s = server.cpu_s()
            many = bodies.load(server.url, CONNECTIONS, seconds)
            cpu_us = (server.cpu_s() - before_s) / many["requests"] * 1e6
            loads.append(Load(many, bodies.load(server.url, 1, seconds), cpu_us))
    return found


def _paced(servers: list[Running], bodies: Bodies, count: int, seconds: int) -> Iterator[Row]:
    """How long requests take at an equal rate."""
    found: list[list[dict[str, float]]] = [[] for _ in servers]
    for _ in range(ROUNDS):
        for server, loads in zip(servers, found, strict=True):
            loads.append(bodies.load(server.url, PACED, seconds, PAUSES_MS[count]))
    for name, loads in zip(NAMES, found, strict=True):
        p50, p99 = (median(load[which] for load in loads) for which in ("p50_ms", "p99_ms"))
        rate = median(load["requests"] / load["seconds"] for load in loads)
        note = f"{rate:,.0f} requests/s of {PACED} connections; p50 {p50:.3g} ms"
        yield {"name": f"{name}, {count} a request, p99 at an equal rate", "value": p99, "unit": "ms", "note": note}


def _beside(name: str, ours: list[Load], peers: list[Load]) -> Row:
    ratio = median(load.cpu_us for load in peers) / median(load.cpu_us for load in ours)
    return {"name": name, "value": round(ratio, 2), "unit": "times", "note": "a request of 8 connections"}


class Bodies:
    """Requests of so many events each, as files."""

    def __init__(self, folder: Path, texts: list[bytes], count: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.number = min(200, len(texts) // count)
        for i in range(self.number):
            events = b",".join(texts[i * count : (i + 1) * count])
            (folder / f"{i}.json").write_bytes(b'{"instances":[' + events + b"]}")

    def load(self, url: str, connections: int, seconds: int, pause_ms: int = 0) -> dict[str, float]:
        """The figures that wrk measured. pause_ms: of a connection between requests, the mean. Raises RuntimeError if
        a request failed."""
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", SCRIPT, url, "--", self.folder]
        pause = {"PAUSE_MS": str(pause_ms)} if pause_ms else {}
        command += [str(self.number)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **pause})
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        if found["failed"]:
            raise RuntimeError(f"{found['failed']} requests failed at {url}")
        return found


class Updates:
    """Publishes a model that has a weight for every feature of the events, and every second a changed one."""

    def __init__(self, site: Site, data: bytes, bounds: np.ndarray) -> None:
        spec = site.config.feature_spec()
        columns = ImpressionDecoder(EventSpec(), spec).decode(data, bounds, np.zeros(len(bounds) - 1, np.int64))
        self._keys = np.unique(columns.keys)
        self._random = np.random.default_rng(1)
        self._weights = self._random.normal(0, 0.3, len(self._keys)).astype(np.float32)
        self._topic = site.config.snapshots_topic
        self._shards = site.config.snapshots.shards
        self._planners = [PagePlanner(shard_prefix(s, self._shards), PagePolicy()) for s in range(self._shards)]
        self._content = {
            "name": site.model,
            "tick_ms": 1000,
            "features": spec.to_dict(),
            "optimizer": {},
            "inputs": {"ignored_fields": list(EventSpec().paths())},
            "metrics": {},
        }
        self._publisher = TransactionalPublisher(site.settings, site.model)
        self._publisher.init()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def _go_on(self) -> None:
        while not self._stop.wait(1.0):
            self._publish(np.sort(self._random.choice(len(self._keys), min(CHANGED, len(self._keys)), replace=False)))

    def _publish(self, places: np.ndarray) -> None:
        self._weights[places] = self._random.normal(0, 0.3, len(places))
        changed = WeightRows(self._keys[places], self._weights[places])
        whole = WeightRows(self._keys, self._weights)
        version, records = int(time.time()), []
        for shard, planner in enumerate(self._planners):
            root = planner.root
            plan = planner.plan(rows_between(changed, root.bits, root.last), partial(_below, whole))
            planner.commit(plan)
            stamp = Stamp(shard, self._shards, plan.sequence, 1, version)
            made = publication(plan, stamp, version, self._content if shard == 0 else None)
            records += [Record(self._topic, shard, *pair) for pair in made]
        self._publisher.publish(records)

    def __enter__(self) -> Updates:
        self._publish(np.arange(len(self._keys)))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._publisher.close()


def _below(rows: WeightRows, prefix: Prefix) -> WeightRows:
    return rows_between(rows, prefix.bits, prefix.last)


def _answers(status: int, url: str) -> bool:
    """Whether a GET is answered with this status."""
    try:
        with urllib.request.urlopen(url, timeout=2) as found:
            return bool(found.status == status)
    except urllib.error.HTTPError as error:
        return error.code == status
    except OSError:
        return False


@contextmanager
def served(site: Site) -> Iterator[tuple[Running, Running]]:
    """The server in a process of its own, as it is reached by HTTP and by gRPC."""
    port, grpc_port = free_port(), free_port()
    ports = (f"serve.port={port}", f"serve.grpc_port={grpc_port}")
    settings = (*ports, "serve.host=127.0.0.1", "serve.drain=0s", "telemetry.log_level=warning")
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "stream_learner", "serve", "-c", str(site.file), *options]
    with _process(command, f"http://127.0.0.1:{port}/readyz", partial(_answers, 200)) as process:
        url = f"http://127.0.0.1:{port}/v1/models/{site.model}:predict"
        yield Running(url, process), Running(f"127.0.0.1:{grpc_port}", process)


@contextmanager
def river() -> Iterator[Running]:
    """River behind FastAPI in a process of its own."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/predict"
    with _process([sys.executable, "-m", "benchmarks.serve_river", str(port)], url, partial(_answers, 405)) as process:
        yield Running(url, process)


@contextmanager
def echoing() -> Iterator[Running]:
    """The echo in a process of its own."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/echo"
    with _process([sys.executable, "-m", "benchmarks.serve_echo", str(port)], url, partial(_answers, 405)) as process:
        yield Running(url, process)


@contextmanager
def grpc_echoing() -> Iterator[Running]:
    """The empty handler of grpcio in a process of its own."""
    port = free_port()
    url = f"127.0.0.1:{port}"
    with _process([sys.executable, "-m", "benchmarks.serve_grpc_echo", str(port)], url, is_up) as process:
        yield Running(url, process)


@contextmanager
def _process(command: list[str], url: str, is_up: Callable[[str], bool]) -> Iterator[int]:
    process = subprocess.Popen(command)
    try:
        until_s = time.monotonic() + 120
        while not is_up(url):
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"not ready: {' '.join(command)}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _row(name: str, loads: list[Load]) -> Row:
    many, one = ([load[i] for load in loads] for i in range(2))
    cpu_us = median(load.cpu_us for load in loads)
    note = f"{cpu_us:.0f} µs of processor; {CONNECTIONS} connections: {_medians(many)}; one: {_medians(one)}"
    rate = round(median(found["requests"] / found["seconds"] for found in many))
    return {"name": name, "value": rate, "unit": "requests/s", "note": note}


def _medians(found: list[dict[str, float]]) -> str:
    return _times({name: median(load[name] for load in found) for name in ("p50_ms", "p99_ms")})


def _library(site: Site, texts: list[bytes], count: int, seconds: int) -> Row:
    taken: list[float] = []
    with Scorer(site.settings.bootstrap, site.model) as scorer:
        scorer.wait_ready(60)
        batches = [texts[i : i + count] for i in range(0, len(texts), count)]
        for batch in batches[:200]:
            scorer.predict_many(batch)
        until_s = time.perf_counter() + seconds
        while (began_s := time.perf_counter()) < until_s:
            scorer.predict_many(batches[len(taken) % len(batches)])
            taken.append(time.perf_counter() - began_s)
    p50, p99 = np.percentile(taken, (50, 99)) * 1000
    note = f"one thread: {_times({'p50_ms': p50, 'p99_ms': p99})}"
    rate = round(len(taken) / sum(taken))
    return {"name": f"library, {count} a call", "value": rate, "unit": "calls/s", "note": note}


def _times(found: dict[str, float]) -> str:
    return f"p50 {found['p50_ms']:.3g} ms, p99 {found['p99_ms']:.3g} ms"
