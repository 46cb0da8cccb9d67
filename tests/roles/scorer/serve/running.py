"""A server of predictions on a port of its own: inside the test's process, or as the command.

It must never leave a thread or a process behind.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from stream_learner.adapters.http.thread import listen
from stream_learner.config import Config
from stream_learner.roles.common.lifecycle import Stopping
from stream_learner.roles.scorer.serve.process import ServingProcess
from tests.cli_e2e.commands import Command, started
from tests.cli_e2e.world import World, free_port
from tests.waiting import patience, wait_until


class Server:
    """A running server: `url`, `port`, `model`, and `stop`, which tells it to drain and end.

    telemetry_port: where it answers `/healthz` of the process, if asked; 0 until it does.
    """

    def __init__(self, config: Config, *, telemetry: bool = False) -> None:
        self.config = config
        self._address = ("127.0.0.1", 0) if telemetry else None
        self.model = config.model
        listening = listen("127.0.0.1", 0, 4096)
        self.port: int = listening.getsockname()[1]
        self.scheme = "https" if config.serve.tls_certificate else "http"
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        self._stopping = Stopping()
        self._process = ServingProcess(config, listening, self._stopping)
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="serving-process")
        self.telemetry_port = 0

    def _told(self, port: int) -> None:
        self.telemetry_port = port

    def _run(self) -> None:
        try:
            self._process.run(self._address, self._told)
        except BaseException as error:  # noqa: BLE001 -- raised by `stop` in the test's own thread
            self._errors.append(error)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def metrics(self) -> str:
        """The text of `/metrics`."""
        return self._process.text().decode()

    def stopping(self) -> None:
        """Tell it to stop, and go on."""
        self._stopping.set()

    def stop(self) -> None:
        """Tell it to stop, wait for its end, raise what it ended with."""
        self._stopping.set()
        self._thread.join(patience())
        assert not self._thread.is_alive()
        if self._errors:
            raise self._errors[0]


def config_of(world: World, **serve: Any) -> Config:
    """The world's configuration with other settings of `serve`; nothing is waited for at the end unless asked."""
    tree = copy.deepcopy(world.tree)
    tree["serve"] = {"drain": "0s", **serve}
    return Config.model_validate(tree)


@contextmanager
def serving(config: Config, *, ready: bool = True, telemetry: bool = False) -> Iterator[Server]:
    """A server, ready if asked, that is gone when the block ends."""
    server = Server(config, telemetry=telemetry)
    server.start()
    try:
        if ready:
            wait_until(lambda: httpx.get(f"{server.url}/v2/health/ready", verify=False).status_code == 200)
        yield server
    finally:
        server.stop()


@contextmanager
def serve_command(world: World, *settings: str) -> Iterator[tuple[Command, str]]:
    """The command, ready, and its address."""
    port = free_port()
    given = ("serve.host=127.0.0.1", f"serve.port={port}", "scorer.stale_after=null", *settings)
    with started("serve", "-c", world.file, *(part for one in given for part in ("--set", one))) as command:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_ready(url) or command.process.poll() is not None)
        assert command.process.poll() is None, command.err
        yield command, url


def is_ready(url: str) -> bool:
    """Whether the server is ready, as a balancer asks it."""
    try:
        return httpx.get(f"{url}/v2/health/ready", timeout=patience(2.0)).status_code == 200
    except httpx.TransportError:
        return False


def children(parent: int) -> dict[int, str]:
    """Command lines of the processes that a process has started, from any of its threads, and that have not ended."""
    files = list(Path(f"/proc/{parent}/task").glob("*/children"))
    found = {int(pid): of_process(Path(f"/proc/{pid}/cmdline")) for file in files for pid in of_process(file).split()}
    return {pid: line for pid, line in found.items() if line}


def of_process(file: Path) -> str:
    """The content of a file of a process, "" if it has ended meanwhile."""
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
