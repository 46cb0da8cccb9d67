"""The learner: folds the training log into the model, keeps it on disk, publishes it.

In: the training log, the state directory. Out: checkpoints, `<model>.snapshots`, metrics.
This file must never let the clock decide what is folded, or in which order; it only decides when to write.

1. Open the state directory and load the last checkpoint; go on from its positions in the training log.
2. Fence whoever published before; publish nothing until the fold has passed the last published version.
3. Read every partition by rule R, none too far ahead of the others.
4. Fold every tick that all partitions have passed, in the order (tick, partition, sequence).
5. When it is time, publish the version folded last.
6. When it is time, begin a checkpoint; write a piece of it at every turn; with its head it counts.

| a crash after    | leaves                                  | the next learner                                    |
|------------------|-----------------------------------------|-----------------------------------------------------|
| step 1 to 4      | the last checkpoint                     | folds the ticks after it again, to the same bits    |
| step 5           | a version beyond the checkpoint         | folds past it before it publishes                   |
| step 6, pieces   | pieces that no head names               | drops them; the checkpoint before counts            |
| step 6, the head | a checkpoint                            | begins there                                        |
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stream_learner.core.learner import Learner
from stream_learner.core.optimizers import make_optimizer
from stream_learner.core.pages import PagePolicy
from stream_learner.edges import metric_names as names
from stream_learner.edges.kafka import Admin, KafkaSettings, TopicWatch
from stream_learner.edges.metrics import Metrics
from stream_learner.edges.telemetry import get_logger
from stream_learner.errors import BrokerUnreachable, LogTrimmed, PartitionCountsDiffer, RetryLater
from stream_learner.roles.checkpoints import Checkpoints
from stream_learner.roles.clock import wall_clock_ms
from stream_learner.roles.learner_report import LearnerReport
from stream_learner.roles.log_follower import LogFollower, LogPosition
from stream_learner.roles.publication import Publication

if TYPE_CHECKING:
    from stream_learner.config import Config

FOLD_FOR_S = 0.05
REPORT_EVERY_S = 1.0
RETRY_S = 1.0


class LearnerRole:
    """Learns one model. Run it with `roles.lifecycle.run_role`."""

    name = "learner"

    def __init__(self, config: Config, metrics: Metrics, *, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._config = config
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._log = get_logger("learner").bind(model=config.model)
        self._settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.learner")
        self.learner = Learner(
            make_optimizer(config.learner.optimizer.model_dump()), slice_ms=config.learner.metrics_slice_ms
        )
        self._figures = LearnerReport(metrics, config.join.tick_ms)
        self.tick = -1
        self._checkpoints: Checkpoints | None = None
        self._publication: Publication | None = None
        self._follower: LogFollower | None = None
        self._topics: TopicWatch | None = None
        self._published_s = self._checkpointed_s = self._reported_s = time.monotonic()
        self._retry_s = 0.0
        self._unreachable = False

    @property
    def why_not_ready(self) -> str:
        """What is missing before the learner does its part, "" if nothing."""
        if self._follower is None:
            return "the learner has not loaded its state"
        return "the learner cannot read the training log" if self._unreachable else ""

    def open(self) -> None:
        """Steps 1 and 2. Raises what `Checkpoints`, `Publication` and the topics' checks raise."""
        admin = Admin(self._settings)
        # Step 1: load the last checkpoint.
        positions = self._load(admin)
        # Step 2: fence whoever published before.
        if self._config.learner.publish:
            self._publication = self._begin_publication(admin)
        self._topics = self._watch_topics(admin)
        self._follower = LogFollower(
            self._settings,
            self._config.examples_topic,
            positions,
            buffer_bytes=self._config.learner.buffer_bytes,
        )
        self._log.info(
            "learner_started",
            tick=self.tick,
            features=self.learner.table.count,
            digest=f"{self.learner.digest():016x}",
            publishing=self._publication is not None,
        )

    def _watch_topics(self, admin: Admin) -> TopicWatch:
        topics = [self._config.examples_topic]
        if self._publication is not None:
            topics.append(self._config.snapshots_topic)
        return TopicWatch(admin, admin.require(topics).values())

    def _load(self, admin: Admin) -> dict[int, LogPosition]:
        config = self._config
        log = admin.require([config.examples_topic])[config.examples_topic]
        self._checkpoints = Checkpoints(config, self.learner, log)
        positions = self._checkpoints.load()
        self.tick = self._checkpoints.tick
        self._figures.begin(self.learner)
        return positions

    def _begin_publication(self, admin: Admin) -> Publication:
        config, snapshots = self._config, self._config.snapshots
        topic = admin.require([config.snapshots_topic])[config.snapshots_topic]
        if topic.partitions != snapshots.shards:
            raise PartitionCountsDiffer(
                f"{topic.name} has {topic.partitions} partitions, snapshots.shards is {snapshots.shards}",
                action="Set snapshots.shards to the topic's partition count, or make the topic anew.",
            )
        publication = Publication(
            self._settings,
            admin.offsets,
            topic=topic.name,
            transactional_id=config.publisher_id,
            shards=snapshots.shards,
            policy=PagePolicy(page_bytes=snapshots.page_bytes, ring=snapshots.ring),
            learner=self.learner,
        )
        publication.begin()
        return publication

    def turn(self) -> bool:
        """Steps 3 to 6, once. False if there was nothing to do."""
        # Step 3: read.
        came = self._read()
        # Step 4: fold.
        folded = self._fold()
        # Step 5: publish.
        now_s = time.monotonic()
        if self._is_time(self._published_s, self._config.snapshots.interval_ms):
            self._publish(now_s)
        # Step 6: checkpoint.
        wrote = self._checkpoint(now_s)
        if now_s - self._reported_s > REPORT_EVERY_S:
            self._reported_s = now_s
            self._report()
        return came or folded or wrote

    def _read(self) -> bool:
        assert self._follower is not None and self._topics is not None
        self._topics.check()
        try:
            came = self._follower.read()
            self._unreachable = False
        except (BrokerUnreachable, RetryLater) as error:
            if not self._unreachable:
                self._log.warning("log_unreachable", reason=str(error))
                self._metrics.inc(names.RETRIES, role=self.name, error=type(error).__name__)
            self._unreachable = True
            return False
        except LogTrimmed:
            # A log that was made anew also lacks the offset, and is the thing to say.
            self._topics.check_now()
            raise
        return came

    def _fold(self) -> bool:
        """Fold ticks that every partition has passed, for a bounded time."""
        assert self._follower is not None
        until = time.monotonic() + FOLD_FOR_S
        folded = False
        while time.monotonic() < until:
            tick = self._follower.next_tick()
            if tick <= self.tick:
                break
            began = time.perf_counter()
            for accepted in self._follower.take(tick):
                for _, record in accepted.records:
                    self.learner.fold(record, tick)
            self._metrics.observe(names.LEARNER_FOLD, time.perf_counter() - began)
            self._metrics.inc(names.LEARNER_TICKS, tick - self.tick if self.tick >= 0 else 1)
            self.tick = tick
            folded = True
        return folded

    def _is_time(self, since_s: float, interval_ms: int) -> bool:
        return time.monotonic() - since_s >= interval_ms / 1000

    def _publish(self, now_s: float) -> None:
        publication, checkpoints = self._publication, self._checkpoints
        if publication is None or checkpoints is None or now_s < self._retry_s:
            return
        if not publication.may_publish(self.tick):
            return
        try:
            began = time.perf_counter()
            size = publication.publish(self.tick, checkpoints.tick, self._description())
        except (BrokerUnreachable, RetryLater) as error:
            self._log.warning("publication_failed", version=self.tick, reason=str(error))
            self._retry_s = now_s + RETRY_S
            return
        self._published_s = now_s
        self._metrics.observe(names.LEARNER_PUBLISH, time.perf_counter() - began)
        self._metrics.inc(names.LEARNER_PUBLISH_BYTES, size)
        self._metrics.set(names.LEARNER_PUBLISHED_SEQUENCE, publication.sequence)
        self._metrics.set(names.LEARNER_PUBLISHED_VERSION, publication.version)

    def _description(self) -> dict[str, Any]:
        """What a scorer must know: the content of the model record."""
        config = self._config
        impressions, _ = config.event_specs()
        return {
            "name": config.model,
            "tick_ms": config.join.tick_ms,
            "features": config.feature_spec().to_dict(),
            "optimizer": self.learner.optimizer.to_dict(),
            "inputs": {
                "impressions": config.input.impressions.topic,
                "clicks": config.input.clicks.topic,
                "ignored_fields": list(impressions.paths()),
                "window_ms": config.join.window_ms,
            },
            "metrics": self.learner.progress.summary(),
        }

    def _checkpoint(self, now_s: float) -> bool:
        checkpoints, follower = self._checkpoints, self._follower
        assert checkpoints is not None and follower is not None
        if checkpoints.writing:
            if checkpoints.step():
                self._note_checkpoint(checkpoints)
            return True
        due = self._is_time(self._checkpointed_s, self._config.learner.checkpoint_interval_ms)
        if due and self.tick > checkpoints.tick:
            self._checkpointed_s = now_s
            checkpoints.begin(self.tick, follower.positions)
            return True
        return False

    def _note_checkpoint(self, checkpoints: Checkpoints) -> None:
        self._metrics.inc(names.LEARNER_CHECKPOINTS)
        self._metrics.observe(names.LEARNER_CHECKPOINT, checkpoints.seconds)
        self._log.info(
            "checkpoint",
            tick=checkpoints.tick,
            features=self.learner.table.count,
            seconds=round(checkpoints.seconds, 3),
        )

    def _report(self) -> None:
        assert self._follower is not None
        self._figures.update(self.learner, self._follower, self.tick, self._clock_ms())

    def finish(self) -> None:
        """Publish and write what is folded, so that scorers have it and the next start is quick."""
        checkpoints, follower = self._checkpoints, self._follower
        assert checkpoints is not None and follower is not None
        self._publish(time.monotonic())
        checkpoints.finish()
        if self.tick > checkpoints.tick:
            checkpoints.begin(self.tick, follower.positions)
            checkpoints.finish()
            self._note_checkpoint(checkpoints)

    def close(self) -> None:
        """Let go of the topics and the state directory. A checkpoint that is not whole never was."""
        for part in (self._follower, self._publication, self._checkpoints):
            if part is not None:
                part.close()
        self._log.info("learner_stopped", tick=self.tick, digest=f"{self.learner.digest():016x}")
