"""What the server of predictions logs of requests and connections: little, and not of each."""

from __future__ import annotations

from structlog.testing import capture_logs

from stream_learner.adapters.http.gate import SlowAnswers
from stream_learner.adapters.prediction_server import CutConnections
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics


def test_slow_answers_are_said_once_and_their_end_too() -> None:
    """More than ten of a thousand that take longer than a quarter of a second."""
    slow = SlowAnswers(get_logger("serve"))
    with capture_logs() as logged:
        for of_a_thousand in (10, 11, 500, 0, 10, 1_000):
            for number in range(1_000):
                slow.note(0.26 if number < of_a_thousand else 0.25)
    assert [(line["event"], line["share"]) for line in logged] == [
        ("answers_slow", 0.011),
        ("answers_slow_no_more", 0.0),
        ("answers_slow", 1.0),
    ]


def test_connections_that_are_cut_are_all_counted_and_said_once_a_minute() -> None:
    """Where there were too many; a client that is too slow is its own affair."""
    now_s, metrics = [0.0], Metrics("m")
    cut = CutConnections(metrics, 7, clock_s=lambda: now_s[0])
    with capture_logs() as logged:
        for at_s in (0, 1, 60, 61, 62):
            now_s[0] = float(at_s)
            cut.note("too_many")
            cut.note("too_slow")
    assert [(line["event"], line["most"]) for line in logged] == [("connections_cut", 7)] * 2
    text = metrics.text().decode()
    assert 'stream_learner_serve_connections_cut_total{model="m",reason="too_many"} 5.0' in text
    assert 'stream_learner_serve_connections_cut_total{model="m",reason="too_slow"} 5.0' in text
