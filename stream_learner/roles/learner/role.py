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

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from stream_learner.adapters import open_files
from stream_learner.adapters.kafka import Admin, KafkaSettings, RetentionWatch, TopicAndPartition, TopicWatch
from stream_learner.adapters.machine import available_bytes
from stream_learner.adapters.rocksdb.database import OPEN_FILES
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.errors import ConfigError
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.learner.log_follower import LogFollower, LogPosition
from stream_learner.roles.learner.loop import LearnerLoop
from stream_learner.roles.learner.model import LearnedModel
from stream_learner.roles.learner.row_index import check_memory

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.core.log.subset import FeatureSubset
    from stream_learner.core.model.fold import Learner
    from stream_learner.roles.learner.publication_gate import Look

COMMON_CLIENTS, MODEL_CLIENTS = 5, 10
"""Clients of Kafka. Common: administration, the control topic, the training log. Of each model: the lease, two
producers, and at the start readers of the last version."""
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
        look: Callable[[Config], Look] | None = None,
    ) -> None:
        """config, metrics: of each model.

        until_tick: the last tick to fold. The role is `done` when every model has folded and published it, and written
        its checkpoint. keep: by model name, the features to learn from; a model that is missing learns from all.
        standby: follow, and lead a model only while this learner holds its lease. with_lease: whether it asks for the
        lease of each model, so that standbys know that it leads. look: makes what looks at the inputs of a model
        before its first version; None for none.

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
                self._control,
                subset=(keep or {}).get(of_model.model),
                until_tick=until_tick,
                standby=standby,
                with_lease=with_lease,
                look=None if look is None else look(of_model),
            )
            for of_model, counted in zip(configs, counters, strict=True)
        )
        self._standby = standby
        self._loop: LearnerLoop | None = None
        """For those who ask; `open` returns it to those who run it."""

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
        return self._loop is not None and self._loop.done

    @property
    def is_loaded(self) -> bool:
        """Whether the state of every model is loaded, and the training log is being read."""
        return self._loop is not None

    @property
    def why_not_ready(self) -> str:
        """The reason why the learner is not ready, "" if it is."""
        if self._loop is None:
            return "the learner has not loaded its state"
        return self._loop.why_not_ready

    @property
    def waits(self) -> str:
        """What first versions wait for, as more examples; "" for nothing.

        The learner is ready all the same: it learns what there is, and a rollout that waited for traffic would keep out
        the configuration that brings it.
        """
        return "" if self._loop is None else self._loop.waits

    def open(self) -> LearnerLoop:
        """Steps 1 and 2. Raises what `LearnedModel` and the topics' checks raise."""
        first = self.models[0]
        check_memory([model.config for model in self.models], available_bytes())
        with ExitStack() as opened:
            for model in reversed(self.models):
                opened.callback(model.close)
            opened.callback(self._control.stop)
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
            topics = TopicWatch(admin, [log, *(topic for topic in published if topic is not None)])
            follower = self._follow(log.name, positions)
            opened.callback(follower.close)
            ends = admin.offsets.high_watermarks([(log.name, partition) for partition in follower.positions])
            retention = RetentionWatch(
                admin,
                lambda: self._needed(log.name),
                self._clock_ms,
                not_known=self._say_not_known,
                close=self._say_close,
            ).start()
            opened.callback(retention.stop)
            for model in self.models:
                model.note_start()
            self._loop = loop = LearnerLoop(
                self.models,
                self._control,
                follower,
                topics,
                retention,
                catch_up_to={partition: end for (_, partition), end in ends.items()},
                standby=self._standby,
                clock_ms=self._clock_ms,
                log=self._log,
            )
            opened.pop_all()  # the loop closes them
        return loop

    def _follow(self, topic: str, positions: Sequence[Mapping[int, LogPosition]]) -> LogFollower:
        """Read the training log from the positions of the model that is furthest behind."""
        furthest_behind, start = min(zip(self.models, positions, strict=True), key=lambda pair: pair[0].tick)
        return LogFollower(
            self.models[0].settings,
            topic,
            start,
            buffer_bytes=max(model.config.learner.buffer_bytes for model in self.models),
            until_tick=self._until_tick,
            folded_tick=furthest_behind.tick,
        )

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

    def _expect_files(self, admin: Admin) -> None:
        clients = COMMON_CLIENTS + MODEL_CLIENTS * len(self.models)
        files = admin.files_of(clients) + OPEN_FILES * len(self.models)
        open_files.expect(files, "the learner's connections to the brokers, and its state on disk", self._log)


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
