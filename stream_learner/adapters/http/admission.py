"""How much the server takes on at once: requests that are worked on, and the bytes of all their bodies.

A request counts as one to be worked on when its body is complete; until then it holds what has come of its body, and
no place. If all bodies together grow beyond the limit, the largest one that is not complete gives way: its client is
told to come back. So clients that send large bodies slowly take places from each other, not from those whose requests
are small. A body that has been announced and not been sent counts nothing.

Used in the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from stream_learner.adapters.http.refused import RETRY_SOON, Refused


class Admission:
    """Counts requests and bytes.

    working: requests being worked on. receiving: requests whose body is not complete. held_bytes: of all bodies.
    """

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        self._incomplete: set[Body] = set()
        self.working = 0
        self.held_bytes = 0

    @property
    def receiving(self) -> int:
        """How many requests there are whose body is not complete."""
        return len(self._incomplete)

    def has_room(self, size_bytes: int) -> bool:
        """Whether a request with so large a body can be worked on now."""
        return self.working < self._most_requests and self.held_bytes + size_bytes <= self._most_bytes

    @contextmanager
    def body(self) -> Iterator[Body]:
        """Room for the body of one request, given back when the block ends."""
        body = Body(self)
        try:
            yield body
        finally:
            body.give_back()

    @contextmanager
    def work(self) -> Iterator[None]:
        """A place for a request whose body is complete. Raises Refused (503) if too many are worked on."""
        if self.working >= self._most_requests:
            raise Refused(503, "too many requests at once", RETRY_SOON)
        self.working += 1
        try:
            yield
        finally:
            self.working -= 1

    def make_room(self, growing: Body) -> None:
        """Let the largest incomplete bodies give way until all fit. Raises Refused (503) if `growing` is the one."""
        while self.held_bytes > self._most_bytes:
            largest = max(self._incomplete, key=lambda body: body.held_bytes, default=growing)
            if largest is growing or not largest.held_bytes:
                raise _no_room()
            largest.give_way()


class Body:
    """The memory that the server holds for one body."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._task = asyncio.current_task()
        self.held_bytes = 0
        self._gave_way = False

    def wait(self) -> None:
        """More of the body is to come."""
        self._admission._incomplete.add(self)

    def grow(self, size_bytes: int) -> None:
        """Hold so many bytes more. Raises Refused (503) if there is no room for them."""
        self.held_bytes += size_bytes
        self._admission.held_bytes += size_bytes
        self._admission.make_room(self)

    def complete(self) -> None:
        """The body is complete: it gives way to none."""
        self._admission._incomplete.discard(self)

    def give_way(self) -> None:
        """Give the bytes back, and end the waiting for more of them."""
        self._gave_way = True
        self.give_back()
        if self._task is not None:
            self._task.cancel()

    def give_back(self) -> None:
        """Hold nothing any more."""
        self._admission._incomplete.discard(self)
        self._admission.held_bytes -= self.held_bytes
        self.held_bytes = 0

    def check(self) -> None:
        """Raise Refused (503) if the body had to give way."""
        if self._gave_way:
            raise _no_room()


def _no_room() -> Refused:
    return Refused(503, "the bodies of all requests are more than serve.body_memory", RETRY_SOON)
