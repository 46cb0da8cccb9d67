"""Whether impressions get the labels that they deserve where clocks are wrong, events late, and processes killed.

The worlds of `label_worlds` are written to topics of their own and joined by `stream-learner join`, those of
`label_streams` are fed to it as time passes; with default settings but for what is named. When every record is
accounted for, the training log is compared with the definition of a label, slowly. Value: clicked impressions that were
not learned as clicked. Many worlds run at a time, since they mostly wait for the clock.

`LABELS_TREE` names the root of another version of this program, which then joins; settings that it does not know are
left out. `labels:streams` and `labels:topics` measure one kind. `--quick` leaves out what takes minutes.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.bench_loop import kafka
from benchmarks.label_run import Found, Joiner, Model, Version
from benchmarks.label_streams import StreamRun, streams
from benchmarks.label_worlds import SPEED, WINDOW_MS, Event, World, worlds
from benchmarks.rows import Row
from stream_learner.core.machine.hashing import hash_texts

AT_A_TIME = {"streams": 10, "topics": 7}
PATIENCE_S = 600.0
LOOK_S = 0.1
KILLS = 5
IDLE_AFTER = "30s"
"""Of topics that hold all there is: nothing newer closes the last windows."""
HERE = Path(__file__).resolve().parent


def run(quick: bool, kinds: Sequence[str] = ("streams", "topics")) -> list[Row]:
    """A row for each world."""
    version = Version(Path(os.environ.get("LABELS_TREE") or HERE.parent).resolve())
    rows: list[Row] = []
    with kafka() as bootstrap, tempfile.TemporaryDirectory(prefix="bench-labels-") as folder:
        for kind in kinds:
            place = version, bootstrap, Path(folder)
            runs = (
                [StreamRun(stream, *place) for stream in streams(quick)]
                if kind == "streams"
                else [Run(world, *place) for world in worlds(quick)]
            )
            with ThreadPoolExecutor(AT_A_TIME[kind]) as pool:
                rows += pool.map(lambda one: one.row(), runs)
    return rows


class Run:
    """A world, its topics, its joiner, and what the training log has of it."""

    def __init__(self, world: World, version: Version, bootstrap: str, folder: Path) -> None:
        self._world = world
        self._model = Model(version, bootstrap, folder, {"idle_after": IDLE_AFTER, **world.join}, timed=world.timed)
        # Idempotent: else what is sent again may come behind what was sent after it.
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self._unsent = [
            (topic, world.records(events))
            for topic, events in zip(self._model.topics, (world.impressions, world.clicks), strict=True)
        ]
        self._found = self._model.found

    def row(self) -> Row:
        """Show the world to a joiner, wait until everything is accounted for, and compare."""
        show = {"there": self._there, "fed": self._fed, "killed": self._killed}[self._world.how]
        began_s = time.monotonic()
        show()
        self._found.close()
        figures = _figures(self._found, self._world)
        clicks, impressions = self._found.balance.clicks, self._found.balance.impressions
        note = (
            f"{impressions.read:,} impressions, {clicks.read:,} clicks; clicked {figures['clicked']:,}, learned so "
            f"{figures['positives']:,}; wrong labels {figures['wrong']:,}, impressions late {impressions.late:,}, dead "
            f"{impressions.dead:,}; clicks matched {clicks.matched:,}, orphans {clicks.orphans:,}, late "
            f"{clicks.late:,}; longest wait beyond the window {figures['wait_s']:,.0f} s"
        )
        counts = {"impressions": impressions._asdict(), "clicks": clicks._asdict()}
        name = f"labels lost: {self._world.name}"
        row = {"name": name, "value": figures["clicked"] - figures["right"], "unit": "impressions", "note": note}
        return {**row, **figures, **counts, "seconds": round(time.monotonic() - began_s, 1)}

    def _there(self) -> None:
        self._send()
        with self._model.joiner() as joiner:
            self._wait(joiner, self._is_done)

    def _killed(self) -> None:
        self._send()
        share = len(self._world.impressions) // (KILLS + 1)
        for kills in range(1, KILLS + 1):
            with self._model.joiner() as joiner:
                self._wait(joiner, lambda goal=kills * share: self._found.read().impressions.read >= goal)
        self._there()

    def _fed(self) -> None:
        with self._model.joiner() as joiner:
            self._wait(joiner, joiner.has_begun)
            begin_ms, began_s = self._first_ms(), time.monotonic()
            while any(events for _, events in self._unsent):
                self._send(begin_ms + int((time.monotonic() - began_s) * SPEED * 1000))
                time.sleep(LOOK_S / 2)
            self._unsent = [(topic, self._world.closing) for topic in self._model.topics]
            self._send()
            count = len(self._world.impressions)
            self._wait(joiner, lambda: self._found.read() is not None and self._found.emitted[0] >= count)

    def _wait(self, joiner: Joiner, true: Callable[[], bool]) -> None:
        """Until it is true. Raises TimeoutError where that takes too long."""
        until_s = time.monotonic() + PATIENCE_S
        while not true():
            joiner.check()
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._world.name}: {self._found.balance.to_dict()}")
            time.sleep(LOOK_S)

    def _is_done(self) -> bool:
        """Whether every record has ended in an outcome."""
        found = self._found.read()
        given = len(self._world.impressions), len(self._world.clicks)
        return (found.impressions.read, found.clicks.read) == given and not found.clicks.waiting

    def _first_ms(self) -> int:
        return min(events[0].at_ms for _, events in self._unsent)

    def _send(self, until_ms: int | None = None) -> None:
        """Write what comes before a moment, or all, and wait until it is there."""
        for number, (topic, events) in enumerate(self._unsent):
            due = len(events) if until_ms is None else sum(event.at_ms < until_ms for event in events)
            for event in events[:due]:
                self._producer.produce(topic, self._value(event), event.id.encode(), 0, timestamp=event.at_ms)
            self._unsent[number] = topic, events[due:]
        assert self._producer.flush(120) == 0

    def _value(self, event: Event) -> bytes:
        return json.dumps({"id": event.id, "time": event.time_ms} if self._world.timed else {"id": event.id}).encode()


def _figures(found: Found, world: World) -> Row:
    """The labels that were learned, beside those that should have been."""
    labels = world.labels()
    times = {event.id: event.time_ms for event in world.impressions}
    keys = dict(zip(times, hash_texts([name.encode() for name in times]), strict=True))
    learned = {name: found.learned[key] for name, key in keys.items() if key in found.learned}
    wrong = [(name, example.end_ms) for name, example in learned.items() if example.label != labels[name]]
    waits_ms = [example.end_ms - times[name] - WINDOW_MS for name, example in learned.items()]
    return {
        "clicked": sum(labels.values()),
        "positives": sum(example.label for example in learned.values()),
        "right": sum(example.label and labels[name] for name, example in learned.items()),
        "wrong": len(wrong),
        "first_wrong": wrong[:5],
        "wait_s": max(waits_ms, default=0) / 1000,
    }
