"""One connection: uvicorn's, with bounds on what a slow or greedy client can hold. No wait is without a limit.

| waiting for | at most | then |
|---|---|---|
| the first byte of a request | `keep_alive_s` | closed |
| the rest of its head | `request_s`, 64 KiB | closed; 431 |
| the answers to 128 requests sent before | | closed |
| headers after its body (trailers) | `request_s`, 64 KiB | 408; closed |
| its body, and the answer | `request_s`, kept by the gate | 408, 504 |
| the rest of a body that was answered before its end | `request_s` | closed |
| the client to read the answer | `request_s` | closed |
| a first request, or the rest of a head, once the server stops | `LAST_S` | closed |

If more connections are open than allowed, the one is closed whose client has been waited for longest, be it for the
first byte, the rest of a head or of a body. So whoever holds all connections open loses them to whoever asks.

A request of the usual kind is answered here as soon as it has come (`at_once.py`); all others by the application.

A connection has one timer, which looks at the limit that holds when it fires: a request sets a time, not a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stream_learner.adapters.http.at_once import AtOnce
from stream_learner.adapters.http.executor import INLINE_BYTES

HEAD_BYTES = 64 << 10
PIPELINED = 128
"""Requests of one connection that may wait while another is answered; uvicorn goes on reading meanwhile."""
LAST_S = 1.0
"""How long a first request, or one whose head is not complete, may take once the server has begun to close."""
REST_S = 0.005
"""How long a small request that came without its end may still be answered at once."""
NOT_HTTP = "this is not an HTTP request"
NO_HOST = "a request of HTTP/1.1 must have exactly one Host header"
NOT_PLAIN = frozenset([b"content-encoding", b"expect", b"transfer-encoding", b"upgrade"])
"""Headers of requests that are left to the application."""
TOO_MANY, TOO_SLOW = "too_many", "too_slow"
"""The reason why a connection was cut off, as it is counted."""
_QUIET = logging.getLogger("stream_learner.serve.connection")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class ConnectionLimits:
    """Time-outs in seconds, and the most connections open at once.

    cut: is called with the reason when a connection is cut off. waiting: the connections whose client has something to
    send, the one that has been waited for longest first.
    """

    keep_alive_s: float
    request_s: float
    most: int
    cut: Callable[[str], None] = lambda reason: None
    waiting: dict[Connection, None] = field(default_factory=dict)

    def make_room(self) -> None:
        """Close the connection whose client has been waited for longest."""
        longest = next(iter(self.waiting))
        del self.waiting[longest]
        self.cut(TOO_MANY)
        longest.transport.abort()


class Connection(HttpToolsProtocol):
    """A connection of a server. Use the class that `connection_class` makes."""

    limits: ConnectionLimits
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _until_s: float | None = None
    """When the client must have sent what is waited for, by the loop's clock; None while it has not to send."""
    _in_head = False
    _in_message = False
    _asked = False
    """Whether a request has begun on this connection."""
    _hosts = 0
    _progressed = False
    _head_bytes = 0
    """Bytes received since the last complete head, piece of a body or request: those of a head, or of trailers."""
    _why_refused = NOT_HTTP
    at_once: Mapping[bytes, AtOnce]
    """What answers a POST request at once, by its path."""
    _answering: AtOnce | None = None
    """What may answer the request that is being parsed; None if it is left to the application."""
    _plain = True
    """Whether no header asks for more than an answer to the body as it is."""
    _body = b""
    _rest_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _QUIET

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; close another connection if there are too many."""
        super().connection_made(transport)
        self._wait(self.limits.keep_alive_s)
        self._look()
        if len(self.connections) > self.limits.most:
            self.limits.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers. The application is to know of a request whose client has gone."""
        if self._answering is not None:
            self._leave_to_application()
        self.limits.waiting.pop(self, None)
        for timer in (self._timer, self._write_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and count those that complete nothing."""
        self._progressed = False
        super().data_received(data)
        if self._answering is not None and not self.transport.is_closing():
            self._leave_soon()
        self._head_bytes = 0 if self._progressed else self._head_bytes + len(data)
        if self._head_bytes > HEAD_BYTES:
            if self._in_head:
                self._end_with(b"431 Request Header Fields Too Large", "the head of the request is too long")
            else:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """A request begins: its head must come in time."""
        super().on_message_begin()
        if len(self.pipeline) >= PIPELINED:
            self.transport.abort()
        self._in_head = self._in_message = self._asked = True
        self._hosts = 0
        self._plain = True
        self._wait(self.limits.request_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers are dropped: the request has been admitted or refused by then."""
        if self._in_head:
            super().on_header(name, value)
            name = self.headers[-1][0]
            if name == b"host":
                self._hosts += 1
            elif name in NOT_PLAIN:
                self._plain = False

    def on_headers_complete(self) -> None:
        """The head is complete; from here on the gate keeps the time. Raises ValueError without a Host header."""
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() == "1.1"):
            self._why_refused = NO_HOST
            raise ValueError(NO_HOST)
        self._in_head, self._progressed = False, True
        self._until_s = None
        if self._is_ordinary():
            self._body, self._answering = b"", self.at_once.get(self.url)
        if self._answering is None:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        self._progressed = True
        if self._answering is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """The request is complete. Where it was answered before that, the next one is waited for."""
        self._progressed = True
        self._in_message = False
        if self._answering is not None and self._answer():
            return
        super().on_message_complete()
        if self.cycle.response_complete:
            self._wait(self.limits.keep_alive_s)
        else:
            self.limits.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        """A request is answered: uvicorn goes on with the next one that is there; else wait for it."""
        follows = bool(self.pipeline)
        super().on_response_complete()
        if follows or self.transport.is_closing():
            return
        if not self._in_message:
            self._wait(self.limits.keep_alive_s)
        elif not self._in_head:
            self._wait(self.limits.request_s)

    def _is_ordinary(self) -> bool:
        """Whether the request may be answered at once: nothing is left to be done before it, or to be said after."""
        return (
            self._plain
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
        )

    def _answer(self) -> bool:
        """Answer the request that has come whole. If that cannot be done at once, leave it to the application."""
        answering = self._answering
        assert answering is not None
        answer = answering(self.headers, self._body, self.server_state.default_headers)
        if answer is None:
            self._leave_to_application()
            return False
        self._decide()
        self.transport.write(answer)
        self.server_state.total_requests += 1
        self._wait(self.limits.keep_alive_s)
        return True

    def _leave_soon(self) -> None:
        """Wait a moment for the rest: many clients send head and body apart, and networks cut a body into pieces."""
        if len(self._body) > INLINE_BYTES:
            self._leave_to_application()
        elif self._rest_timer is None:
            self._rest_timer = self.loop.call_later(REST_S, self._leave_to_application)

    def _decide(self) -> None:
        """The request is answered, or left to the application."""
        self._answering = None
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    def _leave_to_application(self) -> None:
        """Let the application have the request, as far as it has come."""
        self._decide()
        super().on_headers_complete()
        if self._body:
            super().on_body(self._body)

    def shutdown(self) -> None:
        """The server closes: answer what was asked. A client that has just connected may ask once."""
        if self._in_head or not self._asked:
            self._wait(min(LAST_S, self.limits.request_s))
            self._look()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """The client does not read as fast as the server writes: it must catch up in time."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.request_s, self._cut_off)

    def resume_writing(self) -> None:
        """Drop the timer: the client has caught up."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._end_with(b"400 Bad Request", self._why_refused)

    def _end_with(self, status: bytes, reason: str) -> None:
        if self.transport.is_closing():
            return
        body = orjson.dumps({"error": reason})
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()

    def _wait(self, seconds: float) -> None:
        """Wait for the client for so long. From now on others have been waited for longer."""
        self._until_s = self.loop.time() + seconds
        self.limits.waiting.pop(self, None)
        self.limits.waiting[self] = None

    def _look(self) -> None:
        """Close the connection if its client is late; else look again before any limit set meanwhile can be over."""
        left_s = period_s = min(self.limits.request_s, self.limits.keep_alive_s)
        if self._until_s is not None:
            left_s = self._until_s - self.loop.time()
        if left_s <= 0:
            self._cut_off()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(min(left_s, period_s), self._look)

    def _cut_off(self) -> None:
        if self._in_message:
            self.limits.cut(TOO_SLOW)
        self.transport.abort()


def connection_class(limits: ConnectionLimits, at_once: Mapping[bytes, AtOnce] | None = None) -> type[Connection]:
    """A class of connections with these limits, in the form that uvicorn takes.

    at_once: what answers a POST request at once, by its path.
    """
    return type("LimitedConnection", (Connection,), {"limits": limits, "at_once": at_once or {}})
