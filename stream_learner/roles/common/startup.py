"""Ends a process that gets SIGTERM or SIGINT while its role starts: at once, with exit code 0 and a line in the log.

A role that starts has nothing to keep yet. Once it has, `Stopping.listen` takes over the signals, or `over` gives them
back. Signals count while modules are imported too, so this file must never import anything that takes time.
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
    """Within this, the process starts, until `over` is called; at the end signals and collector are as before.

    Nothing that is imported meanwhile is garbage, so the collector is off. Does nothing outside of the main thread,
    which alone gets signals.
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
    """The role's modules are imported: switch the collector on again, for new objects only."""
    for start in _STARTS:
        start.collect()


def over() -> None:
    """The role has started: signals are as before, unless the role has taken them over itself."""
    for start in _STARTS:
        start.collect()
        start.give_back_signals()


def end(*, say: bool = True) -> None:
    """End the process with exit code 0, because it was told to stop while it started.

    say: whether to log that; a child leaves it to its parent.
    """
    if say:
        _say()
    os._exit(0)


def _say() -> None:
    from stream_learner.adapters.telemetry.logs import configure_logging, get_logger, is_configured

    if not is_configured():
        configure_logging()
    get_logger("process").info("stopped_while_starting")


class _Start:
    """Signals and collector as they were before a role began to start, and whether it was told to stop since."""

    def __init__(self) -> None:
        self._told = False
        self._collects = gc.isenabled()
        gc.disable()
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}

    def collect(self) -> None:
        """Switch the collector on if it was on before; it never looks at the objects that there are now."""
        if self._collects:
            gc.freeze()
            gc.enable()
            self._collects = False

    def give_back_signals(self) -> None:
        """Restore the signals that nobody else has taken over since."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """The first signal ends the process from another thread: this one may be writing to the log itself."""
        if self._told:
            os._exit(128 + number)
        self._told = True
        threading.Thread(target=end, name="stopped-while-starting").start()


_STARTS: list[_Start] = []
