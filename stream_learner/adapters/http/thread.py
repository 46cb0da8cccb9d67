"""HTTP servers in threads of their own, and the one that every role has: `/metrics`, `/healthz` and `/readyz`.

They leave the process's signals alone. What healthy and ready mean is up to the role.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, cast

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stream_learner.adapters.http.connection import LAST_S, ConnectionLimits, connection_class
from stream_learner.adapters.http.security import Token
from stream_learner.adapters.telemetry.metrics import CONTENT_TYPE
from stream_learner.config.references import Reference
from stream_learner.errors import BrokenInvariant, PortInUse

Closing = Callable[[], Awaitable[None]]
"""Ends something, in the event loop."""

Check = Callable[[], tuple[bool, str]]
"""Returns yes or no, and why. The server's thread calls it, so it must be quick."""

CONNECTIONS = 64
"""Connections to the telemetry server at once: those of Prometheus, of probes, and of a person who looks."""
READINGS = 4
"""Requests for the metrics worked on at once; each takes milliseconds of processor from the role."""
_BACKLOG = 32
"""Connections that wait to be accepted. Fewer than `CONNECTIONS`: none is closed before its request has been seen."""
_KEEP_ALIVE_S = 30.0
_REQUEST_S = 5.0
_HANDSHAKE_S = 1.0
_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0


_TURN_S = 1.0
"""How often the event loop turns at least."""


class MetricsText(Protocol):
    """Metrics that can be scraped."""

    def text(self) -> bytes:
        """All values in Prometheus's text format."""


class _Server(uvicorn.Server):
    """uvicorn's server. Before it closes, it accepts all that have connected: the system would reset them.

    turned_s: when the event loop last turned, by the monotonic clock.
    """

    def __init__(self, config: uvicorn.Config, closing: Sequence[Closing]) -> None:
        super().__init__(config)
        self.turned_s = time.monotonic()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._closing = closing
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Do what uvicorn does from time to time, and no more often: uvicorn's own loop wakes ten times a second."""
        while not await self.on_tick(0):
            self.turned_s = time.monotonic()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _TURN_S)

    def end(self) -> None:
        """End soon. May be called from any thread, and more than once."""
        self.should_exit = True
        with suppress(RuntimeError):  # the loop has ended
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._ending.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept whoever waits, then nobody; answer what was asked; end."""
        waiting = [client for listening in sockets or () for client in _accept_waiting(listening)]
        # No turn of the loop may come in between: others would connect meanwhile, and be reset.
        for server in self.servers:
            server.close()
        await self._connect(waiting)
        await asyncio.gather(super().shutdown(sockets), *(close() for close in self._closing))

    async def _connect(self, clients: list[socket.socket]) -> None:
        loop, config = asyncio.get_running_loop(), self.config

        def make() -> asyncio.Protocol:
            protocol = cast(type[Any], config.http_protocol_class)
            made: asyncio.Protocol = protocol(config=config, server_state=self.server_state, app_state={}, _loop=loop)
            return made

        async def connect(client: socket.socket) -> None:
            with suppress(OSError):
                await loop.connect_accepted_socket(make, client, ssl=config.ssl)

        if clients:
            await asyncio.wait([loop.create_task(connect(client)) for client in clients], timeout=_HANDSHAKE_S)


def _accept_waiting(listening: socket.socket) -> Iterator[socket.socket]:
    """The clients that the system has accepted for a listening socket, and nobody has taken yet."""
    listening.setblocking(False)
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            client.setblocking(False)
            yield client


class HttpThread:
    """Runs a uvicorn server on a listening socket, in a thread of its own. `close` closes the socket too.

    closing: what else must end before the event loop does.
    """

    def __init__(
        self, listening: socket.socket, config: uvicorn.Config, name: str, *, closing: Sequence[Closing] = ()
    ) -> None:
        self._socket = listening
        self._server = _Server(config, closing)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._thread.is_alive() and self._server.started

    @property
    def silent_s(self) -> float:
        """How long the event loop has not turned, in seconds; 0 before it was started, and while it closes."""
        turns = self.alive and not self._server.should_exit
        return time.monotonic() - self._server.turned_s if turns else 0.0

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    def start(self) -> None:
        """Answer requests from now on. Returns as soon as a request would be answered."""
        self._thread.start()
        for _ in range(int(_START_TIMEOUT_S * 1000)):
            if self._server.started or self._ended.wait(0.001):
                break
        if not self._server.started:
            raise BrokenInvariant(f"{self._thread.name} did not start")

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the event loop, which runs, and wait for its end. Raises what it raises."""
        assert self._server.loop is not None
        asyncio.run_coroutine_threadsafe(work, self._server.loop).result(_START_TIMEOUT_S)

    def close(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Accept nothing more, finish the requests under way, end. May be called twice."""
        self._server.end()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()


class TelemetryServer:
    """Serves until it is closed; a context manager.

    It takes little from the process, whoever connects: `CONNECTIONS` open files, `READINGS` readings of the metrics at
    once, no wait without a limit.

    health: whether the role's loop runs. ready: whether the role can do its work. The answer is 200 or 503 with the
    reason; 503 also if the check itself raises. port: 0 takes any free port. token: what `/metrics` asks for; without
    it, the answers of the checks hold no reason.
    Raises PortInUse if the address cannot be listened on, ConfigError if the token cannot be read.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        metrics: MetricsText,
        health: Check,
        ready: Check,
        token: Reference | None = None,
        request_s: float = _REQUEST_S,
    ) -> None:
        self._token = None if token is None else Token(token, "telemetry.token")
        listening = listen(host, port, _BACKLOG)
        self.port: int = listening.getsockname()[1]
        self._readings = 0
        app = Starlette(
            routes=[
                Route("/metrics", self._metrics_of(metrics)),
                Route("/healthz", self._answer_of(health)),
                Route("/readyz", self._answer_of(ready)),
            ]
        )
        config = server_config(
            app,
            http=connection_class(ConnectionLimits(_KEEP_ALIVE_S, request_s, CONNECTIONS)),
            loop="asyncio",
            backlog=_BACKLOG,
            timeout_keep_alive=math.ceil(_KEEP_ALIVE_S) + 1,
            timeout_graceful_shutdown=math.ceil(LAST_S) + 1,
            callback_notify=self._refresh,
            timeout_notify=1,
        )
        self._server = HttpThread(listening, config, "telemetry-http")

    async def _refresh(self) -> None:
        if self._token is not None:
            self._token.refresh()

    def _may(self, request: Request) -> bool:
        """Whether the request carries the token, if one is asked for."""
        given = request.headers.get("authorization", "").encode("latin-1")
        return self._token is None or self._token.matches(given)

    def _metrics_of(self, metrics: MetricsText) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not self._may(request):
                return _plain(401, "a bearer token is needed", {"www-authenticate": "Bearer"})
            if self._readings >= READINGS:
                return _plain(503, "the metrics are being read too often at once", {"retry-after": "1"})
            self._readings += 1
            try:
                text = await run_in_threadpool(metrics.text)
            finally:
                self._readings -= 1
            return Response(text, media_type=None, headers={"content-type": CONTENT_TYPE})

        return answer

    def _answer_of(self, check: Check) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                good, reason = check()
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer is no
                good, reason = False, f"the check failed: {type(error).__name__}"
            told = reason if self._may(request) else ("ok" if good else "no")
            return _plain(200 if good else 503, told)

        return answer

    def start(self) -> TelemetryServer:
        """Answer requests from now on. Returns as soon as a request would be answered."""
        self._server.start()
        return self

    def close(self) -> None:
        """Stop answering; may be called twice."""
        self._server.close()

    def __enter__(self) -> TelemetryServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def server_config(app: Any, **options: Any) -> uvicorn.Config:
    """uvicorn's configuration, as all our servers have it: no log of its own, no lifespan, no `Server` header."""
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        **options,
    )


def listen(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A listening socket; `port` 0 takes any free one. Raises PortInUse."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PortInUse(f"cannot listen on {host} port {port}: {reason}") from error


def _plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status, headers=headers)
