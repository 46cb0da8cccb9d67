"""Step 1 of rule W, the comparison: a joiner goes on only from a log that was made from these topics and settings."""

from __future__ import annotations

from stream_learner.adapters.record_errors import ANOTHER_NAME
from stream_learner.core.log.marks import LOG_TIME_RULES, Mark, ResumePoint
from stream_learner.errors import InputsChanged, TopicRecreated
from stream_learner.roles.joiner.log_tail import GO_ON_GROWN
from stream_learner.roles.joiner.partition_plan import PartitionPlan
from stream_learner.wording import count_of

JOIN_SETTINGS = "join (window, skew, tick, dedupe, keep_negatives, lateness or agree)"
EVENT_SETTINGS = " (its fields, input.time_unit, join.max_event_bytes or join.max_skew)"


def check_resume_point(plan: PartitionPlan, partition: int, mark: Mark | None) -> None:
    """Compare the last resume point of a partition with what this joiner joins; None where there is none.

    Raises InputsChanged, TopicRecreated.
    """
    if mark is None or mark.resume is None:
        return
    where = plan.log_partition(partition)
    _check_rules(where, mark.resume)
    _check_settings(plan, where, mark, mark.resume)
    _check_partition_count(plan, where, mark.resume)
    _check_topic_ids(plan, where, mark.resume)


def _check_rules(where: str, point: ResumePoint) -> None:
    if point.rules < LOG_TIME_RULES:
        raise InputsChanged(
            f"{where} was made by an earlier version, whose rules of the join (before log time took agreement) "
            "make other examples"
        )


def _check_settings(plan: PartitionPlan, where: str, mark: Mark, point: ResumePoint) -> None:
    inputs, mine = point.inputs, plan.made_from
    sections = (
        (JOIN_SETTINGS, point.join_fingerprint, plan.spec.fingerprint),
        ("input.impressions" + EVENT_SETTINGS, inputs.impressions_fingerprint, mine.impressions_fingerprint),
        ("input.clicks" + EVENT_SETTINGS, inputs.clicks_fingerprint, mine.clicks_fingerprint),
        ("features", mark.features, plan.inputs.impression_decoder.features.fingerprint),
    )
    differing = [section for section, then, now in sections if then != now]
    if not differing:
        return
    rule = plan.inputs.impression_decoder.features.rule_of(mark.features)
    if differing == ["features"] and rule is not None:
        raise InputsChanged(
            f"{where} was made with features.key_rule {rule}",
            action=f"Set features.key_rule to {rule}: a training log keeps the rule that it began with.",
        )
    raise InputsChanged(f"{where} was made with other settings of {', '.join(differing)}")


def _check_partition_count(plan: PartitionPlan, where: str, point: ResumePoint) -> None:
    if point.partitions != plan.partitions:
        raise InputsChanged(
            f"{where} was made from {count_of(point.partitions, 'partition')}, now there are {plan.partitions}",
            action=GO_ON_GROWN if point.partitions < plan.partitions else ANOTHER_NAME,
        )


def _check_topic_ids(plan: PartitionPlan, where: str, point: ResumePoint) -> None:
    then, now = point.inputs, plan.made_from
    for topic, recreated in (
        (plan.inputs.impressions_topic, then.impression_topic_id != now.impression_topic_id),
        (plan.inputs.clicks_topic, then.click_topic_id != now.click_topic_id),
    ):
        if recreated:
            raise TopicRecreated(f"{topic} is not the topic that {where} was made from: its id has changed")
