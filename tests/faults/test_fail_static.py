"""All brokers away for longer than every time-out: predictions go on, servers and roles that start meanwhile too."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from stream_learner.core.snapshots.replica_copy import read_copy
from tests.cli_e2e.world import free_port
from tests.e2e.processes import RoleProcess, process_of
from tests.e2e.site import wait_until
from tests.faults.conftest import MakeSite
from tests.faults.said import said, why_not_ready
from tests.kafka_broker.broker import Broker
from tests.scenarios import scenario

STALE_S = 2


class Load:
    """Asks one server for a prediction again and again; every answer that is not 200 is kept as a failure."""

    def __init__(self, url: str, event: bytes) -> None:
        self._request = Request(url, b'{"instances": [%s]}' % event, {"content-type": "application/json"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failures: list[str] = []
        self.answers = 0
        self.last: dict[str, Any] = {}
        self.age_header = ""

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Until the end of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                with urlopen(self._request, timeout=30) as answer:
                    self.age_header = answer.headers["stream-learner-version-age"]
                    self.last = json.load(answer)
            except OSError as error:
                self.failures.append(f"{error}")
            self.answers += 1


@pytest.mark.thorough
def test_no_request_fails_while_all_brokers_are_away(own_broker: Broker, make_own_site: MakeSite) -> None:
    """The joiner's session ends meanwhile, so the outage is longer than every time-out. The server answers every
    request, with the age of its version; a server that starts meanwhile answers from the copy of the first; joiner and
    learner that start meanwhile wait, alive and not ready. When the brokers are back all go on by themselves.
    """
    site = make_own_site(scenario("plain", 1))
    event = site.scenario.impressions[0][0].value or b"{}"
    ports = {name: free_port() for name in ("first", "second", "join", "learn", "http")}
    with ExitStack() as stack:

        def start(name: str, command: str, **changes: Any) -> RoleProcess:
            telemetry = {"http_port": ports[name], "http_host": "127.0.0.1"}
            return stack.enter_context(process_of(site, command, **{"telemetry": telemetry, **changes}))

        def serve(name: str) -> RoleProcess:
            http = {"port": ports[name], "host": "127.0.0.1", "drain": "0s"}
            scorer = {"stale_after": f"{STALE_S}s", "state_dir": str(site.folder / "copies"), "copy_every": "1s"}
            return stack.enter_context(process_of(site, "serve", serve=http, scorer=scorer))

        def answer(name: str) -> Load:
            return Load(f"http://127.0.0.1:{ports[name]}/v1/models/{site.model}:predict", event)

        roles = start("http", "run")
        first = serve("first")
        site.produce(0, 0.5)
        wait_until(lambda: why_not_ready(ports["first"]) == "", "the first server is ready")
        copy = site.folder / "copies" / f"model-{site.model}.copy"
        wait_until(copy.exists, "a copy is kept")
        with answer("first").running() as load:
            wait_until(lambda: load.last.get("model_version") == _version_of(copy), "the copy is the last version")
            own_broker.nodes[0].kill()
            wait_until(lambda: said(roles, "lost") > 0, "the joiner's session has ended")
            wait_until(lambda: said(first, "version_stale") == 1, "the server says once that its version is old")
            roles.kill()
            waiting = {name: start(name, name) for name in ("join", "learn")}
            second = serve("second")
            wait_until(lambda: why_not_ready(ports["second"]) == "", "the second server is ready without brokers")
            assert said(second, "serving_copy") == 1
            with answer("second").running() as other:
                wait_until(lambda: other.answers > 20, "it answers")
                assert (other.last["predictions"], other.last["model_version"]) == (
                    load.last["predictions"],
                    load.last["model_version"],
                )
                for name, role in waiting.items():
                    wait_until(lambda: said(role, "waiting_for_brokers") == 1, "it says once that it waits")  # noqa: B023
                    assert "waits for brokers" in (why_not_ready(ports[name]) or "")
                assert load.last["version_age_s"] >= STALE_S and int(load.age_header) >= STALE_S
                assert why_not_ready(ports["first"]) == why_not_ready(ports["second"]) == ""
                before = load.last["model_version"]
                own_broker.nodes[0].start()
                own_broker.wait_ready()
                site.produce(0.5, 1)
                wait_until(lambda: int(load.last["model_version"]) > int(before), "the first serves a new version")
                wait_until(lambda: other.last["model_version"] == str(site.end_tick), "so does the second")
                wait_until(
                    lambda: load.last["model_version"] == str(site.end_tick), "the first serves the last version"
                )
                assert other.last["predictions"] == load.last["predictions"]
            assert not other.failures
        assert not load.failures and load.answers > 100
        for name, role in waiting.items():
            wait_until(lambda: why_not_ready(ports[name]) == "", "it does its part")  # noqa: B023
            assert said(role, "waiting_for_brokers") == said(role, "brokers_answer") == 1
        assert said(first, "not_ready") == 0


def _version_of(copy: Path) -> str:
    """The version that a copy holds."""
    with copy.open("rb") as file:
        return str(read_copy(file, copy.stat().st_size).replica.version)
