"""One model of a learner: what it has learned, its durable state, its publications, and when each is due.

In: accepted ticks in the order of the fold. Out: checkpoints, `<model>.snapshots`, metrics.
This file must never read the training log, fold a tick twice, or know of other models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.events.feature_keys import FIRST_RULE
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.errors import BrokerUnreachable, ConfigError, DiskFull, Fenced, PartitionCountsDiffer, RetryLater
from stream_learner.roles.common.last_published import LastPublished
from stream_learner.roles.common.record_sizes import RecordSizes
from stream_learner.roles.control.topic import require_control
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.copies.schedule import CopySchedule, begin_copies
from stream_learner.roles.learner.leadership import Leadership, TakeOver, WarmPublishers
from stream_learner.roles.learner.log_features import LogFeatures
from stream_learner.roles.learner.log_follower import LogFollower, LogPosition
from stream_learner.roles.learner.publication import Publication
from stream_learner.roles.learner.recovery import Recovery
from stream_learner.roles.learner.report import LearnerReport
from stream_learner.roles.learner.state_dir import DiskRoom, noting_damage
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.core.log.rule_r import AcceptedTick
    from stream_learner.core.log.subset import FeatureSubset

RETRY_S = 1.0
OTHER_FEATURES = (
    "Give joiners and learner the same `features`. To go on with the learner's, begin the log anew with them "
    "(`stream-learner begin-anew`): the model is published again once the marks of every partition carry them. Scorers "
    "serve the last version until then."
)
PUBLISHED_SLICES = 12
"""The latest slices of the progressive metrics go into the model record, so that models can be compared."""


class LearnedModel:
    """Folds one model. Used by the learner's thread: `connect`, `load`, `begin`, then turn after turn, `keep_lease`
    first."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        *,
        subset: FeatureSubset | None = None,
        until_tick: int | None = None,
        standby: bool = False,
        with_lease: bool = True,
        is_paused: Callable[[str], bool] = lambda model: False,
    ) -> None:
        """subset: the features to learn from, None for all. until_tick: the last tick to fold, None for no end.

        standby: follow, and lead only while this learner holds the lease. with_lease: whether it asks for one.
        is_paused: whether the publication of a model is paused now; asked at every turn.
        """
        self.config = config
        self.metrics = metrics
        self.tick = -1
        self.learner = self._new_learner()
        self._subset = subset
        self._until_tick = until_tick
        self._settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.learner")
        self._copying = self._settings
        self._piece_bytes: int | None = None
        """What a piece of a checkpoint may be to fit the topic of the copies, None where nothing bounds it."""
        self._log = get_logger("learner").bind(model=config.model)
        self._figures = LearnerReport(metrics, config.join.tick_ms)
        self._checkpoints: Checkpoints | None = None
        self._copies: CopySchedule | None = None
        self._admin: Admin | None = None
        self._leadership = Leadership(config, self._settings, metrics, standby=standby, with_lease=with_lease)
        self._warm = WarmPublishers()
        self._publication: Publication | None = None
        """Only while this learner leads."""
        self._took_over: TakeOver | None = None
        self._published_s = self._checkpointed_s = time.monotonic()
        self._retry_s = self._load_s = self._fence_s = 0.0
        self._is_paused = is_paused
        self._paused = False
        self._room = DiskRoom(config.state_dir, config.learner.min_free_bytes, self._log)
        self._unpublished = ""
        """Why the last publication failed, "" where it did not."""
        self._log_features = LogFeatures(config.feature_spec().fingerprint)
        self._other_features = ""
        """Why the model must not be published with the features that are configured, "" where it may be."""

    def _new_learner(self) -> Learner:
        config = self.config
        return Learner(config.optimizer(), loss=config.loss(), slice_ms=config.learner.metrics_slice_ms)

    @property
    def settings(self) -> KafkaSettings:
        """For the clients of this model."""
        return self._settings

    def connect(self, admin: Admin) -> None:
        """Connect what publishes, while the state is loaded. It fences nobody: a load that fails must end no leader."""
        config, sizes = self.config, RecordSizes(admin, self._log)
        if not config.learner.publish:
            return
        self._warm.connect(self._publishing(sizes), config.publisher_id)
        if config.learner.copies:
            self._piece_bytes = sizes.limit_bytes(config.checkpoints_topic)
            self._copying = self._settings.with_batches(sizes.batch_bytes(config.checkpoints_topic))
            self._warm.connect(self._copying, config.copier_id)

    def _publishing(self, sizes: RecordSizes) -> KafkaSettings:
        """For what publishes: with batches that the snapshot topic takes."""
        return self._settings.with_batches(sizes.batch_bytes(self.config.snapshots_topic))

    def load(self, log: TopicInfo, admin: Admin) -> dict[int, LogPosition]:
        """Load the last checkpoint; returns its positions in the training log `log`.

        Raises what `Checkpoints` raises, and ConfigError where the checkpoint lies beyond `until_tick`.
        """
        config = self.config
        features = None if self._subset is None else config.feature_spec().to_dict()
        recovery = Recovery(
            config,
            self._settings,
            admin,
            log,
            self._new_learner,
            self.metrics,
            self._log,
            subset_of_features=features,
            piece_bytes=self._piece_bytes,
        )
        began_s = time.monotonic()
        self._checkpoints, positions = recovery.run()
        self._load_s = time.monotonic() - began_s
        self.learner = self._checkpoints.learner
        self.tick = self._checkpoints.tick
        self._log_features.restore(self._checkpoints.log_features)
        if self._until_tick is not None and self.tick > self._until_tick:
            raise ConfigError(
                f"{config.state_dir} holds model {config.model} as of tick {self.tick}; it was to be learned up to "
                f"tick {self._until_tick} only",
                action="A model cannot unlearn: give a later end, or another model name.",
            )
        self._figures.begin(self.learner)
        return positions

    def begin(self, admin: Admin) -> TopicInfo | None:
        """Lead at once, unless this is a standby; returns the snapshot topic, None where nothing is ever published.

        Raises TopicMissing, PartitionCountsDiffer, and what `lead` raises.
        """
        config, snapshots = self.config, self.config.snapshots
        self._leadership.note(leads=False)
        if not config.learner.publish:
            return None
        topic = admin.require([config.snapshots_topic])[config.snapshots_topic]
        if topic.partitions != snapshots.shards:
            raise PartitionCountsDiffer(
                f"{topic.name} has {count_of(topic.partitions, 'partition')}, snapshots.shards is {snapshots.shards}",
                action="Set snapshots.shards to the topic's partition count, or make the topic anew.",
            )
        if config.learner.copies:
            admin.require([config.checkpoints_topic])
        self._admin = admin
        if self._leadership.standby:
            require_control(admin, config.control_topic)
        self.keep_lease(caught_up=False)
        return topic

    @property
    def leads(self) -> bool:
        """Whether this learner is the one that publishes the model, as far as it knows."""
        return self._publication is not None

    def keep_lease(self, *, caught_up: bool) -> None:
        """Lead if it is this learner's turn, follow if it is no longer; to be called in every turn.

        caught_up: whether the fold has reached the end of the training log as it was at the start.

        Raises what `Leadership.poll` and `lead` raise; a standby tries again where the brokers do not answer.
        """
        if self._admin is None:
            return
        is_to_lead = self._leadership.poll(caught_up=caught_up)
        if is_to_lead == self.leads:
            return
        if not is_to_lead:
            self.follow()
        elif not self._leadership.standby:
            self.lead()
        elif time.monotonic() >= self._retry_s:
            self._take_over()

    def _take_over(self) -> None:
        """`lead`, where another learner has led, or will again."""
        took_over = TakeOver(self._leadership.stood_by_s, time.monotonic())
        try:
            self.lead()
        except (BrokerUnreachable, RetryLater) as error:
            self._log.warning("take_over_failed", reason=str(error))
            self._retry_s = time.monotonic() + RETRY_S
            return
        self._took_over = took_over.fenced()
        self.metrics.inc(names.LEARNER_TAKEOVERS)
        self._log.info("leads", tick=self.tick, **self._took_over.fields())

    def lead(self) -> None:
        """Fence whoever published before; publish from now on, beyond the last version there is.

        Raises what `Publication.begin` raises, and ConfigError where keys were made by another rule.
        """
        assert self._admin is not None
        sizes = RecordSizes(self._admin, self._log)
        publication = Publication(
            self._publishing(sizes),
            self._admin.offsets,
            topic=self.config.snapshots_topic,
            transactional_id=self.config.publisher_id,
            shards=self.config.snapshots.shards,
            policy=self._page_policy(sizes),
            learner=self.learner,
            new_publisher=self._warm.take,
        )
        began_s = time.monotonic()
        try:
            # The publisher first: whoever copies and is fenced takes it for a sign that it is fenced there too.
            _check_key_rule(self.config, publication.begin())
            self._begin_copies()
            self._fence_s = time.monotonic() - began_s
        except BaseException:
            publication.close()
            raise
        self._publication = publication
        self._leadership.note(leads=True)

    def _page_policy(self, sizes: RecordSizes) -> PagePolicy:
        """Pages and parts of deltas that the snapshot topic takes."""
        snapshots, policy, topic = self.config.snapshots, PagePolicy(), self.config.snapshots_topic
        return PagePolicy(
            page_bytes=sizes.fitting(topic, snapshots.page_bytes, "snapshots.page_bytes"),
            part_bytes=sizes.fitting(topic, policy.part_bytes, "of a part of a delta"),
            ring=snapshots.ring,
        )

    def _begin_copies(self) -> None:
        """Fence whoever copied checkpoints before; copy from now on."""
        config, checkpoints = self.config, self._checkpoints
        if not config.learner.copies:
            return
        assert self._admin is not None and checkpoints is not None
        self._copies = begin_copies(
            config, self._copying, self._admin, checkpoints, self.metrics, self._log, new_publisher=self._warm.take
        )

    def follow(self) -> None:
        """Publish nothing from now on. Whatever was published stays."""
        publication, self._publication, self._took_over = self._publication, None, None
        self._unpublished = ""
        if publication is not None:
            publication.close()
            if self._leadership.standby and self._copies is not None:
                self._copies.close()
                self._copies = None
            self._leadership.note(leads=False)
            self._log.info("follows", tick=self.tick)

    def note_start(self) -> None:
        """Log what was loaded."""
        self.metrics.set(names.LEARNER_PAUSED, float(self._paused))
        self._log.info(
            "learner_started",
            tick=self.tick,
            features=self.learner.table.count,
            digest=f"{self.learner.digest():016x}",
            publishing=self._publication is not None,
            load_seconds=round(self._load_s, 3),
            fence_seconds=round(self._fence_s, 3),
        )
        if self._publication is not None and self.learner.optimizer.moves:
            self._log.info(
                "every_publication_is_the_whole_model",
                reason=f"{self.learner.optimizer.name} changes the weights of all features with every example",
                interval_ms=self.config.snapshots.interval_ms,
            )

    def fold(self, ticks: Sequence[AcceptedTick], tick: int) -> None:
        """Learn from the examples of `tick`, unless the model is past it."""
        if tick <= self.tick:
            return
        began = time.perf_counter()
        with noting_damage(self.config.state_dir):
            for accepted in ticks:
                self._log_features.take(accepted.mark)
                for _, record in accepted.records:
                    self.learner.fold(record if self._subset is None else self._subset.apply(record), tick)
        self.metrics.observe(names.LEARNER_FOLD, time.perf_counter() - began)
        self.metrics.inc(names.LEARNER_TICKS, tick - self.tick if self.tick >= 0 else 1)
        self.tick = tick

    @property
    def trouble(self) -> str:
        """What keeps the model from being folded or published, "" if nothing."""
        return self._room.reason or self._other_features or self._unpublished

    @property
    def must_wait(self) -> bool:
        """Whether the fold waits: the disk is full, or as many rows have changed as may leave memory only after the
        next checkpoint."""
        if self._room.reason:
            return True
        row_index = None if self._checkpoints is None else self._checkpoints.row_index
        return row_index is not None and row_index.must_wait

    @property
    def _index_behind(self) -> bool:
        row_index = None if self._checkpoints is None else self._checkpoints.row_index
        return row_index is not None and row_index.behind

    @property
    def at_end(self) -> bool:
        """Whether the last tick is folded that was to be folded."""
        return self._until_tick is not None and self.tick >= self._until_tick

    @property
    def done(self) -> bool:
        """Whether that is also published and in a checkpoint, as far as there is anything to publish."""
        checkpoints, publication = self._checkpoints, self._publication
        if not self.at_end or checkpoints is None or checkpoints.tick < self.tick:
            return False
        return publication is None or not publication.may_publish(self.tick)

    @property
    def waits_for_resume(self) -> bool:
        """Whether all is folded that was to be folded, and cannot be published because that is paused."""
        return self.at_end and self._paused and not self.done

    def publish_when_due(self) -> None:
        """Publish the version folded last, at the end at once.

        Raises ConfigError where all is folded that was to be, from examples with other features than those configured.
        """
        self._note_pause()
        self._note_features()
        if self.at_end and self._other_features:
            raise ConfigError(f"{self._other_features}, up to tick {self.tick}", action=OTHER_FEATURES)
        if self.at_end or _is_time(self._published_s, self.config.snapshots.interval_ms):
            self._publish()

    def _note_pause(self) -> None:
        """Learn whether publication is paused; say so when that changes."""
        paused = self._publication is not None and self._is_paused(self.config.model)
        if paused != self._paused:
            self._log.info("publication_paused" if paused else "publication_resumed", tick=self.tick)
            self.metrics.set(names.LEARNER_PAUSED, float(paused))
        self._paused = paused

    def _note_features(self) -> None:
        """Learn whether the log's examples have the features that are configured; say so when that changes.

        Those of a subset were cut down to them.
        """
        if not self.config.learner.publish or self._subset is not None:
            return
        found = self._log_features.trouble(self.config.examples_topic)
        if found and not self._other_features:
            self._log.warning("features_differ", tick=self.tick, reason=found, action=OTHER_FEATURES)
        elif self._other_features and not found:
            self._log.info("features_agree", tick=self.tick)
        self._other_features = found

    def _publish(self) -> None:
        publication, checkpoints = self._publication, self._checkpoints
        now_s = time.monotonic()
        if publication is None or checkpoints is None or now_s < self._retry_s:
            return
        if self._paused or self._other_features or not publication.may_publish(self.tick):
            return
        try:
            size = publication.publish(self.tick, checkpoints.tick, self._description())
        except (BrokerUnreachable, RetryLater) as error:
            self._leadership.awake()
            if not self._unpublished:
                self._log.warning("publication_failed", version=self.tick, reason=str(error))
            self._unpublished = f"model {self.config.model} cannot be published: {error}"
            self._retry_s = time.monotonic() + RETRY_S
            return
        except Fenced as error:
            raise self._leadership.taken_over(str(error)) from error
        self._published_s, self._unpublished = now_s, ""
        self.learner.count_nonzero()
        self.metrics.observe(names.LEARNER_PUBLISH, time.monotonic() - now_s)
        self.metrics.inc(names.LEARNER_PUBLISH_BYTES, size)
        self.metrics.set(names.LEARNER_PUBLISHED_SEQUENCE, publication.sequence)
        self.metrics.set(names.LEARNER_PUBLISHED_VERSION, publication.version)
        if self._took_over is not None:
            took_over, self._took_over = self._took_over.published(), None
            self.metrics.observe(names.LEARNER_TAKEOVER, took_over.seconds)
            self._log.info("took_over", version=publication.version, **took_over.fields())

    def _description(self) -> dict[str, Any]:
        """What a scorer must know: the content of the model record."""
        config = self.config
        impressions, _ = config.event_specs()
        return {
            "name": config.model,
            "tick_ms": config.join.tick_ms,
            "features": config.feature_spec().to_dict(),
            **self.learner.kind(),
            "log": config.examples_topic,
            "inputs": {
                "impressions": config.input.impressions.topic,
                "clicks": config.input.clicks.topic,
                "ignored_fields": list(impressions.paths()),
                "window_ms": config.join.window_ms,
            },
            "metrics": self.learner.progress.summary(),
            "slices": self.learner.progress.slices()[-PUBLISHED_SLICES:],
        }

    def checkpoint_when_due(self, positions: Mapping[int, LogPosition]) -> bool:
        """Write a piece of a checkpoint, or begin one, at the end at once; whether there was anything to write.

        positions: where each partition of the log goes on after the ticks folded last.
        """
        checkpoints = self._checkpoints
        assert checkpoints is not None
        self._check_copies()
        if not self._room.may_write():
            return False
        try:
            return self._write_when_due(checkpoints, positions)
        except DiskFull as error:
            self._room.refused(error)
            checkpoints.drop(self.tick if self._publication is None else self._publication.version)
            return False

    def _write_when_due(self, checkpoints: Checkpoints, positions: Mapping[int, LogPosition]) -> bool:
        if checkpoints.writing:
            if checkpoints.step():
                self._note_checkpoint(checkpoints)
            return True
        due = self.at_end or _is_time(self._checkpointed_s, self.config.learner.checkpoint_interval_ms)
        if (due or self.must_wait) and self.tick > checkpoints.tick and not self._index_behind:
            self._checkpointed_s = time.monotonic()
            checkpoints.begin(self.tick, positions, self._log_features.by_partition)
            return True
        return False

    def _check_copies(self) -> None:
        try:
            if self._copies is not None:
                self._copies.check()
        except Fenced as error:
            raise self._leadership.taken_over(str(error)) from error

    def _note_checkpoint(self, checkpoints: Checkpoints) -> None:
        self._room.wrote()
        if self._copies is not None:
            self._copies.committed(checkpoints.tick)
        self.metrics.inc(names.LEARNER_CHECKPOINTS)
        self.metrics.observe(names.LEARNER_CHECKPOINT, checkpoints.seconds)
        if self._publication is None:  # else every publication counts
            self.learner.count_nonzero()
        self._log.info(
            "checkpoint",
            tick=checkpoints.tick,
            features=self.learner.table.count,
            seconds=round(checkpoints.seconds, 3),
        )

    def report(self, log: LogFollower, now_ms: int) -> None:
        """Bring the metrics up to date."""
        self._figures.update(self.learner, log, self.tick, now_ms)
        if self._checkpoints is not None:
            self._figures.update_row_index(self._checkpoints.row_index)

    def finish(self, positions: Mapping[int, LogPosition]) -> None:
        """Publish, unless that is paused, and write what is folded: scorers have it, and the next start is quick.

        A standby leads before the last checkpoint is written.
        """
        checkpoints = self._checkpoints
        assert checkpoints is not None
        self._note_pause()
        self._note_features()
        self._publish()
        self.follow()
        self._leadership.leave()
        if self._room.reason:
            self._log.warning("last_checkpoint_left_out", tick=checkpoints.tick, reason=self._room.reason)
            return
        self._finish_checkpoint(checkpoints)
        if self.tick > checkpoints.tick:
            checkpoints.begin(self.tick, positions, self._log_features.by_partition)
            self._finish_checkpoint(checkpoints)
        if self._copies is not None:
            self._copies.finish()

    def _finish_checkpoint(self, checkpoints: Checkpoints) -> None:
        if checkpoints.writing:
            checkpoints.finish()
            self._note_checkpoint(checkpoints)

    def close(self) -> None:
        """Let go of the snapshot topic and the state directory. A checkpoint that is not whole never was."""
        for part in (self._publication, self._copies, self._warm, self._checkpoints):
            if part is not None:
                part.close()
        self._leadership.leave()
        self._log.info("learner_stopped", tick=self.tick, digest=f"{self.learner.digest():016x}")


def _check_key_rule(config: Config, last: LastPublished) -> None:
    """Raise ConfigError where the model was published with another rule of keys than is configured.

    Its weights, and the examples it was learned from, are of that rule.
    """
    if last.model is None:
        return
    found, configured = last.model.content["features"].get("key_rule", FIRST_RULE), config.features.key_rule
    if found != configured:
        raise ConfigError(
            f"{config.snapshots_topic} was published with key rule {found}, features.key_rule is {configured}",
            action=f"Set features.key_rule to {found} for joiners and learner alike, or begin another model.",
        )


def _is_time(since_s: float, interval_ms: int) -> bool:
    return time.monotonic() - since_s >= interval_ms / 1000
