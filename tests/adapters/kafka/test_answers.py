"""Answers of an admin client that never come: the caller gets an error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.adapters.kafka import clients as answers
from stream_learner.errors import BrokerUnreachable
from tests.adapters.kafka.kafka_help import without_waiting

REQUEST_S = 0.2


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give questions an answer under this key that never comes."""
    monkeypatch.setattr(answers, "GRACE_S", 0.1)

    def lost(key: str) -> None:
        monkeypatch.setattr("stream_learner.adapters.kafka.admin.PendingAnswers", lambda *_: {key: Future()})

    return lost


def test_nobody_waits_for_good_for_an_answer_that_is_lost(kafka: str, lose: Callable[[str], None]) -> None:
    """After the time-out of the request, and a moment more, it counts as brokers that cannot be reached."""
    settings = KafkaSettings({"bootstrap.servers": kafka})
    lose("topic")
    with pytest.raises(BrokerUnreachable, match=r"topic.*no answer"):
        without_waiting(lambda: Admin(settings, request_timeout_s=REQUEST_S).describe(["topic"]))
