"""One role in a process of its own, timed: `python -m benchmarks.loop_process ROLE FILE EXAMPLES [CORE [stay]]`.

Roles are `join`, `learn`, and `read`: the joiner's client alone. In: a configuration file, how many impressions or
examples there are, a core to keep to. One that is to stay leaves its group only when its input ends, so that nobody
else gets its partitions before. Out: a line of JSON with the seconds from the first record at hand to the last one
done, the processor time in between, and the counts of the processor where it counts; a learner's has what it learned
besides.
This file must never be used for anything but measuring.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.counters import EVENTS, Counters, NotCounted
from stream_learner.adapters.kafka import Admin, KafkaSettings, ReaderPools, SharedReader
from stream_learner.adapters.machine import keep_for_batches
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config, load_config
from stream_learner.roles.common.compile import load_kernels
from stream_learner.roles.common.lifecycle import IDLE_S, looking_for_garbage_seldom
from stream_learner.roles.joiner.inputs import READ_RECORDS
from stream_learner.roles.joiner.loop import JoinerLoop
from stream_learner.roles.joiner.role import MOST_FETCHED_CLICKS_BYTES, MOST_FETCHED_IMPRESSIONS_BYTES, JoinerRole
from stream_learner.roles.learner.loop import LearnerLoop
from stream_learner.roles.learner.role import LearnerRole

PATIENCE_S = 300.0


class Client:
    """Reads both inputs as a joiner does, looks into no record, and keeps none."""

    def __init__(self, config: Config) -> None:
        self.impressions = 0
        self._settings = KafkaSettings(config.kafka_options())
        self._topics = config.input.impressions.topic, config.input.clicks.topic
        self._readers: list[SharedReader] = []

    def open(self) -> Client:
        """Begin every partition of both topics."""
        shown, clicked = self._topics
        bounds = {shown: MOST_FETCHED_IMPRESSIONS_BYTES, clicked: MOST_FETCHED_CLICKS_BYTES}
        partitions = Admin(self._settings).require([shown])[shown].partitions
        pools = ReaderPools(partitions, bounds, packed=True)
        for partition in range(partitions):
            self._readers += [pools.open(self._settings, topic, partition, 0) for topic in self._topics]
        return self

    def turn(self) -> bool:
        """Read once from every partition; whether anything came."""
        came = False
        for reader in self._readers:
            batch = reader.read(READ_RECORDS)
            if batch is not None:
                came = True
                self.impressions += len(batch) if reader.topic == self._topics[0] else 0
        return came

    def close(self) -> None:
        """Close the connections."""
        for reader in self._readers:
            reader.close()


def main() -> None:
    """Run the role until it has done so many, and print the figures."""
    role_name, file, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if len(sys.argv) > 4:
        os.sched_setaffinity(0, {int(sys.argv[4])})
    counters = None
    with suppress(NotCounted):
        counters = Counters(later_threads=True)
    config = load_config(file)
    keep_for_batches()
    configure_logging(log_format="console", log_level="warning")
    load_kernels(["joiner", "learner"])
    metrics = Metrics(config.model)
    with looking_for_garbage_seldom():
        if role_name == "read":
            client = Client(config)
            opened, figures = _timed(client, lambda: client.impressions, lambda: True, wanted, counters)
        elif role_name == "join":
            joiner = JoinerRole(config, metrics)
            opened, figures = _timed(joiner, lambda: _joined(joiner), lambda: bool(joiner.partitions), wanted, counters)
            figures["partitions"] = len(joiner.partitions)
        else:
            learner = LearnerRole(config, metrics)
            opened, figures = _timed(learner, lambda: learner.learner.examples, lambda: True, wanted, counters)
            found = learner.learner.progress.summary()
            figures |= {name: found[name] for name in ("examples", "positives", "log_loss")}
        print(json.dumps(figures), flush=True)
        if "stay" in sys.argv[5:]:
            sys.stdin.read()
        opened.close()


def _joined(joiner: JoinerRole) -> int:
    return sum(j.progress.last.next_impression for j in joiner.partitions.values() if j.progress.last is not None)


def _timed(
    role: JoinerRole | LearnerRole | Client,
    done: Callable[[], int],
    begun: Callable[[], bool],
    wanted: int,
    counters: Counters | None,
) -> tuple[JoinerLoop | LearnerLoop | Client, dict[str, float]]:
    opened = role.open()
    print("ready", flush=True)
    until_s = time.monotonic() + PATIENCE_S
    while not begun() and time.monotonic() < until_s:
        opened.turn()
    counts = counters.read() if counters else 0.0
    began_at = time.time()
    began_s, cpu_began_s = time.monotonic(), time.process_time()
    while done() < wanted:
        if not opened.turn():
            time.sleep(IDLE_S)
        if time.monotonic() > until_s:
            raise TimeoutError(f"{done()} of {wanted} after {PATIENCE_S:g} s")
    seconds, cpu = time.monotonic() - began_s, time.process_time() - cpu_began_s
    ended_at = time.time()
    counted = dict(zip(EVENTS, (counters.read() - counts).tolist(), strict=True)) if counters else {}
    times = {"seconds": seconds, "cpu_seconds": cpu, "began_at": began_at, "ended_at": ended_at}
    return opened, times | counted


if __name__ == "__main__":
    main()
