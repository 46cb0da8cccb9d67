"""`run`, `join` and `learn`: roles until a signal, and how they wait for brokers at their start.

This file must never import a role that was not asked for: imports take most of the time of a start.

1. Answer `/metrics`, `/healthz` and `/readyz`: alive, and not ready.
2. Import the roles and load their kernels.
3. Take over the signals; until now a signal ended the process at once.
4. Run the roles until a signal. If no broker answers, they wait, alive and not ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from stream_learner.adapters import machine
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import RetryLater
from stream_learner.roles.common import startup
from stream_learner.roles.common.lifecycle import (
    BrokerOutage,
    HasReadiness,
    Heartbeat,
    OpenRole,
    Stopping,
    WaitsWhileReady,
    all_alive,
    all_ready,
    run_roles,
)
from stream_learner.version import __version__

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.roles.joiner.role import JoinerRole
    from stream_learner.roles.learner.role import LearnerRole

    Role = JoinerRole | LearnerRole
    MakeRole = Callable[[Config, Metrics], Role]


AGAIN_S = 2.0
"""Pause between two attempts to open a role; each attempt asks brokers for a quarter of a minute before it fails."""
STARTING = "the kernels are being loaded or compiled"
"""The reason why no role is ready in step 2."""


def run(config: Config, *, wait: bool = True) -> None:
    """Run joiner and learner in one process, until a signal.

    wait: whether to wait for brokers if none answers at the start; if not, raises BrokerUnreachable or RetryLater.
    """
    _serve(config, {"joiner": _joiner, "learner": _learner}, wait)


def join(config: Config, *, leave: bool = False, wait: bool = True) -> None:
    """Run a joiner until a signal. leave: whether it gives its partitions away when it stops. wait: see `run`."""
    _serve(config, {"joiner": partial(_joiner, leave=leave, looks=True)}, wait)


def learn(config: Config, *, standby: bool = False, wait: bool = True) -> None:
    """Run the learner until a signal. standby: whether it only follows until it holds the lease. wait: see `run`."""
    _serve(config, {"learner": partial(_learner, standby=standby)}, wait)


def _joiner(*, leave: bool = False, looks: bool = False) -> MakeRole:
    """looks: whether it looks at its topics; beside a learner that does, it need not."""
    from stream_learner.operations.doctor.watch import FIRST_S, TopicsLook
    from stream_learner.roles.joiner.role import JoinerRole

    look = partial(TopicsLook, role="joiner", for_s=FIRST_S) if looks else None
    return partial(JoinerRole, leave=leave, look=look)


def _learner(*, standby: bool = False) -> MakeRole:
    from stream_learner.operations.doctor.watch import TopicsLook
    from stream_learner.roles.learner.role import LearnerRole

    return partial(LearnerRole, standby=standby, look=TopicsLook)


def _on_its_log(make: MakeRole, config: Config, metrics: Metrics) -> Role:
    """A role with the key rule of the log. Raises what `with_key_rule` raises."""
    from stream_learner.roles.common.key_rule import with_key_rule

    return make(with_key_rule(config), metrics)


def _serve(config: Config, wanted: dict[str, Callable[[], MakeRole]], wait: bool) -> None:
    """Run roles until a signal, in the steps above."""
    learns = "learner" in wanted
    if learns and config.learner.memory_bytes is not None:
        machine.keep_little()  # before the first thread, which would have an arena of its own
    else:
        machine.keep_for_batches()
    metrics = Metrics(config.model)
    for name in wanted:
        metrics.set(names.START_TIME, time.time(), role=name)
        metrics.set(names.READY, 0, role=name)
    roles: list[Role | RoleAwaitingBrokers] = []
    heartbeats = [Heartbeat() for _ in wanted]
    with ExitStack() as stack:
        # Step 1: answer.
        _answer(config, metrics, roles, heartbeats, stack)
        # Step 2: import and load.
        makers = {name: partial(_on_its_log, load(), config, metrics) for name, load in wanted.items()}
        stopping = Stopping()
        made = [RoleAwaitingBrokers(name, make, metrics, stopping) if wait else make() for name, make in makers.items()]
        from stream_learner.roles.common.compile import kernels_of_inputs, load_kernels

        inputs = kernels_of_inputs(config) if "joiner" in wanted else []
        load_kernels([*wanted, *inputs], [config.optimizer()] if learns else [])
        # Step 3: take over the signals.
        stopping.listen(config.shutdown_timeout_ms / 1000)
        startup.over()
        # Step 4: run.
        roles += made
        for role in roles:
            metrics.set(names.BUILD_INFO, 1, version=__version__, role=role.name)
            metrics.follow(names.READY, partial(_is_ready, role), role=role.name)
        run_roles(roles, stopping, heartbeats)


def _is_ready(role: HasReadiness) -> float:
    return float(not role.why_not_ready)


def _answer(
    config: Config, metrics: Metrics, roles: Sequence[HasReadiness], heartbeats: Sequence[Heartbeat], stack: ExitStack
) -> None:
    """Take step 1, if there is a port for it. roles: those that run, empty until step 4."""
    telemetry = config.telemetry
    if not telemetry.http_port:
        return
    from stream_learner.adapters.http.thread import TelemetryServer

    server = TelemetryServer(
        telemetry.http_host,
        telemetry.http_port,
        metrics=metrics,
        health=lambda: all_alive(heartbeats),
        ready=lambda: all_ready(roles) if roles else (False, STARTING),
        token=telemetry.token,
    )
    stack.enter_context(server)


class RoleAwaitingBrokers:
    """A joiner or a learner that waits for brokers at its start, instead of ending because none answers.

    A new role is made in the place of one that could not be opened: no role is opened twice.
    """

    def __init__(self, name: str, make: Callable[[], Role], metrics: Metrics, stopping: Stopping) -> None:
        """stopping: ends the waiting when the process is told to stop."""
        self._make = make
        self._metrics = metrics
        self._role: Role | None = None
        self._stopping = stopping
        self.name = name
        self._outage = BrokerOutage(get_logger(self.name), "waiting_for_brokers", "brokers_answer")

    @property
    def why_not_ready(self) -> str:
        """The reason why the role does not do its part yet, "" if it does."""
        if self._outage.since_s is not None:
            return f"the {self.name} waits for brokers: none answers"
        role = self._role
        return f"the {self.name} asks for its training log" if role is None else role.why_not_ready

    @property
    def waits(self) -> str:
        """What the role waits for although it is ready, "" for nothing."""
        return self._role.waits if isinstance(self._role, WaitsWhileReady) else ""

    def open(self) -> OpenRole | None:
        """Open the role as soon as brokers answer; None if it is told to stop before. Raises what the role raises,
        except RetryLater.
        """
        while not self._stopping.is_set():
            try:
                self._role = self._make()
                opened = self._role.open()
            except RetryLater as error:
                self._outage.report(str(error))
                self._metrics.inc(names.RETRIES, role=self.name, error=type(error).__name__)
                self._role = None
                self._stopping.wait(AGAIN_S)
            else:
                self._outage.answered(time.monotonic())
                return opened
        return None
