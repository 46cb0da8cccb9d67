"""One broker for a run of the tests, however many processes the run has.

In: a request for the broker's address on a Unix socket. Out: the address, or why there is none. The process that
directs the run lends; the processes that run tests borrow. The broker starts with the first request.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from tests.kafka_broker.broker import PATIENT, Broker, NoKafka

SOCKET = "TEST_KAFKA_SOCKET"
"""The variable that tells the processes of a run where to ask."""


class Lender:
    """Answers requests from the socket named by `SOCKET` until `close`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="stream-learner-lender-"))
        self._broker: Broker | None = None
        self._refusal = ""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._folder / "kafka"))
        self._socket.listen(64)
        os.environ[SOCKET] = str(self._folder / "kafka")
        # One thread answers all: nodes live as long as the thread that started them.
        self._thread = threading.Thread(target=self._serve, name="kafka-lender", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                asked = connection.recv(16)
                if asked == b"close":
                    return
                connection.sendall(self._answer().encode())

    def _answer(self) -> str:
        if self._broker is None and not self._refusal:
            broker = Broker(properties=PATIENT)
            try:
                self._broker = broker.start()
            except (NoKafka, RuntimeError) as error:
                self._refusal = f"error {error}"
        return self._refusal if self._broker is None else f"at {self._broker.bootstrap}"

    def log_if_ended(self) -> str:
        """The end of the broker's log if it has ended by itself, else ""."""
        nodes = self._broker.nodes if self._broker is not None else []
        return next((node.log() for node in nodes if not node.running()), "")

    def close(self) -> None:
        """Stop the broker and give everything back."""
        _ask(os.environ.pop(SOCKET), b"close")
        self._thread.join()
        if self._broker is not None:
            self._broker.stop()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def borrow() -> str | None:
    """Address of the broker of this run, or None where nobody lends one. Raises NoKafka where none can be had."""
    path = os.environ.get(SOCKET)
    if path is None:
        return None
    kind, _, rest = _ask(path, b"kafka").partition(" ")
    if kind != "at":
        raise NoKafka(rest)
    return rest


def _ask(path: str, request: bytes) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
