"""Clients that mean harm, many at a time: others are answered meanwhile. Each limit is lowered by its setting."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import httpx
import pytest

from stream_learner.adapters.http import thread as http_thread
from stream_learner.adapters.http.executor import INLINE_BYTES
from stream_learner.adapters.http.thread import listen
from stream_learner.roles.common.lifecycle import Stopping
from stream_learner.roles.scorer.serve import workers
from stream_learner.roles.scorer.serve.served_name import ServedName
from stream_learner.roles.scorer.serve.workers import Workers
from tests.cli_e2e.published import Published
from tests.cli_e2e.scraped import answer
from tests.cli_e2e.world import free_port
from tests.roles.scorer.serve.clients import Gate, answers, connect, error_of, head, read_all, status_of
from tests.roles.scorer.serve.running import Server, children, config_of, serving
from tests.waiting import patience, wait_until

KIB = 1 << 10


def value(server: Server, metric: str) -> float:
    """The value of a metric that has no labels but the model."""
    found = re.search(rf'{metric}\{{model="{server.model}"[^}}]*\}} (\S+)', server.metrics())
    assert found is not None, metric
    return float(found[1])


@contextmanager
def clients_of(server: Server, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many clients who have sent the same."""
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(connect(server))) for _ in range(count)]
        for client in clients:
            client.sendall(sent)
        yield clients


def hold_predictions(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Let predictions go through a gate."""
    predict = ServedName.predict_json
    monkeypatch.setattr(ServedName, "predict_json", lambda *given: gate.through(partial(predict, *given)))


def listens(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=patience()).close()
    except ConnectionRefusedError:
        return False
    return True


def test_slow_bodies_do_not_take_the_places_of_others(published: Published) -> None:
    """Fifty requests that have sent a tenth of their body, where two may be worked on at once."""
    with serving(config_of(published.world, max_concurrency=2, request_timeout="1m")) as server:
        with clients_of(server, 50, head(server, "Content-Length: 1000") + b" " * 100):
            wait_until(lambda: value(server, "serve_receiving") == 50)
            assert all(answers(server) for _ in range(5))
            assert value(server, "serve_body_bytes") == 50 * 100
        wait_until(lambda: (value(server, "serve_receiving"), value(server, "serve_body_bytes")) == (0, 0))


def test_more_requests_at_once_than_allowed_are_told_to_come_back(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 with Retry-After for as long as the others take; probes are answered all the while."""
    gate = Gate()
    with serving(config_of(published.world, max_concurrency=2, request_timeout=f"{patience():.0f}s")) as server:
        hold_predictions(monkeypatch, gate)
        body = b'{"instances": [{}]' + b" " * INLINE_BYTES + b"}"
        with gate.shut(), clients_of(server, 2, head(server, f"Content-Length: {len(body)}") + body) as clients:
            wait_until(lambda: gate.held == 2 and value(server, "serve_in_flight") == 2)
            url = f"{server.url}/v1/models/{server.model}:predict"
            found = httpx.post(url, json={"instances": []}, timeout=patience())
            assert (found.status_code, found.headers["retry-after"]) == (503, "1") and "at once" in found.text
            assert httpx.get(f"{server.url}/v2/health/live").status_code == 200
            assert httpx.get(f"{server.url}/readyz").status_code == 200
            gate.open()
            assert [status_of(client.recv(65_536)) for client in clients] == [200, 200]
        assert answers(server)


def test_large_bodies_take_memory_from_each_other_only(published: Published) -> None:
    """Forty clients with most of 64 KiB each, where 256 KiB may be held: the largest give way, small ones do not."""
    sizes = {"max_body": "64KiB", "body_memory": "256KiB", "request_timeout": "1m"}
    with serving(config_of(published.world, **sizes)) as server:
        sent = head(server, f"Content-Length: {60 * KIB}") + b" " * (50 * KIB)
        with clients_of(server, 40, sent) as clients:
            for _ in range(5):
                assert answers(server)
                assert value(server, "serve_body_bytes") <= 256 * KIB
            wait_until(lambda: value(server, "serve_receiving") <= 5)
            for client in clients:
                client.setblocking(False)
            refused = [answer for client in clients if (answer := received(client))]
            assert len(refused) >= 35
            assert all(status_of(answer) == 503 and "serve.body_memory" in error_of(answer) for answer in refused)
            assert all(b"retry-after: 1" in answer and b"connection: close" in answer for answer in refused)
            fits = b'{"instances": []' + b" " * (30 * KIB) + b"}"
            found = httpx.post(f"{server.url}/v1/models/{server.model}:predict", content=fits, timeout=patience())
            assert found.status_code == 200
        wait_until(lambda: (value(server, "serve_receiving"), value(server, "serve_body_bytes")) == (0, 0))


def received(client: socket.socket) -> bytes:
    """What has come for a client until now."""
    try:
        return client.recv(65_536)
    except BlockingIOError:
        return b""


def test_a_body_that_is_only_announced_takes_no_memory(published: Published) -> None:
    """Thousands of times the limit, announced and not sent."""
    sizes = {"max_body": "64KiB", "body_memory": "64KiB", "request_timeout": "1m"}
    with (
        serving(config_of(published.world, **sizes)) as server,
        clients_of(server, 40, head(server, f"Content-Length: {64 * KIB}")),
    ):
        wait_until(lambda: value(server, "serve_receiving") == 40)
        assert value(server, "serve_body_bytes") == 0
        fits = b'{"instances": []' + b" " * (60 * KIB) + b"}"
        found = httpx.post(f"{server.url}/v1/models/{server.model}:predict", content=fits, timeout=patience())
        assert found.status_code == 200


@pytest.mark.parametrize(
    "sent",
    [b"POST /v1/mo", b"", b"POST /v1/models/NAME:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
    ids=["half a head", "nothing", "half a body"],
)
def test_who_holds_all_connections_loses_them_to_whoever_asks(
    published: Published, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """The one that has been waited for longest is closed first."""
    monkeypatch.setattr("stream_learner.adapters.prediction_server.allow_connections", lambda wanted: 20)
    with (
        serving(config_of(published.world, request_timeout="1m")) as server,
        clients_of(server, 60, sent.replace(b"NAME", server.model.encode())) as clients,
    ):
        assert all(answers(server) for _ in range(5))
        assert read_all(clients[0]) == read_all(clients[30]) == b""
        assert value(server, "serve_connections") <= 20
        assert value(server, "serve_connections_cut_total") >= 40
        clients[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            clients[-1].recv(1)


def test_a_body_that_is_not_wanted_cannot_be_sent_forever(published: Published) -> None:
    """A request that was answered before its body was complete: what is left of it must come in time."""
    with serving(config_of(published.world, request_timeout="500ms")) as server, closing(connect(server)) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert status_of(client.recv(65_536)) == 200
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            wait_until(partial(client.sendall, b"a"), "the client is cut off", look_s=0.05)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (b"GET /v2 HTTP/1.1\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\nhost: b\r\n", 400),
        (b"GET /v2 HTTP/1.0\r\nHost: a\r\nHost: a\r\n", 400),
        (b"GET /v2 HTTP/1.0\r\n", 200),
        (b"GET /v2 HTTP/1.1\r\nHOST: a\r\nConnection: close\r\n", 200),
        (b"GET /v2 HTTP/1.1\r\nHost:\r\nConnection: close\r\n", 200),
    ],
)
def test_a_request_names_one_host(server: Server, lines: bytes, code: int) -> None:
    """RFC 9112, section 3.2: 400 without, in HTTP/1.1, and 400 with several."""
    with closing(connect(server)) as client:
        client.sendall(lines + b"\r\n")
        answer = read_all(client)
    assert status_of(answer) == code
    assert code == 200 or "Host" in error_of(answer)


def test_who_has_connected_is_answered_when_the_server_stops(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that the system has accepted and the server has not, because its loop was busy; and one that the server
    has accepted and that has not asked yet."""
    monkeypatch.setattr("stream_learner.adapters.http.connection.LAST_S", patience())
    gate = Gate()
    with serving(config_of(published.world, request_timeout=f"{patience():.0f}s"), telemetry=True) as server:
        body = b'{"instances": [{"site": "a"}]}'
        request = head(server, f"Content-Length: {len(body)}") + body
        with closing(connect(server)) as silent:
            wait_until(lambda: value(server, "serve_connections") >= 1)
            assert answers(server)
            hold_predictions(monkeypatch, gate)
            with gate.shut(), clients_of(server, 1, request) as (first,):
                wait_until(lambda: gate.held == 1)
                with clients_of(server, 30, request) as waiting:
                    server.stopping()
                    wait_until(lambda: not listens(server.telemetry_port))
                    gate.open()
                    for client in (first, *waiting):
                        answer = read_all(client)
                        assert status_of(answer) == 200 and b"connection: close" in answer
            silent.sendall(request)
            answer = read_all(silent)
            assert status_of(answer) == 200 and b"connection: close" in answer


def test_who_connects_at_the_last_moment_is_answered(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that the system accepts after the last turn of the loop in which the server listens."""
    body = b'{"instances": [{"site": "a"}]}'
    clients: list[socket.socket] = []
    accept = http_thread._accept_waiting

    def late(listening: socket.socket) -> Iterator[socket.socket]:
        for _ in range(30):
            clients.append(socket.create_connection(listening.getsockname(), timeout=patience()))
            clients[-1].sendall(head(server, f"Content-Length: {len(body)}") + body)
        yield from accept(listening)

    monkeypatch.setattr(http_thread, "_accept_waiting", late)
    with serving(config_of(published.world)) as server:
        server.stopping()
    for client in clients:
        with closing(client):
            answer = read_all(client)
        assert status_of(answer) == 200 and b"connection: close" in answer
    assert len(clients) == 30


def test_a_loop_that_hangs_is_not_live(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """The telemetry port says so, from a thread of its own, and takes it back when the loop turns again."""
    monkeypatch.setattr("stream_learner.roles.scorer.serve.process.LOOP_LIMIT_S", 0.5)
    monkeypatch.setattr("stream_learner.adapters.http.thread._TURN_S", 0.1)
    gate = Gate()

    def health() -> tuple[int, str]:
        found = httpx.get(f"http://127.0.0.1:{server.telemetry_port}/healthz", timeout=patience())
        return found.status_code, found.text

    with serving(config_of(published.world, request_timeout=f"{patience():.0f}s"), telemetry=True) as server:
        wait_until(lambda: health() == (200, "ok\n"))
        hold_predictions(monkeypatch, gate)
        body = b'{"instances": [{"site": "a"}]}'
        with gate.shut(), clients_of(server, 1, head(server, f"Content-Length: {len(body)}") + body) as (client,):
            wait_until(lambda: health()[0] == 503)
            assert "event loop" in health()[1] and value(server, "serve_loop_silent_seconds") > 0.5
            gate.open()
            assert status_of(client.recv(65_536)) == 200
        wait_until(lambda: health() == (200, "ok\n"))


@pytest.mark.thorough
def test_a_worker_that_hangs_is_replaced(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped in its tracks: it is neither live nor ended. The other one goes on."""
    monkeypatch.setattr(workers, "LOOK_S", 0.2)
    monkeypatch.setattr(workers, "ASK_S", 1.0)
    port = free_port()
    config = config_of(published.world, workers=2).with_values({("telemetry", "http_port"): port})
    running, stopping = Workers(config, listen("127.0.0.1", 0, 64), wait=True), Stopping()
    thread = threading.Thread(target=running.run, args=(stopping,))
    thread.start()

    def processes() -> set[int]:
        return {pid for pid, line in children(os.getpid()).items() if "roles.scorer.serve.workers" in line}

    def is_ready() -> bool:
        return listens(port) and answer(port, "/readyz")[0] == 200

    try:
        wait_until(is_ready)
        first = processes()
        os.kill(min(first), signal.SIGSTOP)
        wait_until(lambda: min(first) not in processes())
        wait_until(is_ready)
        assert len(processes()) == 2 and max(first) in processes()
        assert answer(port, "/healthz") == (200, "ok\n")
    finally:
        stopping.set()
        thread.join(patience())
    assert not thread.is_alive()
