"""Answers of an admin client that never come: the caller gets an error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings, OffsetQueries
from stream_learner.adapters.kafka import clients as answers
from stream_learner.errors import BrokerUnreachable
from tests.adapters.kafka.kafka_help import until, without_waiting
from tests.conftest import MakeTopic

REQUEST_S = 0.2


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Give a module's questions an answer under this key that never comes."""
    monkeypatch.setattr(answers, "GRACE_S", 0.1)

    def lost(module: str, key: Any) -> None:
        monkeypatch.setattr(f"stream_learner.adapters.kafka.{module}.PendingAnswers", lambda *_: {key: Future()})

    return lost


def test_nobody_waits_for_good_for_an_answer_that_is_lost(kafka: str, lose: Callable[[str, Any], None]) -> None:
    """After the time-out of the request, and a moment more, it counts as brokers that cannot be reached."""
    settings = KafkaSettings({"bootstrap.servers": kafka})
    for module in ("admin", "leaders"):
        lose(module, "topic")
    with pytest.raises(BrokerUnreachable, match=r"topic.*no answer"):
        without_waiting(lambda: Admin(settings, request_timeout_s=REQUEST_S).describe(["topic"]))
    with pytest.raises(BrokerUnreachable, match=r"topic.*no answer"):
        without_waiting(lambda: OffsetQueries(settings, request_timeout_s=REQUEST_S).high_watermarks([("topic", 0)]))


def test_nobody_waits_for_good_for_an_offset_that_is_lost(
    kafka: str, topics: MakeTopic, lose: Callable[[str, Any], None]
) -> None:
    """The request for an offset ends likewise, although the leader was known."""
    place = (topics("lost"), 0)
    queries = OffsetQueries(KafkaSettings({"bootstrap.servers": kafka}), request_timeout_s=1.0)
    until(lambda: queries.high_watermarks_known([place])[0])
    lose("ends", place)
    with pytest.raises(BrokerUnreachable, match=rf"{place[0]}.*no answer"):
        without_waiting(lambda: queries.high_watermarks([place]))
