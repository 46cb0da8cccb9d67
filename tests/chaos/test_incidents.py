"""Incidents: their traffic, the load that must see every failure, and two of them on a broker of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from proofs.chaos.incidents.catalogue import INCIDENTS, Incident
from proofs.chaos.incidents.load import Load
from proofs.chaos.incidents.run import row_of, run_incident
from proofs.chaos.incidents.traffic import Event, Traffic, usual
from tests.kafka_broker.broker import Broker
from tests.suite.share import cases
from tests.waiting import wait_until

BY_NAME = {incident.name: incident for incident in INCIDENTS}


def outside(traffic: Traffic, events: list[Event]) -> list[Event]:
    """The events that do not lie in the span of the incident."""
    return [event for event in events if not traffic.within(event)]


@pytest.fixture(scope="module")
def sound() -> Traffic:
    """Traffic without an incident."""
    return usual(3)


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_an_incident_changes_its_own_span_only(incident: Incident, sound: Traffic) -> None:
    """The history, and what comes after it, are those of sound traffic; late clicks come after it besides."""
    spoiled = usual(3)
    incident.spoil(spoiled)
    assert outside(spoiled, spoiled.impressions) == outside(sound, sound.impressions)
    clicks, known = outside(spoiled, spoiled.clicks), {click.id for click in sound.clicks if sound.within(click)}
    late = [click for click in clicks if click.id in known]
    assert [click for click in clicks if click not in late] == outside(sound, sound.clicks)
    assert bool(late) == (incident.name == "clicks-an-hour-late")


def test_traffic_is_a_function_of_its_seed(sound: Traffic) -> None:
    """The same events again, others with another seed."""
    assert (usual(3).impressions, usual(3).clicks) == (sound.impressions, sound.clicks)
    assert usual(4).clicks != sound.clicks


class Answers(BaseHTTPRequestHandler):
    """Answers with what stands in `status` and `p`."""

    status, p = 200, 0.5

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        told = json.dumps({"predictions": [self.p], "model_version": "7", "version_age_s": 1}).encode()
        self.send_response(self.status)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    """A server with `Answers`."""
    monkeypatch.setattr(Answers, "status", 200)
    monkeypatch.setattr(Answers, "p", 0.5)
    with HTTPServer(("127.0.0.1", 0), Answers) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_the_load_sees_every_failure_and_how_far_predictions_go(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is not 200 is a failure, one that cannot be had too; odds of 0.9 are nine times those of 0.5."""
    load = Load(server.server_port, "m", [b"{}"])
    load.start()
    try:
        wait_until(lambda: load.version == 7)
        load.bound()
        assert load.failed == 0 and load.widest == 1
        monkeypatch.setattr(Answers, "p", 0.9)
        wait_until(lambda: load.widest > 8.9)
        monkeypatch.setattr(Answers, "p", 0.5)
        monkeypatch.setattr(Answers, "status", 503)
        wait_until(lambda: load.failed > 1)
        assert "503" in load.failures[0] and load.widest == pytest.approx(9)
    finally:
        load.stop()
    nobody = Load(1, "m", [b"{}"])
    nobody.start()
    wait_until(lambda: nobody.failed > 0)
    nobody.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("name", cases(["dead-clicks", "junk-in-the-log"], ["dead-clicks"], "nightly"))
def test_an_incident_is_sound(name: str) -> None:
    """No request fails, the reaction is seen, the digest is the oracle's."""
    with Broker() as broker:
        result = run_incident(BY_NAME[name], broker, seed=1)
    assert not result["problems"]
    assert result["requests"] > 0 == result["failed"]
    assert row_of(result).startswith(f"| {name} | ")
