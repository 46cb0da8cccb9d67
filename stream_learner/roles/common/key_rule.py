"""Which key rule a model goes on with, where `features.key_rule` names none: that of its log, the newest for a new one.

Whoever hashes, compares or publishes features of a model that may exist asks here first, once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import READ_UNCOMMITTED, Admin, KafkaSettings, PartitionReader
from stream_learner.core.events.feature_keys import FIRST_RULE, NEWEST_RULE
from stream_learner.errors import Stop
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.log_reader import marks, records

if TYPE_CHECKING:
    from stream_learner.config import Config

FIRST_LOOK_RECORDS, LOOK_FURTHER = 8, 8


def with_key_rule(config: Config, source: Config | None = None) -> Config:
    """The configuration with a key rule: its own, else that of the log; as it was published where no mark tells it.

    source: the model whose log it is, None for the model itself.

    What is wrong with the topics is told by whoever works with them. Raises BrokerUnreachable, RetryLater.
    """
    if config.features.key_rule is not None:
        return config
    model, rule = source or config, None
    settings = KafkaSettings(config.kafka_options(), group=config.group)
    admin = Admin(settings)
    for look in (_of_marks, _of_publication):
        with suppress(Stop):
            rule = rule or look(model, settings, admin)
    return config.model_copy(update={"features": config.features.model_copy(update={"key_rule": rule or NEWEST_RULE})})


def _of_marks(config: Config, settings: KafkaSettings, admin: Admin) -> int | None:
    """The rule by which the features of the newest mark are those of the configuration; None where they are not."""
    topic = config.examples_topic
    places = [(topic, partition) for partition in range(admin.require([topic])[topic].partitions)]
    ends, earliest = admin.offsets.high_watermarks(places), admin.offsets.earliest(places)
    for place in places:
        begin, look = ends[place], FIRST_LOOK_RECORDS
        while begin > earliest[place]:
            begin, look = max(ends[place] - look, earliest[place]), look * LOOK_FURTHER
            with PartitionReader(settings, *place, begin, isolation=READ_UNCOMMITTED, name="key-rule") as reader:
                found = [mark for _, mark in marks(place, records(reader, ends[place]), skip_damaged=True)]
            if found:
                return config.feature_spec().rule_of(found[-1].features)
    return None


def _of_publication(config: Config, settings: KafkaSettings, admin: Admin) -> int | None:
    """The rule of the model record, None without one. A joiner may not read it."""
    topic = config.snapshots_topic
    shards = admin.require([topic])[topic].partitions
    model = read_last_publication(settings, admin.offsets, topic, shards).model
    return None if model is None else int(model.content["features"].get("key_rule", FIRST_RULE))
