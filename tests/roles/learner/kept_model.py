"""A model that is kept in a state directory and copied to a topic, without a joiner: folded from given examples.

`Kept` makes the topics, starts learners and restores them. `Started` is a learner that folds, writes checkpoints and
copies them. `undisturbed` gives the digests of a learner to which nothing happens.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader, TopicPlan
from stream_learner.adapters.rocksdb.copy import piece_ids_of
from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.checkpoint_copy import HEAD_KEY, decode_copy, piece_key
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.errors import RetryLater
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.copies.writer import CopyWriter
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from stream_learner.roles.learner.recovery import Recovery
from tests.adapters.kafka.kafka_help import VisiblePublisher
from tests.core.model.example_records import Example, as_record, random_examples
from tests.e2e.configuration import Tree, tree_of
from tests.scenarios import scenario
from tests.waiting import wait_for, wait_until

COMPACTED = {"cleanup.policy": "compact"}
MakeKept = Callable[..., "Kept"]
SHARDS = 2
TICKS = 48
EXAMPLES = 30
SMALL = PagePolicy(page_bytes=1_600, part_bytes=2_000, ring=8, delta_share=0.7, lean=True)


class SmallStore(CheckpointStore):
    """A store whose checkpoints consist of many pieces."""

    @classmethod
    def open(cls, *given: Any, **options: Any) -> CheckpointStore:
        return super().open(*given, **{"policy": SMALL, **options})


class Kept:
    """One model, its topics made."""

    def __init__(
        self, bootstrap: str, folder: Path, topic_configs: Mapping[str, str], changes: Mapping[str, Tree]
    ) -> None:
        self.folder = folder
        model = f"k{uuid.uuid4().hex[:10]}"
        settings = scenario("plain", 1).settings
        tree = tree_of(model, bootstrap, settings, folder / "state", {"snapshots": {"shards": SHARDS}, **changes})
        self.config = Config.model_validate(tree)
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap}, group=f"{model}.test")
        self.admin = Admin(self.settings)
        self.topics = [self.config.examples_topic, self.config.checkpoints_topic]
        self.make_topics(topic_configs)

    def make_topics(self, configs: Mapping[str, str]) -> None:
        """Make the training log and the topic of copies, where they are not there."""
        plans = [TopicPlan(self.topics[0], 1), TopicPlan(self.topics[1], SHARDS, configs=configs)]
        self.admin.ensure(plans, create=True)
        places = [(plan.name, partition) for plan in plans for partition in range(plan.partitions)]
        wait_until(lambda: not self.admin.offsets.high_watermarks_known(places)[1], "every partition has a leader")
        self.log = self.admin.require(self.topics[:1])[self.topics[0]]

    @property
    def path(self) -> Path:
        return self.config.state_dir

    def learner(self) -> Learner:
        return Learner(self.config.optimizer(), loss=self.config.loss())

    def at(self, path: Path) -> Config:
        """The configuration with another state directory."""
        return self.config.with_values({("learner", "state_dir"): str(path)})

    @contextmanager
    def started(self, path: Path | None = None, metrics: Metrics | None = None) -> Iterator[Started]:
        """A learner that has recovered what it can, as it does at its start."""
        config = self.at(path or self.path)
        counted, log = metrics or Metrics(config.model), get_logger("learner")
        recovery = Recovery(config, self.settings, self.admin, self.log, self.learner, counted, log)
        started = Started(self, *recovery.run())
        try:
            yield started
        finally:
            started.close()

    def restored(self) -> tuple[int, str]:
        """Tick and digest of what a learner with an empty disk begins with."""
        path = self.folder / f"empty-{uuid.uuid4().hex[:6]}"
        with self.started(path) as started:
            found = started.checkpoints.tick, started.digest
        shutil.rmtree(path)
        return found

    def in_topic(self) -> dict[tuple[int, bytes], bytes]:
        """The last committed value of every key, by partition, as after a compaction."""
        found: dict[tuple[int, bytes], bytes] = {}
        topic = self.config.checkpoints_topic
        for partition in range(SHARDS):
            start, end = self._span(topic, partition)
            with PartitionReader(self.settings, topic, partition, start, with_keys=True) as reader:
                while reader.position < end:
                    batch = reader.read(1_000, 1.0)
                    for key, value in zip(batch.keys or (), batch.values, strict=True) if batch is not None else ():
                        found[partition, key or b""] = value or b""
        return {key: value for key, value in found.items() if value}

    def _span(self, topic: str, partition: int) -> tuple[int, int]:
        """From where to where a partition is read; a topic that was just made anew may have no leader yet."""
        place, queries = (topic, partition), self.admin.offsets

        def asked() -> tuple[int, int] | None:
            with suppress(RetryLater):
                return queries.earliest([place])[place], queries.last_stable_offsets([place])[place]
            return None

        return wait_for(asked, f"a leader of {topic}")

    def assert_nothing_left_over(self) -> None:
        """The topic holds the pieces that its head names, and no other."""
        held = self.in_topic()
        head = decode_copy(held[0, HEAD_KEY])
        pieces = {(shard, key) for shard, key in held if key.startswith(b"piece/")}
        assert pieces == {(shard, piece_key(head.lineage, key)) for shard, key in piece_ids_of(head)}


class Started:
    """A learner that folds, writes checkpoints and copies them when it is told to."""

    def __init__(self, model: Kept, checkpoints: Checkpoints, positions: object) -> None:
        self.model, self.checkpoints, self.positions = model, checkpoints, positions
        self.tick = checkpoints.tick
        self._writers: list[CopyWriter] = []

    @property
    def learner(self) -> Learner:
        return self.checkpoints.learner

    @property
    def digest(self) -> str:
        return f"{self.learner.digest_full():016x}"

    def fold_to(self, tick: int, seed: int = 1) -> Started:
        """Fold the ticks up to this one."""
        for number in range(self.tick + 1, tick + 1):
            self.learner.fold(examples(number, seed), number)
            self.tick = number
        return self

    def checkpoint(self) -> Started:
        """Write one of the tick folded last."""
        self.checkpoints.begin(self.tick, {0: LOG_BEGINNING})
        self.checkpoints.finish()
        return self

    def copy_writer(self, publisher: Callable[..., Any] = VisiblePublisher, **options: Any) -> CopyWriter:
        """A writer of copies that has begun; it is closed with the learner."""
        model = self.model
        writer = CopyWriter(
            model.settings,
            model.admin,
            self.checkpoints.store,
            topic=model.config.checkpoints_topic,
            new_publisher=partial(publisher, model.settings, model.config.copier_id),
            **options,
        )
        self._writers.append(writer)
        writer.begin()
        return writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self.checkpoints.close()


@cache
def _examples(seed: int) -> list[Example]:
    return random_examples(EXAMPLES * TICKS, seed, keys=600)


def examples(tick: int, seed: int) -> Any:
    """The record of a tick, of one history or the other."""
    return as_record(_examples(seed)[EXAMPLES * tick : EXAMPLES * (tick + 1)], tick=tick)


def undisturbed(config: Config, seed: int = 1) -> dict[int, str]:
    """The digest after every tick, of a learner that nothing happens to."""
    learner = Learner(config.optimizer(), loss=config.loss())
    digests = {-1: f"{learner.digest():016x}"}
    for tick in range(TICKS):
        learner.fold(examples(tick, seed), tick)
        digests[tick] = f"{learner.digest():016x}"
    return digests
