"""Calls of gRPC as they come, taken by one thread from the queue of the library's core.

`grpc.server` gives each call to a thread of a pool and waits for it, `grpc.aio` gives each event of a call to a task of
an event loop: with an empty handler either takes about three times as much of the processor as this. The price is that
`cygrpc`, of which the library makes both, is not meant for everyone; so nothing but this file uses it.

1. Ask for a call; when one comes, ask for the next.
2. Ask for its message.
3. Hand it to `take`, which answers it, refuses it, or has that done later by another thread.
4. When the answer is sent, and the client has been told or has gone, the call is over.

A call that is not over in time is cut off: one whose message does not come, or whose answer is not read.

**The end.** The core ends a call that comes after the server has shut down as if the client had cancelled it, until the
client has heard that it must connect anew. A client that sends its next call when it has the answer to the last would
always have such a call. So answers wait while the server shuts down and clients hear of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc._cython import cygrpc

_NO_FLAGS = 0
_CUT_OFF_S = 5.0
"""How long the calls that were cut off may take to end."""
_LOOK_S = 0.1
"""How often the thread looks for calls that are too old, or wait to be answered."""
_HEARD_S = 0.2
"""How long answers wait before the server shuts down, and after it."""


class Call:
    """One call, whose message has come whole when it is taken. Answer or refuse it once, from any thread."""

    def __init__(self, event: Any, over: Callable[[Call], None]) -> None:
        self.method: bytes = event.call_details.method
        self.metadata: Any = event.invocation_metadata
        self.body = b""
        self._call = event.call
        self._over = over
        self._due = 1
        self._watched = False
        self.begun_s = time.monotonic()
        self.gone: Callable[[], object] = bool
        """Is called in the thread that takes calls, if the call is watched and its client goes."""

    def answer(self, body: bytes) -> None:
        """End it with this message."""
        self._end(cygrpc.SendMessageOperation(body, _NO_FLAGS), grpc.StatusCode.OK, "")

    def refuse(self, code: grpc.StatusCode, reason: str) -> None:
        """End it with a status and no message."""
        self._end(None, code, reason)

    def cut_off(self, code: grpc.StatusCode, reason: str) -> None:
        """End it, whatever it waits for."""
        number: int = code.value[0]
        self._call.cancel(number, reason)

    def watch(self) -> None:
        """Notice from now on if the client goes. Only while the call is taken, before anybody may answer it."""
        self._watched = True
        self._due += 1
        self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)

    def receive(self, take: Callable[[Call], None]) -> None:
        """Ask for the message, and take the call when it is there."""

        def received(event: Any) -> None:
            message = event.batch_operations[0].message()
            if message is None:
                self.refuse(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
                return
            self.body = message
            take(self)

        self._call.start_server_batch((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), received)

    def _end(self, message: Any, code: grpc.StatusCode, reason: str) -> None:
        number: int = code.value[0]
        operations = [
            cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),
            cygrpc.SendStatusFromServerOperation(None, number, reason.encode("utf-8", "replace"), _NO_FLAGS),
        ]
        if message is not None:
            operations.append(message)
        if not self._watched:
            operations.append(cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS))
        self._call.start_server_batch(tuple(operations), self._ended)

    def _closed(self, event: Any) -> None:
        self._ended(event)
        if event.batch_operations[0].cancelled():
            self.gone()

    def _ended(self, event: Any) -> None:
        self._due -= 1
        if not self._due:
            self._over(self)


class CallQueue:
    """Takes calls from `start` until `stop`."""

    def __init__(
        self,
        options: list[tuple[str, int]],
        take: Callable[[Call], None],
        refuse: Callable[[Call], None],
        on_bug: Callable[[Exception], None],
        *,
        most: int,
        longest_s: float,
    ) -> None:
        """take: is given each call, in the thread that takes calls, so it must be quick. most: calls that may be under
        way. refuse: is given the others, and refuses them. on_bug: is given what these raise. longest_s: how long a
        call may take, its message and the sending of its answer included.
        """
        self._take = take
        self._refuse = refuse
        self._on_bug = on_bug
        self._most = most
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._longest_s = longest_s
        self._under_way: dict[Call, None] = {}
        """In the order in which they have begun."""
        self._held: list[Call] = []
        self._holding = False
        self._asked = self._stopping = self._shut_down = False
        self._asking = threading.Lock()
        """Held while a call is asked for, so that none is once the server shuts down."""
        self._thread = threading.Thread(target=self._run, name="serve-grpc", daemon=True)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None) -> bool:
        """Listen on an address; False if it cannot be listened on."""
        given = () if credentials is None else (credentials._credentials,)
        try:
            return bool(self._server.add_http2_port(address.encode(), *given))
        except RuntimeError:
            return False

    def start(self) -> None:
        """Take calls from now on."""
        self._server.start()
        self._ask()
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Take no further call; cut off those that have not ended after `grace_s`; return when all have ended."""
        self._holding = True
        time.sleep(_HEARD_S)
        with self._asking:
            self._stopping = True
            self._server.shutdown(self._queue, self._on_shut_down)
        time.sleep(_HEARD_S)
        self._holding = False
        self._thread.join(grace_s)
        if self._thread.is_alive():
            self._server.cancel_all_calls()
            self._thread.join(_CUT_OFF_S)

    def _run(self) -> None:
        look_at_s = 0.0
        while self._under_way or self._asked or not self._shut_down:
            event = self._queue.poll(deadline=time.time() + _LOOK_S)
            try:
                if event.tag is not None:
                    event.tag(event)
                if (now_s := time.monotonic()) >= look_at_s:
                    look_at_s = now_s + _LOOK_S
                    self._look(now_s)
            except Exception as error:  # noqa: BLE001 -- a bug in one call; the others go on
                self._on_bug(error)
            del event  # with it goes the call, if it is over
        self._server.destroy()

    def _look(self, now_s: float) -> None:
        """Cut off calls that take too long, and take those that were held."""
        for call in self._under_way:
            if now_s - call.begun_s < self._longest_s:
                break
            call.cut_off(grpc.StatusCode.DEADLINE_EXCEEDED, f"not over within {self._longest_s:g} s")
        if not self._holding:
            while self._held:
                self._take_now(self._held.pop())

    def _take_or_hold(self, call: Call) -> None:
        if self._holding:
            self._held.append(call)
        else:
            self._take_now(call)

    def _take_now(self, call: Call) -> None:
        try:
            self._take(call)
        except Exception:
            call.refuse(grpc.StatusCode.INTERNAL, "the server failed; its log says why")
            raise

    def _ask(self) -> None:
        with self._asking:
            self._asked = not self._stopping
            if self._asked:
                self._server.request_call(self._queue, self._queue, self._begin)

    def _begin(self, event: Any) -> None:
        """Begin with the call that has come."""
        self._ask()
        if not event.success:
            return
        call = Call(event, self._over)
        self._under_way[call] = None
        if len(self._under_way) > self._most:
            self._refuse(call)
        else:
            call.receive(self._take_or_hold)

    def _over(self, call: Call) -> None:
        del self._under_way[call]

    def _on_shut_down(self, event: Any) -> None:
        self._shut_down = True
