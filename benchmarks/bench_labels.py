"""Whether impressions get the labels that they deserve where clocks are wrong, events late, and processes killed.

Each world of `label_worlds` is written to topics of its own and joined by `stream-learner join`, with default settings
but for what the world names; seven worlds at a time, since they mostly wait for the clock. When every record is
accounted for, the training log is compared with the definition of a label, slowly. Value: clicked impressions that were
not learned as clicked.

`LABELS_TREE` names the root of another version of this program, which then joins; settings that it does not know are
left out. With `--quick` the worlds that pass as fast as their events come are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from benchmarks.bench_loop import kafka
from benchmarks.label_worlds import SECOND_MS, SPEED, WINDOW_MS, Event, World, worlds
from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan
from stream_learner.config import Config
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.core.machine.hashing import hash_texts
from stream_learner.operations.topics import plans
from stream_learner.roles.learner.log_follower import LOG_BEGINNING, LogFollower

AT_A_TIME = 7
PATIENCE_S = 600.0
LOOK_S = 0.1
STEP_MS = 20 * SECOND_MS
STEP_PATIENCE_S = 1.0
"""How long to wait for the join to follow a step of the clock; where it is held, it does not."""
KILLS = 5
TICK_MS = 1_000
GRACE_MS = 2_000
HERE = Path(__file__).resolve().parent
KNOWN = "import json; from stream_learner.config.sections import Join; print(json.dumps(Join.model_json_schema()))"
BEGUN = ('"partition_begun"', '"partition_resumed"')

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """A row for each world."""
    tree = Path(os.environ.get("LABELS_TREE") or HERE.parent).resolve()
    known = set(json.loads(_python(tree, KNOWN))["properties"])
    _python(tree, "from stream_learner.roles.common.compile import load_kernels; load_kernels(['joiner'])")
    with (
        kafka() as bootstrap,
        tempfile.TemporaryDirectory(prefix="bench-labels-") as folder,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        return list(pool.map(lambda world: Run(world, tree, known, bootstrap, Path(folder)).row(), worlds(quick)))


class Run:
    """A world, its topics, its joiner, and what the training log has of it."""

    def __init__(self, world: World, tree: Path, known: set[str], bootstrap: str, folder: Path) -> None:
        self._world, self._tree = world, tree
        self._model = f"labels-{uuid.uuid4().hex[:8]}"
        self._file = folder / f"{self._model}.yaml"
        self._output = folder / f"{self._model}.log"
        self._clock = folder / f"{self._model}.clock"
        settings = {name: value for name, value in world.join.items() if name in known}
        self._file.write_text(yaml.safe_dump(self._configuration(bootstrap, settings)), encoding="utf-8")
        config = Config.model_validate(self._configuration(bootstrap, {}))  # the tree's own settings are the tree's
        kafka_settings = KafkaSettings({"bootstrap.servers": bootstrap})
        keep = {"retention.ms": "-1"}
        inputs = (config.input.impressions.topic, config.input.clicks.topic)
        Admin(kafka_settings).create([*plans(config, 1), *(TopicPlan(name, 1, configs=keep) for name in inputs)])
        # Idempotent: else what is sent again may come behind what was sent after it.
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self._unsent = [
            (topic, world.records(events))
            for topic, events in zip(inputs, (world.impressions, world.clicks), strict=True)
        ]
        self._found = Found(kafka_settings, config.examples_topic)

    def row(self) -> Row:
        """Show the world to a joiner, wait until everything is accounted for, and compare."""
        show = {"there": self._there, "fed": self._fed, "live": self._live, "killed": self._killed}[self._world.how]
        began_s = time.monotonic()
        show()
        figures = self._found.figures(self._world)
        clicks, impressions = self._found.balance.clicks, self._found.balance.impressions
        note = (
            f"{impressions.read:,} impressions, {clicks.read:,} clicks; clicked {figures['clicked']:,}, learned so "
            f"{figures['positives']:,}; wrong labels {figures['wrong']:,}, impressions late {impressions.late:,}, dead "
            f"{impressions.dead:,}; clicks matched {clicks.matched:,}, orphans {clicks.orphans:,}, late "
            f"{clicks.late:,}; longest wait beyond the window {figures['wait_s']:,.0f} s"
        )
        counts = {"impressions": asdict(impressions), "clicks": asdict(clicks)}
        name = f"labels lost: {self._world.name}"
        row = {"name": name, "value": figures["clicked"] - figures["right"], "unit": "impressions", "note": note}
        return {**row, **figures, **counts, "seconds": round(time.monotonic() - began_s, 1)}

    def _there(self) -> None:
        self._send()
        with self._joiner() as joiner:
            self._wait(joiner, self._is_done)

    def _killed(self) -> None:
        self._send()
        share = len(self._world.impressions) // (KILLS + 1)
        for kills in range(1, KILLS + 1):
            with self._joiner() as joiner:
                self._wait(joiner, lambda goal=kills * share: self._found.read().impressions.read >= goal)
        self._there()

    def _fed(self) -> None:
        with self._joiner() as joiner:
            self._wait(joiner, joiner.has_begun)
            begin_ms, began_s = self._first_ms(), time.monotonic()
            while any(events for _, events in self._unsent):
                self._send(begin_ms + int((time.monotonic() - began_s) * SPEED * 1000))
                time.sleep(LOOK_S / 2)
            self._wait(joiner, self._is_done)

    def _live(self) -> None:
        now_ms = self._first_ms()
        self._set_clock(now_ms)
        with self._joiner(stepped=True) as joiner:
            self._wait(joiner, joiner.has_begun)
            while not self._is_done():
                now_ms += STEP_MS
                self._send(now_ms)
                self._set_clock(now_ms)
                closes = (now_ms - GRACE_MS) // TICK_MS - 1
                self._wait(joiner, lambda tick=closes: self._found.reaches(tick), STEP_PATIENCE_S)

    def _wait(self, joiner: Joiner, true: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Until it is true. Raises TimeoutError where that takes too long; a short patience just ends."""
        until_s = time.monotonic() + patience_s
        while not true():
            joiner.check()
            if time.monotonic() > until_s:
                if patience_s < PATIENCE_S:
                    return
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

    def _set_clock(self, now_ms: int) -> None:
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(now_ms.to_bytes(8, "little"))

    def _joiner(self, stepped: bool = False) -> Joiner:
        words = ["-m", "stream_learner", "join", "-c", str(self._file)]
        if stepped:
            words = [str(HERE / "stepped_joiner.py"), str(self._file), str(self._clock)]
        return Joiner(words, self._tree, self._output)

    def _configuration(self, bootstrap: str, join: dict[str, Any]) -> Row:
        time_field = "time" if self._world.timed else None
        return {
            "model": self._model,
            "kafka": {"bootstrap.servers": bootstrap},
            "input": {
                "impressions": {"topic": f"{self._model}-impressions", "time": time_field},
                "clicks": {"topic": f"{self._model}-clicks", "time": time_field},
            },
            "join": join,
            "telemetry": {"log_format": "json", "http_port": 0},
        }


class Joiner:
    """A joiner in a process of its own, killed at the end of the block."""

    def __init__(self, words: list[str], tree: Path, output: Path) -> None:
        self._output = output
        with output.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, *words], cwd=tree, env=_environment(tree), stdout=out, stderr=out
            )

    def __enter__(self) -> Joiner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Raises RuntimeError where it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the joiner ended with {self._process.returncode}: {self._said()[-1000:]}")

    def has_begun(self) -> bool:
        """Whether it has its partition."""
        said = self._said()
        return any(word in said for word in BEGUN)

    def _said(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")


@dataclass
class Found:
    """The content of a training log of one partition."""

    settings: KafkaSettings
    topic: str
    balance: Balance = field(default_factory=Balance)
    labels: dict[int, tuple[bool, int]] = field(default_factory=dict)
    """By the hash of its id, whether an impression was learned as clicked, and the end of its tick."""

    def __post_init__(self) -> None:
        self._log = LogFollower(self.settings, self.topic, {0: LOG_BEGINNING}, buffer_bytes=8 << 20)

    def read(self) -> Balance:
        """Read on, and count."""
        self._log.read()
        for tick in self._log.take(self._log.passed):
            self._take(tick)
        return self.balance

    def reaches(self, tick: int) -> bool:
        """Whether a tick has closed."""
        self.read()
        return self._log.passed >= tick

    def _take(self, tick: AcceptedTick) -> None:
        self.balance.add(tick.mark)
        end_ms = (tick.mark.last_tick + 1) * TICK_MS
        for _, record in tick.records:
            for key, label in zip(record.id_hash.tolist(), record.label.tolist(), strict=True):
                assert key not in self.labels, "an impression has two examples"
                self.labels[key] = label > 0, end_ms

    def figures(self, world: World) -> Row:
        """The labels that were learned, beside those that should have been."""
        self._log.close()
        assert not self.balance.problems, self.balance.problems
        labels = world.labels()
        times = {event.id: event.time_ms for event in world.impressions}
        keys = dict(zip(times, hash_texts([name.encode() for name in times]), strict=True))
        learned = {name: self.labels[key] for name, key in keys.items() if key in self.labels}
        wrong = [(name, end_ms) for name, (label, end_ms) in learned.items() if label != labels[name]]
        waits_ms = [end_ms - times[name] - WINDOW_MS for name, (_, end_ms) in learned.items()]
        return {
            "clicked": sum(labels.values()),
            "positives": sum(label for label, _ in learned.values()),
            "right": sum(label and labels[name] for name, (label, _) in learned.items()),
            "wrong": len(wrong),
            "first_wrong": wrong[:5],
            "wait_s": max(waits_ms, default=0) / 1000,
        }


def _python(tree: Path, script: str) -> str:
    """The output of a script that imports a tree."""
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=tree, env=_environment(tree), stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def _environment(tree: Path) -> dict[str, str]:
    """The environment of an installation: byte code is kept, whatever this process was told."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(tree)}
