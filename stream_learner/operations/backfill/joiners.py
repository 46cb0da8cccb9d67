"""Further joiners of a backfill, each in a process of its own; the first one runs in the process of the backfill.

A further joiner is this module as a child (`roles/common/child.py`). It ends as soon as its parent is gone; rule R
makes an end at any moment harmless. One that was killed is started again. One that ended with an error is not: its
partitions go to the others, and the joiner in this process meets the same error.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.common import startup
from stream_learner.roles.common.child import Child, Parent
from stream_learner.roles.common.compile import kernels_of_inputs, load_kernels
from stream_learner.roles.common.lifecycle import run_roles
from stream_learner.roles.joiner.report import PartitionView
from stream_learner.roles.joiner.role import JoinerRole

REPORT_EVERY_S = 0.5
AGAIN_S = 5.0
STOP_S = 20.0


def member(config: Config, number: int) -> Config:
    """The configuration of a joiner with a name of its own in the group, so that one that was killed gets back its
    partitions at once."""
    return config.with_values({("join", "instance_id"): f"{config.model}.joiner-{number}"})


def _quiet(config: Config) -> Config:
    """The configuration without a port; on a terminal, which shows a page, with warnings only."""
    config = config.with_values({("telemetry", "http_port"): 0})
    return config.with_values({("telemetry", "log_level"): "warning"}) if sys.stderr.isatty() else config


class FurtherJoiner:
    """A joiner in a process of its own. Used by one thread."""

    def __init__(self, config: Config, number: int, until_tick: int | None) -> None:
        self._config = _quiet(member(config, number))
        self._number = number
        self._until_tick = until_tick
        self._child: Child | None = None
        self._ended_s: float | None = None
        self.views: Sequence[PartitionView] = ()

    @property
    def pid(self) -> int | None:
        """The id of the process that was started last."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        self._child = Child(__name__, {"config": self._config.written(), "until_tick": self._until_tick})
        self._ended_s = None

    def turn(self) -> None:
        """Read its reports; start it again if it was killed."""
        assert self._child is not None
        code = self._child.exit_code
        if code is None:
            for rows in self._child.reports():
                self.views = [PartitionView(*row) for row in rows]
            return
        self.views = ()
        if self._ended_s is None:
            self._ended_s = time.monotonic()
            get_logger("backfill").warning("further_joiner_ended", joiner=self._number, exit_code=code, again=code < 0)
        if code < 0 and time.monotonic() - self._ended_s > AGAIN_S:
            self._child.end(0)
            self.start()

    def ask_to_stop(self) -> None:
        """Let it finish the ticks under way."""
        if self._child is not None:
            self._child.ask_to_stop()

    def wait_stopped(self) -> None:
        """Wait until it has ended; one that does not is killed."""
        if self._child is not None:
            self._child.end(STOP_S)


def join() -> None:
    """Run a joiner in this process, until it is told to stop or its parent is gone."""
    parent = Parent.meet()
    parent.when_gone(lambda: None)
    config = Config.model_validate(parent.message["config"])
    telemetry = config.telemetry
    configure_logging(log_format=telemetry.log_format, log_level=telemetry.log_level, model=config.model)
    if not load_kernels(["joiner", *kernels_of_inputs(config)], stop=parent.stopping):
        startup.end(say=False)
    role = JoinerRole(config, Metrics(config.model), until_tick=parent.message["until_tick"], leave=True)
    threading.Thread(target=_report, args=(role, parent), daemon=True).start()
    try:
        run_roles([role], parent.stopping)
    except StreamLearnerError as error:
        get_logger("joiner").error(
            "stopped", error=type(error).__name__, message=error.message, action=error.action, exit_code=error.exit_code
        )
        raise SystemExit(error.exit_code) from None


def _report(role: JoinerRole, parent: Parent) -> None:
    while not parent.stopping.wait(REPORT_EVERY_S):
        parent.report(role.views())


if __name__ == "__main__":
    join()
