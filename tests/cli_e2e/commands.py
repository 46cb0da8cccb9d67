"""Commands of the command line, as processes of their own or in the process of the tests.

It must never leave a process behind, nor run a role in the tests' own process: a role takes over signals, and may end
the process.

`run` costs a second of processor time for the start of Python, and `answer_of` none: what a command answers is asked
with `answer_of`; how a process starts, ends, reads a pipe or heeds a signal, with `run` and `started`.
`test_here_and_as_a_process.py` holds one against the other.
"""

from __future__ import annotations

import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import stream_learner
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.cli import main
from tests.waiting import patience, wait_for

PACKAGE_ROOT = str(Path(stream_learner.__file__).parents[1])
ROLES = ("run", "join", "learn", "serve", "backfill", "demo")
"""Commands that take over signals, and end the process when they have been told to and do not."""
OUR_FRAME = re.compile(r'File ".*stream_learner/(\S+)", line (\d+) in (\S+)')
OURS = ("STREAM_LEARNER", "COLUMNS", "LINES")


@dataclass
class Ended:
    """The exit code and the output of a command that has ended. seconds: how long a process took, for a summary: no
    test asserts it.
    """

    code: int
    out: str
    err: str
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log."""
        return [json.loads(line) for line in self.err.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error that it stopped with."""
        (found,) = (event for event in self.events if event["event"] == "stopped")
        assert found["exit_code"] == self.code
        return found


def _kept() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


def environment() -> dict[str, str]:
    """The environment without settings of ours."""
    return {**_kept(), "PYTHONPATH": PACKAGE_ROOT, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


class Command:
    """A command that runs, and what it writes. Use `started`. env: its environment, None for that of the tests."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, piped: bool = False) -> None:
        self.began = time.time()
        self._began_s = time.monotonic()
        self._events: list[dict[str, Any]] = []
        self._read_up_to = 0
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by `close`
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 -- the same
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else self._out,
            stderr=self._err,
            env=env,
            start_new_session=True,
        )

    @property
    def err(self) -> str:
        """The process's stderr so far."""
        return _text_of(self._err)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log so far, whole lines only."""
        new = os.pread(self._err.fileno(), os.fstat(self._err.fileno()).st_size - self._read_up_to, self._read_up_to)
        whole = new[: new.rfind(b"\n") + 1]
        self._read_up_to += len(whole)
        self._events += [json.loads(line) for line in whole.splitlines()]
        return self._events

    def wait_for(self, event: str) -> dict[str, Any]:
        """Wait until it has logged an event; the first of that name."""

        def logged() -> dict[str, Any] | None:
            ended = self.process.poll() is not None
            found = next((line for line in self.events if line["event"] == event), None)
            assert found is not None or not ended, f"ended with {self.process.returncode} before {event}:\n{self.err}"
            return found

        return wait_for(logged, lambda: f"{event} in the log; its threads: {self._stacks()}\n{self.err}")

    def _stacks(self) -> str:
        """The stacks of its threads in our own files, innermost first. Asking for them ends the process."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait(patience(10.0))
        threads = self.err.rpartition("Fatal Python error")[2].split("\n\n")
        stacks = [" < ".join(f"{name}:{line} {f}" for name, line, f in OUR_FRAME.findall(of)) for of in threads]
        return "; ".join(stack for stack in stacks if stack)

    def ended(self) -> Ended:
        """Wait for its end."""
        try:
            code = self.process.wait(patience())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; its threads: {self._stacks()}\n{self.err}") from None
        out = "" if self.process.stdout is not None else _text_of(self._out)
        return Ended(code, out, self.err, time.monotonic() - self._began_s)

    def stop(self, number: int = signal.SIGTERM) -> Ended:
        """Send a signal, and wait for the end; `seconds` is how long that took."""
        self._begin_to_count()
        self.process.send_signal(number)
        return self.ended()

    def _begin_to_count(self) -> None:
        self._began_s = time.monotonic()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._out, self._err):
            if stream is not None:
                stream.close()


def _started(arguments: Sequence[str | Path], *, piped: bool = False) -> Command:
    words = [sys.executable, "-m", "stream_learner", *map(str, arguments)]
    return Command(words, env=environment(), piped=piped)


@contextmanager
def started(*arguments: str | Path, piped: bool = False) -> Iterator[Command]:
    """`stream-learner <arguments>`, gone when the block ends."""
    command = _started(arguments, piped=piped)
    try:
        yield command
    finally:
        command.close()


def answer_of(*arguments: str | Path) -> Ended:
    """Run a command to its end in this process, as `stream-learner` would, without settings from the environment.

    Beside it no other thread may write to stdout or stderr. Not for ROLES.
    """
    assert arguments[0] not in ROLES or "--help" in arguments, "a role takes over the signals of its process"
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: object = 0
    # What there is when a command starts may become garbage here, so it is not left out of the search for it.
    unfrozen = mock.patch.object(gc, "freeze")
    with unfrozen, mock.patch.dict(os.environ, _kept(), clear=True), redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        finally:
            configure_logging(log_format="console", stream=io.StringIO())  # the next log is another one's
    assert code is None or isinstance(code, int), code
    return Ended(code or 0, *(text.buffer.getvalue().decode() for text in (out, err)))  # type: ignore[attr-defined]


def answers_of(*commands: Sequence[str | Path]) -> list[Ended]:
    """Run commands to their ends in this process, one after the other."""
    return [answer_of(*arguments) for arguments in commands]


def run(*arguments: str | Path) -> Ended:
    """Run a command to its end, as a process."""
    with started(*arguments) as command:
        return command.ended()


def run_side_by_side(*commands: Sequence[str | Path]) -> list[Ended]:
    """Run commands to their ends, all at once."""
    running = [_started(arguments) for arguments in commands]
    try:
        return [command.ended() for command in running]
    finally:
        for command in running:
            command.close()


def _text_of(file: Any) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")
