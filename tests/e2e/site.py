"""A model of its own on a real Kafka, for one test: topics, configuration, roles run until they have done.

This file must never reach into a role: what it cannot see in a topic, a metric or a store, a user could not see either.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    Admin,
    KafkaSettings,
    PartitionReader,
    TopicAndPartition,
    TopicPlan,
)
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.log.marks import Mark
from stream_learner.errors import BrokerUnreachable, RetryLater
from stream_learner.roles.common.last_publication import LastPublication, read_last_publication
from stream_learner.roles.common.lifecycle import Role, Stopping, run_role
from stream_learner.roles.joiner.role import JoinerRole
from stream_learner.roles.joiner.ticks import BrokersClock
from stream_learner.roles.learner.role import LearnerRole
from stream_learner.roles.scorer.scorer import Scorer
from tests import waiting
from tests.e2e.configuration import Tree, tree_of
from tests.e2e.training_log import LogReader
from tests.oracles import loop
from tests.oracles.join import marks_by_log_time
from tests.scenarios import Message, Scenario, records

T = TypeVar("T")
PATIENCE_S = 120.0
STOP_S = 30.0
FLUSH_S = 30.0
LOOK_S = 0.03
COMPACTED = {"cleanup.policy": "compact"}
IN_ORDER = {"max.in.flight.requests.per.connection": 1}
"""Else a broker that has just been started may put the first records behind later ones."""
LARGE = {"linger.ms": 5, "message.max.bytes": 12 << 20}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1", "max.message.bytes": str(12 << 20)}


class RightClock(BrokersClock):
    """The brokers' clock where it is that of the joiner: a real broker's append times do not go by a moved clock."""

    def __init__(self) -> None:
        super().__init__()
        self.base = 0

    def note(self, appended_ms: int, m: int) -> None:
        """Pass over what a real broker tells."""


class Site:
    """One model on a broker, and the input of its scenario. With `inputs_of` it reads the input topics of that one."""

    def __init__(
        self,
        bootstrap: str,
        scenario: Scenario,
        folder: Path,
        *,
        inputs_of: Site | None = None,
        snapshot_configs: Mapping[str, str] = COMPACTED,
        log_configs: Mapping[str, str] = APPEND_TIME,
        **changes: Tree,
    ) -> None:
        self.model = f"m{uuid.uuid4().hex[:10]}"
        self.scenario = scenario
        self.partitions = scenario.partitions
        self.folder = folder
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap}, group=f"{self.model}.test")
        self.admin = Admin(self.settings)
        inputs = inputs_of.model if inputs_of else self.model
        self.tree = tree_of(inputs, bootstrap, scenario.settings, folder / "state", changes) | {"model": self.model}
        self.config = self.changed()
        self._snapshot_configs, self._log_configs = snapshot_configs, log_configs
        self._readers: dict[int, LogReader] = {}
        self.topics = self._make_topics(with_inputs=inputs_of is None)

    def changed(self, **changes: Tree) -> Config:
        """The configuration with other entries in some sections, or another value of what is no section."""
        tree = {**self.tree}
        for section, values in changes.items():
            tree[section] = {**tree.get(section, {}), **values} if isinstance(values, Mapping) else values
        return Config.model_validate(tree)

    def _make_topics(self, *, with_inputs: bool) -> list[str]:
        c = self.config
        inputs = (self.impressions, self.clicks) if with_inputs else ()
        plans = [TopicPlan(name, self.partitions, configs=ANY_TIME) for name in inputs]
        plans.append(TopicPlan(c.examples_topic, self.partitions, configs=self._log_configs))
        plans.append(TopicPlan(c.dead_letters_topic, self.partitions, configs={"max.message.bytes": str(9 << 20)}))
        plans.append(TopicPlan(c.snapshots_topic, c.snapshots.shards, configs=self._snapshot_configs))
        if c.learner.copies:
            plans.append(TopicPlan(c.checkpoints_topic, c.snapshots.shards, configs=COMPACTED))
        self.admin.create(plans)
        places = [(plan.name, partition) for plan in plans for partition in range(plan.partitions)]
        wait_until(lambda: self._have_leaders(places), "every partition has a leader")
        return [plan.name for plan in plans]

    def _have_leaders(self, places: list[TopicAndPartition]) -> bool:
        known, _ = self.admin.offsets.high_watermarks_known(places)
        return len(known) == len(places)

    @property
    def impressions(self) -> str:
        return self.config.input.impressions.topic

    @property
    def clicks(self) -> str:
        return self.config.input.clicks.topic

    def produce(self, start: float = 0.0, stop: float = 1.0) -> None:
        """Send a share of the scenario's messages, each partition in its order."""
        self._send(
            (topic, partition, message)
            for topic, parts in ((self.impressions, self.scenario.impressions), (self.clicks, self.scenario.clicks))
            for partition, messages in enumerate(parts)
            for message in messages[_at(start, messages) : _at(stop, messages)]
        )

    def send(self, topic: str, partition: int, messages: Sequence[Message]) -> None:
        """Send messages to a partition, in their order, and wait until they are there."""
        self._send((topic, partition, message) for message in messages)

    def _send(self, messages: Iterable[tuple[str, int, Message]]) -> None:
        """Send by a producer of this call's own: one that lasted would know a topic that was deleted meanwhile."""
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, **IN_ORDER, **LARGE})
        for topic, partition, m in messages:
            while True:
                try:
                    producer.produce(topic, m.value, m.key, partition, timestamp=m.timestamp_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(waiting.patience(FLUSH_S)) == 0

    def append(self, topic: str, partition: int, *values: bytes | None, key: bytes | None = None) -> None:
        """Append plain values to any topic."""
        self.append_all(topic, ((partition, key, value) for value in values))

    def append_all(self, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Append records to any topic, each as partition, key and value."""
        producer = Producer({"bootstrap.servers": self.settings.bootstrap, **IN_ORDER, **LARGE})
        for partition, key, value in records:
            producer.produce(topic, value, key, partition)
        assert producer.flush(waiting.patience(FLUSH_S)) == 0

    def joiner(self, config: Config | None = None, metrics: Metrics | None = None, **options: Any) -> JoinerRole:
        """A joiner of this model. `clock_ms`: a clock for it that is right, so that it is the brokers' clock, too."""
        if "clock_ms" in options:
            options.setdefault("brokers", RightClock())
        return JoinerRole(config or self.config, metrics or Metrics(self.model), **options)

    def learner(self, config: Config | None = None, metrics: Metrics | None = None) -> LearnerRole:
        """A learner of this model."""
        return LearnerRole(config or self.config, metrics or Metrics(self.model))

    def scorer(self, **options: Any) -> Scorer:
        """A scorer of this model, to be used in a `with` block."""
        return Scorer(self.settings.bootstrap, self.model, **{"stale_after_ms": None, **options})

    def log(self, partition: int) -> LogReader:
        """A partition of the training log, read up to its end as it is now."""
        return self.logs()[partition]

    def logs(self) -> list[LogReader]:
        """All partitions of the training log, read up to their ends as they are now."""
        topic = self.config.examples_topic
        return [self._reader(p).read(end) for p, end in enumerate(self.ends(topic, self.partitions))]

    def ends(self, topic: str, partitions: int) -> list[int]:
        """The high watermark of each partition of a topic, as it is now."""
        places = [(topic, partition) for partition in range(partitions)]
        found = until_answered(lambda: self.admin.offsets.high_watermarks(places))
        return [found[place] for place in places]

    def _reader(self, partition: int) -> LogReader:
        if partition not in self._readers:
            self._readers[partition] = LogReader(self.settings, self.config.examples_topic, partition)
        return self._readers[partition]

    def marks(self) -> list[list[Mark]]:
        """The accepted marks of every partition."""
        return [log.marks for log in self.logs()]

    def marks_seen(self) -> int:
        """How many marks are accepted in all partitions together."""
        return sum(log.rule.accepted_marks for log in self.logs())

    def last_tick(self) -> int:
        """The last tick that every partition has closed."""
        return min(log.last_tick for log in self.logs())

    def stream_tick(self) -> int:
        """The last tick of stream time whose windows every partition has closed, -1 for none."""
        return min(log.marks[-1].stream_tick if log.marks else -1 for log in self.logs())

    @property
    def end_tick(self) -> int:
        """The last tick that log time closes, in all partitions: the sentinel of the clicks comes in the next one."""
        return self.scenario.clicks[0][-1].timestamp_ms // self.scenario.settings["tick_ms"] - 1

    def tick_closed_by(self, share: float) -> int:
        """The last tick that log time closes in all partitions once a share of the messages is there; -1 for none."""
        made, last = self.scenario, []
        for partition in zip(made.impressions, made.clicks, strict=True):
            shown, clicked = records([messages[: _at(share, messages)] for messages in partition])
            marks = marks_by_log_time(
                [loop.read_impression(record, made.settings) for record in shown],
                [loop.read_click(record, made.settings) for record in clicked],
                made.settings,
            )
            last.append(marks[-1].last_tick if marks else -1)
        return min(last)

    def closed(self) -> bool:
        """Whether every partition has closed every tick that its sentinels close."""
        return self.last_tick() >= self.end_tick

    def folded(self, learner: LearnerRole) -> bool:
        """Whether a learner has folded all of that."""
        return learner.tick >= self.end_tick

    @cached_property
    def plain_admin(self) -> AdminClient:
        """An admin client for what the product never asks."""
        return AdminClient({"bootstrap.servers": self.settings.bootstrap})

    def members(self, group: str = "") -> list[set[int]]:
        """The partitions of each joiner in the group, by default that of this model, as the broker has it."""
        group = group or self.config.group
        try:
            found = self.plain_admin.describe_consumer_groups([group])[group].result()
        except KafkaException:
            return []
        return [{p.partition for p in m.assignment.topic_partitions} for m in found.members if m.assignment]

    def shared_by(self, joiners: int) -> bool:
        """Whether so many joiners share all partitions."""
        members = self.members()
        return len(members) == joiners and all(members) and set().union(*members) == set(range(self.partitions))

    def records(self, topic: str, partition: int, *, headers: bool = True) -> Iterator[tuple[int, Any, Any, Any]]:
        """Offset, key, value and headers of everything in a partition as of now."""
        end = self.ends(topic, partition + 1)[partition]
        with PartitionReader(
            self.settings, topic, partition, 0, isolation=READ_UNCOMMITTED, with_keys=True, with_headers=headers
        ) as reader:
            while reader.position < end:
                (batch,) = until_answered(lambda: (reader.read(1_000, 1.0),))
                if batch is not None:
                    heads = batch.headers or [None] * len(batch.values)
                    yield from zip(batch.offsets.tolist(), batch.keys or (), batch.values, heads, strict=True)

    def write_config(self, **changes: Tree) -> Path:
        """The configuration as a file, for another process."""
        tree = self.changed(**changes).model_dump(mode="json", by_alias=True)
        tree["kafka"] = self.tree["kafka"]
        path = self.folder / f"config-{uuid.uuid4().hex[:6]}.yaml"
        path.write_text(json.dumps(tree), encoding="utf-8")
        return path

    def close(self) -> None:
        """Give the readers back."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def wait_until(true: Callable[[], object], what: str | Callable[[], str], patience_s: float = PATIENCE_S) -> None:
    """Wait as `waiting.wait_until` does. An error of a running role fails the test at once."""

    def holds() -> bool:
        if true():
            return True
        for error in (them.error for them in _RUNNING if them.error is not None):
            raise error
        return False

    waiting.wait_until(holds, what, patience_s=patience_s, look_s=LOOK_S)


def wait_published(site: Site, config: Config, version: int) -> LastPublication:
    """The publication of a model, once this version is the last of each shard: a commit shows a moment after its
    answer.
    """
    found: list[LastPublication] = []

    def seen() -> bool:
        topic, shards = config.snapshots_topic, config.snapshots.shards
        found[:] = [read_last_publication(site.settings, site.admin.offsets, topic, shards)]
        return found[0].latest == found[0].complete_up_to == version

    wait_until(seen, f"version {version} of {config.model} is visible")
    return found[0]


def until_answered(ask: Callable[[], T]) -> T:
    """Ask the brokers, again while they cannot tell yet, as after a leader has changed."""
    why: list[Exception] = []

    def answer() -> T | None:
        try:
            return ask()
        except (BrokerUnreachable, RetryLater) as error:
            why[:] = [error]
            return None

    return waiting.wait_for(answer, lambda: f"an answer of the brokers ({why})", patience_s=PATIENCE_S, look_s=LOOK_S)


_RUNNING: list[Running] = []


class Running:
    """Roles in threads. `error` is the first error that one of them raised."""

    def __init__(self, roles: Sequence[Role]) -> None:
        self.error: BaseException | None = None
        self._stopping = Stopping()
        self._threads = [threading.Thread(target=self._run, args=(role,)) for role in roles]
        for thread in self._threads:
            thread.start()

    def _run(self, role: Role) -> None:
        try:
            run_role(role, self._stopping)
        except BaseException as error:  # noqa: BLE001 -- shown by the test
            self.error = self.error or error

    def stop(self) -> None:
        """Tell the roles to stop, and wait until they have."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(waiting.patience(STOP_S))
        assert not any(thread.is_alive() for thread in self._threads), "a role does not stop"


@contextmanager
def running(*roles: Role) -> Iterator[Running]:
    """The roles, a thread each, for as long as the block lasts; an error of one fails the test."""
    them = Running(roles)
    _RUNNING.append(them)
    try:
        yield them
    finally:
        _RUNNING.remove(them)
        them.stop()
    if them.error is not None:
        raise them.error


def failure_of(role: Role, kind: type[BaseException], patience_s: float = PATIENCE_S) -> Any:
    """The error of this kind that a role stops with."""
    them = Running([role])
    try:
        wait_until(lambda: them.error is not None, f"{kind.__name__}", patience_s)
    finally:
        them.stop()
    if not isinstance(them.error, kind):
        raise them.error or AssertionError("no error")
    return them.error


def _at(share: float, messages: Sequence[Message]) -> int:
    return int(share * len(messages) + 0.5)
