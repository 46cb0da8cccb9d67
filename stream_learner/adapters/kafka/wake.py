"""Wakes a thread that waits for one of several things: records of a consumer, or word of another thread."""

from __future__ import annotations

import os
import select
import weakref
from contextlib import suppress


class Wake:
    """One thread waits, any other may wake it; librdkafka does by writing to `fd`. A wake while nobody waits counts."""

    def __init__(self) -> None:
        self._read_fd, self.fd = os.pipe()
        for fd in (self._read_fd, self.fd):
            os.set_blocking(fd, False)
            weakref.finalize(self, os.close, fd)
        self._waiting = select.poll()
        self._waiting.register(self._read_fd, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Wait until somebody wakes this thread, at most `timeout_s`. Returns whether somebody did."""
        woken = bool(self._waiting.poll(timeout_s * 1000))
        if woken:
            os.read(self._read_fd, 4096)
        return woken

    def set(self) -> None:
        """Wake the thread that waits, or the next that would."""
        with suppress(BlockingIOError):  # the pipe is full, so the thread will wake
            os.write(self.fd, b"1")
