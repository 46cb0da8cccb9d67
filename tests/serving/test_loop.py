"""Nothing holds the event loop: neither a version that is applied, nor a large request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published, p_click
from tests.serving.conftest import WEIGHTS
from tests.serving.running import Server, config_of, serving, wait_until

KEYS = 20_000
VERSIONS = 15


@contextmanager
def asked_meanwhile(server: Server) -> Iterator[list[float]]:
    """Seconds that `/v2/health/live` took, again and again while the block runs."""
    taken: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            while not stop.is_set():
                began_s = time.perf_counter()
                assert client.get("/v2/health/live").status_code == 200
                taken.append(time.perf_counter() - began_s)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        wait_until(lambda: len(taken) > 3)
        taken.clear()
        yield taken
    finally:
        stop.set()
        asking.join()


def test_versions_are_applied_beside_requests(make_world: MakeWorld) -> None:
    """Every 200 ms one with 20,000 changed weights: each answer is of one version, and none waits for it."""
    model = Published(make_world())
    keys = [(i * 0x9E3779B97F4A7C15 + 1) % 2**64 for i in range(KEYS)]
    model.publish(1, {**WEIGHTS, **dict.fromkeys(keys, 1.0)})
    bias, site = list(WEIGHTS)[:2]
    expected = {1: p_click(model.weights, [bias, site])}
    wrong: list[object] = []
    seen: set[int] = set()
    with serving(config_of(model.world)) as server, asked_meanwhile(server) as taken:
        url = f"{server.url}/v1/models/{server.model}:predict"
        stop = threading.Event()

        def publish() -> None:
            for version in range(2, VERSIONS + 2):
                weight = -version / 10
                expected[version] = p_click({**WEIGHTS, site: weight}, [bias, site])
                model.publish(version, {**dict.fromkeys(keys, float(version)), site: weight})
                stop.wait(0.2)

        publishing = threading.Thread(target=publish)
        publishing.start()
        with httpx.Client() as client:
            while publishing.is_alive():
                found = client.post(url, json={"instances": [{"site": "a"}] * 3}).json()
                seen.add(int(found["model_version"]))
                if found["predictions"] != pytest.approx([expected[int(found["model_version"])]] * 3, abs=1e-6):
                    wrong.append(found)
        publishing.join()
    model.close()
    assert not wrong
    assert len(seen) > VERSIONS // 2
    assert len(taken) > 50
    assert sum(seconds > 0.5 for seconds in taken) < VERSIONS // 2, "not once for every version"


def test_a_large_request_does_not_hold_up_small_ones(published: Published) -> None:
    """While thousands of unusual events are decoded, which takes long, others are answered."""
    fields = ", ".join(f'"f{i}": [[{i}]], "f{i}": "\\u00e4"' for i in range(30))
    event = f'{{"site": "\\u0061", "site": "b", {fields}}}'
    body = ('{"instances": [' + ", ".join([event] * 8_000) + "]}").encode()
    config = config_of(published.world, request_timeout="60s")
    with serving(config) as server, asked_meanwhile(server) as taken:
        began_s = time.perf_counter()
        found = httpx.post(f"{server.url}/v1/models/{server.model}:predict", content=body, timeout=60)
        seconds = time.perf_counter() - began_s
    assert found.status_code == 200 and len(found.json()["predictions"]) == 8_000
    assert seconds > 0.2
    assert len(taken) > 5
    assert max(taken) < seconds / 2
