"""One connection: uvicorn's, with bounds on what a slow or greedy client can hold. No wait is without a timer.

| waiting for | at most | then |
|---|---|---|
| the first byte of a request | `keep_alive_s` | closed |
| the rest of its head | `request_s`, 64 KiB | closed; 431 |
| the answers to 128 requests sent before | | closed |
| headers after its body (trailers) | `request_s`, 64 KiB | 408; closed |
| its body, and the answer | `request_s`, kept by the gate | 408, 504 |
| the client to read the answer | `request_s` | closed |

If more connections are open than allowed, the one that has been idle longest is closed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10
PIPELINED = 128
"""Requests of one connection that may wait while another is answered; uvicorn goes on reading meanwhile."""
_QUIET = logging.getLogger("stream_learner.serve.connection")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class ConnectionLimits:
    """Time-outs in seconds, and the most connections open at once.

    `idle`: those without a request, longest idle first.
    """

    keep_alive_s: float
    request_s: float
    most: int
    idle: dict[Connection, None] = field(default_factory=dict)


class Connection(HttpToolsProtocol):
    """A connection of a server. Use the class that `connection_class` makes."""

    limits: ConnectionLimits
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _in_head = False
    _progressed = False
    _head_bytes = 0
    """Bytes received since the last complete head, piece of a body or request: those of a head, or of trailers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _QUIET

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request; close the longest idle connection if there are too many."""
        super().connection_made(transport)
        idle = self.limits.idle
        idle[self] = None
        if len(self.connections) > self.limits.most:
            next(iter(idle)).transport.abort()
        self._wait(self.limits.keep_alive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self.limits.idle.pop(self, None)
        self._stop_waiting()
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and count those that complete nothing."""
        self._progressed = False
        super().data_received(data)
        self._head_bytes = 0 if self._progressed else self._head_bytes + len(data)
        if self._head_bytes > HEAD_BYTES:
            if self._in_head:
                self._end_with(b"431 Request Header Fields Too Large", "the head of the request is too long")
            else:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """A request begins: its head must come in time."""
        super().on_message_begin()
        self.limits.idle.pop(self, None)
        if len(self.pipeline) >= PIPELINED:
            self.transport.abort()
        self._in_head = True
        self._wait(self.limits.request_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers are dropped: the request has been admitted or refused by then."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete; from here on the gate keeps the time."""
        self._in_head, self._progressed = False, True
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._progressed = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The request is answered: the connection is idle unless the next one has begun."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete and not self._in_head:
            self.limits.idle[self] = None

    def pause_writing(self) -> None:
        """The client does not read as fast as the server writes: it must catch up in time."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.request_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Drop the timer: the client has caught up."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._end_with(b"400 Bad Request", "this is not an HTTP request")

    def _end_with(self, status: bytes, reason: str) -> None:
        if self.transport.is_closing():
            return
        body = orjson.dumps({"error": reason})
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connection_class(limits: ConnectionLimits) -> type[Connection]:
    """A class of connections with these limits, in the form that uvicorn takes."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
