"""Which key rule a model goes on with, where `features.key_rule` names none: that of its log, the newest for a new one.

Whoever hashes, compares or publishes features of a model that may exist asks here first, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import READ_UNCOMMITTED, Admin, KafkaSettings, PartitionReader, TopicInfo
from stream_learner.core.events.feature_keys import FIRST_RULE, NEWEST_RULE
from stream_learner.errors import NotAuthorised
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.log_reader import marks, records

if TYPE_CHECKING:
    from stream_learner.config import Config

FIRST_LOOK_RECORDS, LOOK_FURTHER = 8, 8


def with_key_rule(config: Config, source: Config | None = None) -> Config:
    """The configuration with a key rule: its own, else that of the log; as it was published where no mark tells it.

    source: the model whose log it is, None for the model itself.

    Raises BrokerUnreachable, RetryLater, NotAuthorised.
    """
    if config.features.key_rule is not None:
        return config
    model = source or config
    settings = KafkaSettings(config.kafka_options(), group=config.group)
    admin = Admin(settings)
    found = admin.describe([model.examples_topic])
    rule = _of_marks(model, settings, admin, found[model.examples_topic]) if found else None
    rule = rule or _of_publication(model, settings, admin) or NEWEST_RULE
    return config.model_copy(update={"features": config.features.model_copy(update={"key_rule": rule})})


def _of_marks(config: Config, settings: KafkaSettings, admin: Admin, log: TopicInfo) -> int | None:
    """The rule by which the features of the newest mark are those of the configuration; None where they are not."""
    places = [(log.name, partition) for partition in range(log.partitions)]
    ends, earliest = admin.offsets.high_watermarks(places), admin.offsets.earliest(places)
    for place in places:
        end, look = ends[place], FIRST_LOOK_RECORDS
        begin = end
        while begin > earliest[place]:
            begin, look = max(end - look, earliest[place]), look * LOOK_FURTHER
            with PartitionReader(settings, *place, begin, isolation=READ_UNCOMMITTED, name="key-rule") as reader:
                found = [mark for _, mark in marks(place, records(reader, end), skip_damaged=True)]
            if found:
                return config.feature_spec().rule_of(found[-1].features)
    return None


def _of_publication(config: Config, settings: KafkaSettings, admin: Admin) -> int | None:
    """The rule of the model record; None where nothing is published, or a joiner may not read it."""
    topic = config.snapshots_topic
    try:
        found = admin.describe([topic])
        if not found:
            return None
        model = read_last_publication(settings, admin.offsets, topic, found[topic].partitions).model
    except NotAuthorised:
        return None
    return None if model is None else int(model.content["features"].get("key_rule", FIRST_RULE))
