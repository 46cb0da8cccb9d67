"""Folds accepted ticks into one model, and gives its leadership, its publications and its checkpoints their turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, RetentionWatch, TopicInfo
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.events.field_numbers import names_by_hash
from stream_learner.core.gate.first_version import FirstVersion
from stream_learner.core.gate.gate import Gate
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.records import Inputs, model_record
from stream_learner.errors import ConfigError
from stream_learner.roles.learner.checkpoint_schedule import CheckpointSchedule
from stream_learner.roles.learner.checkpoints import Checkpoints, rewinds_field
from stream_learner.roles.learner.copies.schedule import CopySchedule
from stream_learner.roles.learner.gate import ModelGate
from stream_learner.roles.learner.gate_state_writer import GateStateWriter
from stream_learner.roles.learner.leadership import Leadership
from stream_learner.roles.learner.log_follower import LogFeatures, LogFollower, LogPosition
from stream_learner.roles.learner.publication_gate import Look, ModelPublicationGate
from stream_learner.roles.learner.publication_schedule import PublicationSchedule
from stream_learner.roles.learner.recovery import Recovery
from stream_learner.roles.learner.report import LearnerReport
from stream_learner.roles.learner.row_brake import BrakeLog, rows_content
from stream_learner.roles.learner.state_dir import noting_damage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.core.gate.decisions import Decisions
    from stream_learner.core.log.examples import ExampleRecord
    from stream_learner.core.log.rule_r import AcceptedTick
    from stream_learner.core.log.subset import FeatureSubset
    from stream_learner.roles.control.watch import ControlWatch


PROBABILITIES = frozenset({"logistic", "logarithmic", "hellinger"})
"""The losses whose predictions can be held against the share of positives."""


class LearnedModel:
    """One model of a learner. Used by the learner's thread: `connect`, `load`, `begin`, then turn after turn."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        control: ControlWatch,
        *,
        subset: FeatureSubset | None = None,
        until_tick: int | None = None,
        standby: bool = False,
        with_lease: bool = True,
        look: Look | None = None,
    ) -> None:
        """control: knows decisions, rewinds, and whether the publication of a model is paused. subset: the features to
        learn from, None for all. until_tick: the last tick to fold, None for no end. standby: follow, and lead only
        while this learner holds the lease. with_lease: whether it asks for one. look: as of `ModelPublicationGate`.
        """
        self.config = config
        self.metrics = metrics
        self._control = control
        self.settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.learner")
        self.tick = -1
        """The last tick that was folded."""
        self.learner = self._new_learner()
        self._subset = subset
        self._until_tick = until_tick
        self._log = get_logger("learner").bind(model=config.model)
        self._figures = LearnerReport(metrics, config.join.tick_ms)
        self._log_features = LogFeatures(config.feature_spec().fingerprint)
        self.gate = self._new_gate()
        self._publication_gate = self._new_publication_gate(look)
        self._gate_writer = GateStateWriter(
            self.settings,
            config.model,
            config.examples_topic,
            self.gate,
            self._publication_gate,
            control,
            self._log,
        )
        self._leadership = Leadership(
            config, self.settings, metrics, self._log, self.gate, standby=standby, with_lease=with_lease
        )
        self._publications = PublicationSchedule(
            config,
            metrics,
            self._log,
            self._leadership,
            self._log_features if subset is None else None,  # a subset's examples are cut down to its features
            self._publication_gate,
            describe=self._description,
            is_paused=control.paused,
        )
        self._field_names = names_by_hash(config.feature_spec())
        self._brake = BrakeLog(self._log, self._field_names)
        self._checkpoint_schedule = CheckpointSchedule(
            config, metrics, self._log, self._leadership, self._log_features, self.gate, self._publication_gate
        )
        self._loaded: Checkpoints | None = None
        self._piece_bytes: int | None = None
        """How large a piece of a checkpoint may be to fit the topic of the copies, None where nothing bounds it."""
        self._load_s = 0.0
        self._waits_since_s: float | None = None

    def _new_gate(self) -> ModelGate:
        config, control = self.config, self._control
        return ModelGate(
            config.learner.gate,
            config.model,
            config.examples_topic,
            lambda: Gate(config.gate_policy(), tick_ms=config.join.tick_ms, slices=config.gate_slices()),
            lambda: control.state,
            self.metrics,
            self._log,
        )

    def _new_publication_gate(self, look: Look | None) -> ModelPublicationGate:
        config, control = self.config, self._control
        policy = config.snapshots.gate if config.learner.publish else "off"
        return ModelPublicationGate(
            policy,
            config.model,
            config.join.tick_ms,
            lambda: control.state,
            self.metrics,
            self._log,
            FirstVersion(config.first_version(), config.join_spec().span_ms, config.join.tick_ms),
            look=look,
        )

    def _new_learner(self) -> Learner:
        config = self.config
        settings = config.learner
        return Learner(
            config.optimizer(), loss=config.loss(), slice_ms=settings.metrics_slice_ms, max_rows=settings.max_rows
        )

    def connect(self, admin: Admin) -> None:
        """Begin to connect the publishers, while the state is loaded. Fences nobody."""
        self._piece_bytes = self._leadership.connect(admin)

    def load(self, log: TopicInfo, admin: Admin) -> dict[int, LogPosition]:
        """Step 1: load the last checkpoint; returns its positions in the training log `log`.

        Raises what `Recovery.run` raises, and ConfigError where the checkpoint lies beyond `until_tick`.
        """
        config = self.config
        recovery = Recovery(
            config,
            self.settings,
            admin,
            log,
            self._new_learner,
            self.metrics,
            self._log,
            subset_of_features=None if self._subset is None else config.feature_spec().to_dict(),
            piece_bytes=self._piece_bytes,
        )
        began_s = time.monotonic()
        self._loaded, positions = recovery.run()
        self._load_s = time.monotonic() - began_s
        self.learner = self._loaded.learner
        self.tick = self._loaded.tick
        self._log_features.restore(self._loaded.log_features)
        self.gate.restore(self._loaded.gate, self.tick)
        self._publication_gate.restore(self._loaded.publication_gate)
        self._checkpoint_schedule.begin(self._loaded)
        if self._until_tick is not None and self.tick > self._until_tick:
            raise ConfigError(
                f"{config.state_dir} holds model {config.model} as of tick {self.tick}; it was to be learned up to "
                f"tick {self._until_tick} only",
                action="A model cannot unlearn: give a later end, or another model name.",
            )
        self._figures.begin(self.learner)
        return positions

    @property
    def _checkpoints(self) -> Checkpoints:
        assert self._loaded is not None, "`load` comes first"
        return self._loaded

    def begin(self, admin: Admin) -> TopicInfo | None:
        """Step 2: lead at once, unless this is a standby; returns the snapshot topic, None if nothing is published.

        Raises what `Leadership.begin` raises, and ModelRewound.
        """
        self._follow_rewinds()
        return self._leadership.begin(admin, self._checkpoints)

    def _follow_rewinds(self) -> None:
        """Take over the rewinds that the control topic names. Raises ModelRewound where the state was left behind."""
        found = self._control.state.rewinds.get(self.config.model)
        if found is not None and self.config.learner.publish:
            self._checkpoints.follow_rewinds(found.spans, self.tick, self.config.control_topic)

    def note_start(self) -> None:
        """Log what was loaded."""
        self.metrics.set(names.LEARNER_PAUSED, float(self._publications.paused))
        self._log.info(
            "learner_started",
            tick=self.tick,
            features=self.learner.table.count,
            digest=f"{self.learner.digest():016x}",
            publishing=self.leads,
            load_seconds=round(self._load_s, 3),
            fence_seconds=round(self._leadership.fence_s, 3),
        )
        if self.leads and self.learner.optimizer.moves:
            self._log.info(
                "every_publication_is_the_whole_model",
                reason=f"{self.learner.optimizer.name} changes the weights of all features with every example",
                interval_ms=self.config.snapshots.interval_ms,
            )

    @property
    def leads(self) -> bool:
        """Whether this learner publishes the model, as far as it knows."""
        return self._leadership.term is not None

    @property
    def copies(self) -> CopySchedule | None:
        """The copies of the checkpoints, None while this learner makes none."""
        return self._leadership.copies

    @property
    def trouble(self) -> str:
        """The trouble that keeps the model from being folded or published, "" for none."""
        return self._checkpoint_schedule.trouble or self.gate.trouble or self._publications.trouble

    @property
    def waits(self) -> str:
        """What a first version waits for, as more examples; "" for nothing."""
        if self.tick < 0 and self._until_tick is None and not self._publication_gate.trouble:
            return f"the first version waits: nothing is learned yet, {self.config.examples_topic} has no whole tick"
        return self._publication_gate.waits

    @property
    def must_wait(self) -> bool:
        """Whether the fold waits: the disk is full, or changed rows fill the memory until the next checkpoint."""
        return self._checkpoint_schedule.must_wait(self._checkpoints)

    @property
    def at_end(self) -> bool:
        """Whether the last tick is folded that was to be folded."""
        return self._until_tick is not None and self.tick >= self._until_tick

    @property
    def done(self) -> bool:
        """Whether that is also published and in a checkpoint, as far as there is anything to publish."""
        if not self.at_end or self._checkpoints.tick < self.tick:
            return False
        term = self._leadership.term
        return term is None or not term.publication.may_publish(self.tick)

    @property
    def waits_for_resume(self) -> bool:
        """Whether all is folded that was to be folded, and cannot be published because that is paused."""
        return self.at_end and self._publications.paused and not self.done

    def keep_lease(self, *, caught_up: bool) -> None:
        """Step 2, in every turn: lead if it is this learner's turn, follow if it is no longer.

        caught_up: whether the fold has reached the end that the log had at the start. Raises what `Leadership.turn`
        raises, and ModelRewound.
        """
        self._follow_rewinds()
        self._leadership.turn(self.tick, caught_up=caught_up)

    def last_before_kept(self, tick: int, known: int) -> int:
        """Step 4: the last tick to fold in one go: `tick`, or an earlier one, after which the state is to be kept.

        known: the last tick known to be in the log.
        """
        return self._checkpoint_schedule.last_before_kept(tick, folded=self.tick, known=known)

    def keep_when_due(self, positions: Mapping[int, LogPosition], known: int) -> None:
        """Step 6, after each fold: begin a checkpoint that is to be kept, if it is time by the log.

        positions: as of `checkpoint_when_due`. known: as of `last_before_kept`. Raises what
        `CheckpointSchedule.keep_when_due` raises.
        """
        self._checkpoint_schedule.keep_when_due(self.tick, self._checkpoints, positions, known=known)

    def may_fold(self, coming: Sequence[AcceptedTick], tick: int, decisions: Decisions) -> bool:
        """Whether the gate lets `tick` through, or the model is past it.

        coming: the accepted ticks up to it. decisions: those of operators on the log.
        """
        if tick <= self.tick:
            return True
        predict = self._predict if self.learner.loss.name in PROBABILITIES else None
        mine = [one for one in coming if one.mark.last_tick > self.tick]
        return self.gate.rule(tick, mine, decisions, predict)

    def _predict(self, record: ExampleRecord) -> NDArray[np.float64]:
        return self.learner.predict(record if self._subset is None else self._subset.apply(record))

    def fold(self, ticks: Sequence[AcceptedTick], tick: int) -> None:
        """Step 4: learn from the examples of `tick`, unless the model is past it, or a decision leaves them out."""
        if tick <= self.tick:
            return
        began = time.perf_counter()
        left_out = self.gate.leaves_out(tick)
        with noting_damage(self.config.state_dir):
            records = []
            for accepted in ticks:
                self._log_features.take(accepted.mark)
                self._publication_gate.count(accepted.mark)
                for _, record in () if left_out else accepted.records:
                    records.append(record if self._subset is None else self._subset.apply(record))
            self._publication_gate.admit(tick, records, self.learner)
            for record in records:
                self.learner.fold(record, tick)
        self.gate.took(tick, [one for one in ticks if one.mark.last_tick > self.tick])
        self.learner.decided = self.gate.digest
        self.metrics.observe(names.LEARNER_FOLD, time.perf_counter() - began)
        self.metrics.inc(names.LEARNER_TICKS, tick - self.tick if self.tick >= 0 else 1)
        self.tick = tick

    def publish_when_due(self) -> None:
        """Step 5: publish the version folded last. Raises what `PublicationSchedule.publish_when_due` raises."""
        self._publications.publish_when_due(self.tick, self._checkpoints, at_end=self.at_end)

    @property
    def publication_due_in_s(self) -> float | None:
        """Seconds until the version folded last is published; None where it waits for more than its time."""
        return self._publications.due_in_s(self.tick)

    def _description(self) -> dict[str, Any]:
        """The content of the model record, with what a scorer must know."""
        config, progress = self.config, self.learner.progress
        (impressions, _), features = config.event_specs(), config.feature_spec()
        topics, rewinds = config.input, self._checkpoints.rewinds
        described = model_record(
            name=config.model,
            tick_ms=config.join.tick_ms,
            features=features.to_dict(),
            kind=self.learner.kind(),
            log=config.examples_topic,
            inputs=Inputs(
                topics.impressions.topic, topics.clicks.topic, list(impressions.paths(features)), config.join.window_ms
            ),
            metrics=progress.summary(),
            slices=progress.slices(),
        )
        described |= rows_content(self.learner, self._field_names) | self.gate.description()
        return described | rewinds_field(rewinds) if rewinds else described

    def checkpoint_when_due(self, positions: Mapping[int, LogPosition]) -> bool:
        """Step 6: begin a checkpoint, or write a piece of it; whether there was anything to write.

        positions: where each partition of the log goes on after the ticks folded last. Raises what
        `CheckpointSchedule.write_when_due` raises, and Fenced if another process copies this model's checkpoints.
        """
        self._leadership.check_copies()
        return self._checkpoint_schedule.write_when_due(self.tick, self._checkpoints, positions, at_end=self.at_end)

    @property
    def needed(self) -> dict[int, int]:
        """By partition of the training log, the first offset that the last checkpoint has not folded."""
        return {partition: position.offset for partition, position in self._checkpoints.positions.items()}

    def report(self, log: LogFollower, retention: RetentionWatch | None, now_ms: int) -> None:
        """Bring the metrics up to date."""
        self._figures.update(self.learner, log, self.tick, now_ms)
        self._figures.update_rows(self.learner, self._field_names)
        self._figures.update_row_index(self._checkpoints.row_index)
        self._figures.update_surroundings(
            self.config, None if retention is None else retention.trimmed_at_ms, self._publications.paused_for_s, now_ms
        )
        self._report_waiting()
        self._brake.look(self.learner, self.tick)
        self.gate.report()
        self._gate_writer.turn(leads=self.leads)

    def _report_waiting(self) -> None:
        """Say for how long a first version waits; and once, that there is nothing to learn from."""
        waits, now_s = self.waits, time.monotonic()
        if waits and self._waits_since_s is None and self.tick < 0:
            self._log.info("first_version_waits", tick=self.tick, reason=waits.partition(": ")[2])
        self._waits_since_s = (self._waits_since_s or now_s) if waits else None
        self.metrics.set(names.LEARNER_FIRST_WAITS, now_s - self._waits_since_s if self._waits_since_s else 0.0)

    def finish(self, positions: Mapping[int, LogPosition]) -> None:
        """Publish, give the lease up, then write the last checkpoint: a standby leads before that is written.

        positions: as of `checkpoint_when_due`.
        """
        self._publications.finish(self.tick, self._checkpoints)
        self._leadership.resign(self.tick)
        self._checkpoint_schedule.finish(self.tick, self._checkpoints, positions)

    def close(self) -> None:
        """Let go of the topics and the state directory. A checkpoint without its head does not count."""
        self._leadership.close()
        self._gate_writer.close()
        if self._loaded is not None:
            self._loaded.close()
        self._log.info("learner_stopped", tick=self.tick, digest=f"{self.learner.digest():016x}")
