"""Requests that do not get what they asked for."""

from __future__ import annotations

Headers = tuple[tuple[bytes, bytes], ...]

RETRY_SOON: Headers = ((b"retry-after", b"1"),)


class Refused(Exception):
    """Ends a request: the gate answers `{"error": reason}` with this status, 400 or above.

    The reason holds nothing but what the client itself has sent.
    """

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""
