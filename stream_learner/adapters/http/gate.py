"""The gate in front of the routes: it checks the token and the time of requests, and counts them.

No error passes the gate: whatever goes wrong becomes an answer. A bug is logged too, at most once a second.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException

from stream_learner.adapters.http.at_once import AtOnce
from stream_learner.adapters.http.bodies import Message, Receive, header
from stream_learner.adapters.http.models import ServedModels
from stream_learner.adapters.http.refused import RETRY_SOON, ClientGone, Headers, Refused
from stream_learner.adapters.http.replies import CLOSE, Scope, Send, reply_error, reply_error_and_close
from stream_learner.adapters.http.security import Token
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import Logger, get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import NotReady

App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/v2/health/live", "/v2/health/ready", "/healthz", "/readyz", "/openapi.json"})
"""Paths that need no token: probes, and the OpenAPI document."""

GONE = 499
"""The status counted for a request whose client went away; never sent."""


class Exchange:
    """One request. Its messages pass through here, so that the gate knows how far it has come."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, models: ServedModels) -> None:
        self.status = 0
        self.body_read = not _has_body(scope)
        self._receive, self._send, self._models = receive, send, models

    async def receive(self) -> Message:
        """The next message of the request."""
        message = await self._receive()
        if not message.get("more_body"):
            self.body_read = True
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the response. A server that is stopping asks the client to connect anew."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._models.draining and CLOSE not in message["headers"]:
                message["headers"] = [*message["headers"], CLOSE]
        await self._send(message)


class Deadline:
    """Cancels the task that made it when the time is over; `expired` then tells the cause of the cancellation."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.expired = True
        if self._task is not None:
            self._task.cancel()

    def done(self) -> None:
        """Stop the timer."""
        self._timer.cancel()


class SlowAnswers:
    """Logs it when more than one prediction in a hundred is slow, and when that is over. Any thread may note one."""

    SLOW_S = 0.25
    REQUESTS = 1_000
    """It is judged after so many."""

    def __init__(self, log: Logger) -> None:
        self._episode = Episode(log, "answers_slow", limit=0.01, ends_at=0.01)
        self._requests = self._slow = 0
        self._noting = threading.Lock()

    def note(self, seconds: float) -> None:
        """Take the time of one prediction request."""
        with self._noting:
            self._requests += 1
            self._slow += seconds > self.SLOW_S
            if self._requests < self.REQUESTS:
                return
            share = self._slow / self._requests
            self._requests = self._slow = 0
            self._episode.look(share, share=round(share, 3), seconds=self.SLOW_S)


class Gate:
    """The ASGI application in front of the routes."""

    def __init__(
        self, routes: App, models: ServedModels, metrics: Metrics, token: Token | None, *, timeout_s: float
    ) -> None:
        """timeout_s: how long a request may take, the receipt of its body included."""
        self.at_once: dict[bytes, AtOnce] = {}
        """Paths of POST requests that the connection may have answered at once."""
        self._routes = routes
        self._models = models
        self._metrics = metrics
        self._token = token
        self._timeout_s = timeout_s
        self._log = get_logger("serve")
        self._logged_s = float("-inf")
        self._slow = SlowAnswers(self._log)
        self._counters: dict[tuple[str, str, int], Callable[[float], None]] = {}
        self._histograms = {
            protocol: metrics.histogram_of(names.SERVE_SECONDS, protocol=protocol) for protocol in ("v1", "v2", "grpc")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began_s = time.perf_counter()
        exchange = Exchange(scope, receive, send, self._models)
        scope["app"] = self
        try:
            await self._answer(scope, exchange)
        finally:
            labels = (scope.get("protocol", "other"), scope.get("served", ""), exchange.status or GONE)
            self.count(labels, time.perf_counter() - began_s)

    async def _answer(self, scope: Scope, exchange: Exchange) -> None:
        deadline = Deadline(self._timeout_s)
        try:
            self._admit(scope)
            await self._routes(scope, exchange.receive, exchange.send)
            return
        except Refused as refused:
            status, reason, headers = refused.status, refused.reason, refused.headers
        except HTTPException as error:
            status, reason, headers = error.status_code, _reason_of(error, scope), _raw(error.headers)
        except NotReady as error:  # the model became too old after the route had checked it
            status, reason, headers = 503, str(error), RETRY_SOON
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not deadline.expired or exchange.status:
                raise
            status, reason, headers = self._too_slow(exchange)
        except Exception as error:  # noqa: BLE001 -- a bug; the client must have an answer and the others go on
            self.log_bug(error)
            status, reason, headers = 500, "the server failed; its log says why", ()
        finally:
            deadline.done()
        await self._refuse(exchange, status, reason, headers)

    def _admit(self, scope: Scope) -> None:
        """Raise Refused (401) without the token."""
        if scope["path"] in OPEN_PATHS:
            return
        if self._token is not None and not self._token.matches(header(scope["headers"], b"authorization")):
            raise Refused(401, "a bearer token is needed", ((b"www-authenticate", b"Bearer"),))

    def _too_slow(self, exchange: Exchange) -> tuple[int, str, Headers]:
        if exchange.body_read:
            return 504, f"not answered within serve.request_timeout, {self._timeout_s:g} s", RETRY_SOON
        return 408, f"the request did not arrive within serve.request_timeout, {self._timeout_s:g} s", (CLOSE,)

    async def _refuse(self, exchange: Exchange, status: int, reason: str, headers: Headers) -> None:
        if exchange.status:
            return
        if exchange.body_read or status == 408:
            await reply_error(exchange.send, status, reason, headers)
        else:
            await reply_error_and_close(exchange.send, exchange.receive, status, reason, headers)

    def count(self, labels: tuple[str, str, int], seconds: float) -> None:
        """Count a request by protocol, name and status, and the time that it took. Any thread may."""
        count = self._counters.get(labels)
        if count is None:
            protocol, name, status = labels
            count = self._metrics.counter_of(names.SERVE_REQUESTS, protocol=protocol, name=name, code=str(status))
            self._counters[labels] = count
        count(1.0)
        if labels[0] != "other":
            self._histograms[labels[0]](seconds)
            self._slow.note(seconds)

    def log_bug(self, error: Exception) -> None:
        """Log what a request failed of, once a second at most."""
        now_s = time.monotonic()
        if now_s - self._logged_s > 1:
            self._logged_s = now_s
            self._log.error("request_failed", reason=f"{type(error).__name__}: {error}", exc_info=error)


def _has_body(scope: Scope) -> bool:
    length = header(scope["headers"], b"content-length")
    return length not in (b"", b"0") or bool(header(scope["headers"], b"transfer-encoding"))


def _reason_of(error: HTTPException, scope: Scope) -> str:
    if error.status_code == 404:
        return f"there is nothing at {scope['path']}"
    if error.status_code == 405:
        return f"{scope['method']} is not for {scope['path']}"
    return error.detail


def _raw(headers: object) -> Headers:
    pairs = dict(headers) if isinstance(headers, dict) else {}
    return tuple((name.lower().encode(), value.encode()) for name, value in pairs.items())
