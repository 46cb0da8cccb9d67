"""What a role costs while nothing happens: processor time of its process, as a share of one core.

16 partitions, on a broker that holds events and a model, with nothing new in any input. The joiner closes a tick of one
second by the clock in each partition, the learner folds and publishes them. Python's loop, librdkafka's threads and the
probes' server are all in the figure; a role that answers over HTTP is not asked anything. A joiner of another model has
impressions that wait for clicks, which do not come.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.bench_loop import START_MS, Site, kafka
from benchmarks.bench_start import (
    first_answer,
    learn_something,
    processor_s,
    role_process,
    says_yes,
    wait_until_true,
)
from tests.cli_e2e.world import free_port

ROLES = ("join", "learn", "score", "serve")
PARTITIONS = 16
SETTINGS = ("join.close_idle=true", "join.idle_after=1s", "join.grace=2s")
WAITING = "join: impressions wait"
IMPRESSIONS = 40_000
"""Impressions that wait, some minutes of them."""
SETTLE_S = 10.0
"""How long the roles run before they are measured: until the clock has closed every old tick."""


def run(quick: bool) -> list[dict[str, Any]]:
    """A row for each role."""
    seconds = 20.0 if quick else 60.0
    with kafka() as bootstrap, tempfile.TemporaryDirectory(prefix="bench-idle-") as name, ExitStack() as stack:
        site, waiting = (Site(bootstrap, Path(name), partitions=PARTITIONS) for _ in range(2))
        learn_something(site)
        _show(waiting)
        processes = {}
        for role in (*ROLES, WAITING):
            port = free_port()
            of = role_process("join", waiting, port) if role == WAITING else role_process(role, site, port, SETTINGS)
            process = processes[role] = stack.enter_context(of)
            if role == "score":
                first_answer(process)
            else:
                wait_until_true(lambda port=port: says_yes(port, "/readyz"), process)
        time.sleep(SETTLE_S)
        before = {role: processor_s(process.pid) for role, process in processes.items()}
        began_s = time.monotonic()
        time.sleep(seconds)
        passed_s = time.monotonic() - began_s
        return [
            _row(role, (processor_s(process.pid) - before[role]) / passed_s, passed_s)
            for role, process in processes.items()
        ]


def _show(site: Site) -> None:
    """Impressions without clicks."""
    producer = Producer({"bootstrap.servers": site.settings.bootstrap})
    for number in range(IMPRESSIONS):
        shown = b'{"id":"waits-%d"}' % number
        producer.produce(site.inputs[0], shown, partition=number % PARTITIONS, timestamp=START_MS + 5 * number)
    assert producer.flush(60) == 0


def _row(role: str, share: float, seconds: float) -> dict[str, Any]:
    note = f"{PARTITIONS} quiet partitions, {seconds:.0f} s"
    name = role if role == WAITING else f"{role}: idle"
    return {"name": name, "value": round(100 * share, 2), "unit": "% of a core", "note": note}
