"""The sections of the configuration: every setting, its type, range, default and meaning.

Units are in the names of attributes: `window_ms` is written `window` in a file. Descriptions become
docs/configuration.md and the schema.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stream_learner.config import losses, optimizers
from stream_learner.config.losses import AnyLoss
from stream_learner.config.optimizers import AnyOptimizer
from stream_learner.config.references import Reference
from stream_learner.config.section import Section
from stream_learner.config.values import (
    DAY_MS,
    HOUR_MS,
    KIB,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    DurationMs,
    Share,
    SizeBytes,
    Start,
    TopicName,
    counting,
    lasting,
    sized,
)
from stream_learner.core.events.kinds import Kind, Missing, TimeUnit

FieldName = Annotated[str, Field(min_length=1, max_length=1000)]
ModelName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}$")]
Format = Literal["json", "avro", "protobuf"]
_TIME_UNIT_HERE = "Form of the time field, where the two topics differ; null takes `input.time_unit`."


class Records(Section):
    """The topic of an input, and what its records are."""

    topic: TopicName = Field(description="The topic, one event per record.")
    format: Format = Field(
        "json",
        description="What a record is. Events are the same in each (docs/inputs.md).",
    )
    framed: bool | None = Field(
        None,
        description=(
            "Whether each record begins with 0 and the id of its schema, as Confluent's serializers write it. null: "
            "where the format is avro or protobuf and `registry.url` is set."
        ),
    )
    schema_file: str | None = Field(
        None,
        alias="schema",
        min_length=1,
        description=(
            "File with the schema, where no registry has it: Avro's JSON, a `.proto` file, or a descriptor set of "
            "protoc. With a registry and Avro, the schema as which all records are read: its aliases and defaults "
            "count."
        ),
    )
    message: str | None = Field(
        None, min_length=1, description="Name of the Protobuf message, where the file of `schema` has several."
    )


class Impressions(Records):
    """The topic of the impressions, and the meaning of their fields."""

    topic: TopicName = Field(description="Topic of the impressions, one event per record.")
    id: FieldName = Field("id", description="Field that holds the impression's id, a string or an integer.")
    time: FieldName | None = Field(
        None, description="Field that holds the event's time; null takes the Kafka record's timestamp."
    )
    time_unit: TimeUnit | None = Field(None, description=_TIME_UNIT_HERE)
    weight: FieldName | None = Field(
        None, description="Field that holds the example's importance weight, a number >= 0; without it or with null, 1."
    )
    max_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1000.0,
        description="An impression with a larger weight is a dead letter: a single one can undo what was learned.",
    )


class Clicks(Records):
    """The topic of the clicks, and the meaning of their fields."""

    topic: TopicName = Field(description="Topic of the clicks, one event per record.")
    id: FieldName = Field("id", description="Field that holds the id of the impression that was clicked.")
    time: FieldName | None = Field(
        None, description="Field that holds the event's time; null takes the Kafka record's timestamp."
    )
    time_unit: TimeUnit | None = Field(None, description=_TIME_UNIT_HERE)
    value: FieldName | None = Field(
        None,
        description="Field that holds a soft label in [0, 1]; a click without it counts 1; null: every click.",
    )


class Input(Section):
    """The two input topics."""

    impressions: Impressions = Field(description="The impressions.")
    clicks: Clicks = Field(description="The clicks: any positive feedback.")
    time_unit: TimeUnit = Field(
        "ms",
        description=(
            "Form of time fields: a number of milliseconds, seconds or microseconds since 1970, or iso for "
            "text in ISO 8601. auto takes text as iso and goes by the size of a number."
        ),
    )


def _without_credentials(url: str) -> str:
    """The address or addresses as given. What may be a password is in no message."""
    if not all(re.fullmatch(r"https?://[^@\s/]+(/[^@\s]*)?", one.strip()) for one in url.split(",")):
        raise ValueError(
            "must be http://HOST:PORT or https://HOST:PORT, several with commas between them; user and password "
            "belong in basic.auth.user.info"
        )
    return url


class Registry(Section):
    """The schema registry, in the words of Confluent's clients."""

    url: Annotated[str, AfterValidator(_without_credentials)] | None = Field(
        None,
        description="Address of the registry, several with commas between them; null for none.",
    )
    user_info: Reference | None = Field(
        None,
        alias="basic.auth.user.info",
        description="`user:password`, in a file or variable.",
    )
    bearer_token: Reference | None = Field(
        None, alias="bearer.auth.token", description="Token to show instead, in a file or variable."
    )
    ca: str | None = Field(
        None,
        alias="ssl.ca.location",
        min_length=1,
        description="File with the authorities that may vouch for the registry; null for those of the system.",
    )
    certificate: str | None = Field(
        None, alias="ssl.certificate.location", min_length=1, description="File with the certificate to show."
    )
    key: str | None = Field(
        None, alias="ssl.key.location", min_length=1, description="File with the key of that certificate."
    )
    key_password: Reference | None = Field(
        None, alias="ssl.key.password", description="Password of that key, in a file or variable."
    )
    timeout_ms: Annotated[DurationMs, lasting("100ms", "5m")] = Field(
        10 * SECOND_MS, alias="timeout", description="How long one question to the registry may take."
    )


class Join(Section):
    """The join of impressions and clicks to examples."""

    window_ms: Annotated[DurationMs, lasting("1s", "7d")] = Field(
        30 * MINUTE_MS,
        alias="window",
        description="How long after an impression a click still counts for it.",
    )
    skew_ms: Annotated[DurationMs, lasting("0", "1d")] = Field(
        5 * SECOND_MS,
        alias="skew",
        description="How far a click's time may lie before its impression's, for clocks that disagree.",
    )
    tick_ms: Annotated[DurationMs, lasting("10ms", "1h")] = Field(
        SECOND_MS,
        alias="tick",
        description=(
            "Length of a tick, the step in which windows close and examples are learned. Longer ones make the training "
            "log of a quiet site much smaller (docs/join.md, What a tick costs)."
        ),
    )
    dedupe_ms: Annotated[DurationMs, lasting("0", "7d")] = Field(
        5 * MINUTE_MS,
        alias="dedupe",
        description=(
            "An impression that repeats an id within this time is dropped as a duplicate. A later repeat is dropped "
            "only if a click with that id has been counted. 0 turns both off."
        ),
    )
    grace_ms: Annotated[DurationMs, lasting("0", "1d")] = Field(
        2 * SECOND_MS,
        alias="grace",
        description=(
            "At the end of a topic, how much later than usual an event may come: windows close so long after the last "
            "events tell that their end has passed."
        ),
    )
    close_idle: bool = Field(
        True,
        description=(
            "Whether windows close by the stream's own clock at a topic's end (docs/stream-clock.md); false waits "
            "for newer events."
        ),
    )
    idle_after_ms: Annotated[DurationMs, lasting("0", "1d")] = Field(
        10 * MINUTE_MS,
        alias="idle_after",
        description=(
            "How long windows wait while no event comes for longer than usual: a stall of up to so long costs nothing, "
            "after a longer one examples are late or counted as guessed. Seconds for a laptop, where events are few."
        ),
    )
    hold_on_silence: bool = Field(
        True,
        description=(
            "Whether windows wait for the next click when clicks stop although impressions go on, for longer than "
            "their usual rate explains. false for sites with hardly any clicks."
        ),
    )
    max_skew_ms: Annotated[DurationMs, lasting("1s", "7d")] = Field(
        5 * MINUTE_MS,
        alias="max_skew",
        description="An event with a time field further ahead of its record's timestamp is a dead letter.",
    )
    lateness_ms: Annotated[DurationMs, lasting("1s", "7d")] = Field(
        10 * MINUTE_MS,
        alias="lateness",
        description=(
            "An impression that comes more than this after its window has closed is dropped as late. Clicks are "
            "remembered so long. At least `max_skew`."
        ),
    )
    agree: Annotated[int, counting(1, 256)] = Field(
        16,
        description=(
            "How many events in a row must agree before time moves on, so that no single wrong clock moves it."
        ),
    )
    start: Start = Field(
        "earliest",
        description=(
            "Where a model without a training log begins: earliest, latest, or a moment, in ISO 8601 with its zone. "
            "Impressions older than the clicks that are still in their topic are left out."
        ),
    )
    keep_negatives: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="Share of examples without a click that are kept; their weight is divided by it.",
    )
    max_bad_share: Share = Field(
        0.1,
        description=(
            "If more than this share of an input topic's records in a period cannot be used, and the newest ones are "
            "no better, `on_bad_share` says what the joiner does. Each topic has its own share."
        ),
    )
    on_bad_share: Literal["hold", "stop", "drop"] = Field(
        "hold",
        description=(
            "Above `max_bad_share`, once the letters are written. hold: the partitions concerned are not read until "
            "the newest records are right again, and the joiner is not ready; a backfill stops instead. stop: the "
            "joiner ends. drop: it goes on, and labels may be missing."
        ),
    )
    bad_share_period_ms: Annotated[DurationMs, lasting("1s", "1d")] = Field(
        MINUTE_MS,
        alias="bad_share_period",
        description="The period for `max_bad_share`.",
    )
    max_event_bytes: Annotated[SizeBytes, sized("256", "64MiB")] = Field(
        MIB,
        description="A larger input record is a dead letter.",
    )
    buffer_bytes: Annotated[SizeBytes, sized("1MiB", "64GiB")] = Field(
        256 * MIB,
        alias="buffer",
        description="Bound of the input read ahead, over all partitions of a joiner.",
    )
    record_bytes: Annotated[SizeBytes, sized("16KiB", "16MiB")] = Field(
        512 * KIB,
        description="Size at which a tick is split into several records of the training log.",
    )
    max_rate: Annotated[int, counting(1, 100_000_000)] | None = Field(
        None, description="Most impressions a second that one joiner reads; null reads as fast as it can."
    )
    group: TopicName | None = Field(None, description="Consumer group of the joiners; null means `<model>.joiner`.")
    instance_id: TopicName | None = Field(
        None,
        description=(
            "Name of this joiner for static membership, different for each one; it keeps its partitions "
            "over a restart. null makes a member that gives them up."
        ),
    )


class FieldSettings(Section):
    """The features of one field of an impression."""

    kind: Kind = Field(
        "auto",
        description=(
            "What numbers become. auto: the category of their size, two for each power of two; number: a feature of "
            "that value; category: integers are categories; log: sgn(x) log(1 + |x|); bucket: the category between two "
            "`edges`. ignore leaves the field and all below it out. Text and booleans are categories in any case, but "
            "for the kinds for times: hour, 0 to 23; weekday, 0 to 6 from Monday on; hour_of_week, 0 to 167 "
            "(docs/features.md)."
        ),
    )
    edges: Annotated[list[float], Field(max_length=1000)] = Field(
        [], description="For kind bucket: ascending edges; the category is how many edges are <= the value."
    )
    missing: Missing = Field(
        "skip", description="indicator gives a field without features a feature of its own, `name:missing`."
    )
    zone: str = Field(
        "UTC", description="For the kinds for times: the zone of hours and weekdays, such as Europe/Berlin."
    )
    time_unit: TimeUnit | None = Field(
        None,
        description=(
            "For the kinds for times: form of the times, as of `input`. null takes that of the impressions for their "
            "own time field, and auto for others."
        ),
    )


class Features(Section):
    """The hashed features of an impression's fields."""

    include: list[FieldName] = Field(
        [], description="Fields to use, nested ones as `a.b`; a name covers all below it; empty means all."
    )
    exclude: list[FieldName] = Field(
        [],
        description=(
            "Fields to leave out, also from `include`; id and weight are never features, the time only by its hour or "
            "weekday."
        ),
    )
    categorical: list[FieldName] = Field(
        [], description="Fields whose integers are categories, short for kind category."
    )
    fields: dict[FieldName, FieldSettings] = Field({}, description="Settings for single fields, by name.")
    crosses: list[Annotated[list[FieldName], Field(min_length=2, max_length=8)]] = Field(
        [], description="Crosses: each a list of two or more fields, such as `[[site, ad], [hour, device]]`."
    )
    max_features: Annotated[int, counting(1, 32_768)] = Field(
        1_000, description="An impression with more features is a dead letter."
    )
    max_value_bytes: Annotated[SizeBytes, sized("1", "1MiB")] = Field(
        4 * KIB, description="An impression with a longer name or text as a feature is a dead letter."
    )
    max_rows_per_field: Annotated[int, counting(1, 1 << 48)] | None = Field(
        None,
        description=(
            "The most features of one field that get state; then its new ones are left out, as with "
            "`learner.max_rows`. It goes into the training log, and may be changed at any time; rows count from the "
            "first record on that has one. A field named in `include`, `fields`, `categorical` or a cross counts by "
            "itself, with all below it; a cross by itself; all other fields together. null for no bound."
        ),
    )
    key_rule: Annotated[int, counting(1, 3)] | None = Field(
        None,
        description=(
            "Which texts are hashed. 3: no two features share a text, and a number of kind auto is the category of its "
            "size; 2: a number of kind auto is a feature of that value; 1: also, names stand in the texts as they are. "
            "null for the rule that the model's training log was made with, 3 for a new model; a model keeps its rule. "
            "Between 1 and 2 only names that are empty, end in `:missing`, or have `=` or a backslash in them differ."
        ),
    )


class Learner(Section):
    """The learner: its state, its optimizer, its checkpoints."""

    state_dir: str | None = Field(
        None, min_length=1, description="Directory of the learner's state; null means `state/<model>`."
    )
    optimizer: AnyOptimizer = Field(
        default_factory=lambda: optimizers.CHOICE.of({}), description="The optimizer and its hyper-parameters."
    )
    loss: AnyLoss = Field(default_factory=lambda: losses.CHOICE.of({}), description="The loss that is learned.")
    checkpoint_interval_ms: Annotated[DurationMs, lasting("1s", "1h")] = Field(
        30 * SECOND_MS,
        alias="checkpoint_interval",
        description="Time between checkpoints; after a crash the ticks since the last one are folded again.",
    )
    min_free_bytes: Annotated[SizeBytes, sized("0", "1024GiB")] = Field(
        128 * MIB,
        alias="min_free",
        description="With less than this free on the disk of `state_dir` the learner waits before it folds on.",
    )
    publish: bool = Field(True, description="Whether this learner publishes snapshots; one learner per model does.")
    lease_timeout_ms: Annotated[DurationMs, lasting("1s", "5m")] = Field(
        6 * SECOND_MS,
        alias="lease_timeout",
        description=(
            "How long the learner that leads may be silent before a standby takes over; the brokers allow nothing "
            "below their `group.min.session.timeout.ms`."
        ),
    )
    copies: bool = Field(
        True,
        description=(
            "Whether the learner that publishes keeps a copy of its checkpoints in a topic, and an empty or damaged "
            "state directory is restored from it."
        ),
    )
    copy_interval_ms: Annotated[DurationMs, lasting("0", "1d")] = Field(
        MINUTE_MS,
        alias="copy_interval",
        description="Time between copies, at least; a checkpoint that another follows in that time is not copied.",
    )
    copy_rate_bytes: Annotated[SizeBytes, sized("64KiB", "16GiB")] = Field(
        32 * MIB, alias="copy_rate", description="Bytes of copies that are sent in a second, at most."
    )
    buffer_bytes: Annotated[SizeBytes, sized("1MiB", "64GiB")] = Field(
        256 * MIB, alias="buffer", description="Bound of the training log read ahead, over all partitions."
    )
    memory_bytes: Annotated[SizeBytes, sized("1MiB", "16384GiB")] | None = Field(
        None,
        alias="memory",
        description=(
            "Bound of the memory that grows with the model: table, copies being written, RocksDB. Rows that do not fit "
            "stay on disk and are fetched when a record names them. null keeps the whole model in memory."
        ),
    )
    max_rows: Annotated[int, counting(1, 1 << 48)] | None = Field(
        None,
        description=(
            "The most features that get state. Once it is reached, the features of an example that have none are left "
            "out of it, and those known are learned on. It can be changed as long as nothing was left out, and to no "
            "fewer than the model has. null for no bound."
        ),
    )
    history_ms: Annotated[list[Annotated[DurationMs, lasting("10s", "30d")]], Field(max_length=8)] = Field(
        [HOUR_MS, 6 * HOUR_MS, DAY_MS],
        alias="history",
        description=(
            "Ages of checkpoints that are kept beside the state, in log time, for `stream-learner rewind`: of each age "
            "one that is at least as old and less than half as old again. Up to three are kept for each, each of up to "
            "the size of the state; the oldest go first where the disk is short. An empty list keeps none."
        ),
    )
    gate: Literal["hold", "warn", "off"] = Field(
        "hold",
        description=(
            "What is done about a tick that is out of the bounds of the section `gate`: hold stops before it until an "
            "operator decides, warn says so and learns on, off does not judge."
        ),
    )
    metrics_slice_ms: Annotated[DurationMs, lasting("1s", "7d")] = Field(
        5 * MINUTE_MS,
        alias="metrics_slice",
        description="Length of a slice of the progressive metrics, in event time.",
    )


class First(Section):
    """What a model must show before it is published for the first time."""

    examples: Annotated[int, counting(0, 1_000_000_000)] = Field(
        1_000, description="Examples that it must have learned; 0 publishes the first one, and asks for nothing else."
    )
    positives: Annotated[int, counting(0, 1_000_000_000)] = Field(
        20, description="Examples with a click that it must have learned."
    )
    matched: Share = Field(
        0.5,
        description=(
            "Share of the clicks that must have found their impression; fewer do where ids, keys or clocks of the "
            "topics do not fit. A model that is published is held where the share falls below half of what it was. 0 "
            "asks for none."
        ),
    )


class Snapshots(Section):
    """The publication of the model."""

    interval_ms: Annotated[DurationMs, lasting("50ms", "1h")] = Field(
        SECOND_MS, alias="interval", description="Time between publications, at least."
    )
    shards: Annotated[int, counting(1, 256)] = Field(
        4,
        description=(
            "Shards of the model, a power of two: partitions of the snapshot topic and column families of "
            "the store. It cannot be changed for an existing model."
        ),
    )
    page_bytes: Annotated[SizeBytes, sized("4KiB", "16MiB")] = Field(
        256 * KIB, description="A page that outgrows this size is split."
    )
    ring: Annotated[int, counting(4, 65_536)] = Field(
        256,
        description=(
            "Number of deltas kept; every page is rewritten within fewer publications than this. "
            "More makes a publication smaller and the topic larger."
        ),
    )
    gate: Literal["hold", "warn", "off"] = Field(
        "hold",
        description=(
            "What is done where the last predictions are far worse than they were, or those of known examples have "
            "moved far since the last version: hold publishes nothing until they are within bounds again or an "
            "operator accepts it, warn says so and publishes, off does not judge. Learning goes on in any case."
        ),
    )
    first: First = Field(
        default_factory=First,
        description="What a model must show before its first version. With gate: off nothing is asked.",
    )


class Topics(Section):
    """The model's own topics, as `topics ensure` makes them."""

    examples: TopicName | None = Field(None, description="The training log; null means `<model>.examples`.")
    snapshots: TopicName | None = Field(None, description="The snapshots; null means `<model>.snapshots`.")
    dead_letters: TopicName | None = Field(
        None, description="Records that could not be read; null means `<model>.dead-letters`."
    )
    checkpoints: TopicName | None = Field(
        None, description="Copies of the learner's checkpoints; null means `<model>.checkpoints`."
    )
    control: TopicName = Field(
        "stream-learner.control",
        description="Aliases, pauses and pins, compacted; the same topic for all models of a site.",
    )
    replication: Annotated[int, counting(1, 32)] | None = Field(
        None, description="Replicas of each partition; null takes the broker's default."
    )
    min_insync_replicas: Annotated[int, counting(1, 32)] | None = Field(
        None, description="Replicas that must have a record; null takes the broker's default."
    )
    retention_ms: Annotated[DurationMs, lasting("1h", "3650d")] = Field(
        7 * DAY_MS, alias="retention", description="How long the training log is kept."
    )
    dead_letters_retention_ms: Annotated[DurationMs, lasting("1h", "3650d")] = Field(
        7 * DAY_MS, alias="dead_letters_retention", description="How long dead letters are kept."
    )


class Scorer(Section):
    """The scorer."""

    alias: ModelName | None = Field(
        None, description="Alias to follow instead of `model`: the scorer changes models when the alias is promoted."
    )
    stale_after_ms: Annotated[DurationMs, lasting("1s", "7d")] | None = Field(
        5 * MINUTE_MS,
        alias="stale_after",
        description=(
            "A version that was published longer ago is stale, which log and metrics say; it goes on being served. "
            "null never asks."
        ),
    )
    refuse_after_ms: Annotated[DurationMs, lasting("1s", "365d")] | None = Field(
        None,
        alias="refuse_after",
        description=(
            "With a version that was published longer ago nothing is predicted, and requests are refused; null "
            "predicts with any. At least `stale_after`."
        ),
    )
    state_dir: str | None = Field(
        None,
        min_length=1,
        description=(
            "Directory of a copy of the last whole version, which is served until the snapshot topic has been read, "
            "also where no broker answers; null keeps none."
        ),
    )
    copy_every_ms: Annotated[DurationMs, lasting("1s", "1d")] = Field(
        MINUTE_MS, alias="copy_every", description="Time between two copies in `scorer.state_dir`, at least."
    )
    ready_timeout_ms: Annotated[DurationMs, lasting("1s", "1d")] = Field(
        MINUTE_MS,
        alias="ready_timeout",
        description="How long `score` waits for a complete replica before it gives up.",
    )
