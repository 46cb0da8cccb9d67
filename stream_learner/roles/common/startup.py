"""A role that is told to stop while it starts ends at once, with exit code 0 and a word in the log.

In: SIGTERM or SIGINT. Out: the end of the process. This file must never import what takes time before it listens: a
signal that comes while a role is imported is heard too.

A role that starts has nothing to keep. When it has something, `Stopping.listen` takes over the signals, or `over` gives
them back.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def starting() -> Iterator[None]:
    """From here on the process starts, until a role says that this is over; at the end all is as it was before.

    Nothing that is imported meanwhile is garbage, so nobody looks for garbage in it. Does nothing outside of the main
    thread, which alone hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    start = _Start()
    _STARTS.append(start)
    try:
        yield
    finally:
        over()
        _STARTS.remove(start)


def imported() -> None:
    """What the role needs is imported: look for garbage again, but not in that."""
    for start in _STARTS:
        start.collect()


def over() -> None:
    """The role has started: signals are again what they were before, unless it has taken them over itself."""
    for start in _STARTS:
        start.collect()
        start.give_back_signals()


def end(*, say: bool = True) -> None:
    """End the process with exit code 0: the role was stopped while it started. say: in the log; a child leaves that to
    its parent."""
    if say:
        _say()
    os._exit(0)


def _say() -> None:
    from stream_learner.adapters.telemetry.logs import configure_logging, get_logger, is_configured

    if not is_configured():
        configure_logging()
    get_logger("process").info("stopped_while_starting")


class _Start:
    """What was before a role began to start, and whether it was told to stop since."""

    def __init__(self) -> None:
        self._told = False
        self._collects = gc.isenabled()
        gc.disable()
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}

    def collect(self) -> None:
        """Look for garbage again where it was looked for before, but not in what there is now."""
        if self._collects:
            gc.freeze()
            gc.enable()
            self._collects = False

    def give_back_signals(self) -> None:
        """Signals as they were before, where nobody else has taken them over since."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """The first signal ends the process from another thread: this one may be about to write to the log itself."""
        if self._told:
            os._exit(128 + number)
        self._told = True
        threading.Thread(target=end, name="stopped-while-starting").start()


_STARTS: list[_Start] = []
