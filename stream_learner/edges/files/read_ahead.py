"""Items made in a thread of their own, a few ahead of whoever takes them.

In: an iterator. Out: its items, in order, and whatever it raised.
This file must never leave its thread behind when nobody takes items any more.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

_LOOK_EVERY_S: Final = 0.2


class _End:
    """What follows the last item: why it was the last."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Ahead(Generic[Item]):
    """The thread, and the queue between it and its taker."""

    def __init__(self, make: Callable[[], Iterator[Item]], items: int) -> None:
        self._make = make
        self._queue: queue.Queue[Item | _End] = queue.Queue(items)
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def taken(self) -> Iterator[Item]:
        self._thread.start()
        try:
            while not isinstance(item := self._queue.get(), _End):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            self._unwanted.set()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._make():
                if not self._put(item):
                    return
        except BaseException as found:  # noqa: BLE001 - raised again where items are taken
            error = found
        self._put(_End(error))

    def _put(self, item: Item | _End) -> bool:
        """Hand an item over; False once nobody wants one."""
        while not self._unwanted.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_EVERY_S)
            except queue.Full:
                continue
            return True
        return False


def read_ahead(make: Callable[[], Iterator[Item]], items: int) -> Iterator[Item]:
    """The items of the iterator that `make` returns, up to `items` of them made ahead in a thread.

    What it raises is raised here, in its place.
    """
    return _Ahead(make, items).taken()
