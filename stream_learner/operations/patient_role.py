"""A role that waits for brokers at its start, instead of ending because none answers.

In: what makes a role. Out: the role, once it could be opened. This file must never open a role twice: one that could
not be opened is closed, and another one made in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import RetryLater
from stream_learner.roles.common.lifecycle import BrokerOutage, Stopping

if TYPE_CHECKING:
    from stream_learner.roles.joiner.role import JoinerRole
    from stream_learner.roles.learner.role import LearnerRole

    Role = JoinerRole | LearnerRole

AGAIN_S = 2.0
"""How long it rests between two attempts; each asks for a quarter of a minute before it gives up."""


class PatientRole:
    """A joiner or a learner. Run it with `roles.common.lifecycle.run_role`."""

    def __init__(self, make: Callable[[], Role], metrics: Metrics, stopping: Stopping) -> None:
        """stopping: it waits no longer than until the process is told to stop."""
        self._make = make
        self._metrics = metrics
        self._role = make()
        self._is_open = False
        self._stopping = stopping
        self.name = self._role.name
        self._outage = BrokerOutage(get_logger(self.name), "waiting_for_brokers", "brokers_answer")

    @property
    def why_not_ready(self) -> str:
        """What is missing before the role does its part, "" if nothing."""
        if self._outage.since_s is not None:
            return f"the {self.name} waits for brokers: none answers"
        return self._role.why_not_ready

    def open(self) -> None:
        """Open the role as soon as brokers answer. Raises what it raises but for RetryLater."""
        while not self._is_open and not self._stopping.is_set():
            try:
                self._role.open()
                self._is_open = True
                self._outage.answered(time.monotonic())
            except RetryLater as error:
                self._outage.report(str(error))
                self._metrics.inc(names.RETRIES, role=self.name, error=type(error).__name__)
                self._role.close()
                self._stopping.wait(AGAIN_S)
                self._role = self._make()

    def turn(self) -> bool:
        """As the role."""
        return self._role.turn()

    def finish(self) -> None:
        """As the role; nothing where it was told to stop before it was open."""
        if self._is_open:
            self._role.finish()

    def close(self) -> None:
        """As the role."""
        self._role.close()
