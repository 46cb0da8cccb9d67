"""The server against its own OpenAPI document: requests made from it, answers compared with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli_e2e.published import Published
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience

LEFT_OUT = "positive_data_acceptance"
"""That every request of the right shape is accepted cannot be: an event in a string must be JSON itself, and a tensor's
shape must fit its data. JSON Schema has no words for either."""


@pytest.fixture(scope="module")
def small(published: Published) -> Iterator[Server]:
    """A server whose limit of instances a generator of requests can reach."""
    with serving(config_of(published.world, max_instances=8)) as server:
        yield server


def test_no_answer_is_a_failure_or_other_than_documented(small: Server) -> None:
    """Valid requests and invalid ones for every operation: no 5xx, no undocumented status, header or shape."""
    before = failures(small)
    checks = ["--checks", "all", "--exclude-checks", LEFT_OUT, "--phases", "examples,coverage,fuzzing"]
    bounds = ["--max-examples", "10", "--seed", "1", "--generation-deterministic", "--no-color"]
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{small.url}/openapi.json", *checks, *bounds]
    found = subprocess.run(command, capture_output=True, text=True, timeout=patience(300.0))
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    assert "Tested: 16" in found.stdout
    assert failures(small) == before
    assert all(f'code="{code}"' in small.metrics() for code in (200, 400, 404))


def failures(server: Server) -> list[str]:
    """How many answers were 5xx, by protocol and code; those from before it was ready among them."""
    return [line for line in server.metrics().splitlines() if 'code="5' in line]


def test_the_document_has_every_path(small: Server) -> None:
    """Whatever is answered is in the document, with the names that are served."""
    document = httpx.get(f"{small.url}/openapi.json").json()
    assert document["components"]["parameters"]["name"]["schema"] == {"enum": [small.model]}
    for path, operations in document["paths"].items():
        concrete = path.replace("{name}", small.model).replace("{version}", "1000")
        for method in operations:
            found = httpx.request(method, f"{small.url}{concrete}", content=b"{}" if method == "post" else None)
            assert found.status_code == (400 if method == "post" else 200), concrete
