"""The server of predictions, over HTTP and, where a port is set, gRPC: a socket, an event loop in a thread of its own,
and a stop that loses no request.

It leaves the process's signals alone, and closes no connection that waits for an answer.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stream_learner.adapters import machine, open_files
from stream_learner.adapters.http.admission import Admission
from stream_learner.adapters.http.connection import TOO_MANY, TOO_SLOW, ConnectionLimits, connection_class
from stream_learner.adapters.http.executor import RequestExecutor
from stream_learner.adapters.http.models import ServedModels
from stream_learner.adapters.http.routes import Limits, Shared, make_app
from stream_learner.adapters.http.security import Certificate, Token
from stream_learner.adapters.http.thread import HttpThread, listen, server_config
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config.serving import Serve
from stream_learner.errors import ConfigError

if TYPE_CHECKING:
    from stream_learner.adapters.grpc.server import GrpcServer

BACKLOG = 4096
OTHER_FILES = 256
"""Files left for everything but clients: Kafka, telemetry, libraries."""
BODY_SHARE = 8
"""The bodies of all requests hold one part in so many of the memory, where `serve.body_memory` does not say."""
REFRESH_S = 1
_CLOSE_S = 5.0


def allow_connections(wanted: int) -> int:
    """Raise this process's limit of open files. Returns how many clients may be connected at once.

    wanted: with fewer, a warning is logged.
    """
    needed = wanted + OTHER_FILES - open_files.OTHERS
    open_files.expect(needed, "serve.max_concurrency clients, and connections to the brokers", get_logger("serve"))
    files = open_files.raise_limit()
    return max(files - OTHER_FILES, files // 2)


class CutConnections:
    """Counts connections that are cut off, and logs it, at most once a minute, when there were too many."""

    AGAIN_S = 60.0

    def __init__(self, metrics: Metrics, most: int, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        """most: how many may be open."""
        reasons = (TOO_MANY, TOO_SLOW)
        self._count = {reason: metrics.counter_of(names.SERVE_CUT, reason=reason) for reason in reasons}
        self._most = most
        self._clock_s = clock_s
        self._said_s = float("-inf")
        self._log = get_logger("serve")

    def note(self, reason: str) -> None:
        """Take one that is being cut off."""
        self._count[reason](1.0)
        if reason == TOO_MANY and self._clock_s() - self._said_s > self.AGAIN_S:
            self._said_s = self._clock_s()
            self._log.warning("connections_cut", most=self._most)


def body_memory_bytes(serve: Serve) -> int:
    """The memory that the bodies of all requests may hold in one process."""
    if serve.body_memory_bytes is not None:
        return serve.body_memory_bytes
    return max(machine.available_bytes() // (BODY_SHARE * serve.workers), serve.max_body_bytes)


class PredictionServer:
    """Answers requests from `start` until `close`."""

    def __init__(
        self, models: ServedModels, metrics: Metrics, serve: Serve, listening: socket.socket, *, version: str
    ) -> None:
        """version: this program's. Raises ConfigError for a token or a certificate that cannot be used."""
        self._models = models
        self._request_s = serve.request_timeout_ms / 1000
        self._token = Token(serve.token, "serve.token") if serve.token is not None else None
        self._certificate = (
            Certificate(serve.tls_certificate, serve.tls_key) if serve.tls_certificate and serve.tls_key else None
        )
        self._executor = RequestExecutor()
        limits = Limits(
            serve.max_body_bytes, serve.max_instances, serve.max_concurrency, body_memory_bytes(serve), self._request_s
        )
        admission = Admission(limits.requests, limits.held_bytes)
        shared = Shared(models, metrics, self._token, limits, admission, self._executor, version)
        self._app = make_app(shared)
        most = allow_connections(serve.max_concurrency)
        connections = ConnectionLimits(
            serve.keep_alive_ms / 1000, self._request_s, most, cut=CutConnections(metrics, most).note
        )
        config = server_config(
            self._app,
            http=connection_class(connections, self._app.at_once),
            loop="uvloop",
            backlog=BACKLOG,
            timeout_keep_alive=math.ceil(connections.keep_alive_s) + 1,
            timeout_graceful_shutdown=math.ceil(self._request_s) + 1,
            callback_notify=self._refresh,
            timeout_notify=REFRESH_S,
        )
        config.load()
        if self._certificate is not None:
            config.ssl = self._certificate.context
        self.port: int = listening.getsockname()[1]
        self._grpc = self._grpc_server(shared, serve) if serve.grpc_port else None
        closing = () if self._grpc is None else (self._grpc.close,)
        self._thread = HttpThread(listening, config, "serve-http", closing=closing)
        metrics.follow(names.SERVE_CONNECTIONS, lambda: float(self._thread.connections))
        metrics.follow(names.SERVE_LOOP_SILENT, lambda: self._thread.silent_s)

    @property
    def silent_s(self) -> float:
        """How long the event loop has not turned, in seconds; 0 before the start and while the server closes."""
        return self._thread.silent_s

    @property
    def alive(self) -> bool:
        """Whether the event loop runs."""
        return self._thread.alive

    def start(self) -> None:
        """Answer requests from now on. Raises PortInUse for the port of gRPC."""
        self._thread.start()
        if self._grpc is not None:
            self._thread.run(self._grpc.start())

    def drain(self) -> None:
        """Report "not ready" from now on, and ask clients to connect anew. Requests are still answered."""
        self._models.draining = True

    def close(self) -> None:
        """Accept no further connection, answer the requests that have come, end."""
        self._models.draining = True
        self._thread.close(self._request_s + _CLOSE_S)
        self._executor.close()

    def _grpc_server(self, shared: Shared, serve: Serve) -> GrpcServer:
        try:
            from stream_learner.adapters.grpc.server import GrpcServer
        except ImportError as error:
            raise ConfigError(
                f"serve.grpc_port: gRPC needs a library that is not installed: {error.name}",
                action="Install stream-learner[grpc], or leave serve.grpc_port out.",
            ) from None
        return GrpcServer(shared, self._app, serve, self._certificate)

    async def _refresh(self) -> None:
        if self._token is not None:
            self._token.refresh()
        if self._certificate is not None:
            self._certificate.refresh()


def listen_for_predictions(serve: Serve) -> socket.socket:
    """The socket of `serve.host` and `serve.port`. Raises PortInUse, for the port of gRPC too."""
    if serve.grpc_port:
        listen(serve.host, serve.grpc_port).close()  # workers share the port later on: with each other only
    return listen(serve.host, serve.port, BACKLOG)
