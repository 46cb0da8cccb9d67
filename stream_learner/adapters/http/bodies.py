"""Request bodies: read up to a limit, and decompressed up to the same limit, however they were compressed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import Executor
from typing import Any, TypeAlias

from stream_learner.adapters.http.admission import Body
from stream_learner.adapters.http.refused import ClientGone, Refused

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]

_GZIP = 31
PIECE_BYTES = 4 << 10
"""How much is decompressed at once. At the end of a gzip member zlib copies all that follows; members may be many."""
_IDENTITY = (b"", b"identity")


def header(headers: RawHeaders, wanted: bytes) -> bytes:
    """The value of a header, b"" if there is none. wanted: the name in lower case."""
    return next((value for name, value in headers if name == wanted), b"")


async def read_body(headers: RawHeaders, receive: Receive, limit_bytes: int, body: Body, executor: Executor) -> bytes:
    """The whole body, decompressed in `executor` if it is gzip. `body` holds what has come of it.

    Raises Refused: 413 for more than `limit_bytes`, before or after decompression; 415 for another encoding; 400 for
    gzip that is damaged; 503 if there is no room for it. Raises ClientGone.
    """
    encoding = header(headers, b"content-encoding").strip().lower()
    if encoding not in (*_IDENTITY, b"gzip", b"x-gzip"):
        raise Refused(415, "the body's Content-Encoding must be gzip or identity", ((b"accept-encoding", b"gzip"),))
    announced = header(headers, b"content-length")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise _too_large(limit_bytes)
    try:
        whole = await _receive_all(receive, limit_bytes, body)
    except asyncio.CancelledError:
        body.check()
        raise
    if encoding in _IDENTITY:
        return whole
    unpacked = await asyncio.get_running_loop().run_in_executor(executor, decompress, whole, limit_bytes)
    body.grow(len(unpacked) - len(whole))
    return unpacked


async def _receive_all(receive: Receive, limit_bytes: int, body: Body) -> bytes:
    body.wait()
    message = await _next(receive)
    pieces: bytes | bytearray = message["body"]
    while True:
        body.grow(len(message["body"]))
        if len(pieces) > limit_bytes:
            raise _too_large(limit_bytes)
        if not message.get("more_body"):
            body.complete()
            return bytes(pieces)
        message = await _next(receive)
        pieces = pieces if isinstance(pieces, bytearray) else bytearray(pieces)
        pieces += message["body"]


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message


def decompress(body: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip of one or more members. Raises Refused: 400 if it is damaged, 413 beyond the limit."""
    parts: list[bytes] = []
    left = limit_bytes
    member = None
    try:
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            while piece := piece if member is not None else piece.lstrip(b"\0"):
                member = member or zlib.decompressobj(_GZIP)
                parts.append(member.decompress(piece, left + 1))
                left -= len(parts[-1])
                if left < 0:
                    raise _too_large(limit_bytes)
                piece = member.unused_data
                member = None if member.eof else member
    except zlib.error:
        raise Refused(400, "the body is not gzip, though its Content-Encoding says so") from None
    if member is not None:
        raise Refused(400, "the body's gzip is cut short")
    if not parts:
        raise Refused(400, "the body is not gzip, though its Content-Encoding says so")
    return b"".join(parts)


def compress(body: bytes) -> bytes:
    """Compress a body with gzip, fast rather than small."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


def takes_gzip(headers: RawHeaders) -> bool:
    """Whether the client accepts gzip."""
    for part in header(headers, b"accept-encoding").lower().split(b","):
        coding, _, quality = part.partition(b";")
        if coding.strip() in (b"gzip", b"x-gzip", b"*"):
            weight = quality.strip().removeprefix(b"q=").strip()
            return not weight or weight.strip(b"0.") != b""
    return False


def _too_large(limit_bytes: int) -> Refused:
    return Refused(413, f"the body is larger than serve.max_body, {limit_bytes} bytes")
