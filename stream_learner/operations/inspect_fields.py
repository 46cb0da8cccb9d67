"""`inspect fields`: which fields of the newest impressions give how many different features, and which go on growing.

Reads the inputs only: it joins no group and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stream_learner.adapters.kafka import READ_COMMITTED, Admin, KafkaSettings, PartitionReader
from stream_learner.config import Config
from stream_learner.core.events.field_counts import named_keys
from stream_learner.core.events.reasons import Refused
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.roles.common.log_reader import records


@dataclass
class _Field:
    events: int = 0
    keys: set[int] = field(default_factory=set)
    new: int = 0


def inspect_fields(config: Config, events: int) -> list[dict[str, Any]]:
    """The fields and crosses of about so many of the newest impressions, that with the most different features first.

    share: of the events that have the field. features: how many different ones it gave. new: how many of them came only
    in the newer half of each partition's events: near 0 for a field that has shown all its values.

    Raises TopicMissing, BrokerUnreachable, RetryLater, NotAuthorised.
    """
    impressions, _ = config.event_specs()
    features = with_key_rule(config).feature_spec()
    plan, as_json = impressions.impression_plan(features), EventForms(config).impressions_as_json(features)
    found: dict[str, _Field] = {}
    older, newer = _halves(config, events)
    for values, is_newer in ((older, False), (newer, True)):
        for value in values:
            try:
                names = named_keys(plan, as_json(value))
            except Refused:
                continue
            for key, name in names.items():
                one = found.setdefault(name, _Field())
                one.new += is_newer and key not in one.keys
                one.keys.add(key)
            for name in set(names.values()):
                found[name].events += 1
    order = sorted(found.items(), key=lambda item: (-len(item[1].keys), item[0]))
    return [
        {
            "field": name,
            "share": round(one.events / (len(older) + len(newer)), 4),
            "features": len(one.keys),
            "new": one.new,
        }
        for name, one in order
    ]


def _halves(config: Config, events: int) -> tuple[list[bytes], list[bytes]]:
    """The newest impressions, as many of each partition: the older half of each, and the newer half."""
    settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.inspect")
    admin, topic = Admin(settings), config.input.impressions.topic
    places = [(topic, partition) for partition in range(admin.require([topic])[topic].partitions)]
    ends, earliest = admin.offsets.high_watermarks(places), admin.offsets.earliest(places)
    each = max(events // len(places), 1)
    older: list[bytes] = []
    newer: list[bytes] = []
    for place in places:
        begin = max(earliest[place], ends[place] - each)
        if begin == ends[place]:
            continue
        with PartitionReader(settings, *place, begin, isolation=READ_COMMITTED, name="inspect") as reader:
            values = [value for _, value in records(reader, ends[place]) if value is not None]
        older += values[: len(values) // 2]
        newer += values[len(values) // 2 :]
    return older, newer
