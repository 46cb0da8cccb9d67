"""The joiners of a backfill: one in this process, the others as processes of their own.

In: a configuration, the last tick. Out: joiners that end with this process, and how far each partition has come.
This file must never put the configuration on a command line or in an environment: it may hold secrets.

A further joiner gets its configuration through a pipe, and reports through it. The pipe ends with this process, also
when that is killed, and the joiner with the pipe: rule R makes an end at any moment harmless. A joiner that was killed
is started again; one that ended with an error is not: its partitions go to the others, and the last one is here and
meets the same error.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from stream_learner.config import Config
from stream_learner.edges.metrics import Metrics
from stream_learner.edges.telemetry import configure_logging, get_logger
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.joiner import JoinerRole
from stream_learner.roles.joiner_report import PartitionView
from stream_learner.roles.kernels import compile_with_message
from stream_learner.roles.lifecycle import Stopping, run_roles

REPORT_EVERY_S = 0.5
AGAIN_S = 5.0
STOP_S = 20.0


def member(config: Config, number: int) -> Config:
    """The configuration of a joiner with a name of its own in the group: one that was killed comes back to its
    partitions at once."""
    return config.with_values({("join", "instance_id"): f"{config.model}.joiner-{number}"})


def _quiet(config: Config) -> Config:
    """Without a port of its own; on a terminal, whose page it knows nothing of, without all but warnings."""
    config = config.with_values({("telemetry", "http_port"): 0})
    return config.with_values({("telemetry", "log_level"): "warning"}) if sys.stderr.isatty() else config


class FurtherJoiner:
    """One joiner in a process of its own. Used by one thread."""

    def __init__(self, config: Config, number: int, until_tick: int | None) -> None:
        self._config = _quiet(member(config, number))
        self._number = number
        self._until_tick = until_tick
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ended_s: float | None = None
        self.views: Sequence[PartitionView] = ()

    @property
    def pid(self) -> int | None:
        """Of the process that was started last."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_join, args=(self._config, self._until_tick, theirs), name=f"joiner-{self._number}"
        )
        self._process.start()
        theirs.close()
        self._ended_s = None

    def turn(self) -> None:
        """Take what it reported; start it again when it was killed."""
        assert self._process is not None and self._pipe is not None
        try:
            while self._pipe.poll():
                self.views = self._pipe.recv()
        except EOFError:
            self.views = ()
        if self._process.is_alive():
            return
        code = self._process.exitcode or 0
        if self._ended_s is None:
            self._ended_s = time.monotonic()
            get_logger("backfill").warning("further_joiner_ended", joiner=self._number, exit_code=code, again=code < 0)
        if code < 0 and time.monotonic() - self._ended_s > AGAIN_S:
            self._pipe.close()
            self.start()

    def ask_to_stop(self) -> None:
        """Let it finish the ticks under way."""
        if self._process is not None and self._process.is_alive():
            self._process.terminate()

    def wait_stopped(self) -> None:
        """Wait until it has ended; one that does not is killed."""
        if self._process is None or self._pipe is None:
            return
        self._process.join(STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _join(config: Config, until_tick: int | None, pipe: Connection) -> None:
    """What a further process does: a joiner, until it is told to stop or whoever started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopping = Stopping()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    telemetry = config.telemetry
    configure_logging(log_format=telemetry.log_format, log_level=telemetry.log_level, model=config.model)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    compile_with_message()
    role = JoinerRole(config, Metrics(config.model), until_tick=until_tick)
    threading.Thread(target=_report, args=(role, stopping, pipe), daemon=True).start()
    try:
        run_roles([role], stopping)
    except StreamLearnerError as error:
        get_logger("joiner").error(
            "stopped", error=type(error).__name__, message=error.message, action=error.action, exit_code=error.exit_code
        )
        raise SystemExit(error.exit_code) from None


def _end_with(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        os._exit(128 + signal.SIGTERM)


def _report(role: JoinerRole, stopping: Stopping, pipe: Connection) -> None:
    while not stopping.wait(REPORT_EVERY_S):
        try:
            pipe.send(role.views())
        except OSError:
            return
