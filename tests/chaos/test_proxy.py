"""The network that can be cut: what passes, what does not, and what becomes of connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from proofs.chaos.proxy import HOST, Mode, Network, Proxy
from tests.waiting import patience

QUIET_S = 0.3
"""How long nothing comes where nothing may: time is the input."""


class Echo:
    """A server that answers every byte with the same byte, and counts what reached it."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.heard = threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            try:
                while data := peer.recv(1 << 16):
                    self.heard.release()
                    peer.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        """Accept no more. May be called twice."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    """A server to reach."""
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with Network() as network:
        yield network.proxy(echo.port)


def connected(proxy: Proxy) -> socket.socket:
    """A client of the proxy."""
    return socket.create_connection((HOST, proxy.port), patience())


def is_reset(client: socket.socket) -> bool:
    """Whether the connection is gone: reading ends, or fails."""
    client.settimeout(patience())
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def answers(client: socket.socket, size: int) -> bytes:
    """So many bytes."""
    client.settimeout(patience())
    data = b""
    while len(data) < size:
        data += client.recv(size - len(data))
    return data


def hears_nothing(client: socket.socket) -> bool:
    """Whether no byte comes for a while."""
    client.settimeout(QUIET_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    return False


def test_open_lets_every_byte_pass_in_order(proxy: Proxy) -> None:
    """A megabyte there and back, while it is being sent."""
    data = bytes(range(256)) * 4096
    with connected(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert answers(client, len(data)) == data
        sender.join()


def test_cut_resets_connections_and_refuses_new_ones_until_open(proxy: Proxy) -> None:
    """Open connections are reset, and new ones are refused."""
    with connected(proxy) as client:
        client.sendall(b"a")
        assert answers(client, 1) == b"a"
        proxy.set_mode(Mode.CUT)
        assert is_reset(client)
    with connected(proxy) as client:
        assert is_reset(client)
    proxy.set_mode(Mode.OPEN)
    with connected(proxy) as client:
        client.sendall(b"b")
        assert answers(client, 1) == b"b"


def test_stall_holds_everything_back_and_loses_nothing(proxy: Proxy, echo: Echo) -> None:
    """What was sent meanwhile arrives when it is open again, on the same connection, and on one made meanwhile."""
    with connected(proxy) as client:
        proxy.set_mode(Mode.STALL)
        client.sendall(b"abc")
        with connected(proxy) as other:
            other.sendall(b"xyz")
            assert hears_nothing(client) and hears_nothing(other)
            assert not echo.heard.acquire(blocking=False)
            proxy.set_mode(Mode.OPEN)
            assert (answers(client, 3), answers(other, 3)) == (b"abc", b"xyz")


def test_mute_lets_requests_through_and_loses_the_answers(proxy: Proxy, echo: Echo) -> None:
    """The server has done its work, the client never hears of it, and its connection ends when it is open again."""
    with connected(proxy) as client:
        proxy.set_mode(Mode.MUTE)
        client.sendall(b"abc")
        assert echo.heard.acquire(timeout=patience())
        assert hears_nothing(client)
        proxy.set_mode(Mode.OPEN)
        assert is_reset(client)


def test_a_server_that_is_away_is_a_connection_that_ends(echo: Echo) -> None:
    """A client sees the same as with a broker that was killed."""
    echo.close()
    with Network() as network, connected(network.proxy(echo.port)) as client:
        assert is_reset(client)
