"""What the commands of the command line do: one function each.

In: a checked configuration. Out: roles that run until a signal, or plain rows and fields to print.
This file must never parse arguments or print results.
"""

from __future__ import annotations

from contextlib import ExitStack

from stream_learner import __version__
from stream_learner.config import Config
from stream_learner.edges import allocator
from stream_learner.edges import metric_names as names
from stream_learner.edges.http import TelemetryServer
from stream_learner.edges.metrics import Metrics
from stream_learner.roles.inspection import inspect_feature, inspect_snapshot, inspect_weights
from stream_learner.roles.joiner import JoinerRole
from stream_learner.roles.kernels import compile_with_message
from stream_learner.roles.learner import LearnerRole
from stream_learner.roles.lifecycle import Heartbeat, Stopping, all_alive, all_ready, run_roles
from stream_learner.roles.log_inspection import inspect_record, inspect_tick
from stream_learner.roles.scoring import score
from stream_learner.roles.topics import ensure_topics

__all__ = [
    "ensure_topics",
    "inspect_feature",
    "inspect_record",
    "inspect_snapshot",
    "inspect_tick",
    "inspect_weights",
    "join",
    "learn",
    "run",
    "score",
]


def run(config: Config) -> None:
    """Joiner and learner in one process, until a signal."""
    metrics = Metrics(config.model)
    _serve(config, metrics, [JoinerRole(config, metrics), LearnerRole(config, metrics)])


def join(config: Config, *, leave: bool = False) -> None:
    """A joiner, until a signal. leave: at the end it gives its partitions away at once."""
    metrics = Metrics(config.model)
    _serve(config, metrics, [JoinerRole(config, metrics, leave=leave)])


def learn(config: Config, *, standby: bool = False) -> None:
    """The learner, until a signal; as a standby it follows until it holds the lease."""
    metrics = Metrics(config.model)
    _serve(config, metrics, [LearnerRole(config, metrics, standby=standby)])


def _serve(config: Config, metrics: Metrics, roles: list[JoinerRole | LearnerRole]) -> None:
    """Run roles until a signal, with `/metrics`, `/healthz` and `/readyz` beside them where they are wanted."""
    learns = any(isinstance(role, LearnerRole) for role in roles)
    if learns and config.learner.memory_bytes is not None:
        allocator.keep_little()  # before the first thread, which would have an arena of its own
    compile_with_message(optimizers=[config.optimizer()] if learns else [])
    stopping = Stopping().listen(config.shutdown_timeout_ms / 1000)
    heartbeats = [Heartbeat() for _ in roles]
    with ExitStack() as stack:
        if config.telemetry.http_port:
            stack.enter_context(
                TelemetryServer(
                    config.telemetry.http_host,
                    config.telemetry.http_port,
                    metrics=metrics,
                    health=lambda: all_alive(heartbeats),
                    ready=lambda: all_ready(roles),
                )
            )
        for role in roles:
            metrics.set(names.BUILD_INFO, 1, version=__version__, role=role.name)
        run_roles(roles, stopping, heartbeats)
