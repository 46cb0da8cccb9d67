"""The questions that a backfill asks of topics before it begins.

With `--from-log`: whether the training log was made with the settings of the plan, and which of its features each model
learns from. Without: when the first impression was, and which inputs have lost records of the span. And whether the
brokers answer for all partitions. It only asks, and never changes where a backfill begins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.config import Config
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.log.subset import FeatureSubset
from stream_learner.errors import ConfigError, NotFound
from stream_learner.operations.backfill.feature_subset import Report, subset_for
from stream_learner.operations.backfill.plan import BackfillPlan
from stream_learner.roles.common.last_publication import read_last_publication

WAIT_S = 2.0
LEADERS_S = 15.0


def subsets_of(plan: BackfillPlan, settings: KafkaSettings, admin: Admin, report: Report) -> dict[str, FeatureSubset]:
    """By model, what to leave out of the source's log; empty if the backfill joins.

    Raises NotFound if the source has published nothing, so that the settings of its log are not known; ConfigError if
    they are not those of the configuration, or if features differ and there is no end; and what `subset_for` raises.
    """
    source = plan.source
    if source is None:
        return {}
    content = _published(source, settings, admin)
    found: dict[str, FeatureSubset] = {}
    for config in plan.models:
        _refuse_other_log(config, source, content)
        if FeatureSpec.from_dict(content["features"]).to_dict() == config.feature_spec().to_dict():
            continue
        if plan.until_tick is None:
            raise ConfigError(
                f"{config.model} has other features than {source.examples_topic} was made with",
                action="Give --until: which keys to leave out is found in the impressions up to there. Or join anew, "
                "without --from-log.",
            )
        subset = subset_for(config, source, plan.until_tick, report)
        if subset is not None:
            found[config.model] = subset
    return found


def _published(source: Config, settings: KafkaSettings, admin: Admin) -> dict[str, Any]:
    topic = source.snapshots_topic
    partitions = admin.require([source.examples_topic, topic])[topic].partitions
    published = read_last_publication(settings, admin.offsets, topic, partitions)
    if published.model is None:
        raise NotFound(
            f"{source.model} has published nothing yet, so it is not known how {source.examples_topic} was made",
            action="Let its learner run until it has published.",
        )
    return published.model.content


def _refuse_other_log(config: Config, source: Config, content: dict[str, Any]) -> None:
    """Raise ConfigError if the log was made with other settings than those of the configuration."""
    inputs = content["inputs"]
    pairs = {
        "join.tick": (content["tick_ms"], config.join.tick_ms),
        "join.window": (inputs["window_ms"], config.join.window_ms),
        "input.impressions.topic": (inputs["impressions"], config.input.impressions.topic),
        "input.clicks.topic": (inputs["clicks"], config.input.clicks.topic),
    }
    wrong = [f"{name} was {then}, now {now}" for name, (then, now) in pairs.items() if then != now]
    if wrong:
        raise ConfigError(
            f"{source.examples_topic} was made with other settings than those of {config.model}: {'; '.join(wrong)}",
            action="Set them as they were, or join anew, without --from-log.",
        )


def await_leaders(admin: Admin, topics: Sequence[str]) -> None:
    """Wait until every partition answers: leaders of new partitions refuse requests for a moment.

    Raises the error of a partition that does not answer in time, TopicMissing.
    """
    places = [(info.name, partition) for info in admin.require(topics).values() for partition in range(info.partitions)]
    until_s = time.monotonic() + LEADERS_S
    while True:
        _, failed = admin.offsets.high_watermarks_known(places)
        if not failed:
            return
        if time.monotonic() > until_s:
            raise next(iter(failed.values()))
        time.sleep(0.05)


def first_time_ms(settings: KafkaSettings, admin: Admin, topic: str) -> int | None:
    """The earliest time of the first records of the partitions; None if none came within `WAIT_S`."""
    partitions = admin.require([topic])[topic].partitions
    places = [(topic, partition) for partition in range(partitions)]
    ends = admin.offsets.high_watermarks(places)
    times = []
    for (_, partition), earliest in admin.offsets.earliest(places).items():
        if earliest < ends[topic, partition]:
            with PartitionReader(settings, topic, partition, earliest, name="first-time") as reader:
                batch = reader.read(1, WAIT_S)
            if batch is not None:
                times.append(int(batch.record_times_ms[0]))
    return min(times, default=None)


def warn_of_late_beginning(admin: Admin, topics: Sequence[str], partitions: int, start_ms: int, log: Logger) -> None:
    """Log which partitions may have lost records of the span: trimmed ones that hold only younger records."""
    for topic in topics:
        places = [(topic, partition) for partition in range(partitions)]
        earliest, begins = admin.offsets.earliest(places), admin.offsets.at_time(places, start_ms)
        trimmed = [partition for (_, partition), at in earliest.items() if at > 0 and begins[topic, partition] == at]
        if trimmed:
            log.warning(
                "inputs_begin_later",
                topic=topic,
                partitions=trimmed,
                note="their oldest records were deleted, perhaps also some of the span asked for: the backfill begins "
                "with what is left",
            )
