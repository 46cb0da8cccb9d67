"""Responses, written as ASGI messages. Errors always have the form `{"error": reason}`, as both protocols ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import orjson

from stream_learner.adapters.http.bodies import Message, Receive
from stream_learner.adapters.http.refused import Headers

Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = Message

JSON = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")
LINGER_S = 1.0
"""How long the rest of a refused body is read, so that a client that still sends can read the answer."""
LINGER_BYTES = 64 << 20


def json_headers(body: bytes) -> Headers:
    """The headers that every response with a JSON body has."""
    return (JSON, (b"content-length", b"%d" % len(body)))


async def reply(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """Send a whole response with a JSON body."""
    await send({"type": "http.response.start", "status": status, "headers": [*json_headers(body), *headers]})
    await send({"type": "http.response.body", "body": body})


async def reply_json(send: Send, status: int, value: Any, headers: Headers = ()) -> None:
    """Send a whole response; the body is the value as JSON."""
    await reply(send, status, orjson.dumps(value), headers)


async def reply_error(send: Send, status: int, reason: str, headers: Headers = ()) -> None:
    """Send `{"error": reason}`."""
    await reply(send, status, orjson.dumps({"error": reason}), headers)


async def reply_error_and_close(send: Send, receive: Receive, status: int, reason: str, headers: Headers = ()) -> None:
    """Send `{"error": reason}` to a client that may still be sending its body, then close the connection.

    Reads on for a moment first: closing a connection with unread bytes resets it, and the client loses the answer.
    """
    body = orjson.dumps({"error": reason})
    await send({"type": "http.response.start", "status": status, "headers": [*json_headers(body), CLOSE, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_read_on(receive), LINGER_S)
    await send({"type": "http.response.body", "body": b""})


async def _read_on(receive: Receive) -> None:
    left = LINGER_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return
