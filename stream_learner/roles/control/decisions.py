"""The operators' decisions on a training log and the rewinds of a model, for whoever folds the log again without
judging it, and compares what was published.

A decision takes effect at the first tick with examples that it covers, whatever a gate said of the tick. So the bounds
are not needed to learn again what was learned.
"""

from __future__ import annotations

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.core.control.rewinds import Span
from stream_learner.core.gate.decisions import Decision, Decisions, decisions_digest
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.errors import TopicMissing
from stream_learner.roles.control.topic import ControlTopic


def decisions_on(settings: KafkaSettings, control_topic: str, training_log: str, model: str) -> Decisions:
    """The decisions on a log as a model takes them: without those that are too late for it.

    None of a topic that is missing. Raises PartitionCountsDiffer, ConfigError, BrokerUnreachable, RetryLater,
    NotAuthorised, and DamagedLog or NewerFormat where a decision cannot be read.
    """
    try:
        control = ControlTopic(settings, control_topic)
    except TopicMissing:
        return Decisions()
    for key in control.state.unusable:
        if key.startswith(f"decision/{training_log}/".encode()):
            control.check(key)
    late = control.state.late_on(training_log, model)
    return Decisions(one for one in control.state.decisions_of(training_log) if one.id not in late)


class DecidedTicks:
    """The ticks that are left out of one fold of a log. Ticks are asked for in the order of the fold."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._applied: dict[str, Decision] = {}

    def leaves_out(self, accepted: AcceptedTick) -> bool:
        """Whether the examples of the next tick are left out."""
        decision = self._decisions.at(accepted.mark.last_tick) if accepted.records else None
        if decision is None:
            return False
        self._applied[decision.id] = decision
        return decision.what == "skip"

    @property
    def digest(self) -> int:
        """The digest of the decisions that took effect so far, as a learner's digest covers it; 0 for none."""
        return decisions_digest(self._applied.values())


def rewinds_of(settings: KafkaSettings, control_topic: str, model: str) -> tuple[Span, ...]:
    """The spans that a model was taken back over; none of a topic that is missing.

    Raises what reading the topic raises, and DamagedLog or NewerFormat where the record cannot be read.
    """
    try:
        control = ControlTopic(settings, control_topic)
    except TopicMissing:
        return ()
    control.check(b"rewind/" + model.encode())
    found = control.state.rewinds.get(model)
    return () if found is None else found.spans
