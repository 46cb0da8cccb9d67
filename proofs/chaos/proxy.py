"""A network that can be cut: TCP proxies on loopback between the roles and the brokers.

No byte is changed, and all bytes stay in order.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, TypeVar

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16

T = TypeVar("T")


class Mode(Enum):
    """The treatment of connections by a proxy.

    OPEN: everything passes. CUT: connections are reset, and so is each new one. STALL: nothing passes until the proxy
    is open again; then all of it does. MUTE: requests reach the broker, but its answers are lost; such a connection is
    reset when the proxy is open again.
    """

    OPEN = "open"
    CUT = "cut"
    STALL = "stall"
    MUTE = "mute"


class Proxy:
    """One port in front of another. Made by `Network`; `set_mode` may be called from any thread."""

    def __init__(self, network: Network, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.mode = Mode.OPEN
        self._network = network
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    def set_mode(self, mode: Mode) -> None:
        """Set the mode, for existing connections too. It is in effect when this returns."""
        self._network.run(self._change(mode))

    async def listen(self) -> None:
        """Listen on a free port. Called in the network's thread."""
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _change(self, mode: Mode) -> None:
        self.mode = mode
        for link in list(self._links):
            if mode is Mode.CUT or (mode is Mode.OPEN and link.lost_bytes):
                link.reset()
            else:
                link.note_mode(mode)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode is Mode.CUT:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.transport.abort()
            return
        link = _Link((reader, writer), (far_reader, far_writer), self.mode)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def close(self) -> None:
        """Close the port and all connections. Called in the network's thread."""
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.reset()


_End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection of a client to the broker."""

    def __init__(self, near: _End, far: _End, mode: Mode) -> None:
        self.lost_bytes = 0
        self._near, self._far = near, far
        self._mode = mode
        self._may_pass = asyncio.Event()
        self.note_mode(mode)

    def note_mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode is Mode.STALL:
            self._may_pass.clear()
        else:
            self._may_pass.set()

    async def run(self) -> None:
        """Pass bytes both ways until one side ends."""
        ways = [
            asyncio.ensure_future(self._pass(self._near[0], self._far[1], is_answer=False)),
            asyncio.ensure_future(self._pass(self._far[0], self._near[1], is_answer=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.reset()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                await self._may_pass.wait()
                if is_answer and self._mode is Mode.MUTE:
                    self.lost_bytes += len(data)
                    continue
                sink.write(data)
                await sink.drain()
        except OSError:
            return

    def reset(self) -> None:
        """Reset the connection on both sides."""
        self._may_pass.set()
        self._near[1].transport.abort()
        self._far[1].transport.abort()


class Network:
    """The proxies, in a thread of their own, for as long as the `with` block lasts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Network:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def proxy(self, target_port: int) -> Proxy:
        """A new proxy in front of a port of this machine."""
        proxy = Proxy(self, target_port)
        self.run(proxy.listen())
        self._proxies.append(proxy)
        return proxy

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Call a function in the network's thread, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Reset every connection and end. May be called twice."""
        if not self._thread.is_alive():
            return
        self.run(self._close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close_all(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
