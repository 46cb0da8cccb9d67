"""Responses, written as ASGI messages.

In: a status, a body. Out: messages to the server. This file must never send an error in another form than
`{"error": reason}`, which both protocols ask for.
"""

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
"""How long the rest of a refused body is read, so that the client, still sending, gets to read the answer."""
LINGER_BYTES = 64 << 20


async def reply(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """A whole response with a JSON body."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def reply_json(send: Send, status: int, value: Any, headers: Headers = ()) -> None:
    """The same, from a value."""
    await reply(send, status, orjson.dumps(value), headers)


async def reply_error(send: Send, status: int, reason: str, headers: Headers = ()) -> None:
    """`{"error": reason}`."""
    await reply(send, status, orjson.dumps({"error": reason}), headers)


async def reply_error_and_close(send: Send, receive: Receive, status: int, reason: str, headers: Headers = ()) -> None:
    """The same to a client that may still be sending its body, and then the end of the connection.

    A connection closed with unread bytes is reset, and what was answered is lost with it.
    """
    body = orjson.dumps({"error": reason})
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, CLOSE, *headers]})
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
