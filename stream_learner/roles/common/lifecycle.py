"""The loop that every role has: open, turn until told to stop, finish, close. Also the wall clock, the answers to
probes, and outages of brokers.
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
from typing import Protocol, runtime_checkable

from stream_learner.adapters.telemetry.logs import Logger, get_logger
from stream_learner.roles.common import startup

IDLE_S = 0.004
"""How long a loop rests after a turn in which nothing was done, unless its role knows better."""
LOOK_S = 0.5
"""How often the process's main thread looks at the threads of its roles; the end of the first one wakes it."""
OPENING_S = 1.0
"""How long a role may take to open after it was told to stop; then the process ends, for it has nothing to keep."""


GARBAGE_OBJECTS = 10_000
"""The collector looks at the new objects when there are this many more than at its last look."""


class OpenRole(Protocol):
    """A role that is open, as `run_role` runs it: `turn` again and again, then `finish` and `close`.

    It may have a method `rest` too, which waits after a turn without work for what the role knows to wait for, a moment
    at most.
    """

    def turn(self) -> bool:
        """Do a bounded piece of work; False if there was nothing to do."""

    def finish(self) -> None:
        """Make durable what has been done. Called when the role was told to stop, never after an error."""

    def close(self) -> None:
        """Release everything, and make nothing durable. Called once, also after an error."""


class Role(Protocol):
    """A role with its settings, which holds nothing yet."""

    def open(self) -> OpenRole | None:
        """Load state, connect, join the group; release all of it before an error is raised. None for a role that was
        told to stop while it waited to open. Called once, in the thread that turns the role.
        """


class HasReadiness(Protocol):
    """A role as `all_ready` asks it."""

    @property
    def why_not_ready(self) -> str:
        """The reason why the role does not do its part, "" if it does."""


@runtime_checkable
class WaitsWhileReady(Protocol):
    """A role that may wait for traffic although it does its part."""

    @property
    def waits(self) -> str:
        """What it waits for, "" for nothing."""


class Stopping:
    """Is set by the first SIGINT or SIGTERM, or by a call of `set`.

    A second signal ends the process at once, with the signal's usual exit code; so does a stop that takes too long.
    Nothing durable is lost by that, because every role recovers from a kill.

    error: what made the process stop, None for a signal.
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

        timeout_s: how long the process may take to stop, once it was told to; None for no limit.
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
        """End the process at once; what is durable stays, the rest is made again at the next start."""
        if self.error is not None:
            os._exit(getattr(self.error, "exit_code", 1))
        os._exit(128 + (self.signal or signal.SIGTERM))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self.signal = number
        self._event.set()


class Heartbeat:
    """The time of the last turn, for the liveness probe: a loop that hangs is not alive.

    A role that has not turned yet is alive: loading a large state takes long, and everything that waits has a time-out.
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
    """Open a role, turn it until `stopping` is set, finish and close it. Raises what the role raises, after the close.

    opened: is set when `open` has returned or raised.
    """
    pulse = heartbeat or Heartbeat()
    try:
        running = role.open()
    finally:
        if opened is not None:
            opened.set()
    if running is None:
        return
    try:
        while not stopping.is_set():
            pulse.beat()
            if not running.turn():
                rest(running, stopping)
        running.finish()
    finally:
        running.close()


def rest(role: OpenRole, stopping: Stopping) -> None:
    """Wait after a turn without work: as the role does if it knows how, else for `IDLE_S`."""
    own: Callable[[], None] | None = getattr(role, "rest", None)
    if own is None:
        stopping.wait(IDLE_S)
    else:
        own()


class Task:
    """A thread with a signal to stop it. error: what it ended with, None while it runs or when it ended well."""

    def __init__(self, name: str, run: Callable[[Stopping], None]) -> None:
        self.error: BaseException | None = None
        self._run = run
        self._stopping = Stopping()
        self._thread = threading.Thread(target=self._guard, name=name, daemon=True)

    def start(self) -> Task:
        self._thread.start()
        return self

    def stop(self, timeout_s: float | None = None) -> None:
        """Tell the thread to stop, and wait until it has. May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _guard(self) -> None:
        try:
            self._run(self._stopping)
        except BaseException as error:  # noqa: BLE001 -- kept for whoever watches the task
            self.error = error


@contextmanager
def looking_for_garbage_seldom() -> Iterator[None]:
    """Within this, the collector runs after `GARBAGE_OBJECTS` new objects instead of Python's 700.

    A batch has thousands of records, each an object that is freed with the batch. By Python's threshold the collector
    would run several times a batch, find nothing, and take a tenth of a joiner's time. Cycles of objects stay, are
    counted, and so are still found.
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
        threads[0].join(timeout=LOOK_S) if threads[0].is_alive() else time.sleep(0.05)
        if stopping.signal is None:
            continue
        until_s = until_s or time.monotonic() + OPENING_S
        if time.monotonic() > until_s and not any(each.is_set() for each in opened):
            startup.end()


def end_where_starting(stopping: Stopping, started: Callable[[], bool], *, say: bool = True) -> None:
    """From now on, end the process when it is told to stop before it has started, whatever it waits for.

    For processes that wait in the main thread; `run_roles` does this by itself. started: whether it has started. say:
    as of `startup.end`.
    """

    def watch() -> None:
        while not stopping.wait(60.0):
            pass
        time.sleep(OPENING_S)
        if not started():
            startup.end(say=say)

    threading.Thread(target=watch, name="starting-watch", daemon=True).start()


def all_alive(heartbeats: Iterable[Heartbeat]) -> tuple[bool, str]:
    """For the liveness probe: whether every loop turns, and the text of the answer."""
    alive = all(heartbeat.alive() for heartbeat in heartbeats)
    return alive, "ok" if alive else "a loop has not turned for a minute"


def all_ready(roles: Iterable[HasReadiness]) -> tuple[bool, str]:
    """For the readiness probe: whether every role does its part, and the text of the answer, with what roles that are
    ready wait for.
    """
    asked = [*roles]
    missing = [reason for role in asked if (reason := role.why_not_ready)]
    waits = [role.waits for role in asked if isinstance(role, WaitsWhileReady) and role.waits]
    return not missing, "; ".join(missing or ["ok", *waits])


def monotonic_ms() -> int:
    """A clock that nobody sets, ms since some moment."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class BrokerOutage:
    """An outage as one role sees it: logged when it begins and when it ends. Used by one thread; `since_s` by any.

    Silence is no answer: librdkafka reports a broker that is away now and then, and is silent in between. So an outage
    lasts until an answer has come.

    since_s: when the outage began, by the monotonic clock; None while brokers answer.
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
        """Brokers did not answer. Returns whether an outage begins with that."""
        self._reported_s = self._clock_s()
        if self.since_s is not None:
            return False
        self.since_s = self._reported_s
        self._log.warning(self._began, reason=reason)
        return True

    def answered(self, at_s: float) -> None:
        """Brokers have answered at this time; an answer from before the last report ends nothing."""
        if self.since_s is not None and at_s > self._reported_s:
            self._log.info(self._ended, seconds=round(self._clock_s() - self.since_s, 1))
            self.since_s = None
