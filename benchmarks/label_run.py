"""What worlds of labels have in common: a model's topics, a joiner in a process of its own, and what its log has.

In: a tree of this program and a configuration. Out: by impression, the label that was learned. This file must never
know which label an impression deserves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan
from stream_learner.config import Config
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.operations.topics import plans
from stream_learner.roles.learner.log_follower import LOG_BEGINNING, LogFollower

TICK_MS = 1_000
BUFFER_BYTES = 8 << 20
STOP_S = 30.0
KNOWN = "import json; from stream_learner.config.sections import Join; print(json.dumps(Join.model_json_schema()))"
BEGUN = ('"partition_begun"', '"partition_resumed"')

Tree = dict[str, Any]


class Version:
    """The version of this program whose joiner is tried: the tree at a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python("from stream_learner.roles.common.compile import load_kernels; load_kernels(['joiner'])")

    @cached_property
    def join_settings(self) -> set[str]:
        """The settings below `join` that it knows."""
        return set(json.loads(self.python(KNOWN))["properties"])

    def python(self, script: str) -> str:
        """The output of a script that imports the tree."""
        command = [sys.executable, "-c", script]
        ended = subprocess.run(
            command, cwd=self.root, env=self.environment(), stdout=subprocess.PIPE, check=True, text=True
        )
        return ended.stdout

    def environment(self) -> dict[str, str]:
        """The environment of an installation: byte code is kept, whatever this process was told."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPATH": str(self.root)}


class Model:
    """A model of its own: its topics and its configuration. topics: of impressions, and of clicks."""

    def __init__(
        self,
        version: Version,
        bootstrap: str,
        folder: Path,
        join: Mapping[str, Any],
        *,
        partitions: int = 1,
        timed: bool = True,
        http_port: int = 0,
    ) -> None:
        """join: settings; those that the version does not know are left out. timed: whether events have a time field.
        http_port: of the metrics; 0 for none.
        """
        self._version = version
        self.name = f"labels-{uuid.uuid4().hex[:8]}"
        self.topics = f"{self.name}-impressions", f"{self.name}-clicks"
        self._file, self._output = folder / f"{self.name}.yaml", folder / f"{self.name}.log"
        time_field = "time" if timed else None
        tree: Tree = {
            "model": self.name,
            "kafka": {"bootstrap.servers": bootstrap},
            "input": {
                "impressions": {"topic": self.topics[0], "time": time_field},
                "clicks": {"topic": self.topics[1], "time": time_field},
            },
            "telemetry": {"log_format": "json", "http_port": http_port},
        }
        config = Config.model_validate(tree)  # the tree's own settings are the tree's
        known = {name: value for name, value in join.items() if name in version.join_settings}
        self._file.write_text(yaml.safe_dump({**tree, "join": known}), encoding="utf-8")
        settings = KafkaSettings({"bootstrap.servers": bootstrap})
        keep = {"retention.ms": "-1"}
        inputs = [TopicPlan(name, partitions, configs=keep) for name in self.topics]
        Admin(settings).create([*plans(config, partitions), *inputs])
        self.found = Found(settings, config.examples_topic, partitions)

    def joiner(self, **environment: str) -> Joiner:
        """A joiner of it, with some variables more in its environment."""
        words = ["-m", "stream_learner", "join", "-c", str(self._file)]
        return Joiner(words, self._version.root, self._version.environment() | environment, self._output)


class Joiner:
    """A joiner in a process of its own, killed at the end of the block."""

    def __init__(self, words: list[str], root: Path, environment: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, *words], cwd=root, env=environment, stdout=out, stderr=out
            )

    def __enter__(self) -> Joiner:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        self._process.kill()
        self._process.wait(STOP_S)

    def check(self) -> None:
        """Raises RuntimeError where it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the joiner ended with {self._process.returncode}: {self.said()[-1000:]}")

    def has_begun(self, partitions: int = 1) -> bool:
        """Whether it has its partitions."""
        said = self.said()
        return sum(said.count(word) for word in BEGUN) >= partitions

    def said(self) -> str:
        """What it has logged."""
        return self._output.read_text(encoding="utf-8", errors="replace")


class Learned(NamedTuple):
    """An example. end_ms: the stream time of its mark. seen_ms: when all partitions had passed its tick, wall clock."""

    label: bool
    end_ms: int
    seen_ms: int


@dataclass
class Found:
    """The content of a training log. learned: by the hash of its id, the example of an impression. emitted: by
    partition, the offset up to which impressions have an outcome.
    """

    settings: KafkaSettings
    topic: str
    partitions: int
    balance: Balance = field(default_factory=Balance)
    learned: dict[int, Learned] = field(default_factory=dict)
    emitted: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        start = dict.fromkeys(range(self.partitions), LOG_BEGINNING)
        self._log = LogFollower(self.settings, self.topic, start, buffer_bytes=BUFFER_BYTES)

    def read(self) -> Balance:
        """Read on, and count."""
        while self._log.read():
            pass
        for tick in self._log.take(self._log.passed):
            self._take(tick)
        return self.balance

    def _take(self, tick: AcceptedTick) -> None:
        mark = tick.mark
        self.balance.add(mark)
        self.emitted[mark.partition] = mark.next_impression
        end_ms, seen_ms = (mark.stream_tick + 1) * TICK_MS, time.time_ns() // 1_000_000
        for _, record in tick.records:
            for key, label in zip(record.id_hash.tolist(), record.label.tolist(), strict=True):
                assert key not in self.learned, "an impression has two examples"
                self.learned[key] = Learned(label > 0, end_ms, seen_ms)

    def close(self) -> None:
        """Read no more, and check the balance."""
        self._log.close()
        assert not self.balance.problems, self.balance.problems
