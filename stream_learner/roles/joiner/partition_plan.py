"""`PartitionPlan`: what all partitions of a joiner have in common; and the comparison of step 1 of rule W: a joiner
goes on only from a log that was made from these topics and settings.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from stream_learner.adapters.kafka import Appender, EndWatch, KafkaSettings, OffsetQueries
from stream_learner.adapters.record_errors import ANOTHER_NAME
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.field_bound import FieldBound
from stream_learner.core.log.marks import LOG_TIME_RULES, InputIdentity, Mark, ResumePoint
from stream_learner.errors import InputsChanged, TopicRecreated
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.roles.joiner.inputs import InputPlan
from stream_learner.roles.joiner.log_beginning import LogBeginning, StartRule
from stream_learner.roles.joiner.log_tail import GO_ON_GROWN
from stream_learner.roles.joiner.made_with import MadeWith
from stream_learner.wording import count_of

MAX_LETTER_BYTES = 8 << 20
"""A longer dead record is cut to this length; the header `value_bytes` of its letter then tells the whole length."""
DESCRIBED = {
    "join": "join (window, skew, tick, dedupe, keep_negatives, lateness or agree)",
    "input.impressions": "input.impressions (its fields, input.time_unit, join.max_event_bytes or join.max_skew)",
    "input.clicks": "input.clicks (its fields, input.time_unit, join.max_event_bytes or join.max_skew)",
}
"""Sections, with the settings that they stand for where nobody knows which of them differ."""


def _new_attempt_id() -> int:
    return secrets.randbelow(2**64 - 1) + 1


@dataclass(frozen=True)
class PartitionPlan:
    """Clients, topics and settings of a joiner.

    made_from: the input topics as resume points name them. record_bytes: the longest record of the training log.
    letter_bytes: the longest value of a dead letter. resume_within_s: the age at which a resume point is written
    whatever it costs. until_tick: the last tick to make, None for no end. clock_s: monotonic. new_attempt_id: u64,
    random, never 0. bound: on the rows of each field, None for none. unusable: counts the foreign records of the
    training log; None where nobody asks for their number. log_id: as of `Hint`. begins_again: says once
    that the log begins again with the settings of now; None where it never does. made_with: None where nobody asks
    which settings differ.
    """

    settings: KafkaSettings
    queries: OffsetQueries
    appender: Appender
    ends: EndWatch
    inputs: InputPlan
    spec: JoinSpec
    log_topic: str
    dead_letters_topic: str
    start: StartRule
    beginning: LogBeginning
    made_from: InputIdentity
    record_bytes: int
    resume_within_s: float
    log: Logger
    until_tick: int | None = None
    clock_s: Callable[[], float] = time.monotonic
    new_attempt_id: Callable[[], int] = _new_attempt_id
    letter_bytes: int = MAX_LETTER_BYTES
    unusable: UnusableRecords | None = None
    bound: FieldBound | None = None
    log_id: str = ""
    begins_again: Episode | None = None
    made_with: MadeWith | None = None

    @property
    def coupled(self) -> bool:
        """Whether ticks and stream time are always one: no clock closes windows, or they end with `until_tick`."""
        return self.until_tick is not None or self.inputs.clock is None

    @property
    def partitions(self) -> int:
        """The number of partitions of each input topic."""
        return self.made_from.partitions

    def log_partition(self, partition: int) -> str:
        """A partition of the training log as messages name it."""
        return f"{self.log_topic} partition {partition}"


def check_resume_point(plan: PartitionPlan, mark: Mark | None) -> None:
    """Compare the last resume point of a partition with what this joiner joins; None where there is none.

    Raises InputsChanged, TopicRecreated.
    """
    if mark is None or mark.resume is None:
        return
    where = plan.log_partition(mark.partition)
    _check_rules(where, mark.resume)
    _check_settings(plan, where, mark, mark.resume)
    _check_partition_count(plan, where, mark.resume)
    _check_topic_ids(plan, where, mark.resume)


def fits(plan: PartitionPlan, mark: Mark) -> bool:
    """Whether `check_resume_point` lets a mark pass."""
    try:
        check_resume_point(plan, mark)
    except (InputsChanged, TopicRecreated):
        return False
    return True


def _check_rules(where: str, point: ResumePoint) -> None:
    if point.rules < LOG_TIME_RULES:
        raise InputsChanged(
            f"{where} was made by an earlier version, whose rules of the join (before log time took agreement) "
            "make other examples"
        )


def _check_settings(plan: PartitionPlan, where: str, mark: Mark, point: ResumePoint) -> None:
    inputs, mine = point.inputs, plan.made_from
    sections = (
        ("join", point.join_fingerprint, plan.spec.fingerprint),
        ("input.impressions", inputs.impressions_fingerprint, mine.impressions_fingerprint),
        ("input.clicks", inputs.clicks_fingerprint, mine.clicks_fingerprint),
        ("features", mark.features, plan.inputs.impression_decoder.features.fingerprint),
    )
    differing = {section: then for section, then, now in sections if then != now}
    if not differing:
        return
    rule = plan.inputs.impression_decoder.features.rule_of(mark.features)
    if list(differing) == ["features"] and rule is not None:
        raise InputsChanged(
            f"{where} was made with features.key_rule {rule}",
            action=f"Set features.key_rule to {rule}: a training log keeps the rule that it began with.",
        )
    which = plan.made_with.differences(differing) if plan.made_with is not None else []
    names = ", ".join(section if which else DESCRIBED.get(section, section) for section in differing)
    details = f" ({'; '.join(which)})" if which else ""
    raise InputsChanged(f"{where} was made with other settings of {names}{details}")


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
            raise TopicRecreated(
                f"{topic} is not the topic that {where} was made from, by its id: it was made anew, or a model of "
                "other topics has this name"
            )
