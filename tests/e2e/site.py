"""A model of its own on a real Kafka, for one test: topics, configuration, roles run until they have done.

In: a scenario, a bootstrap address. Out: what the roles made of it, read back from the topics. This file must
never reach into a role: what it cannot see in a topic, a metric or a store, a user could not see either.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from stream_learner.config import Config
from stream_learner.core.marks import Mark
from stream_learner.core.training_log import AcceptedTick, RuleR
from stream_learner.edges.kafka import (
    READ_UNCOMMITTED,
    Admin,
    KafkaSettings,
    PartitionReader,
    TopicPlan,
)
from stream_learner.edges.metrics import Metrics
from stream_learner.roles.joiner import JoinerRole
from stream_learner.roles.learner import LearnerRole
from stream_learner.roles.lifecycle import Role, Stopping, run_role
from stream_learner.roles.scorer import Scorer
from tests import oracle
from tests.oracle import Settings
from tests.scenarios import SENTINEL, Message, Scenario

PATIENCE_S = 60.0


class Site:
    """One model on a broker. `close_idle` is off unless asked for, so that the log depends on the input alone."""

    def __init__(self, bootstrap: str, scenario: Scenario, state_dir: Path, **tree: Any) -> None:
        self.model = f"m{uuid.uuid4().hex[:10]}"
        self.scenario = scenario
        self.partitions = scenario.partitions
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap}, group=f"{self.model}.test")
        self.admin = Admin(self.settings)
        self.config = Config.model_validate(_tree(self.model, bootstrap, scenario.settings, state_dir, tree))
        self._make_topics()

    def _make_topics(self) -> None:
        c, stamps = self.config, {"message.timestamp.after.max.ms": str(2**62)}
        inputs = {"retention.ms": "-1", **stamps}
        plans = [TopicPlan(t, self.partitions, configs=inputs) for t in (self.impressions, self.clicks)]
        plans.append(TopicPlan(c.examples_topic, self.partitions))
        plans.append(TopicPlan(c.dead_letters_topic, self.partitions))
        plans.append(TopicPlan(c.snapshots_topic, c.snapshots.shards, configs={"cleanup.policy": "compact"}))
        self.admin.create(plans)

    @property
    def impressions(self) -> str:
        return self.config.input.impressions.topic

    @property
    def clicks(self) -> str:
        return self.config.input.clicks.topic

    def produce(self, start: float = 0.0, stop: float = 1.0) -> None:
        """Send a share of the scenario's messages, each partition in its order."""
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, "linger.ms": 5})
        for topic, parts in ((self.impressions, self.scenario.impressions), (self.clicks, self.scenario.clicks)):
            for partition, messages in enumerate(parts):
                _send(producer, topic, partition, messages[_at(start, messages) : _at(stop, messages)])
        assert producer.flush(30) == 0

    def joiner(self, config: Config | None = None) -> JoinerRole:
        """A joiner of this model."""
        return JoinerRole(config or self.config, Metrics(self.model))

    def learner(self, config: Config | None = None) -> LearnerRole:
        """A learner of this model."""
        return LearnerRole(config or self.config, Metrics(self.model))

    def scorer(self) -> Scorer:
        """A scorer of this model."""
        return Scorer(self.settings.bootstrap, self.model, max_staleness_ms=None)

    def last_tick(self) -> int:
        """The last tick that every partition has closed."""
        return min(marks[-1].last_tick if marks else -1 for marks in self.marks())

    def accepted(self, partition: int) -> list[AcceptedTick]:
        """The accepted ticks of a partition of the training log, as they are now."""
        topic = self.config.examples_topic
        end = self.admin.offsets.high_watermarks([(topic, partition)])[topic, partition]
        rule = RuleR(partition=partition)
        found = []
        with PartitionReader(self.settings, topic, partition, 0, isolation=READ_UNCOMMITTED) as reader:
            while reader.position < end:
                batch = reader.read(1000, 1.0)
                for offset, value in zip(batch.offsets.tolist(), batch.values, strict=True) if batch else ():
                    tick = rule.take(offset, value)
                    if tick is not None:
                        found.append(tick)
        return found

    def marks(self) -> list[list[Mark]]:
        """The accepted marks of every partition."""
        return [[tick.mark for tick in self.accepted(p)] for p in range(self.partitions)]

    def closed(self) -> bool:
        """Whether every partition has emitted all but the sentinel, and every click before it has expired."""
        return all(self._closed(p) for p in range(self.partitions))

    def _closed(self, partition: int) -> bool:
        ticks = self.accepted(partition)
        wanted = len(self.scenario.impressions[partition]) - 1
        return bool(ticks) and ticks[-1].mark.next_impression >= wanted


def wait_until(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Ask again and again; fail the test when it does not become true in time."""
    until = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < until, f"not within {patience_s:g} s: {what}"
        time.sleep(0.1)


@contextmanager
def running(*roles: Role) -> Iterator[None]:
    """The roles, a thread each, for as long as the block lasts; an error of one fails the test."""
    stopping = Stopping()
    errors: list[BaseException] = []

    def run(role: Role) -> None:
        try:
            run_role(role, stopping)
        except BaseException as error:  # noqa: BLE001 -- shown by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(role,)) for role in roles]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
    if errors:
        raise errors[0]


def logged_examples(ticks: Sequence[AcceptedTick]) -> Iterator[tuple[Any, ...]]:
    """Examples of accepted ticks as (tick, log time, id hash, label, weight, features)."""
    for tick in ticks:
        for _, r in tick.records:
            values = _values(r)
            start = 0
            for i in range(len(r)):
                stop = start + int(r.row_len[i])
                keys = r.keys[r.indices[start:stop]].tolist()
                yield (
                    tick.mark.last_tick,
                    int(r.log_time_ms[i]),
                    int(r.id_hash[i]),
                    float(r.label[i]),
                    float(r.weight[i]),
                    tuple(zip(keys, values[start:stop], strict=True)),
                )
                start = stop


def expected_examples(joined: oracle.Joined) -> Iterator[tuple[Any, ...]]:
    """The oracle's examples in the same form."""
    for e in joined.examples:
        yield e.tick, e.log_time_ms, e.id_hash, e.label, e.weight, e.features


def _values(record: Any) -> list[float]:
    values = [1.0] * len(record.indices)
    for place, value in zip(record.positions.tolist(), record.values.tolist(), strict=True):
        values[place] = value
    return values


def _at(share: float, messages: Sequence[Message]) -> int:
    return int(share * len(messages) + 0.5)


def _send(producer: Producer, topic: str, partition: int, messages: Sequence[Message]) -> None:
    for m in messages:
        while True:
            try:
                producer.produce(topic, m.value, m.key, partition, timestamp=m.timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)


def _tree(model: str, bootstrap: str, s: Settings, state_dir: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """The configuration that a scenario's settings stand for; `changes` are sections to update."""
    fields: dict[str, dict[str, Any]] = {}
    for name in s["log"]:
        fields.setdefault(name, {})["kind"] = "log"
    for name, edges in s["buckets"].items():
        fields.setdefault(name, {}).update(kind="bucket", edges=list(edges))
    for name in s["missing"]:
        fields.setdefault(name, {})["missing"] = True
    tree: dict[str, Any] = {
        "model": model,
        "kafka": {"bootstrap.servers": bootstrap, "session.timeout.ms": 6000},
        "input": {
            "impressions": {
                "topic": f"{model}-impressions",
                "id": s["id"],
                "time": s["time"],
                "weight": s["weight"],
            },
            "clicks": {
                "topic": f"{model}-clicks",
                "id": s["click_id"],
                "time": s["click_time"],
                "value": s["value"],
            },
            "time_unit": "ms" if s["time_unit"] == "iso" else s["time_unit"],
        },
        "join": {
            "window": f"{s['window_ms']}ms",
            "skew": f"{s['skew_ms']}ms",
            "tick": f"{s['tick_ms']}ms",
            "dedupe": f"{s['dedupe_ms']}ms",
            "max_skew": f"{s['max_skew_ms']}ms",
            "keep_negatives": s["keep_negatives"],
            "close_idle": False,
            "max_bad_share": 1.0,
        },
        "features": {
            "include": list(s["include"] or ()),
            "exclude": list(s["exclude"]),
            "categorical": list(s["categorical"]),
            "fields": fields,
            "crosses": [list(cross) for cross in s["crosses"]],
        },
        "learner": {
            "state_dir": str(state_dir),
            "optimizer": {k: s[k] for k in ("alpha", "beta", "l1", "l2")},
        },
    }
    if s["limit_bytes"] is not None:
        tree["join"]["max_event_bytes"] = s["limit_bytes"]
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values}
    return tree


__all__ = ["SENTINEL", "Site", "expected_examples", "logged_examples", "running", "wait_until"]
