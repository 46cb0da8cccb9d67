"""A module of ours as a child process, `python -m MODULE`: it is told what to do in JSON, reports, and ends with this
process.

A message may hold secrets, so it must never be on a command line or in an environment.

| between the two | |
|---|---|
| the child's standard input | one line of JSON, the message; it ends when the parent has ended, in whatever way |
| the child's standard output | lines of JSON, the child's reports |
| standard error | the parent's: logs |
| SIGTERM | asks the child to stop, as often as it may come |
| SIGINT | the child ignores it: a terminal sends it to parent and child, and the parent asks the child to stop |

A module that runs as a child calls `Parent.meet` first of all, below `if __name__ == "__main__"`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_learner.roles.common.lifecycle import Stopping

READ_BYTES = 1 << 16
STDIN, STDOUT, STDERR = 0, 1, 2
ORPHANED = 128 + signal.SIGTERM
"""The exit code of a child whose parent is gone."""


class Child:
    """A child as its parent sees it. Used by one thread; `alive` and `exit_code` may be asked from any."""

    def __init__(self, module: str, message: Mapping[str, Any], *, descriptors: Sequence[int] = ()) -> None:
        """Start `python -m module`. descriptors: open files that the child has under the same numbers.

        Raises OSError where no process can be started.
        """
        # The child inherits the blocked SIGINT, and unblocks it when it ignores it: else one could end it before that.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=descriptors,
                env=_environment(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to_child, self._from_child = self._process.stdin, self._process.stdout
        os.set_blocking(self._from_child.fileno(), False)
        self._rest = b""
        # A child that has ended already takes no message; its exit code says why.
        with suppress(BrokenPipeError):
            _write_line(self._to_child.fileno(), message)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """The exit code; minus the signal's number where a signal ended it, None while it runs."""
        return self._process.poll()

    def reports(self) -> list[Any]:
        """The reports since the last call, in order. Never waits; a line that is not whole comes in a later call."""
        while chunk := self._from_child.read(READ_BYTES):
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def ask_to_stop(self) -> None:
        """Send SIGTERM: the child finishes what it has begun, and ends."""
        self._process.terminate()

    def end(self, within_s: float) -> None:
        """Wait for its end, and kill it after `within_s`. No reports can be read afterwards. May be called twice."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._to_child.close()
        self._from_child.close()


class Parent:
    """The parent as its child sees it. stopping: is set when the parent asks the child to stop."""

    def __init__(self, message: Any, stopping: Stopping, reports_fd: int) -> None:
        self.message = message
        self.stopping = stopping
        self._reports_fd = reports_fd

    @classmethod
    def meet(cls) -> Parent:
        """Take over signals, standard input and output; wait for the message. Call once, from the main thread.

        From then on, whatever the process writes to standard output goes to standard error. Ends the process where the
        parent ends before it has sent a message.
        """
        stopping = Stopping()
        signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        reports_fd = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(STDIN, READ_BYTES)
            if not chunk:
                os._exit(ORPHANED)
            line += chunk
        return cls(json.loads(line), stopping, reports_fd)

    def report(self, value: Any) -> None:
        """Send a value that JSON can hold. Waits while the parent does not read; does nothing where it has ended."""
        with suppress(BrokenPipeError):
            _write_line(self._reports_fd, value)

    def when_gone(self, act: Callable[[], None]) -> None:
        """Call `act` in a thread of its own when the parent has ended, then end this process."""

        def watch() -> None:
            while os.read(STDIN, READ_BYTES):
                pass
            act()
            os._exit(ORPHANED)

        threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _write_line(descriptor: int, value: Any) -> None:
    """Write a value as one line. Raises BrokenPipeError where nobody reads any more."""
    rest = memoryview(json.dumps(value, separators=(",", ":")).encode() + b"\n")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _imports_from_here() -> bool:
    """Whether this process looks for modules in its working directory."""
    try:
        return bool({"", str(Path.cwd())} & set(sys.path))
    except FileNotFoundError:
        return False


_IMPORTS_FROM_HERE = _imports_from_here()


def _environment() -> dict[str, str]:
    """The environment of this process, for the child.

    The child looks for modules in the working directory only where this process does: with `-m` alone, a file there
    with the name of a library would be imported in its place. (Python 3.10 always looks there.)
    """
    return dict(os.environ) if _IMPORTS_FROM_HERE else {**os.environ, "PYTHONSAFEPATH": "1"}
