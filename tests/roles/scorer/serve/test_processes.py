"""`stream-learner serve` as a process: its start, its stop, its workers, and thousands of connections."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from stream_learner import errors
from tests.cli_e2e.commands import run_side_by_side, started
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.scraped import answer
from tests.cli_e2e.world import free_port
from tests.roles.scorer.serve.running import children, config_of, is_ready, of_process, serve_command, serving
from tests.waiting import patience, wait_until

EVENT = {"instances": [{"site": "a", "x": 1}]}
PAUSE_S = 0.005
"""Between two requests of a thread: the load is to be steady, not to take the machine."""


class Load:
    """Threads that ask those servers that are ready, as a balancer would; each keeps a connection to each."""

    def __init__(self, model: str, urls: list[str], threads: int = 4) -> None:
        self.path = f"/v1/models/{model}:predict"
        self.ready = dict.fromkeys(urls, True)
        self.answered = dict.fromkeys(urls, 0)
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]
        self._threads.append(threading.Thread(target=self._probe))

    def _probe(self) -> None:
        while not self._stop.wait(0.05):
            for url in self.ready:
                self.ready[url] = is_ready(url)

    def _ask(self) -> None:
        with ExitStack() as stack:
            clients = {
                url: stack.enter_context(httpx.Client(base_url=url, timeout=patience(10.0))) for url in self.ready
            }
            while not self._stop.wait(PAUSE_S):
                for url, client in clients.items():
                    if self.ready[url]:
                        try:
                            found = client.post(self.path, json=EVENT)
                            if found.status_code != 200:
                                self.failures.append(found.text)
                            self.answered[url] += 1
                        except httpx.TransportError as error:
                            self.failures.append(f"{url}: {type(error).__name__} {error}")

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_a_server_that_is_told_to_stop_fails_no_request(published: Published) -> None:
    """Under load: first not ready, still answering; then no more connections; it ends with 0. The other goes on."""
    world = published.world
    with serve_command(world, "serve.drain=5s") as (leaving, first), serve_command(world) as (_, second):
        with Load(world.model, [first, second]) as load, httpx.Client(timeout=patience()) as client:
            wait_until(lambda: load.answered[first] > 50)
            leaving.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not load.ready[first])
            assert client.post(f"{first}{load.path}", json=EVENT).headers["connection"] == "close"
            assert "stopping" in client.get(f"{first}/readyz").json()["error"]
            ended = leaving.ended()
            before = load.answered[second]
            wait_until(lambda: load.answered[second] > before + 50)
        assert ended.code == 0
        assert not load.failures
        assert [line["event"] for line in ended.events][-2:] == ["draining", "stopped_serving"]
        assert [line for line in ended.events if line["level"] in ("error", "warning")] == []


def test_a_request_under_way_is_answered_before_the_end(published: Published) -> None:
    """One whose body is still coming when the server is told to stop; and no new connection is taken meanwhile."""
    body = b'{"instances": [{"site": "a"}]}'
    with serving(config_of(published.world)) as server:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=patience()) as client:
            head = f"POST /v1/models/{server.model}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body[:5])
            wait_until(lambda: f'serve_receiving{{model="{server.model}"}} 1.0' in server.metrics())
            server.stopping()
            wait_until(lambda: not is_ready(server.url))
            wait_until(lambda: refuses(address))
            client.sendall(body[5:])
            found = b"".join(iter(lambda: client.recv(65_536), b""))
    assert found.startswith(b"HTTP/1.1 200") and b"predictions" in found


def refuses(address: tuple[str, int]) -> bool:
    """Whether nobody listens there."""
    try:
        socket.create_connection(address, timeout=patience(10.0)).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.thorough
def test_what_cannot_be_served_is_said_at_the_start(make_world: MakeWorld) -> None:
    """A topic that is missing, a port that is taken, a token that cannot be read: an error with its code."""
    world = make_world()
    command = ("serve", "-c", world.file, "--set")
    with socket.create_server(("0.0.0.0", 0)) as taken:
        missing, several, port, token = run_side_by_side(
            (*command, f"serve.port={free_port()}"),
            (*command, f"serve.port={free_port()}", "--set", "serve.workers=2"),
            (*command, f"serve.port={taken.getsockname()[1]}"),
            (*command, f"serve.port={free_port()}", "--set", "serve.token={file: nowhere}"),
        )
    assert missing.code == several.code == errors.TopicMissing.exit_code
    assert port.code == errors.PortInUse.exit_code and "serve.port" in port.error["action"]
    assert token.code == errors.ConfigError.exit_code and "nowhere" in token.error["message"]


def test_ten_thousand_idle_connections_stop_nobody(published: Published) -> None:
    """As many as this machine allows one process to open, up to 10,000: others are answered meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(10_000, hard - 1_000)
    try:
        with serve_command(published.world) as (_, url), ExitStack() as stack:
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            for _ in range(count):
                stack.enter_context(socket.create_connection(address, timeout=patience()))
            predict = f"{url}/v1/models/{published.world.model}:predict"
            for _ in range(20):
                assert httpx.post(predict, json=EVENT, timeout=patience()).status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_files_run_out_the_longest_idle_connection_gives_way(published: Published) -> None:
    """A process that may open 600 files keeps some of them free, whoever connects."""
    port = free_port()
    world = published.world
    settings = [f"serve.port={port}", "serve.host=127.0.0.1", "scorer.stale_after=null"]
    with started("serve", "-c", world.file, *(part for one in settings for part in ("--set", one))) as command:
        resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE, (600, 600))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_ready(url))
        with ExitStack() as stack:
            idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(800)]
            assert httpx.post(f"{url}/v1/models/{world.model}:predict", json=EVENT).status_code == 200
            idle[0].settimeout(patience())
            assert closed(idle[0])
            idle[-1].settimeout(0.1)  # time is the input: it is left alone
            assert not closed(idle[-1])


def closed(client: socket.socket) -> bool:
    """Whether the server has ended the connection."""
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_workers_share_the_port_and_are_replaced_when_they_die(published: Published) -> None:
    """Two processes answer; one that is killed is started again; metrics name the worker; all end at a signal."""
    world = published.world
    settings = ["serve.workers=2", f"telemetry.http_port={world.port}", "serve.drain=0s"]
    with serve_command(world, *settings) as (command, url):
        path = f"{url}/v1/models/{world.model}:predict"
        wait_until(lambda: answer(world.port, "/readyz")[0] == 200)

        def workers() -> set[int]:
            text = children(command.process.pid)
            return {pid for pid, line in text.items() if "roles.scorer.serve.workers" in line}

        first = workers()
        assert len(first) == 2

        def answered_by() -> set[str]:
            text = answer(world.port, "/metrics")[1]
            lines = [line for line in text.splitlines() if "serve_requests_total{" in line and 'protocol="v1"' in line]
            return {line.split('worker="')[1][0] for line in lines}

        def ask() -> bool:
            for _ in range(20):
                assert httpx.post(path, json=EVENT).status_code == 200
            return answered_by() == {"0", "1"}

        wait_until(ask)
        os.kill(min(first), signal.SIGKILL)
        wait_until(lambda: answer(world.port, "/readyz")[0] == 503)
        assert httpx.get(f"{url}/v2/health/live").status_code == 200
        wait_until(lambda: answer(world.port, "/readyz")[0] == 200)
        assert len(workers()) == 2 and workers() != first
        text = answer(world.port, "/metrics")[1]
        assert f'serve_worker_starts_total{{model="{world.model}"}} 3.0' in text
        assert f'serve_workers{{model="{world.model}"}} 2.0' in text
        ended = command.stop()
        assert ended.code == 0
        wait_until(lambda: not any(is_alive(pid) for pid in first))


def test_workers_end_when_the_one_who_started_them_is_killed(published: Published) -> None:
    """None is left behind, holding the port."""
    port = free_port()
    settings = [f"serve.port={port}", "serve.workers=2", "serve.drain=0s"]
    with started(
        "serve", "-c", published.world.file, *(part for one in settings for part in ("--set", one))
    ) as command:
        wait_until(lambda: sum(event["event"] == "serving" for event in command.events) == 2)
        left = set(children(command.process.pid))
        command.process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in left))


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    stat = of_process(Path(f"/proc/{pid}/stat"))
    return bool(stat) and stat.rpartition(")")[2].split()[0] != "Z"
