"""Nothing holds the event loop: neither a version that is applied, nor a large request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import httpx
import pytest

from stream_learner.adapters.http.executor import INLINE_BYTES, RequestExecutor
from stream_learner.core.snapshots.table import ReplicaTable
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published, p_click
from tests.roles.scorer.serve.clients import Gate
from tests.roles.scorer.serve.conftest import WEIGHTS
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience, wait_until

KEYS = 20_000
VERSIONS = 15
T = TypeVar("T")


@contextmanager
def client_of(server: Server) -> Iterator[httpx.Client]:
    """A client with the patience of the tests."""
    with httpx.Client(base_url=server.url, timeout=patience()) as client:
        yield client


def is_live(client: httpx.Client) -> bool:
    """Whether the event loop answers."""
    return client.get("/v2/health/live").status_code == 200


def test_versions_are_applied_beside_requests(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other with 20,000 changed weights: each answer is of one version. While one is applied, however
    long that takes, answers come, and are those of the version before."""
    model, gate = Published(make_world()), Gate()
    keys = [(i * 0x9E3779B97F4A7C15 + 1) % 2**64 for i in range(KEYS)]
    model.publish(1, {**WEIGHTS, **dict.fromkeys(keys, 1.0)})
    bias, site = list(WEIGHTS)[:2]
    expected = {1: p_click(model.weights, [bias, site])}
    wrong: list[object] = []
    seen: set[int] = set()
    apply = ReplicaTable.apply
    monkeypatch.setattr(ReplicaTable, "apply", lambda *given: gate.through(lambda: apply(*given)))

    def publish(version: int) -> None:
        weight = -version / 10
        expected[version] = p_click({**WEIGHTS, site: weight}, [bias, site])
        model.publish(version, {**dict.fromkeys(keys, float(version)), site: weight})

    with serving(config_of(model.world)) as server, client_of(server) as client:

        def version_of_answer() -> int:
            asked = {"instances": [{"site": "a"}] * 3}
            found = client.post(f"/v1/models/{server.model}:predict", json=asked).json()
            version = int(found["model_version"])
            seen.add(version)
            if found["predictions"] != pytest.approx([expected[version]] * 3, abs=1e-6):
                wrong.append(found)
            return version

        for version in range(2, VERSIONS + 2):
            with ThreadPoolExecutor(1) as publishing:
                published = publishing.submit(publish, version)
                wait_until(lambda: version_of_answer() == version, look_s=0.001)  # noqa: B023
            published.result()
        with gate.shut():
            publish(VERSIONS + 2)
            wait_until(lambda: gate.held == 1)
            for _ in range(20):
                assert is_live(client) and version_of_answer() == VERSIONS + 1
            assert gate.held == 1
        wait_until(lambda: version_of_answer() == VERSIONS + 2)
    model.close()
    assert not wrong
    assert seen >= set(range(2, VERSIONS + 3))


def test_a_large_request_does_not_hold_up_small_ones(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """While thousands of unusual events are decoded, however long that takes, others are answered."""
    fields = ", ".join(f'"f{i}": [[{i}]], "f{i}": "\\u00e4"' for i in range(30))
    event = f'{{"site": "\\u0061", "site": "b", {fields}}}'
    body = ('{"instances": [' + ", ".join([event] * 8_000) + "]}").encode()
    gate, do = Gate(), RequestExecutor.do

    async def held_if_large(executor: RequestExecutor, size_bytes: int, function: Callable[[], T]) -> T:
        large = size_bytes > INLINE_BYTES
        return await do(executor, size_bytes, (lambda: gate.through(function)) if large else function)

    monkeypatch.setattr(RequestExecutor, "do", held_if_large)
    config = config_of(published.world, request_timeout=f"{2 * patience():.0f}s")
    with serving(config) as server, client_of(server) as client, ThreadPoolExecutor(1) as asking:
        path = f"/v1/models/{server.model}:predict"

        def answer_to_large() -> httpx.Response:
            return httpx.post(f"{server.url}{path}", content=body, timeout=2 * patience())

        large, answered = asking.submit(answer_to_large), 0
        while not large.done():
            answered += is_live(client)
        assert answered > 5
        with gate.shut():
            held = asking.submit(answer_to_large)
            wait_until(lambda: gate.held == 1)
            for _ in range(20):
                assert is_live(client)
                assert client.post(path, json={"instances": [{"site": "a"}]}).status_code == 200
            assert gate.held == 1 and not held.done()
        for found in (large.result(), held.result()):
            assert found.status_code == 200 and len(found.json()["predictions"]) == 8_000
