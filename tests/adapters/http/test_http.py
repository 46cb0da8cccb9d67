"""`/metrics`, `/healthz` and `/readyz` over real HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from stream_learner.adapters.http.thread import TelemetryServer
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import PortInUse
from tests.waiting import patience


class Role:
    """A role whose answers the test decides."""

    def __init__(self) -> None:
        self.healthy = (True, "turning")
        self.is_ready = (False, "loading")

    def health(self) -> tuple[bool, str]:
        return self.healthy

    def ready(self) -> tuple[bool, str]:
        return self.is_ready


@pytest.fixture
def role() -> Role:
    return Role()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("ctr")


@pytest.fixture
def url(role: Role, metrics: Metrics) -> Iterator[str]:
    with TelemetryServer("127.0.0.1", 0, metrics=metrics, health=role.health, ready=role.ready) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_metrics_are_served_in_prometheus_text(url: str, metrics: Metrics) -> None:
    """What was counted appears at once, with the right content type."""
    metrics.inc(names.LEARNER_EXAMPLES, 3)
    answer = httpx.get(f"{url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'stream_learner_learner_examples_total{model="ctr"} 3.0' in answer.text
    assert "process_resident_memory_bytes" in answer.text


def test_health_and_readiness_are_different_questions(url: str, role: Role) -> None:
    """A role that loads is healthy and not ready; each answer carries its reason."""
    assert (httpx.get(f"{url}/healthz").status_code, httpx.get(f"{url}/healthz").text) == (200, "turning\n")
    assert (httpx.get(f"{url}/readyz").status_code, httpx.get(f"{url}/readyz").text) == (503, "loading\n")
    role.is_ready, role.healthy = (True, "version 7"), (False, "no turn for 60 s")
    assert httpx.get(f"{url}/readyz").status_code == 200
    assert httpx.get(f"{url}/healthz").status_code == 503


def test_a_check_that_fails_is_a_no(metrics: Metrics) -> None:
    """A check that raises answers 503 and names the error's class, not its text."""

    def broken() -> tuple[bool, str]:
        raise OSError("secret")

    with TelemetryServer("127.0.0.1", 0, metrics=metrics, health=broken, ready=broken) as server:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/readyz")
    assert answer.status_code == 503
    assert answer.text == "the check failed: OSError\n"


def test_other_paths_and_methods_are_refused(url: str) -> None:
    """Other paths give 404, other methods 405."""
    assert httpx.get(f"{url}/").status_code == 404
    assert httpx.post(f"{url}/metrics").status_code == 405


def test_a_slow_check_does_not_hold_up_others(metrics: Metrics) -> None:
    """While one check takes its time, metrics are served."""
    asked, release = threading.Event(), threading.Event()

    def slow() -> tuple[bool, str]:
        asked.set()
        return release.wait(2 * patience()), "released"

    with TelemetryServer("127.0.0.1", 0, metrics=metrics, health=slow, ready=slow) as server:
        base = f"http://127.0.0.1:{server.port}"
        waiting = threading.Thread(target=lambda: httpx.get(f"{base}/healthz", timeout=3 * patience()))
        waiting.start()
        assert asked.wait(patience())
        assert httpx.get(f"{base}/metrics", timeout=patience()).status_code == 200
        release.set()
        waiting.join()


def test_a_port_in_use_is_named(metrics: Metrics, role: Role) -> None:
    """The error names host and port, before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1 port {port}"):
            TelemetryServer("127.0.0.1", port, metrics=metrics, health=role.health, ready=role.ready)


def test_closing_frees_the_port_and_ends_the_thread(metrics: Metrics, role: Role) -> None:
    """After close the port can be taken again, nothing runs on; closing twice is harmless."""
    server = TelemetryServer("127.0.0.1", 0, metrics=metrics, health=role.health, ready=role.ready).start()
    assert httpx.get(f"http://127.0.0.1:{server.port}/healthz").status_code == 200
    server.close()
    server.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "telemetry-http"]
    socket.create_server(("127.0.0.1", server.port)).close()


def test_a_server_that_was_never_started_can_be_closed(metrics: Metrics, role: Role) -> None:
    """Closing without start frees the port."""
    server = TelemetryServer("127.0.0.1", 0, metrics=metrics, health=role.health, ready=role.ready)
    server.close()
    socket.create_server(("127.0.0.1", server.port)).close()
