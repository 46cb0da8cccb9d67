"""Requests that are answered at once get what the application would have answered, however their bytes come."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from stream_learner.adapters.http.at_once import PredictAtOnce
from stream_learner.adapters.http.executor import INLINE_BYTES
from tests.cli_e2e.published import Published
from tests.roles.scorer.serve.clients import connect, head, read_all, status_of
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience, wait_until

BODIES = [
    (":predict", b'{"instances": [{"site": "a", "x": 1}]}'),
    (":predict", b'{"instances": [{"site": "a"}, {"site": "b", "x": -2.5}, "{\\"x\\": 3}"]}'),
    (":predict", b'{"instances": []}'),
    (":predict", b'{"instances": [{"site": "a"}, 7]}'),
    (":predict", b'{"instances": ['),
    (":predict", b""),
    (":predict", b'{"instances": [' + b", ".join([b"{}"] * 500) + b"]}"),
    ("infer", json.dumps({"inputs": [{"name": "events", "shape": [1], "datatype": "BYTES", "data": ["{}"]}]}).encode()),
    ("infer", b'{"inputs": []}'),
]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that was tried was answered at once."""
    found: list[bool] = []
    call = PredictAtOnce.__call__

    def tried(*given: object) -> bytes | None:
        answer = call(*given)  # type: ignore[arg-type]
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(PredictAtOnce, "__call__", tried)
    return found


def path_of(server: Server, action: str) -> str:
    """The path of a request."""
    return f"/v1/models/{server.model}{action}" if action.startswith(":") else f"/v2/models/{server.model}/{action}"


def ask(server: Server, path: str, body: bytes, *lines: str) -> tuple[int, list[bytes], bytes]:
    """Status, names of the headers in their order, and the body without the age of the version."""
    first = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""])
    with closing(connect(server)) as client:
        client.sendall(first.encode() + body)
        head, _, found = client.recv(1 << 20).partition(b"\r\n\r\n")
        while len(found) < int(re.search(rb"content-length: (\d+)", head)[1]):  # type: ignore[index]
            found += client.recv(1 << 20)
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
    return status_of(head), names, re.sub(rb'"freshness_ms":\d+,"version_age_s":\d+', b"", found)


def body_bytes(server: Server) -> float:
    """How much the application holds of all bodies."""
    found = re.search(r"^\S*serve_body_bytes\S* (\S+)$", server.metrics(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize(("action", "body"), BODIES, ids=[f"{action[-7:]} {body[:30]!r}" for action, body in BODIES])
def test_an_answer_is_that_of_the_application(server: Server, seen: list[bool], action: str, body: bytes) -> None:
    """A path with a question mark goes to the application: the same status, headers and body."""
    path = path_of(server, action)
    at_once = ask(server, path, body)
    assert at_once == ask(server, f"{path}?", body)
    assert seen == [at_once[0] == 200]


@pytest.fixture(scope="module")
def patient(published: Published) -> Iterator[Server]:
    """A server that waits long."""
    with serving(config_of(published.world, request_timeout="10m")) as server:
        yield server


@pytest.mark.parametrize("cut", range(1, 170, 7))
def test_a_request_in_two_pieces_is_answered(patient: Server, cut: int) -> None:
    """Cut anywhere, in the head or in the body; and the next one on the same connection too."""
    body = b'{"instances": [{"site": "a"}]}'
    request = head(patient, f"Content-Length: {len(body)}") + body
    last = request.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with closing(connect(patient)) as client:
        client.sendall(request[:cut])
        assert httpx.get(f"{patient.url}/v2").status_code == 200  # the server has seen the first piece by now
        client.sendall(request[cut:] + request + last)
        found = read_all(client)
    assert found.count(b"HTTP/1.1 200 OK") == found.count(b'"predictions"') == 3
    assert found.count(b"connection: close") == 1


def test_a_body_that_comes_after_its_head_is_answered_at_once(
    published: Published, seen: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most clients send it so. One that never comes is waited for by the application, as ever."""
    monkeypatch.setattr("stream_learner.adapters.http.connection.REST_S", patience())
    body = b'{"instances": [{"site": "a"}]}'
    with serving(config_of(published.world, request_timeout="500ms")) as server, closing(connect(server)) as client:
        client.sendall(head(server, f"Content-Length: {len(body)}"))
        assert httpx.get(f"{server.url}/v2").status_code == 200
        client.sendall(body)
        assert status_of(client.recv(65_536)) == 200 and seen == [True]
        monkeypatch.setattr("stream_learner.adapters.http.connection.REST_S", 0.0)
        client.sendall(head(server, f"Content-Length: {len(body)}"))
        assert status_of(client.recv(65_536)) == 408 and seen == [True]


def test_a_body_in_many_pieces_is_answered_at_once(
    published: Published, seen: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As networks cut it. One that grows beyond what is answered at once is left to the application meanwhile."""
    monkeypatch.setattr("stream_learner.adapters.http.connection.REST_S", patience())
    body = b'{"instances": [{"site": "a"}, {"site": "b"}]}'
    large = b'{"instances": [{}' + b" " * INLINE_BYTES + b"]}"
    with serving(config_of(published.world)) as server, closing(connect(server)) as client:
        client.sendall(head(server, f"Content-Length: {len(body)}"))
        for at in range(0, len(body), 9):
            assert httpx.get(f"{server.url}/v2").status_code == 200  # the server has seen the piece before by now
            client.sendall(body[at : at + 9])
        assert status_of(client.recv(65_536)) == 200 and seen == [True]
        client.sendall(head(server, f"Content-Length: {len(large)}") + large[:-1])
        wait_until(lambda: body_bytes(server) == len(large) - 1)
        client.sendall(large[-1:])
        assert status_of(client.recv(65_536)) == 200 and seen == [True]


def test_a_large_answer_is_packed_for_whoever_takes_gzip(server: Server, seen: list[bool]) -> None:
    """As the application does, and at once; for others it is plain."""
    body = b'{"instances": [' + b", ".join([b"{}"] * 500) + b"]}"
    found = {}
    for question in ("", "?"):
        url = f"{server.url}{path_of(server, ':predict')}{question}"
        for accepted in ("gzip", "gzip;q=0", "identity"):
            answer = httpx.post(url, content=body, headers={"accept-encoding": accepted})
            found[question, accepted] = answer.headers.get("content-encoding", ""), len(answer.json()["predictions"])
    packs = {"gzip": ("gzip", 500), "gzip;q=0": ("", 500), "identity": ("", 500)}
    assert found == {(question, accepted): packs[accepted] for question, accepted in found}
    assert seen == [True] * 3


@pytest.mark.parametrize(
    "line",
    [
        "Content-Encoding: identity",
        "Expect: 100-continue",
        "Connection: close",
        "Upgrade: h2c",
        "Transfer-Encoding: chunked",
    ],
)
def test_what_asks_for_more_is_left_to_the_application(patient: Server, seen: list[bool], line: str) -> None:
    """Headers that say more than how long the body is."""
    body = b'{"instances": [{"site": "a"}]}'
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if "chunked" in line else body
    lines = [line] if "chunked" in line else [line, f"Content-Length: {len(body)}"]
    with closing(connect(patient)) as client:
        client.sendall(head(patient, *lines) + sent)
        found = b""
        while b'"predictions"' not in found:
            found += client.recv(65_536)
    assert b"HTTP/1.1 200 OK" in found and not seen


def test_without_the_token_nothing_is_answered(published: Published, seen: list[bool], tmp_path: Path) -> None:
    """401 in the usual form; with it, at once."""
    (tmp_path / "token").write_text("a\nb\n")
    with serving(config_of(published.world, token={"file": str(tmp_path / "token")})) as server:
        for given, code in (("", 401), ("Bearer c", 401), ("Bearer a", 200), ("Bearer b", 200)):
            lines = [f"Authorization: {given}"] if given else []
            assert ask(server, path_of(server, ":predict"), b'{"instances": [{}]}', *lines)[0] == code
        assert seen == [False, False, True, True]
        assert 'serve_requests_total{code="401",' in server.metrics()
        counted = re.search(r'serve_requests_total\{code="200",[^}]*protocol="v1"\} (\S+)', server.metrics())
        assert counted is not None and float(counted[1]) == 2


def test_a_body_beyond_the_limit_is_refused_there_too(published: Published) -> None:
    """The limit holds, though it is below what is answered at once."""
    with serving(config_of(published.world, max_body="1KiB")) as server, closing(connect(server)) as client:
        body = b'{"instances": [' + b" " * 2_000 + b"]}"
        client.sendall(head(server, f"Content-Length: {len(body)}") + body)
        assert status_of(client.recv(65_536)) == 413
