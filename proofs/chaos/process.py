"""One process of a role: started, watched from outside, stopped, killed.

Only processes started here are touched, and none is left behind.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_learner.adapters.kafka.clients import FILES
from tests.kafka_broker.broker import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
FILES_LEFT = FILES - 4


class Process:
    """A process in a session of its own, which the kernel kills with this one. Its log holds its output."""

    def __init__(self, command: Sequence[str], log_file: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log_file = log_file
        self.started_s = time.monotonic()
        self.hung = False
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT, **(environment or {})},
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        self._seen: dict[str, float] = {}
        self._read_bytes = 0
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code: None while it runs, negative if a signal has ended it."""
        return self._process.poll()

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self.exit_code is None

    @property
    def log(self) -> str:
        """Its log so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def seen_s(self, event: str) -> float | None:
        """The time when this event was last found in its log, by the monotonic clock; None before."""
        self._read_on()
        return self._seen.get(event)

    def _read_on(self) -> None:
        with self.log_file.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            event = _event_of(line)
            if event:
                self._seen[event] = time.monotonic()

    def has_open(self, name: str) -> bool:
        """Whether it has a file of this name open."""
        try:
            return any(str(Path(link).readlink()).endswith(name) for link in _links(self.pid))
        except OSError:
            return False

    def limit_files(self) -> None:
        """Leave it a few files, too few for a client, also when its connections to brokers are closed."""
        with suppress(OSError):  # it has just ended
            kept = {int(link.name) for link in _links(self.pid) if "socket:" not in str(link.readlink())}
            left = (number for number in itertools.count() if number not in kept)
            _, most = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (next(itertools.islice(left, FILES_LEFT, None)), most))

    def free_files(self) -> None:
        """End `limit_files`."""
        with suppress(OSError):
            _, most = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (most, most))

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.alive:
            os.killpg(self.pid, number)
            self.hung = number == signal.SIGSTOP or (self.hung and number != signal.SIGCONT)

    def kill(self) -> bool:
        """Kill it with kill -9. Returns whether that ended it."""
        if not self.alive:
            return False
        self.signal(signal.SIGKILL)
        return self._process.wait() == -signal.SIGKILL

    def tell_to_stop(self) -> None:
        """Send SIGTERM. The process must not be stopped by SIGSTOP."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)

    def wait(self, patience_s: float) -> int | None:
        """Wait until it has stopped. Returns its exit code, None if it does not stop in time."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None

    def last_lines(self, count: int = 8) -> str:
        """The last lines of its log."""
        return "\n".join(line[:400] for line in self.log.splitlines()[-count:])


def _links(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


def _event_of(line: bytes) -> str:
    try:
        found: Any = json.loads(line)
    except ValueError:
        return ""
    return str(found.get("event", "")) if isinstance(found, dict) else ""
