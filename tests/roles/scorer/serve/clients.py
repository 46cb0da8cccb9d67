"""Clients that speak HTTP byte by byte, and a gate that holds the server's work."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx

from tests.roles.scorer.serve.running import Server
from tests.waiting import patience

T = TypeVar("T")


class Gate:
    """Holds whoever goes through while it is shut. `held` is how many wait there."""

    def __init__(self) -> None:
        self.held = 0
        self._open = threading.Event()
        self._open.set()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Hold everybody until the block ends."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def open(self) -> None:
        """Let everybody through, before the block ends."""
        self._open.set()

    def through(self, call: Callable[[], T]) -> T:
        """What `call` gives, once the gate is open."""
        if not self._open.is_set():
            self.held += 1
            self._open.wait()
            self.held -= 1
        return call()


def connect(server: Server) -> socket.socket:
    """A client of few manners."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=patience())


def read_all(client: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    parts = []
    try:
        while part := client.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(server: Server, *lines: str) -> bytes:
    """The head of a prediction request."""
    return "\r\n".join([f"POST /v1/models/{server.model}:predict HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def answers(server: Server) -> bool:
    """Whether an ordinary client gets an answer."""
    body = {"instances": [{"site": "a"}]}
    found = httpx.post(f"{server.url}/v1/models/{server.model}:predict", json=body, timeout=patience())
    return found.status_code == 200


def status_of(answer: bytes) -> int:
    """The status in an answer's first line."""
    return int(answer.split(b" ", 2)[1])


def error_of(answer: bytes) -> str:
    """The reason in an answer."""
    found: str = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return found
