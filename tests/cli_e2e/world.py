"""A model of its own on a real Kafka: its configuration file, its topics, traffic for them.

It must never run a role itself.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.config import Config
from stream_learner.traffic import Emitted, TrafficModel, TrafficShape
from tests.waiting import patience

WINDOW_MS = 2_000
SPAN_MS = 2_000
BACK_MS = 10_000
"""Events begin so far back. With `LATENESS_MS` none is late, whatever ticks were closed before it was sent, and the
outcomes of all are final some seconds after they were sent.
"""
LATENESS_MS = 15_000
PARTITIONS = 2
SHAPE = TrafficShape(window_ms=WINDOW_MS, delay_median_ms=200.0, late_share=0.0, bad_share=0.002)
HOUR_MS = 3_600_000


class World:
    """One model's names. Nothing exists on the broker until a command or `produce` makes it."""

    def __init__(self, bootstrap: str, folder: Path, **sections: dict[str, Any]) -> None:
        self.folder = folder
        self.model = f"c{uuid.uuid4().hex[:10]}"
        self.impressions, self.clicks = f"{self.model}-impressions", f"{self.model}-clicks"
        self.port = free_port()
        self.tree = self._tree(bootstrap)
        for name, values in sections.items():
            self.tree[name] = {**self.tree[name], **values}
        self.config = Config.model_validate(self.tree)
        self.file = folder / f"{self.model}.yaml"
        self.file.write_text(json.dumps(self.tree), encoding="utf-8")
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap}, group=f"{self.model}.test")
        self._traffic = TrafficModel(1, SHAPE)
        self._next_ms = 0

    def _tree(self, bootstrap: str) -> dict[str, Any]:
        return {
            "model": self.model,
            "kafka": {"bootstrap.servers": bootstrap},
            "input": {
                "impressions": {"topic": self.impressions, "time": "time"},
                "clicks": {"topic": self.clicks, "time": "time"},
            },
            "join": {
                "window": f"{WINDOW_MS}ms",
                "skew": "0s",
                "tick": "200ms",
                "grace": "300ms",
                "dedupe": "10s",
                "lateness": f"{LATENESS_MS}ms",
                "max_skew": f"{LATENESS_MS}ms",
                "idle_after": "1s",
            },
            "features": {"categorical": ["slot", "hour"]},
            "learner": {"state_dir": str(self.folder / "state"), "checkpoint_interval": "1s"},
            "snapshots": {"interval": "200ms", "shards": 2, "first": {"examples": 0}},
            "topics": {"replication": 1, "control": f"{self.model}.control"},
            "scorer": {"ready_timeout": f"{patience():.0f}s"},
            "telemetry": {"log_format": "json", "http_host": "127.0.0.1", "http_port": 0},
        }

    @property
    def next_ms(self) -> int:
        """The time of the first impression that would be sent next."""
        return self._next_ms

    @property
    def admin(self) -> Admin:
        """An admin client."""
        return Admin(self.settings)

    @property
    def topics(self) -> list[str]:
        """Every topic that commands could make for this model."""
        c = self.config
        own = [c.examples_topic, c.snapshots_topic, c.dead_letters_topic, c.checkpoints_topic, c.control_topic]
        return [self.impressions, self.clicks, *own]

    def existing(self) -> set[str]:
        """The topics that exist."""
        return set(self.admin.describe(self.topics))

    def produce(self, impressions: int) -> Emitted:
        """Send so many impressions and what comes of them; how many records have been sent in all.

        Their times lie so far back that their windows have closed.
        """
        producer = Producer(
            {"bootstrap.servers": self.settings.bootstrap, "linger.ms": 5, "max.in.flight.requests.per.connection": 1}
        )
        self._next_ms = max(self._next_ms, int(time.time() * 1000) - BACK_MS)
        for chunk in self._traffic.events(impressions * 1000 / SPAN_MS, self._next_ms, SPAN_MS):
            for topic, events in ((self.impressions, chunk.impressions), (self.clicks, chunk.clicks)):
                for at_ms, key, value in events:
                    producer.produce(topic, value, key, timestamp=at_ms)
            producer.poll(0)
        self._next_ms += SPAN_MS
        assert producer.flush(patience()) == 0
        return self._traffic.emitted

    def append(self, topic: str, partition: int, *records: tuple[bytes | None, bytes | None]) -> None:
        """Append keys and values to any topic, as somebody else might."""
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, "max.in.flight.requests.per.connection": 1})
        for key, value in records:
            producer.produce(topic, value, key, partition)
        assert producer.flush(patience()) == 0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
