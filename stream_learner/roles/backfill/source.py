"""The training log of another model, as what a backfill is folded from.

In: a plan with a source. Out: which features of that log each model learns from, where not from all.
This file must never let a model take a log for something that it was not made as.
"""

from __future__ import annotations

from typing import Any

from stream_learner.config import Config
from stream_learner.core.feature_spec import FeatureSpec
from stream_learner.core.feature_subset import FeatureSubset
from stream_learner.edges.kafka import Admin, KafkaSettings
from stream_learner.errors import ConfigError, NotFound
from stream_learner.roles.backfill.plan import BackfillPlan
from stream_learner.roles.feature_subset import Report, subset_for
from stream_learner.roles.last_published import last_published


def subsets_of(plan: BackfillPlan, settings: KafkaSettings, admin: Admin, report: Report) -> dict[str, FeatureSubset]:
    """By model, what to leave out of the source's log; empty where the backfill joins.

    Raises NotFound where the source has published nothing, so that it is not known what its log was made as;
    ConfigError where that is not what the configuration says, or features differ and there is no end; and what
    `subset_for` raises.
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
    published = last_published(settings, admin.offsets, topic, partitions)
    if published.model is None:
        raise NotFound(
            f"{source.model} has published nothing yet, so it is not known how {source.examples_topic} was made",
            action="Let its learner run until it has published.",
        )
    return published.model.content


def _refuse_other_log(config: Config, source: Config, content: dict[str, Any]) -> None:
    """The settings that decided the log must be those of the configuration."""
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
