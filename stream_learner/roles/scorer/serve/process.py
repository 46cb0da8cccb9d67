"""One process that answers requests over HTTP until a signal.

It must never end with a request unanswered. Told to stop, it is first not ready, so that balancers look elsewhere; then
it accepts no more connections; then it answers the requests it has.

1. Answer probes of health at once, and everything else with 503.
2. Load the kernels and start a scorer for every name; each is ready from its first whole version on.
3. Replace scorers that end, until a signal.
4. For `serve.drain`, be not ready and still answer. This step is left out if no name was ever ready.
5. Close the socket, finish the requests under way, end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from stream_learner.adapters.http.models import ServedModels
from stream_learner.adapters.http.thread import TelemetryServer
from stream_learner.adapters.prediction_server import PredictionServer
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics, merged
from stream_learner.config import Config
from stream_learner.config.references import Reference
from stream_learner.errors import BrokenInvariant
from stream_learner.roles.common.compile import load_kernels
from stream_learner.roles.common.lifecycle import Stopping
from stream_learner.roles.scorer.serve.served_name import ServedName
from stream_learner.version import __version__

TURN_S = 0.2
LOOP_LIMIT_S = 20.0
"""An event loop that has not turned for so long hangs. It turns every second unless the machine is starved."""

Tell = Callable[[int], None]
"""Is called with the port on which the process answers `/metrics` and `/readyz`."""


def served_names(config: Config, *, wait: bool) -> list[ServedName]:
    """The names that the configuration asks for: models and aliases, or the one that `scorer` follows."""
    serve = config.serve
    if serve.models or serve.aliases:
        models = [ServedName(config, name, is_alias=False, wait=wait) for name in serve.models]
        return [*models, *(ServedName(config, name, is_alias=True, wait=wait) for name in serve.aliases)]
    alias = config.scorer.alias
    return [ServedName(config, alias or config.model, is_alias=alias is not None, wait=wait)]


class ServingProcess:
    """Answers requests on a socket, which it closes at the end.

    started: whether any name has been ready.
    """

    def __init__(self, config: Config, listening: socket.socket, stopping: Stopping, *, wait: bool = True) -> None:
        """wait: whether to wait for brokers if none answers at the start. Raises ConfigError for a token or a
        certificate that cannot be used."""
        self._config = config
        self._stopping = stopping
        self.started = False
        self._accepts = False
        self._names = served_names(config, wait=wait)
        self._models = ServedModels({served.name: served for served in self._names})
        self._metrics = Metrics(config.model)
        self._metrics.set(names.BUILD_INFO, 1, version=__version__, role="serve")
        self._metrics.set(names.START_TIME, time.time(), role="serve")
        self._server = PredictionServer(self._models, self._metrics, config.serve, listening, version=__version__)
        self._log = get_logger("serve")

    def run(
        self,
        address: tuple[str, int] | None,
        tell: Tell = lambda port: None,
        *,
        token: Reference | None = None,
        accept_late: bool = False,
    ) -> None:
        """Answer until the process is told to stop.

        address: where to answer `/metrics`, `/healthz` and `/readyz`; None for nowhere. token: what `/metrics` asks
        for. accept_late: accept no request before every model is ready, because other processes accept them meanwhile.
        """
        with ExitStack() as stack:
            stack.callback(self._close)
            if address is not None:
                tell(stack.enter_context(self._telemetry(address, token)).port)
            if not accept_late:
                self._accept()
            self._log.info("serving", port=self._server.port, names=self._models.names)
            if load_kernels(["serve"], stop=self._stopping):
                self._look_after(accept_late)
            self._note_started()  # a model may have come since the last look
            if self.started:
                self._drain()

    def _accept(self) -> None:
        self._server.start()
        self._accepts = True

    def _look_after(self, accept_late: bool) -> None:
        waiting, was_ready = accept_late, False
        while True:
            for served in self._names:
                served.tend()
            reason = self._models.why_not_ready
            self._note_started()
            if waiting and not reason:
                self._accept()
                waiting = False
            if not waiting and not self._server.alive:
                raise BrokenInvariant("the event loop of the server ended by itself")
            if was_ready == bool(reason):
                was_ready = not reason
                say = self._log.info if was_ready else self._log.warning
                say("ready" if was_ready else "not_ready", reason=reason)
            if self._stopping.wait(TURN_S):
                return

    def _note_started(self) -> None:
        self.started |= any(not served.why_not_ready for served in self._names)

    def _drain(self) -> None:
        self._log.info("draining", seconds=self._config.serve.drain_ms / 1000)
        self._server.drain()
        time.sleep(self._config.serve.drain_ms / 1000)

    def _close(self) -> None:
        self._server.close()
        for served in self._names:
            served.close()
        self._log.info("stopped_serving")

    def _telemetry(self, address: tuple[str, int], token: Reference | None) -> TelemetryServer:
        return TelemetryServer(*address, metrics=self, health=self._health, ready=self._readiness, token=token)

    def text(self) -> bytes:
        """The metrics of the server and of each scorer."""
        return merged(({}, metrics.text()) for metrics in (self._metrics, *(n.metrics for n in self._names)))

    def _health(self) -> tuple[bool, str]:
        """A server that accepts nothing yet has no event loop that could hang."""
        if not self._accepts:
            return True, "ok"
        if not self._server.alive:
            return False, "the event loop of the server does not run"
        silent_s = self._server.silent_s
        if silent_s > LOOP_LIMIT_S:
            return False, f"the event loop of the server has not turned for {silent_s:.0f} s"
        return True, "ok"

    def _readiness(self) -> tuple[bool, str]:
        reason = self._models.why_not_ready
        return not reason, reason or "ok"
