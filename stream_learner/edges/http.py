"""`/metrics`, `/healthz` and `/readyz` on a port, beside the role's own loop.

In: the metrics, and two questions to ask. Out: HTTP answers from a thread of their own.
This file must never decide what healthy or ready means, and never take the process's signals.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stream_learner.edges.metrics import CONTENT_TYPE, Metrics
from stream_learner.errors import BrokenInvariant, PortInUse

Check = Callable[[], tuple[bool, str]]
"""Answers (yes or no, and why); called from a thread of the server, must be quick."""

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0


class TelemetryServer:
    """Serves until closed; a context manager.

    `health`: the loop turns. `ready`: the role can do its work. Both answer (bool, reason): 200 or 503 with
    the reason; 503 also where the check itself raises. `port` 0 takes any free port.
    Raises PortInUse where the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, *, metrics: Metrics, health: Check, ready: Check) -> None:
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        app = Starlette(
            routes=[
                Route("/metrics", _metrics_of(metrics)),
                Route("/healthz", _answer_of(health)),
                Route("/readyz", _answer_of(ready)),
            ]
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
            )
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="telemetry-http", daemon=True)

    def start(self) -> TelemetryServer:
        """Answer requests from now on; returns when the first one would be answered."""
        self._thread.start()
        for _ in range(int(_START_TIMEOUT_S * 1000)):
            if self._server.started or self._ended.wait(0.001):
                break
        if not self._server.started:
            raise BrokenInvariant("the telemetry server did not start")
        return self

    def close(self) -> None:
        """Stop answering; may be called twice."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)
        self._socket.close()

    def __enter__(self) -> TelemetryServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PortInUse(f"cannot listen on {host} port {port}: {reason}") from error


def _metrics_of(metrics: Metrics) -> Callable[[Request], Response]:
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
