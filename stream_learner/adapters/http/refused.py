"""Requests that are not answered with what they asked for.

In: a status and a reason. Out: an exception that the gate answers with `{"error": reason}`, as both protocols say.
This file must never hold anything of a request but what the client sent.
"""

from __future__ import annotations

Headers = tuple[tuple[bytes, bytes], ...]

RETRY_SOON: Headers = ((b"retry-after", b"1"),)


class Refused(Exception):
    """Ends a request; `status` is 400 or above."""

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""
