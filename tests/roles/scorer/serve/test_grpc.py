"""Predictions over gRPC: the library's to the bit, with the same checks and limits as over HTTP."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from stream_learner import Scorer
from stream_learner.adapters.http.executor import INLINE_BYTES
from stream_learner.errors import ConfigError, PortInUse
from stream_learner.roles.scorer.serve.served_name import ServedName
from tests.cli_e2e.commands import started
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.world import free_port
from tests.roles.scorer.serve.clients import Gate
from tests.roles.scorer.serve.conftest import WEIGHTS
from tests.roles.scorer.serve.grpc_client import (
    Client,
    calls_that_read_nothing,
    client_of,
    decoded,
    encoded,
    infer_request,
)
from tests.roles.scorer.serve.running import Server, config_of, serve_command, serving
from tests.roles.scorer.serve.test_token_and_tls import make_certificate, replace
from tests.waiting import patience, wait_until

EVENTS = [b'{"site":"a","x":1}', b'{"site":"b","x":-2.5}', b'{"site": "\xc3\xa4"}', b"{}"]


@pytest.fixture(scope="module")
def grpc_server(published: Published) -> Iterator[Server]:
    """A server with a port for gRPC."""
    with serving(config_of(published.world, grpc_port=free_port())) as server:
        yield server


@pytest.fixture
def client(grpc_server: Server) -> Iterator[Client]:
    """A client of it."""
    with client_of(grpc_server) as client:
        yield client


@pytest.mark.parametrize("raw", [False, True], ids=["contents", "raw"])
@pytest.mark.parametrize("count", [0, 1, 4, 5_000])
def test_predictions_are_the_librarys(
    grpc_server: Server, client: Client, scorer: Scorer, count: int, raw: bool
) -> None:
    """To the bit, few or many; the answer has the form of the request, and says which version it is of."""
    events = (EVENTS * (count // 4 + 1))[:count]
    assert (len(b"".join(events)) > INLINE_BYTES) == (count == 5_000)
    found = client.infer(grpc_server.model, events, raw=raw, id="7")
    assert found.p_click == scorer.predict_many(events).p_click.tolist()
    assert (found.model, found.version, found.id) == (grpc_server.model, "1000", "7")
    assert (found.name, found.datatype, found.shape) == ("p_click", "FP64", list(_varint_bytes(count)))
    assert found.is_raw == raw
    known = {"known_features": 2 if count == 1 else 0} if count else {}
    assert found.parameters.items() >= known.items()
    assert set(found.parameters) == {"freshness_ms", "version_age_s", *known}


def _varint_bytes(number: int) -> bytes:
    """The bytes of a number as a message has it."""
    return encoded([(1, number)])[1:]


def test_server_and_model_tell_what_they_are(grpc_server: Server, client: Client) -> None:
    """Live, ready, names, versions, tensors."""
    name, version = grpc_server.model.encode(), b"1000"
    assert decoded(client.call("ServerLive")) == decoded(client.call("ServerReady")) == {1: [1]}
    assert decoded(client.call("ServerMetadata"))[1] == [b"stream-learner"]
    for asked in ([(1, name)], [(1, name), (2, version)]):
        assert decoded(client.call("ModelReady", encoded(asked))) == {1: [1]}
        found = decoded(client.call("ModelMetadata", encoded(asked)))
        assert (found[1], found[2], found[3]) == ([name], [version], [b"stream-learner"])
        (events,), (p_click,) = (list(map(decoded, found[number])) for number in (4, 5))
        assert (events[1], events[2], p_click[1], p_click[2]) == ([b"events"], [b"BYTES"], [b"p_click"], [b"FP64"])


def test_what_is_wrong_is_refused_with_a_reason(grpc_server: Server, client: Client) -> None:
    """As over HTTP, with the status of gRPC that says the same."""
    name = grpc_server.model
    bad = "INVALID_ARGUMENT"
    requests = {
        (bad, "the body is not a message"): b"\xff\xff",
        (bad, "event 1 cannot be scored: JSON, but not an object"): infer_request(name, [b"{}", b"7"]),
        (bad, "there is no input 'x'"): infer_request(name, [b"{}"], tensor="x"),
        (bad, "there is no output 'y'"): infer_request(name, [b"{}"], output="y"),
        (bad, "datatype of 'events' must be BYTES"): infer_request(name, [b"{}"], datatype="FP64"),
        (bad, "shape of 'events' must be [1]"): infer_request(name, [b"{}"], shape=2),
        (bad, "10,001 instances are more than serve.max_instances, 10000"): infer_request(name, [b"{}"] * 10_001),
        (bad, "inputs must be one tensor"): encoded([(1, name.encode())]),
        (bad, "raw_input_contents is cut short"): infer_request(name, [b"{}"], raw=True)[:-1].replace(
            b"\x3a\x06", b"\x3a\x05"
        ),
        (bad, "the elements of 'events' must be"): infer_request(name, [b"{}"])
        + encoded([(7, struct.pack("<I", 2) + b"{}")]),
        ("NOT_FOUND", "no model 'other' is served here"): infer_request("other", [b"{}"]),
        ("NOT_FOUND", "version 7 of model"): infer_request(name, [b"{}"], version="7"),
        ("NOT_FOUND", "no model 'xxx"): infer_request("x" * 100_000, [b"{}"]),
    }
    for (code, reason), request in requests.items():
        found = client.refusal("ModelInfer", request)
        assert found[0] == code and found[1].startswith(reason), (found, reason)
    for method in ("ModelReady", "ModelMetadata"):
        assert client.refusal(method, encoded([(1, b"other")]))[0] == "NOT_FOUND"
        assert client.refusal(method, encoded([(1, name.encode()), (2, b"7")]))[0] == "NOT_FOUND"
        assert client.refusal(method, b"\xff")[0] == bad
    assert client.refusal("ModelStreamInfer")[0] == "UNIMPLEMENTED"
    metrics = grpc_server.metrics()
    for code, labels in (("400", f'name="{name}",protocol="grpc"'), ("404", 'name="",protocol="grpc"')):
        assert any(
            line.startswith(f'stream_learner_serve_requests_total{{code="{code}"') and labels in line
            for line in metrics.splitlines()
        ), (code, labels)


def test_a_message_beyond_the_limits_is_refused(published: Published) -> None:
    """Larger than serve.max_body, or compressed: it would be unpacked without a limit."""
    with (
        serving(config_of(published.world, grpc_port=free_port(), max_body="1KiB")) as server,
        client_of(server) as client,
    ):
        large = infer_request(server.model, [b'{"x": "' + b"0" * 2_000 + b'"}'])
        assert client.refusal("ModelInfer", large)[0] == "RESOURCE_EXHAUSTED"
        small = infer_request(server.model, [b'{"x": "' + b"0" * 500 + b'"}'])
        assert client.refusal("ModelInfer", small)[0] == "OK"
        assert client.refusal("ModelInfer", small, compression=grpc.Compression.Gzip)[0] == "UNIMPLEMENTED"


def test_calls_beyond_the_limit_are_refused_until_others_are_over(published: Published) -> None:
    """A call counts from its beginning, whether its message has come or not, until its client gives up or is gone.

    What is refused is counted, with the code that it has over HTTP.
    """
    with (
        serving(config_of(published.world, grpc_port=free_port(), max_concurrency=2)) as server,
        client_of(server) as client,
    ):
        request = infer_request(server.model, [b"{}"])

        def is_refused() -> bool:
            found = client.refusal("ModelInfer", request)
            assert found in (("OK", ""), ("RESOURCE_EXHAUSTED", "too many requests at once"))
            return found[0] != "OK"

        def take_all(held: list[Any], client: Client) -> bool:
            """Whether no place is left. A call that is to hold one, and found none, is made anew."""
            held[:] = [client.without_message("ModelInfer") if call.done() else call for call in held]
            return is_refused()

        silent = [client.without_message("ModelInfer") for _ in range(2)]
        wait_until(lambda: take_all(silent, client))
        refused = [line for line in server.metrics().splitlines() if 'code="503"' in line]
        assert any('protocol="grpc"' in line for line in refused)
        silent[0].cancel()
        wait_until(lambda: not is_refused())
        for _ in range(100):
            client.without_message("ModelInfer").cancel()
        wait_until(lambda: not is_refused())
        with client_of(server) as other:
            held = [other.without_message("ModelInfer")]
            wait_until(lambda: take_all(held, other))
        assert held[0].done()
        silent[1].cancel()
        wait_until(lambda: not any(is_refused() for _ in range(5)))


def test_one_connection_may_have_all_calls_that_the_server_takes(grpc_server: Server, client: Client) -> None:
    """At once, and again while others are under way."""
    request = infer_request(grpc_server.model, EVENTS)
    for _ in range(3):
        calls = [client.begin("ModelInfer", request) for _ in range(900)]
        assert Counter(call.code() for call in calls) == {grpc.StatusCode.OK: 900}


def test_a_call_without_a_message_is_refused(client: Client) -> None:
    """Its client has said all it had to say."""
    with pytest.raises(grpc.RpcError) as refused:
        client.without_message("ModelInfer", ends=True).result()
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "the call has no message"


def test_while_a_large_call_is_worked_on_others_are_answered(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in time, or with its client, and is counted as what it ended with."""
    gate, predict = Gate(), ServedName.predict_many
    large = infer_request(published.world.model, [b'{"site":"a"}'] * 6_000)
    small = infer_request(published.world.model, [b"{}"])

    def held_if_large(served: ServedName, events: list[bytes]) -> object:
        return gate.through(lambda: predict(served, events)) if len(events) > 1 else predict(served, events)

    monkeypatch.setattr(ServedName, "predict_many", held_if_large)
    config = config_of(published.world, grpc_port=free_port(), request_timeout="3s")
    with serving(config) as server, client_of(server) as client, gate.shut():
        assert client.refusal("ModelInfer", large)[0] == "DEADLINE_EXCEEDED"
        gone = client.begin("ModelInfer", large)
        wait_until(lambda: gate.held == 2)
        assert client.refusal("ModelInfer", small)[0] == "OK"
        gone.cancel()
        wait_until(lambda: 'code="499"' in server.metrics())
        assert 'code="504"' in server.metrics()
        gate.open()
        assert client.refusal("ModelInfer", large)[0] == "OK"


def test_the_token_is_asked_for_everywhere_but_at_the_probes(published: Published, tmp_path: Path) -> None:
    """UNAUTHENTICATED without it; the file's new content counts soon."""
    file = tmp_path / "token"
    file.write_text("first\n")
    config = config_of(published.world, grpc_port=free_port(), token={"file": str(file)})
    with serving(config) as server, client_of(server) as client:
        request = infer_request(server.model, [b"{}"])
        for token in (None, "", "first", "Bearer", "Bearer wrong", "Basic first"):
            assert client.refusal("ModelInfer", request, token=token) == ("UNAUTHENTICATED", "a bearer token is needed")
        for method in ("ServerMetadata", "ModelReady", "ModelMetadata"):
            assert client.refusal(method)[0] == "UNAUTHENTICATED"
        assert decoded(client.call("ServerLive")) == decoded(client.call("ServerReady")) == {1: [1]}
        assert client.refusal("ModelInfer", request, token="Bearer first")[0] == "OK"
        replace(file, "second\n")
        wait_until(lambda: client.refusal("ModelInfer", request, token="Bearer second")[0] == "OK")
        assert client.refusal("ModelInfer", request, token="Bearer first")[0] == "UNAUTHENTICATED"


def test_tls_follows_its_files(published: Published, tmp_path: Path) -> None:
    """New connections see the new certificate."""
    first, second = make_certificate(tmp_path, "first"), make_certificate(tmp_path, "second")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text(first[0].read_text())
    key.write_text(first[1].read_text())
    config = config_of(published.world, grpc_port=free_port(), tls_certificate=str(certificate), tls_key=str(key))

    def trusts(authority: Path) -> bool:
        with client_of(server, grpc.ssl_channel_credentials(authority.read_bytes())) as client:
            return client.refusal("ModelInfer", infer_request(server.model, [b"{}"]))[0] == "OK"

    with serving(config) as server:
        assert trusts(first[0]) and not trusts(second[0])
        replace(certificate, second[0].read_text())
        replace(key, second[1].read_text())
        wait_until(lambda: trusts(second[0]))


def test_a_taken_port_is_said_and_ends_the_server(published: Published) -> None:
    """With its name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(config_of(published.world, host="127.0.0.1", grpc_port=port))
        server.start()
        with pytest.raises(PortInUse, match=rf"port {port}, serve\.grpc_port"):
            server.stop()


def test_before_the_first_version_nothing_is_ready(make_world: MakeWorld) -> None:
    """UNAVAILABLE, with the reason; live all the same. Ready by itself once a version is published."""
    world = make_world()
    model, name = Published(world), world.model
    with serving(config_of(world, grpc_port=free_port()), ready=False) as server, client_of(server) as client:
        wait_until(lambda: client.refusal("ServerLive")[0] == "OK")
        assert decoded(client.call("ServerReady")) == {}
        assert decoded(client.call("ModelReady", encoded([(1, name.encode())]))) == {}
        code, reason = client.refusal("ModelInfer", infer_request(name, [b"{}"]))
        assert code == "UNAVAILABLE" and reason.startswith(f"model {name!r} is not ready: ")
        model.publish(5, WEIGHTS)
        wait_until(lambda: decoded(client.call("ServerReady")) == {1: [1]})
        assert client.infer(name, [b"{}"]).version == "5"
    model.close()


def is_ready(client: Client) -> bool | None:
    """Whether the server says so; None if it does not answer any more."""
    try:
        return decoded(client.call("ServerReady")) == {1: [1]}
    except grpc.RpcError:
        return None


def test_told_to_stop_it_first_is_not_ready_and_answers(published: Published) -> None:
    """Then it answers no more, and ends with code 0."""
    port, request = free_port(), infer_request(published.world.model, [b"{}"])
    with (
        serve_command(published.world, f"serve.grpc_port={port}", "serve.drain=5s") as (command, _),
        client_of(port) as client,
    ):
        wait_until(lambda: client.refusal("ModelInfer", request)[0] == "OK")
        command.process.terminate()
        found = []
        while (code := client.refusal("ModelInfer", request)[0]) == "OK":
            found.append(is_ready(client))
        assert code == "UNAVAILABLE" and False in found
        assert command.process.wait(patience()) == 0


def test_a_client_that_has_its_answers_loses_none_when_the_server_ends(published: Published) -> None:
    """Each call is answered until nobody listens any more, also on a connection that is always busy."""
    port, request = free_port(), infer_request(published.world.model, [b"{}"])

    def call_on(ended_with: list[tuple[str, str]]) -> None:
        with client_of(port) as client:
            while (found := client.refusal("ModelInfer", request))[0] == "OK":
                pass
            ended_with.append(found)

    with serve_command(published.world, f"serve.grpc_port={port}", "serve.drain=1s") as (command, _):
        with client_of(port) as client:
            wait_until(lambda: client.refusal("ModelInfer", request)[0] == "OK")
        ended_with: list[tuple[str, str]] = []
        clients = [threading.Thread(target=call_on, args=(ended_with,)) for _ in range(6)]
        for each in clients:
            each.start()
        command.process.terminate()
        for each in clients:
            each.join()
        assert command.process.wait(patience()) == 0
    assert [code for code, _ in ended_with] == ["UNAVAILABLE"] * 6
    assert all("connect" in reason for _, reason in ended_with), ended_with


def test_who_sends_no_message_or_reads_no_answer_is_cut_off(published: Published) -> None:
    """After twice serve.request_timeout; until then they hold places, and others are refused."""
    config = config_of(published.world, grpc_port=free_port(), max_concurrency=4, request_timeout="500ms")
    with serving(config) as server, client_of(server) as client:
        request = infer_request(server.model, [b"{}"] * 1_000)

        def is_refused() -> bool:
            return client.refusal("ModelInfer", request)[0] == "RESOURCE_EXHAUSTED"

        def is_refused_beside_more_of_them() -> bool:
            held.enter_context(calls_that_read_nothing(server, "ModelInfer", request, count=4))
            return is_refused()

        silent = client.without_message("ModelInfer")
        with ExitStack() as held:
            wait_until(is_refused_beside_more_of_them, "calls beside four that read nothing are refused")
            wait_until(lambda: not is_refused(), "those that read nothing are cut off")
        wait_until(silent.done)
        assert silent.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.thorough
def test_a_port_of_another_program_is_refused_to_several_workers(published: Published) -> None:
    """They may share it with each other only."""
    port = free_port()
    with (
        serve_command(published.world, f"serve.grpc_port={port}", "serve.workers=2", "serve.drain=0s"),
        client_of(port) as client,
    ):
        wait_until(lambda: is_ready(client))
        settings = ("serve.host=127.0.0.1", f"serve.port={free_port()}", f"serve.grpc_port={port}", "serve.workers=2")
        given = [part for one in settings for part in ("--set", one)]
        with started("serve", "-c", published.world.file, *given) as second:
            assert second.process.wait(patience()) == PortInUse.exit_code


@pytest.mark.thorough
def test_several_workers_share_the_port(published: Published) -> None:
    """Each connection is one worker's."""
    port = free_port()
    with serve_command(published.world, f"serve.grpc_port={port}", "serve.workers=2", "serve.drain=0s"):
        for _ in range(8):
            with client_of(port) as client:
                wait_until(lambda: is_ready(client), "the worker of this connection is ready")
                assert client.infer(published.world.model, [b"{}"]).version == "1000"


def test_without_the_library_the_message_says_what_to_install(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stream-learner[grpc]`, or no port."""
    monkeypatch.setitem(sys.modules, "stream_learner.adapters.grpc.server", None)
    with pytest.raises(ConfigError, match=r"serve\.grpc_port") as refused:
        Server(config_of(published.world, grpc_port=free_port()))
    assert "stream-learner[grpc]" in refused.value.action


def test_an_answer_is_that_of_http(grpc_server: Server, client: Client) -> None:
    """The same numbers as V2 over HTTP."""
    tensor = {"name": "events", "datatype": "BYTES", "shape": [4], "data": [event.decode() for event in EVENTS]}
    answer = httpx.post(
        f"{grpc_server.url}/v2/models/{grpc_server.model}/infer", content=json.dumps({"inputs": [tensor]})
    )
    assert answer.json()["outputs"][0]["data"] == client.infer(grpc_server.model, EVENTS).p_click
