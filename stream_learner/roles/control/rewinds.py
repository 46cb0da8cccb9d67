"""The rewinds of a model, for whoever compares what was published before them."""

from __future__ import annotations

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.core.control.rewinds import Span
from stream_learner.errors import TopicMissing
from stream_learner.roles.control.topic import ControlTopic


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
