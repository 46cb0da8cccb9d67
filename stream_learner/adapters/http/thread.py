"""HTTP servers in threads of their own, and the one that every role has: `/metrics`, `/healthz` and `/readyz`.

They leave the process's signals alone. What healthy and ready mean is up to the role.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stream_learner.adapters.telemetry.metrics import CONTENT_TYPE
from stream_learner.errors import BrokenInvariant, PortInUse

Check = Callable[[], tuple[bool, str]]
"""Returns yes or no, and why. The server's thread calls it, so it must be quick."""

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0


class MetricsText(Protocol):
    """Metrics that can be scraped."""

    def text(self) -> bytes:
        """All values in Prometheus's text format."""


class HttpThread:
    """Runs a uvicorn server on a listening socket, in a thread of its own. `close` closes the socket too."""

    def __init__(self, listening: socket.socket, config: uvicorn.Config, name: str) -> None:
        self._socket = listening
        self._server = uvicorn.Server(config)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._thread.is_alive() and self._server.started

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

    def close(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Accept nothing more, finish the requests under way, end. May be called twice."""
        self._server.should_exit = True
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

    health: whether the role's loop runs. ready: whether the role can do its work. The answer is 200 or 503 with the
    reason; 503 also if the check itself raises. port: 0 takes any free port.
    Raises PortInUse if the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, *, metrics: MetricsText, health: Check, ready: Check) -> None:
        listening = listen(host, port)
        self.port: int = listening.getsockname()[1]
        app = Starlette(
            routes=[
                Route("/metrics", _metrics_of(metrics)),
                Route("/healthz", _answer_of(health)),
                Route("/readyz", _answer_of(ready)),
            ]
        )
        config = server_config(app, http="h11", loop="asyncio", timeout_keep_alive=5, timeout_graceful_shutdown=1)
        self._server = HttpThread(listening, config, "telemetry-http")

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


def _metrics_of(metrics: MetricsText) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        return Response(metrics.text(), media_type=None, headers={"content-type": CONTENT_TYPE})

    return answer


def _answer_of(check: Check) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        try:
            good, reason = check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer is no
            good, reason = False, f"the check failed: {type(error).__name__}"
        return PlainTextResponse(f"{reason}\n", status_code=200 if good else 503)

    return answer
