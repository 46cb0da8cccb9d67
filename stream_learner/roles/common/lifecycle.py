"""Start, turn, stop: what every role's loop has in common; the clock it goes by, and brokers that are away.

In: signals and a role; reports of trouble, and answers that have come. Out: a loop that turns until it is told to
stop; a log line at each end of an outage. This file must never know what a role does in its turns, nor take silence
for an answer: librdkafka reports a broker that is away now and then, and is silent in between.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from stream_learner.adapters.telemetry.logs import Logger, get_logger
from stream_learner.roles.common import startup

IDLE_S = 0.004
"""How long a loop rests after a turn in which nothing was done."""
OPENING_S = 1.0
"""How long a role that is told to stop while it starts may still take: it has nothing to keep."""


GARBAGE_OBJECTS = 10_000
"""So many more objects than at the last look, and the process looks for garbage among the new ones."""


class Role(Protocol):
    """What `run_role` turns: `open`, then `turn` again and again, then `finish` and `close`, in one thread."""

    def open(self) -> None:
        """Take what the role needs: state, membership, connections."""

    def turn(self) -> bool:
        """Do a bounded piece of work; False if there was nothing to do."""

    def finish(self) -> None:
        """Make durable what has been done. Called when the role was told to stop, never after an error."""

    def close(self) -> None:
        """Give everything back, and make nothing durable. Called once, also after an error."""


class HasReadiness(Protocol):
    """What `all_ready` asks."""

    @property
    def why_not_ready(self) -> str:
        """What is missing before the role does its part, "" if nothing."""


class Stopping:
    """Says when to stop: on the first SIGINT or SIGTERM, or when anyone calls `set`.

    A second signal ends the process at once, with the signal's usual exit code; nothing that was promised
    is lost by that, because every role recovers from a kill. So does a stop that takes longer than it may.

    error: what made the process stop, where it was not a signal.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self.signal: int | None = None
        self.error: BaseException | None = None

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._event.wait(timeout_s)

    def listen(self, timeout_s: float | None = None) -> Stopping:
        """Take over SIGINT and SIGTERM. Call from the main thread.

        timeout_s: how long the process may take to stop, from then on; None for as long as it likes.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        if timeout_s is not None:
            threading.Thread(target=self._end_after, args=(timeout_s,), name="shutdown-watch", daemon=True).start()
        return self

    def _end_after(self, timeout_s: float) -> None:
        self._event.wait()
        time.sleep(timeout_s)
        reason = "" if self.error is None else str(self.error)
        get_logger("process").error("shutdown_timeout_exceeded", seconds=timeout_s, reason=reason)
        self.end_now()

    def end_now(self) -> None:
        """End the process without another word; what is durable stays, what is not will be made again."""
        if self.error is not None:
            os._exit(getattr(self.error, "exit_code", 1))
        os._exit(128 + (self.signal or signal.SIGTERM))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self.signal = number
        self._event.set()


class Heartbeat:
    """When the loop last turned, for the liveness probe: a loop that hangs is not alive.

    A role that has not turned yet is: loading a large state takes its time, and whatever waits there has a time-out.
    """

    def __init__(self, limit_s: float = 60.0) -> None:
        self._limit_s = limit_s
        self._last_s: float | None = None

    def beat(self) -> None:
        self._last_s = time.monotonic()

    @property
    def began(self) -> bool:
        """Whether the loop has turned."""
        return self._last_s is not None

    def alive(self) -> bool:
        return self._last_s is None or time.monotonic() - self._last_s < self._limit_s


def run_role(
    role: Role, stopping: Stopping, heartbeat: Heartbeat | None = None, opened: threading.Event | None = None
) -> None:
    """Open a role, turn it until `stopping`, finish and close it. Errors pass on after the close.

    opened: is set when the role is open, or has failed to.
    """
    pulse = heartbeat or Heartbeat()
    try:
        try:
            role.open()
        finally:
            if opened is not None:
                opened.set()
        while not stopping.is_set():
            pulse.beat()
            if not role.turn():
                stopping.wait(IDLE_S)
        role.finish()
    finally:
        role.close()


@contextmanager
def looking_for_garbage_seldom() -> Iterator[None]:
    """Meanwhile this process looks for garbage after `GARBAGE_OBJECTS` new objects, and not after Python's 700.

    Records come by the thousand, an object each, which is gone once its batch is taken apart: by Python's threshold
    they are looked at several times a batch, for nothing, at a tenth of a joiner's time. Now what is there for a
    batch alone starts no search, and circles that nobody holds are still found, for they stay and are counted.
    """
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_roles(roles: Sequence[Role], stopping: Stopping, heartbeats: Sequence[Heartbeat] = ()) -> None:
    """Run several roles side by side, a thread each; the first error stops all and is raised.

    The calling thread waits, so that signals reach it. After a signal, roles that are still starting end the process:
    they wait for brokers, or load what is on disk, and have nothing to keep.
    """
    errors: list[BaseException] = []

    def run(role: Role, heartbeat: Heartbeat, opened: threading.Event) -> None:
        try:
            run_role(role, stopping, heartbeat, opened)
        except BaseException as error:  # noqa: BLE001 -- handed to the caller, whatever it is
            errors.append(error)
            stopping.error = stopping.error or error
            stopping.set()

    pulses = [*heartbeats, *(Heartbeat() for _ in roles[len(heartbeats) :])]
    opened = [threading.Event() for _ in roles]
    threads = [
        threading.Thread(target=run, args=each, name=type(each[0]).__name__)
        for each in zip(roles, pulses, opened, strict=True)
    ]
    with looking_for_garbage_seldom():
        for thread in threads:
            thread.start()
        _wait_for(threads, opened, stopping)
    if errors:
        raise errors[0]
    if stopping.signal is not None and not any(pulse.began for pulse in pulses):
        get_logger("process").info("stopped_while_starting")


def _wait_for(threads: Sequence[threading.Thread], opened: Sequence[threading.Event], stopping: Stopping) -> None:
    until_s: float | None = None
    while any(thread.is_alive() for thread in threads):
        threads[0].join(timeout=0.1) if threads[0].is_alive() else time.sleep(0.05)
        if stopping.signal is None:
            continue
        until_s = until_s or time.monotonic() + OPENING_S
        if time.monotonic() > until_s and not any(each.is_set() for each in opened):
            startup.end()


def end_where_starting(stopping: Stopping, started: Callable[[], bool], *, say: bool = True) -> None:
    """From now on, a process that is told to stop and has not started ends, whatever it waits for; `say` as of
    `startup.end`.

    For what waits in the main thread; `run_roles` sees to it by itself.
    """

    def watch() -> None:
        while not stopping.wait(60.0):
            pass
        time.sleep(OPENING_S)
        if not started():
            startup.end(say=say)

    threading.Thread(target=watch, name="starting-watch", daemon=True).start()


def all_alive(heartbeats: Iterable[Heartbeat]) -> tuple[bool, str]:
    """For the liveness probe: whether every loop turns, and what to say."""
    alive = all(heartbeat.alive() for heartbeat in heartbeats)
    return alive, "ok" if alive else "a loop has not turned for a minute"


def all_ready(roles: Iterable[HasReadiness]) -> tuple[bool, str]:
    """For the readiness probe: whether every role does its part, and what is missing."""
    missing = [reason for role in roles if (reason := role.why_not_ready)]
    return not missing, "; ".join(missing) or "ok"


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class BrokerOutage:
    """One role's view of the brokers. Used by one thread; `since_s` may be asked from any.

    since_s: when it began, by the monotonic clock; None while brokers answer.
    """

    def __init__(self, log: Logger, began: str, ended: str, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        """began, ended: names of the log's events."""
        self.since_s: float | None = None
        self._log = log
        self._began = began
        self._ended = ended
        self._clock_s = clock_s
        self._reported_s = 0.0

    def report(self, reason: str) -> bool:
        """Something could not be done because brokers do not answer; whether that is news."""
        self._reported_s = self._clock_s()
        if self.since_s is not None:
            return False
        self.since_s = self._reported_s
        self._log.warning(self._began, reason=reason)
        return True

    def answered(self, at_s: float) -> None:
        """Brokers have answered at this time; an answer from before the last report says nothing."""
        if self.since_s is not None and at_s > self._reported_s:
            self._log.info(self._ended, seconds=round(self._clock_s() - self.since_s, 1))
            self.since_s = None
