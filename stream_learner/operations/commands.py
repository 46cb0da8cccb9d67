"""What the commands of roles do: one function each.

In: a checked configuration. Out: roles that run until a signal.
This file must never parse arguments or print results, nor import a role that was not asked for.

1. Answer `/metrics`, `/healthz` and `/readyz`: alive, and not ready.
2. Import the roles and load their kernels.
3. Take over the signals; until now one ended the process at once.
4. Run the roles until a signal. Where no broker answers, they wait, alive and not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from stream_learner.adapters import machine
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.operations.patient_role import PatientRole
from stream_learner.roles.common import startup
from stream_learner.roles.common.lifecycle import HasReadiness, Heartbeat, Stopping, all_alive, all_ready, run_roles
from stream_learner.version import __version__

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.roles.joiner.role import JoinerRole
    from stream_learner.roles.learner.role import LearnerRole

    Role = JoinerRole | LearnerRole
    MakeRole = Callable[[Config, Metrics], Role]


STARTING = "the kernels are being loaded or compiled"
"""Why no role is ready in step 2."""


def run(config: Config, *, wait: bool = True) -> None:
    """Joiner and learner in one process, until a signal. wait: for brokers, where none answers at the start; else it
    raises BrokerUnreachable or RetryLater."""
    _serve(config, {"joiner": _joiner(), "learner": _learner()}, wait)


def join(config: Config, *, leave: bool = False, wait: bool = True) -> None:
    """A joiner, until a signal. leave: at the end it gives its partitions away at once. wait: as of `run`."""
    _serve(config, {"joiner": _joiner(leave=leave)}, wait)


def learn(config: Config, *, standby: bool = False, wait: bool = True) -> None:
    """The learner, until a signal; as a standby it follows until it holds the lease. wait: as of `run`."""
    _serve(config, {"learner": _learner(standby=standby)}, wait)


def _joiner(*, leave: bool = False) -> MakeRole:
    def make(config: Config, metrics: Metrics) -> Role:
        from stream_learner.roles.joiner.role import JoinerRole

        return JoinerRole(config, metrics, leave=leave)

    return make


def _learner(*, standby: bool = False) -> MakeRole:
    def make(config: Config, metrics: Metrics) -> Role:
        from stream_learner.roles.learner.role import LearnerRole

        return LearnerRole(config, metrics, standby=standby)

    return make


def _serve(config: Config, wanted: dict[str, MakeRole], wait: bool) -> None:
    """Run roles until a signal, with `/metrics`, `/healthz` and `/readyz` beside them where they are wanted."""
    learns = "learner" in wanted
    if learns and config.learner.memory_bytes is not None:
        machine.keep_little()  # before the first thread, which would have an arena of its own
    metrics = Metrics(config.model)
    roles: list[Role | PatientRole] = []
    heartbeats = [Heartbeat() for _ in wanted]
    with ExitStack() as stack:
        # Step 1: answer.
        _answer(config, metrics, roles, heartbeats, stack)
        # Step 2: import and load.
        makers = [partial(make, config, metrics) for make in wanted.values()]
        stopping = Stopping()
        made = [PatientRole(make, metrics, stopping) if wait else make() for make in makers]
        from stream_learner.roles.common.compile import load_kernels

        load_kernels(wanted, [config.optimizer()] if learns else [])
        # Step 3: take over the signals.
        stopping.listen(config.shutdown_timeout_ms / 1000)
        startup.over()
        # Step 4: run.
        roles += made
        for role in roles:
            metrics.set(names.BUILD_INFO, 1, version=__version__, role=role.name)
        run_roles(roles, stopping, heartbeats)


def _answer(
    config: Config, metrics: Metrics, roles: Sequence[HasReadiness], heartbeats: Sequence[Heartbeat], stack: ExitStack
) -> None:
    """Step 1, where it is wanted. roles: those that run, none while they are imported and compiled."""
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
    )
    stack.enter_context(server)
