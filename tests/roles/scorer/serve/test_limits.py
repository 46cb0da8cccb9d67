"""What a client may do: a slow, a huge, a greedy one is refused, and the others are answered."""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import httpx
import pytest

from tests.cli_e2e.published import Published
from tests.roles.scorer.serve.clients import answers, connect, error_of, head, read_all, status_of
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience, wait_until

MAX_BODY = 64 << 10
LIMITS = {"max_body": MAX_BODY, "max_instances": 100, "request_timeout": "500ms", "keep_alive": "1m"}


@pytest.fixture(scope="module")
def strict(published: Published) -> Iterator[Server]:
    """A server with tight limits."""
    with serving(config_of(published.world, **LIMITS)) as server:
        yield server


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"POST /v1/mo", None),
        (b"POST /v1/models/x:predict HTTP/1.1\r\nHost: x\r\n", None),
        (b"POST /v1/models/NAME:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", 408),
        (b"POST /v1/models/NAME:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408),
    ],
    ids=["in the first line", "in the headers", "in the body", "between chunks"],
)
def test_a_client_that_stops_is_cut_off(strict: Server, sent: bytes, code: int | None) -> None:
    """Wherever it stops, after the time that a request may take, not before; others do not notice."""
    began_s = time.monotonic()
    with closing(connect(strict)) as client:
        client.sendall(sent.replace(b"NAME", strict.model.encode()))
        assert answers(strict)
        answer = read_all(client)
    assert time.monotonic() - began_s > 0.4
    assert (status_of(answer) if answer else None) == code
    if answer:
        assert "did not arrive" in error_of(answer) and b"connection: close" in answer


def test_an_idle_connection_is_closed(published: Published) -> None:
    """After its time and not before, whether or not it has had an answer before."""
    with serving(config_of(published.world, keep_alive="1s")) as server:
        for sent in (b"", b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"):
            began_s = time.monotonic()
            with closing(connect(server)) as client:
                client.sendall(sent)
                assert (b"200 OK" in read_all(client)) == bool(sent)
            assert time.monotonic() - began_s > 0.9


def test_a_client_that_drips_is_cut_off(strict: Server) -> None:
    """A byte now and then does not begin its time anew: neither in the head nor in the body."""
    for sent, drop in ((b"", b"a"), (head(strict, "Content-Length: 1000"), b" ")):
        with closing(connect(strict)) as client:
            client.sendall(sent or b"POST /v1/x HTTP/1.1\r\nX: ")
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                wait_until(partial(client.sendall, drop), "the client is cut off", look_s=0.05)


@pytest.mark.parametrize("one", [b"x: y\r\n", b"x"], ids=["many", "one that does not end"])
def test_headers_behind_a_body_are_bounded(server: Server, one: bytes) -> None:
    """A client that goes on sending them is cut off; they are not kept."""
    began = head(server, "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n"
    with closing(connect(server)) as client:
        client.sendall(began)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(64):
                client.sendall(one * (1 << 16))
    assert answers(server)


def test_headers_behind_a_body_do_not_count(server: Server) -> None:
    """The body was said to be plain, and is read so."""
    body = b'{"instances": [{"site": "a"}]}'
    chunk = b"%x\r\n%s\r\n0\r\nContent-Encoding: br\r\n\r\n" % (len(body), body)
    with closing(connect(server)) as client:
        client.sendall(head(server, "Transfer-Encoding: chunked", "Connection: close") + chunk)
        assert status_of(read_all(client)) == 200


def test_requests_sent_ahead_of_the_answers_are_bounded(server: Server) -> None:
    """Some may be; of a client that sends them by the thousand no more is read."""
    one = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    with closing(connect(server)) as client:
        client.sendall(one * 100)
        found = b""
        while found.count(b"200 OK") < 100:
            found += client.recv(65_536)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(2_000):
                client.sendall(one * 1_000)


def test_where_too_many_are_connected_the_longest_idle_go(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many idle connections are closed as there are too many, also if all come at once."""
    monkeypatch.setattr("stream_learner.adapters.prediction_server.allow_connections", lambda wanted: 5)
    server = Server(config_of(published.world, keep_alive="1m"))
    clients = [connect(server) for _ in range(60)]
    server.start()
    try:
        for client in clients[:-5]:
            assert read_all(client) == b""
        clients[-1].sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 " in read_all(clients[-1])
    finally:
        for client in clients:
            client.close()
        server.stop()


def test_a_client_that_does_not_read_is_cut_off(strict: Server) -> None:
    """Its answers wait in the buffers of the network until those are full, and not longer than a request may take."""
    body = b'{"instances": [' + b",".join([b"{}"] * 100) + b"]}"
    request = head(strict, f"Content-Length: {len(body)}") + body
    with closing(connect(strict)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0.2)

        def send() -> None:
            try:
                client.sendall(request * 20)
            except TimeoutError:
                assert answers(strict)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            wait_until(send, "the client is cut off")


def test_a_head_that_is_too_long_is_refused(strict: Server) -> None:
    """431, before its end."""
    with closing(connect(strict)) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\n" + b"X: " + b"a" * 50_000)
        client.sendall(b"b" * 50_000)
        answer = read_all(client)
    assert status_of(answer) == 431 and "too long" in error_of(answer)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"GET / HTTP/9\r\n\r\n"])
def test_what_is_not_http_is_refused(strict: Server, sent: bytes) -> None:
    """400 in the same form as any error."""
    with closing(connect(strict)) as client:
        client.sendall(sent)
        answer = read_all(client)
    assert status_of(answer) == 400 and "HTTP" in error_of(answer)


def test_a_huge_body_is_refused_and_the_client_gets_to_read_why(strict: Server) -> None:
    """Announced or in chunks without end: 413, though the client is still sending."""
    url = f"{strict.url}/v1/models/{strict.model}:predict"
    with closing(connect(strict)) as client:
        client.sendall(head(strict, f"Content-Length: {8 << 20}") + b" " * (8 << 20))
        answer = read_all(client)
    assert status_of(answer) == 413 and "serve.max_body" in error_of(answer)
    found = httpx.post(url, content=(b" " * 10_000 for _ in range(800)), timeout=patience())
    assert found.status_code == 413 and found.headers["connection"] == "close"
    fits = b'{"instances": []' + b" " * (MAX_BODY - 17) + b"}"
    assert httpx.post(url, content=fits).status_code == 200
    assert httpx.post(url, content=b" " + fits).status_code == 413
    assert answers(strict)


def test_too_many_instances_are_refused(strict: Server) -> None:
    """In both protocols, with the number and the limit."""
    for path, body in (
        (f"/v1/models/{strict.model}:predict", {"instances": [{}] * 101}),
        (f"/v1/models/{strict.model}:predict", {"instances": ["{}"] * 101}),
        (
            f"/v2/models/{strict.model}/infer",
            {"inputs": [{"name": "events", "datatype": "BYTES", "shape": [101], "data": ["{}"] * 101}]},
        ),
    ):
        found = httpx.post(f"{strict.url}{path}", json=body)
        assert (found.status_code, found.json()) == (
            400,
            {"error": "101 instances are more than serve.max_instances, 100"},
        )


def test_a_gzip_bomb_is_refused(strict: Server) -> None:
    """A body that grows beyond the limit is never held: 256 MiB of spaces from 256 KiB, and a chain of such members."""
    url = f"{strict.url}/v1/models/{strict.model}:predict"
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(bomb.compress(b" " * (1 << 20)) for _ in range(60)) + bomb.flush()
    assert len(packed) < MAX_BODY
    found = httpx.post(url, content=packed, headers={"content-encoding": "gzip"}, timeout=patience())
    assert found.status_code == 413
    members = gzip.compress(b" " * 10_000) * 10
    assert httpx.post(url, content=members, headers={"content-encoding": "gzip"}).status_code == 413


def test_a_body_of_many_members_costs_what_its_bytes_do(published: Published) -> None:
    """Twice as many empty gzip members take twice as long, not four times: 800,000 are refused within the time."""
    members = gzip.compress(b"") * 800_000
    with serving(config_of(published.world, request_timeout=f"{patience(30.0):.0f}s")) as server:
        url = f"{server.url}/v1/models/{server.model}:predict"
        found = httpx.post(url, content=members, headers={"content-encoding": "gzip"}, timeout=patience())
    assert (found.status_code, found.json()["error"][:20]) == (400, "the body is not JSON")


@pytest.mark.parametrize(
    ("packed", "encoding", "code"),
    [
        (gzip.compress(b'{"instances": [{}]}'), "gzip", 200),
        (gzip.compress(b'{"instances"') + gzip.compress(b": [{}]}"), "GZIP", 200),
        (b'{"instances": [{}]}', "identity", 200),
        (gzip.compress(b'{"instances": [{}]}')[:-9], "gzip", 400),
        (b'{"instances": [{}]}', "gzip", 400),
        (b"", "gzip", 400),
        (b'{"instances": [{}]}', "br", 415),
    ],
    ids=["gzip", "two members", "identity", "cut short", "not gzip", "empty", "br"],
)
def test_a_body_may_be_gzip(strict: Server, packed: bytes, encoding: str, code: int) -> None:
    """Whole, or in members; what is damaged, or of another encoding, is refused."""
    url = f"{strict.url}/v1/models/{strict.model}:predict"
    assert httpx.post(url, content=packed, headers={"content-encoding": encoding}).status_code == code


@pytest.mark.parametrize(
    ("accepts", "packed"), [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("", False)]
)
def test_a_large_answer_is_gzip_for_those_who_take_it(server: Server, accepts: str, packed: bool) -> None:
    """A gzip answer has `Vary`, since it depends on the request."""
    body = {"instances": [{"x": i} for i in range(500)]}
    found = httpx.post(
        f"{server.url}/v1/models/{server.model}:predict", json=body, headers={"accept-encoding": accepts}
    )
    assert (found.headers.get("content-encoding") == "gzip") == packed
    assert found.headers["vary"] == "accept-encoding"
    assert len(found.json()["predictions"]) == 500


def test_a_client_that_leaves_takes_its_request_with_it(strict: Server) -> None:
    """Counted with code 499, and nothing is left under way."""
    with closing(connect(strict)) as client:
        client.sendall(head(strict, "Content-Length: 10"))
    wait_until(lambda: 'code="499"' in strict.metrics())
    wait_until(lambda: f'serve_receiving{{model="{strict.model}"}} 0.0' in strict.metrics())
    assert answers(strict)


def test_requests_may_follow_one_another_without_waiting(strict: Server) -> None:
    """Pipelined, on one connection, answered in order."""
    bodies = [b'{"instances": [%s]}' % b",".join([b"{}"] * n) for n in (1, 3, 2)]
    with closing(connect(strict)) as client:
        requests = [head(strict, f"Content-Length: {len(body)}") + body for body in bodies]
        requests[-1] = requests[-1].replace(b"Host: x", b"Host: x\r\nConnection: close")
        client.sendall(b"".join(requests))
        found = read_all(client)
    answered = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in found.split(b"HTTP/1.1 200 OK")[1:]]
    assert [len(answer["predictions"]) for answer in answered] == [1, 3, 2]
