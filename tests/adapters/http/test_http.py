"""`/metrics`, `/healthz` and `/readyz` over real HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from stream_learner.adapters.http.thread import CONNECTIONS, READINGS, TelemetryServer
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config.references import FromFile
from stream_learner.errors import ConfigError, PortInUse
from tests.waiting import patience, wait_until


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


def connect(port: int, sent: bytes) -> socket.socket:
    """A client that has sent some bytes."""
    client = socket.create_connection(("127.0.0.1", port), timeout=patience())
    client.sendall(sent)
    return client


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHo", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_many_connections_hold_neither_files_nor_answers(metrics: Metrics, role: Role, sent: bytes) -> None:
    """Three times as many as may be open: the first ones are closed, and whoever asks is answered."""
    with ExitStack() as stack:
        server = stack.enter_context(
            TelemetryServer("127.0.0.1", 0, metrics=metrics, health=role.health, ready=role.ready, request_s=600.0)
        )
        before = open_files()
        clients = [stack.enter_context(closing(connect(server.port, sent))) for _ in range(3 * CONNECTIONS)]
        for path, code in (("healthz", 200), ("readyz", 503), ("metrics", 200)):
            assert httpx.get(f"http://127.0.0.1:{server.port}/{path}", timeout=patience()).status_code == code
        assert is_closed(clients[0]) and is_closed(clients[CONNECTIONS])
        assert open_files() - before <= len(clients) + CONNECTIONS + 5


def open_files() -> int:
    """How many files this process has open, those of the clients included."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed a connection."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /met",
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_a_client_that_stops_is_cut_off(metrics: Metrics, role: Role, sent: bytes) -> None:
    """In the head, or in a body that nobody wants."""
    with (
        TelemetryServer("127.0.0.1", 0, metrics=metrics, health=role.health, ready=role.ready, request_s=0.3) as server,
        closing(connect(server.port, sent)) as client,
    ):
        while not is_closed(client):
            pass


def test_the_metrics_are_read_a_few_times_at_once(role: Role) -> None:
    """Further readers are told to come back; probes are answered all the while."""
    reading, release = threading.Semaphore(0), threading.Event()

    class Slow:
        def text(self) -> bytes:
            reading.release()
            release.wait(2 * patience())
            return b"x 1\n"

    with TelemetryServer("127.0.0.1", 0, metrics=Slow(), health=role.health, ready=role.ready) as server:
        base = f"http://127.0.0.1:{server.port}"
        with ThreadPoolExecutor(READINGS) as pool:
            first = [pool.submit(httpx.get, f"{base}/metrics", timeout=3 * patience()) for _ in range(READINGS)]
            assert all(reading.acquire(timeout=patience()) for _ in range(READINGS))
            found = httpx.get(f"{base}/metrics", timeout=patience())
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert httpx.get(f"{base}/healthz", timeout=patience()).status_code == 200
            release.set()
            assert {answer.result().status_code for answer in first} == {200}
        assert httpx.get(f"{base}/metrics", timeout=patience()).status_code == 200


def test_a_token_guards_the_metrics_and_the_reasons(metrics: Metrics, role: Role, tmp_path: Path) -> None:
    """Probes need none, and learn no more than yes or no; each line of the file is a token; a changed file counts."""
    file = tmp_path / "token"
    file.write_text("first\r\n\n  second \n")
    token = FromFile(file=str(file))
    with TelemetryServer("127.0.0.1", 0, metrics=metrics, health=role.health, ready=role.ready, token=token) as server:

        def ask(path: str, given: str = "") -> tuple[int, str]:
            headers = {"authorization": given} if given else {}
            found = httpx.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, timeout=patience())
            return found.status_code, found.text

        for given in ("", "first", "Basic first", "Bearer", "Bearer first second", "Bearer third"):
            assert ask("/metrics", given) == (401, "a bearer token is needed\n")
        assert ask("/metrics", "Bearer first")[0] == ask("/metrics", "bearer second")[0] == 200
        assert ask("/healthz") == (200, "ok\n") and ask("/readyz") == (503, "no\n")
        assert ask("/readyz", "Bearer second") == (503, "loading\n")
        file.write_text("second\nthird\n")
        wait_until(lambda: ask("/metrics", "Bearer third")[0] == 200)
        assert ask("/metrics", "Bearer first")[0] == 401 and ask("/metrics", "Bearer second")[0] == 200


def test_a_token_that_cannot_be_read_is_an_error(metrics: Metrics, role: Role, tmp_path: Path) -> None:
    """Before anything listens."""
    (tmp_path / "empty").write_text("\n \n")
    for name in ("empty", "nowhere"):
        with pytest.raises(ConfigError, match=r"^telemetry\.token: "):
            TelemetryServer(
                "127.0.0.1",
                0,
                metrics=metrics,
                health=role.health,
                ready=role.ready,
                token=FromFile(file=str(tmp_path / name)),
            )


def test_a_request_names_its_host(url: str) -> None:
    """As HTTP/1.1 asks."""
    with closing(connect(int(url.rpartition(":")[2]), b"GET /healthz HTTP/1.1\r\n\r\n")) as client:
        assert client.recv(65_536).startswith(b"HTTP/1.1 400 ")


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
