"""Answers of an admin client that never come: whoever waits for one is told so."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from stream_learner.edges.kafka import Admin, KafkaSettings, OffsetQueries, answers
from stream_learner.errors import BrokerUnreachable
from tests.edges.kafka_help import without_waiting

REQUEST_S = 0.2


@pytest.fixture(autouse=True)
def _answers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "GRACE_S", 0.1)
    for module, asked in (("admin", "topic"), ("ends", ("topic", 0))):
        monkeypatch.setattr(f"stream_learner.edges.kafka.{module}.Answers", lambda *_, key=asked: {key: Future()})


def test_nobody_waits_for_good_for_an_answer_that_is_lost(kafka: str) -> None:
    """After the time-out of the request, and a moment more, it counts as brokers that cannot be reached."""
    settings = KafkaSettings({"bootstrap.servers": kafka})
    with pytest.raises(BrokerUnreachable, match=r"topic.*no answer"):
        without_waiting(lambda: Admin(settings, request_timeout_s=REQUEST_S).describe(["topic"]))
    with pytest.raises(BrokerUnreachable, match=r"topic.*no answer"):
        without_waiting(lambda: OffsetQueries(settings, request_timeout_s=REQUEST_S).high_watermarks([("topic", 0)]))
