"""Roles as processes of their own, so that they can be killed.

It must never leave a process behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import stream_learner
from tests.e2e.configuration import Tree
from tests.e2e.site import STOP_S, Site, wait_until
from tests.waiting import patience

PACKAGE_ROOT = Path(stream_learner.__file__).parents[1]


class RoleProcess:
    """`stream-learner <command>` for a site. Use `process_of`."""

    def __init__(self, site: Site, command: str, env: Mapping[str, str], changes: Mapping[str, Tree]) -> None:
        self._config = site.write_config(**changes)
        self._log_file = self._config.with_suffix(".log")
        arguments = [sys.executable, "-m", "stream_learner", *command.split(), "--config", str(self._config)]
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The events that the process has logged so far."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait_for(self, event: str) -> None:
        """Wait until an event was logged."""

        def seen() -> bool:
            assert self.exit_code is None, f"ended with {self.exit_code}:\n{self.log}"
            return event in self.log

        wait_until(seen, f"{event} in the log")

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Stop its clock, as a suspended machine does; `resume` goes on."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def wait_ended(self) -> int:
        """Wait until it has ended by itself; its exit code."""
        wait_until(lambda: self.exit_code is not None, "the process ends")
        return self._process.wait()

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(patience(STOP_S))


@contextmanager
def process_of(
    site: Site, command: str, env: Mapping[str, str] | None = None, **changes: Tree
) -> Iterator[RoleProcess]:
    """A process that is gone when the block ends; asked to stop, where the block did not kill it."""
    process = RoleProcess(site, command, env or {}, changes)
    try:
        yield process
        if process.exit_code is None:
            assert process.stop() == 0, process.log
    except BaseException:
        sys.stderr.write(f"--- {command}\n{process.log}\n")
        raise
    finally:
        if process.exit_code is None:
            process.kill()
