"""Folds a training log into a model, or into several in one pass, keeps them on disk, and publishes them.

The clock must never decide what is folded, or in which order. It only decides when to write.

1. Open the state directory and load the last checkpoint; go on from its positions in the training log.
2. Fence whoever published before, as a standby once it holds the lease; publish nothing until the fold has passed the
   last published version.
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

Several models: the log is read once, from the positions of the model that is furthest behind, and a model that is past
a tick skips it. So each is folded as it would be alone, and steps 1, 2, 5 and 6 are each model's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from stream_learner.adapters import open_files
from stream_learner.adapters.kafka import Admin, KafkaSettings, RetentionWatch, TopicAndPartition, TopicWatch
from stream_learner.adapters.machine import available_bytes
from stream_learner.adapters.rocksdb.database import OPEN_FILES
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.errors import BrokerUnreachable, ConfigError, LogTrimmed, RetryLater
from stream_learner.roles.common.lifecycle import IDLE_S, BrokerOutage, wall_clock_ms
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.learner.log_follower import LogFollower, LogPosition
from stream_learner.roles.learner.log_wait import LogWait
from stream_learner.roles.learner.model import LearnedModel
from stream_learner.roles.learner.row_index import check_memory

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.core.log.subset import FeatureSubset
    from stream_learner.core.model.fold import Learner

COMMON_CLIENTS, MODEL_CLIENTS = 5, 10
"""Clients of Kafka. Common: administration, the control topic, the training log. Of each model: the lease, two
producers, and at the start readers of the last version."""
FOLD_FOR_S = 0.05
REST_S = 0.25
"""How long the role waits for a record before it looks at the lease, the topics and the clock again."""
REPORT_EVERY_S = 1.0
SETTLE_S = 5.0
"""How long the role waits at its start for the control topic, which says what is paused."""


class LearnerRole:
    """Learns the models of one training log. Run it with `roles.common.lifecycle.run_role`.

    `models` are in the order of the configurations.
    """

    name = "learner"

    def __init__(
        self,
        config: Config | Sequence[Config],
        metrics: Metrics | Sequence[Metrics],
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        until_tick: int | None = None,
        keep: Mapping[str, FeatureSubset] | None = None,
        standby: bool = False,
        with_lease: bool = True,
    ) -> None:
        """config, metrics: of each model.

        until_tick: the last tick to fold. The role is `done` when every model has folded and published it, and written
        its checkpoint. keep: by model name, the features to learn from; a model that is missing learns from all.
        standby: follow, and lead a model only while this learner holds its lease. with_lease: whether it asks for the
        lease of each model, so that standbys know that it leads.

        Raises ConfigError where the models are not of one training log and tick length, where two of them share a name,
        a directory or a topic, and where a standby is not to publish.
        """
        configs = config if isinstance(config, Sequence) else [config]
        counters = metrics if isinstance(metrics, Sequence) else [metrics]
        _check_together(configs, keep or {})
        if standby:
            _check_standby(configs)
        self._clock_ms = clock_ms
        self._until_tick = until_tick
        self._log = get_logger("learner").bind(log=configs[0].examples_topic)
        settings = KafkaSettings(configs[0].kafka_options())
        self._control = ControlWatch(settings, configs[0].control_topic, self._log)
        self.models = tuple(
            LearnedModel(
                of_model,
                counted,
                subset=(keep or {}).get(of_model.model),
                until_tick=until_tick,
                standby=standby,
                with_lease=with_lease,
                is_paused=self._control.paused,
                control=self._control,
            )
            for of_model, counted in zip(configs, counters, strict=True)
        )
        self._standby = standby
        self._catch_up_to: Mapping[int, int] = {}
        self._caught_up = False
        self._partitions = 0
        self._follower: LogFollower | None = None
        self._topics: TopicWatch | None = None
        self._retention: RetentionWatch | None = None
        self._reported_s = time.monotonic()
        self._outage = BrokerOutage(self._log, "log_unreachable", "log_reachable")
        self._log_wait = LogWait(self._log, configs[0].join.tick_ms)
        self._said_awaits = False

    @property
    def learner(self) -> Learner:
        """The learner of the first model."""
        return self.models[0].learner

    @property
    def tick(self) -> int:
        """The last tick that every model has folded, -1 before the first."""
        return min(model.tick for model in self.models)

    @property
    def done(self) -> bool:
        """Whether all up to `until_tick` is folded, published and in a checkpoint; False without `until_tick`."""
        return self._follower is not None and all(model.done for model in self.models)

    @property
    def is_loaded(self) -> bool:
        """Whether the state of every model is loaded, and the training log is being read."""
        return self._follower is not None

    @property
    def why_not_ready(self) -> str:
        """The reason why the learner is not ready, "" if it is."""
        if self._follower is None:
            return "the learner has not loaded its state"
        if self._outage.since_s is not None:
            return "the learner cannot read the training log"
        if self._awaits_decisions:
            return f"the learner has not read the decisions in {self._control.topic}{self._why_decisions}"
        trouble = "; ".join(model.trouble for model in self.models if model.trouble)
        if trouble:
            return trouble
        if self._caught_up or not self._standby:
            return ""
        holding = ", ".join(map(str, self._log_wait.partitions))
        waits = f": it waits for partition {holding}" if holding else ""
        return f"the standby has not caught up with the training log{waits}"

    def open(self) -> None:
        """Steps 1 and 2. Raises what `LearnedModel` and the topics' checks raise."""
        first = self.models[0]
        check_memory([model.config for model in self.models], available_bytes())
        admin, config = Admin(first.settings), first.config
        log = admin.require([config.examples_topic])[config.examples_topic]
        self._expect_files(admin)
        for model in self.models:
            model.connect(admin)
        self._control.start()  # reads while the state is loaded
        # Step 1: load the last checkpoint.
        positions = [model.load(log, admin) for model in self.models]
        if any(model.config.learner.publish for model in self.models):
            # A pause must be known before the first publication, a rewind before anybody is fenced.
            self._control.wait_settled(SETTLE_S)
        # Step 2: fence whoever published before; a standby does so when it holds the lease.
        published = [model.begin(admin) for model in self.models]
        # The topics as they were at the first look: one that was made anew since then counts as another one.
        self._topics = TopicWatch(admin, [log, *(topic for topic in published if topic is not None)])
        furthest_behind, start = min(zip(self.models, positions, strict=True), key=lambda pair: pair[0].tick)
        self._follow(log.name, start, folded_tick=furthest_behind.tick)
        if self._standby:
            ends = admin.offsets.high_watermarks([(log.name, partition) for partition in start])
            self._catch_up_to = {partition: offset for (_, partition), offset in ends.items()}
        self._retention = RetentionWatch(
            admin, lambda: self._needed(log.name), self._clock_ms, not_known=self._say_not_known, close=self._say_close
        ).start()
        for model in self.models:
            model.note_start()

    def _say_not_known(self, topic: str, reason: str) -> None:
        self._log.info("retention_not_known", topic=topic, reason=reason)

    def _say_close(self, partition: TopicAndPartition, seconds: float) -> None:
        self._log.warning("retention_close", topic=partition[0], partition=partition[1], seconds=round(seconds))

    def _needed(self, topic: str) -> dict[TopicAndPartition, int]:
        """The first offset of each partition of the log that a restart of some model would read."""
        found: dict[TopicAndPartition, int] = {}
        for model in self.models:
            for partition, offset in model.needed.items():
                found[topic, partition] = min(offset, found.get((topic, partition), offset))
        return found

    def _follow(self, topic: str, start: Mapping[int, LogPosition], *, folded_tick: int) -> None:
        """Begin to read the training log from these positions, of a model that has folded up to `folded_tick`."""
        self._follower = LogFollower(
            self.models[0].settings,
            topic,
            start,
            buffer_bytes=max(model.config.learner.buffer_bytes for model in self.models),
            until_tick=self._until_tick,
            folded_tick=folded_tick,
        )
        self._partitions = len(start)

    def _expect_files(self, admin: Admin) -> None:
        clients = COMMON_CLIENTS + MODEL_CLIENTS * len(self.models)
        files = admin.files_of(clients) + OPEN_FILES * len(self.models)
        open_files.expect(files, "the learner's connections to the brokers, and its state on disk", self._log)

    def turn(self) -> bool:
        """Steps 3 to 6, once. False if there was nothing to do."""
        if self.done:
            return False
        # Step 2: a standby leads once it holds the lease.
        for model in self.models:
            model.keep_lease(caught_up=self._caught_up)
        # Step 3: read.
        came = self._read()
        # Step 4: fold.
        folded = self._fold()
        assert self._follower is not None
        self._caught_up = self._caught_up or (not folded and (self._is_held or self._has_caught_up(self._follower)))
        wrote, positions = False, self._follower.positions
        for model in self.models:
            # Step 5: publish.
            model.publish_when_due()
            # Step 6: checkpoint.
            wrote |= model.checkpoint_when_due(positions)
        if self.done or time.monotonic() - self._reported_s > REPORT_EVERY_S:
            self._report()
        return came or folded or wrote

    def rest(self) -> None:
        """Wait for a record of the log, and no longer than until a version is due."""
        assert self._follower is not None
        due_in_s = [due_s for model in self.models if (due_s := model.publication_due_in_s) is not None]
        self._follower.wait(min([*due_in_s, REST_S]) or IDLE_S)

    def _read(self) -> bool:
        assert self._follower is not None and self._topics is not None
        self._topics.check()
        self._outage.answered(self._topics.answered_s)
        try:
            came = self._follower.read()
        except (BrokerUnreachable, RetryLater) as error:
            if self._outage.report(str(error)):
                for model in self.models:
                    model.metrics.inc(names.RETRIES, role=self.name, error=type(error).__name__)
            return False
        except LogTrimmed:
            # A log that was made anew lacks the offset too; then that is the error to raise.
            self._topics.check_now()
            raise
        if came:
            self._outage.answered(time.monotonic())
        self._note_added()
        self._log_wait.look(self._follower)
        return came

    def _note_added(self) -> None:
        """Log that the training log was given partitions."""
        assert self._follower is not None
        partitions = len(self._follower.positions)
        if partitions > self._partitions:
            self._log.info("partitions_added", partitions=partitions, before=self._partitions, tick=self.tick)
            self._partitions = partitions

    def _fold(self) -> bool:
        """Fold ticks that every partition has passed, for a bounded time."""
        assert self._follower is not None
        if self._awaits_decisions:
            self._say_awaits()
            return False
        until_s = time.monotonic() + FOLD_FOR_S
        folded = False
        while time.monotonic() < until_s:
            tick, known = self._follower.next_tick(), self._follower.passed
            tick = min(model.last_before_kept(tick, known) for model in self.models)
            if tick <= self.tick or any(model.must_wait for model in self.models) or not self._may_fold(tick):
                break
            accepted = list(self._follower.take(tick))
            for model in self.models:
                model.fold(accepted, tick)
                model.keep_when_due(self._follower.positions, known)
            folded = True
        return folded

    def _may_fold(self, tick: int) -> bool:
        """Whether every model's gate lets the next tick through: they have one position in the log."""
        assert self._follower is not None
        coming = self._follower.look(tick)
        if not any(accepted.records for accepted in coming):
            return True
        # One look for all models: a decision that comes meanwhile is for the next tick of each of them.
        decisions = self._control.state.decisions_of(self.models[0].config.examples_topic)
        lets = [model.may_fold(coming, tick, decisions) for model in self.models]  # each says what it holds
        return all(lets)

    @property
    def _awaits_decisions(self) -> bool:
        """Whether decisions on the log may be there that are not known yet: what they say must come first. Without the
        topic there are none, unless a model was learned with some.
        """
        names_some = any(model.gate.names_decisions for model in self.models)
        return not self._control.is_settled or (names_some and not self._control.is_read)

    @property
    def _why_decisions(self) -> str:
        """Why a topic that cannot be read keeps the learner from folding, "" while it may still be read."""
        problem = self._control.problem
        return "" if problem is None else f", and a model was learned with some: {problem}. {problem.action}"

    def _say_awaits(self) -> None:
        """Log once that the fold waits for a control topic that cannot be read."""
        problem = self._control.problem
        if problem is not None and not self._said_awaits:
            self._said_awaits = True
            self._log.error("decisions_not_read", tick=self.tick, reason=str(problem), action=problem.action)

    @property
    def _is_held(self) -> bool:
        return any(model.gate.holding is not None for model in self.models)

    def _has_caught_up(self, log: LogFollower) -> bool:
        """Whether all is read that was in the log at the start. The caller has folded what can be folded of it."""
        read_up_to = log.read_up_to
        return all(read_up_to[partition] >= end for partition, end in self._catch_up_to.items())

    def _report(self) -> None:
        assert self._follower is not None
        self._reported_s = time.monotonic()
        for model in self.models:
            model.report(self._follower, self._retention, self._clock_ms())

    def finish(self) -> None:
        """Publish what is folded, and write it: scorers have it, and the next start is quick."""
        assert self._follower is not None
        for model in self.models:
            model.finish(self._follower.positions)

    def close(self) -> None:
        """Let go of the topics and the state directories. A checkpoint without its head does not count."""
        self._control.stop()
        if self._retention is not None:
            self._retention.stop()
        for part in (self._follower, *self.models):
            if part is not None:
                part.close()


def _check_standby(configs: Sequence[Config]) -> None:
    silent = [config.model for config in configs if not config.learner.publish]
    if silent:
        raise ConfigError(
            f"a standby is there to publish when the leader ends, and learner.publish is false: {', '.join(silent)}",
            action="Leave --standby or learner.publish=false out.",
        )


def _check_together(configs: Sequence[Config], keep: Mapping[str, FeatureSubset]) -> None:
    """Raise ConfigError for models that cannot be folded in one pass."""
    first = configs[0]
    for config in configs[1:]:
        if config.examples_topic != first.examples_topic:
            raise ConfigError(
                f"models that are learned in one pass have one training log: {first.model} has {first.examples_topic}, "
                f"{config.model} has {config.examples_topic}"
            )
        if config.join.tick_ms != first.join.tick_ms:
            raise ConfigError(f"join.tick of {config.model} is not that of {first.model}, whose training log it shares")
    for what in ("model", "state_dir", "snapshots_topic", "checkpoints_topic"):
        values = [str(getattr(config, what)) for config in configs]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ConfigError(f"several models have the same {what.replace('_', ' ')}: {', '.join(twice)}")
    strangers = sorted(set(keep) - {config.model for config in configs})
    if strangers:
        raise ConfigError(f"features are to be left out of models that are not learned: {', '.join(strangers)}")
