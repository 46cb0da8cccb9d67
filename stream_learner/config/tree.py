"""The whole configuration as one tree, and the specs of `core` that are made from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from stream_learner.config.gate import Gate
from stream_learner.config.kafka import KafkaOptions, KafkaValue
from stream_learner.config.section import Section
from stream_learner.config.sections import (
    Features,
    Input,
    Join,
    Learner,
    ModelName,
    Records,
    Registry,
    Scorer,
    Snapshots,
    Topics,
)
from stream_learner.config.serving import Serve, Telemetry
from stream_learner.config.values import MINUTE_MS, DurationMs, lasting

if TYPE_CHECKING:
    from stream_learner.core.events.decoders import EventSpec
    from stream_learner.core.events.feature_spec import FeatureSpec
    from stream_learner.core.events.field_numbers import FieldNumbers
    from stream_learner.core.gate.first_version import Needed
    from stream_learner.core.gate.gate import GatePolicy
    from stream_learner.core.join.spec import JoinSpec
    from stream_learner.core.log.field_bound import FieldBound
    from stream_learner.core.model.losses import Loss
    from stream_learner.core.model.optimizers import Optimizer


class Tree(Section):
    """Every setting of one model, and what is made from them. The rules between settings are checked in `Config`."""

    model: ModelName = Field(
        description="Name of the model; its topics, groups and state directory are called after it."
    )
    kafka: KafkaOptions = Field(
        description=(
            "Any option of librdkafka by its own name, `bootstrap.servers` first; a value may be written "
            "`{file: PATH}` or `{env: NAME}` to be read from there."
        )
    )
    input: Input = Field(description="The input topics.")
    registry: Registry = Field(default_factory=Registry, description="The schema registry of the input topics.")
    join: Join = Field(default_factory=Join, description="How impressions and clicks become examples.")
    features: Features = Field(default_factory=Features, description="How fields become features.")
    learner: Learner = Field(default_factory=Learner, description="The learner.")
    gate: Gate = Field(default_factory=Gate, description="What a tick is held against before it is learned.")
    snapshots: Snapshots = Field(default_factory=Snapshots, description="How the model is published.")
    topics: Topics = Field(default_factory=Topics, description="The model's own topics.")
    scorer: Scorer = Field(default_factory=Scorer, description="The scorer.")
    serve: Serve = Field(default_factory=Serve, description="Predictions over HTTP.")
    telemetry: Telemetry = Field(default_factory=Telemetry, description="Logs, metrics and health.")
    shutdown_timeout_ms: Annotated[DurationMs, lasting("1s", "1h")] = Field(
        MINUTE_MS,
        alias="shutdown_timeout",
        description=(
            "How long a role may take to stop when it is told to; then it ends at once, which loses nothing and makes "
            "the next start longer."
        ),
    )

    @property
    def examples_topic(self) -> str:
        """The topic of the training log."""
        return self.topics.examples or f"{self.model}.examples"

    @property
    def snapshots_topic(self) -> str:
        """The topic that scorers follow."""
        return self.topics.snapshots or f"{self.model}.snapshots"

    @property
    def dead_letters_topic(self) -> str:
        """The topic of input records that cannot be used."""
        return self.topics.dead_letters or f"{self.model}.dead-letters"

    @property
    def checkpoints_topic(self) -> str:
        """The topic of copied checkpoints."""
        return self.topics.checkpoints or f"{self.model}.checkpoints"

    @property
    def control_topic(self) -> str:
        """The topic of aliases, pauses and pins of all models."""
        return self.topics.control

    @property
    def group(self) -> str:
        """The consumer group of the joiners."""
        return self.join.group or f"{self.model}.joiner"

    @property
    def lease_group(self) -> str:
        """The consumer group whose one partition is assigned to the learner that leads."""
        return f"{self.model}.lease"

    @property
    def publisher_id(self) -> str:
        """The transactional id of the publisher of snapshots."""
        return f"{self.model}.publisher"

    @property
    def copier_id(self) -> str:
        """The transactional id of the learner that copies its checkpoints."""
        return f"{self.model}.checkpoints"

    @property
    def state_dir(self) -> Path:
        """The directory of the learner's state."""
        return Path(self.learner.state_dir or f"state/{self.model}")

    def kafka_options(self) -> dict[str, KafkaValue]:
        """librdkafka's options, those kept in files and variables as references. It holds secrets: never log it."""
        return dict(self.kafka.root)

    def shown(self) -> dict[str, Any]:
        """The tree as it would be written in a file, every default included, secrets as `***`."""
        return self.model_dump(mode="json", by_alias=True)

    def written(self) -> dict[str, Any]:
        """The tree as it would be written in a file, every default included. It holds secrets: never log or show it."""
        options = {
            name: value.model_dump() if isinstance(value, BaseModel) else value
            for name, value in self.kafka.root.items()
        }
        return {**self.shown(), "kafka": options}

    def join_spec(self) -> JoinSpec:
        """The rules of the join for `core`."""
        from stream_learner.core.join.spec import JoinSpec

        join = self.join
        return JoinSpec(
            window_ms=join.window_ms,
            skew_ms=join.skew_ms,
            tick_ms=join.tick_ms,
            dedupe_ms=join.dedupe_ms,
            keep_negatives=join.keep_negatives,
            lateness_ms=join.lateness_ms,
            agree=join.agree,
        )

    def must_keep_ms(self) -> dict[str, int]:
        """By topic, how much a role reads again when it starts: what retention must hold, and the role's absence too.

        Of the inputs a joiner reads from before its last resume point, as far back as the join's memory reaches: the
        window, `dedupe` and an eighth of it for impressions; the window, the skew and twice `lateness` for clicks,
        since one that is ahead of log time stays longer. In a silence windows wait, and with them what is read. The
        training log is read on.
        """
        join = self.join
        waits_ms = join.idle_after_ms if join.close_idle else 0
        return {
            self.input.impressions.topic: join.window_ms + join.dedupe_ms * 9 // 8 + waits_ms,
            self.input.clicks.topic: join.window_ms + join.skew_ms + 2 * join.lateness_ms + waits_ms,
            self.examples_topic: 0,
        }

    def event_specs(self) -> tuple[EventSpec, EventSpec]:
        """The fields of impressions and clicks, for `core`. Raises ValueError if settings contradict each other."""
        from stream_learner.core.events.decoders import EventSpec

        impressions, clicks = self.input.impressions, self.input.clicks
        common = EventSpec(max_event_bytes=self.join.max_event_bytes, max_skew_ms=self.join.max_skew_ms)
        return (
            replace(
                common,
                id=impressions.id,
                time=impressions.time,
                time_unit=impressions.time_unit or self.input.time_unit,
                weight=impressions.weight,
                max_weight=impressions.max_weight,
                format=self.format_of(impressions),
            ),
            replace(
                common,
                id=clicks.id,
                time=clicks.time,
                time_unit=clicks.time_unit or self.input.time_unit,
                value=clicks.value,
                format=self.format_of(clicks),
            ),
        )

    def is_framed(self, records: Records) -> bool:
        """Whether the records of an input topic begin with the id of their schema."""
        if records.framed is not None:
            return records.framed
        return records.format != "json" and self.registry.url is not None

    def format_of(self, records: Records) -> str:
        """The form of the records of an input topic: "json", or "avro, framed"."""
        return f"{records.format}, framed" if self.is_framed(records) else records.format

    def optimizer(self) -> Optimizer:
        """The learner's optimizer. Raises ValueError for hyper-parameters it cannot work with."""
        from stream_learner.core.model.optimizers import make_optimizer

        return make_optimizer(self.learner.optimizer.given())

    def loss(self) -> Loss:
        """The loss that is learned. Raises ValueError for an option that the loss does not have."""
        from stream_learner.core.model.losses import make_loss

        return make_loss(**self.learner.loss.given())

    def feature_spec(self) -> FeatureSpec:
        """The specification of the features, for `core`, by the newest key rule where none is set.

        Raises ValueError if settings contradict each other.
        """
        from stream_learner.core.events.feature_keys import NEWEST_RULE
        from stream_learner.core.events.feature_spec import FeatureSpec, field_of
        from stream_learner.core.events.local_time import PARTS

        features, own = self.features, self.event_specs()[0]
        units = {
            name: own.time_unit for name, field in features.fields.items() if name == own.time and field.kind in PARTS
        }
        return FeatureSpec(
            include=tuple(features.include),
            exclude=tuple(features.exclude),
            fields={
                name: field_of(name, {**dict(field), "time_unit": field.time_unit or units.get(name, "auto")})
                for name, field in features.fields.items()
            },
            crosses=tuple(tuple(cross) for cross in features.crosses),
            max_features=features.max_features,
            max_value_bytes=features.max_value_bytes,
            categorical=tuple(features.categorical),
            key_rule=features.key_rule or NEWEST_RULE,
        )

    def field_numbers(self) -> FieldNumbers | None:
        """By which fields are counted, None where their rows are not bounded. Raises ValueError if none can be."""
        from stream_learner.core.events.field_numbers import FieldNumbers

        return None if self.features.max_rows_per_field is None else FieldNumbers(self.feature_spec())

    def field_bound(self) -> FieldBound | None:
        """The bound on the rows of each field, for the training log. Raises what `field_numbers` raises."""
        from stream_learner.core.log.field_bound import FieldBound

        numbers, most_rows = self.field_numbers(), self.features.max_rows_per_field
        return None if numbers is None or most_rows is None else FieldBound(most_rows, numbers.hashes)

    def gate_policy(self) -> GatePolicy:
        """The settings of the gate, for `core`."""
        from stream_learner.core.gate.gate import GatePolicy

        gate = self.gate
        return GatePolicy(
            false_alarms=gate.false_alarms,
            warm_up_ms=gate.warm_up_ms,
            sample=gate.sample,
            ignore=frozenset(gate.ignore),
        )

    def first_version(self) -> Needed:
        """What the first version needs, for `core`."""
        from stream_learner.core.gate.first_version import Needed

        return Needed(**dict(self.snapshots.first))

    def gate_slices(self) -> tuple[tuple[str, int], ...]:
        """Name and feature key (u64) of each slice of the gate.

        Raises ValueError for a field that is no category, for the id or another field that is no feature, and for two
        slices of the same examples.
        """
        from stream_learner.core.events.features import category_key

        features = self.feature_spec()
        no_features, found = self.event_specs()[0].paths(features), dict[int, str]()
        for part in self.gate.slices:
            if part.field in no_features:
                raise ValueError(f"{part.field} is no feature: the impressions have their id or time there")
            key = category_key(part.field, part.value, features)
            if key in found:
                raise ValueError(f"{part.name} has the same examples as {found[key]}: name each slice once")
            found[key] = part.name
        return tuple((name, key) for key, name in found.items())
