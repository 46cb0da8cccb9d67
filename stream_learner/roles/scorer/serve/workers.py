"""`serve`: runs one process that answers requests, or several that share a socket.

Several processes are started here, and started again when they end; one that keeps failing is started at most every
half minute. This process then answers no request itself.

The socket is made once and handed to every worker: if one ends, another accepts the connections that wait. Each worker
has replicas of its own. A worker is this module as a child (`roles/common/child.py`); it drains and ends when its
parent is gone.
"""

from __future__ import annotations

import socket
import sys
import time
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from urllib.error import URLError

from stream_learner.adapters.http.thread import TelemetryServer
from stream_learner.adapters.prediction_server import listen_for_predictions
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
from stream_learner.adapters.telemetry.metrics import Metrics, merged
from stream_learner.config import Config
from stream_learner.errors import BrokenInvariant, StreamLearnerError
from stream_learner.roles.common import startup
from stream_learner.roles.common.child import Child, Parent
from stream_learner.roles.common.lifecycle import Heartbeat, Stopping, end_where_starting
from stream_learner.roles.scorer.serve.process import ServingProcess

TURN_S = 0.2
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
STEADY_S = 60.0
"""After a worker has run for this long, the pause before its next start is the first one again."""
ASK_S = 2.0
LOOK_S = 5.0
LOOKS = 3
"""A worker that is not live at so many looks in a row, `LOOK_S` apart, hangs: it is ended, and started again."""
CLOSE_S = 15.0


def serve(config: Config, *, wait: bool = True) -> int:
    """Serve until a signal, and return the exit code. Raises what `ServingProcess` raises, and PortInUse.

    wait: whether to wait for brokers if none answers at the start; if not, raises BrokerUnreachable or RetryLater.

    If stopping takes longer than the drain and the requests under way may take, the process ends at once.
    """
    stopping = Stopping().listen(_stop_s(config) + (CLOSE_S if config.serve.workers > 1 else 0.0))
    startup.over()
    listening = listen_for_predictions(config.serve)
    if config.serve.workers > 1:
        return Workers(config, listening, wait=wait).run(stopping)
    telemetry = config.telemetry
    address = (telemetry.http_host, telemetry.http_port) if telemetry.http_port else None
    process = ServingProcess(config, listening, stopping, wait=wait)
    end_where_starting(stopping, lambda: process.started)
    process.run(address, token=telemetry.token)
    if not process.started:
        startup.end()
    return 0


class Worker:
    """One worker process, started again when it has ended."""

    def __init__(self, config: Config, listening: socket.socket, number: int, *, wait: bool) -> None:
        self._config = config
        self._wait = wait
        self._listening = listening
        self.number = number
        self.starts = 0
        self.port = 0
        self._not_live = 0
        self._child: Child | None = None
        self._began_s = self._again_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.alive

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, None while it runs or before it was started."""
        return self._child.exit_code if self._child is not None else None

    def start(self) -> None:
        if self._child is not None:
            self._child.end(0)
        socket_fd = self._listening.fileno()
        message: dict[str, object] = {
            "config": self._config.written(),
            "socket_fd": socket_fd,
            "accept_late": self.starts > 0,
        }
        message["wait"] = self._wait or self.starts > 0
        self._child = Child(__name__, message, descriptors=[socket_fd])
        self.starts += 1
        self.port = 0
        self._began_s = time.monotonic()

    def turn(self) -> bool:
        """Read its reports, and start it again if it has ended. Whether it was started now."""
        if self._child is not None and self._child.alive:
            for port in self._child.reports():
                self.port = port
            return False
        now_s = time.monotonic()
        if self._again_s <= self._began_s:
            steady = now_s - self._began_s > STEADY_S
            self._pause_s = FIRST_PAUSE_S if steady else self._pause_s
            self._again_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            get_logger("serve").error(
                "worker_ended", worker=self.number, exit_code=self.exit_code, again_in_s=round(self._again_s - now_s)
            )
        if now_s < self._again_s:
            return False
        self.start()
        return True

    def look(self) -> None:
        """Ask whether it is live, and end it if it has not said so for `LOOKS` times."""
        if not self.alive or not self.port:
            self._not_live = 0
            return
        live, text = self.ask("/healthz")
        self._not_live = 0 if live else self._not_live + 1
        if self._child is not None and self._not_live >= LOOKS:
            reason = text.decode(errors="replace").strip()
            get_logger("serve").error("worker_hangs", worker=self.number, reason=reason)
            self._child.end(0)

    def stop(self) -> None:
        """Tell it to drain and end."""
        if self._child is not None:
            self._child.ask_to_stop()

    def wait(self, until_s: float) -> None:
        """Wait until it has ended; at `until_s` end it by force."""
        if self._child is not None:
            self._child.end(max(until_s - time.monotonic(), 0.1))

    def ask(self, path: str) -> tuple[bool, bytes]:
        """Its answer to `path` on its own port: whether the status is 200, and the text."""
        if not self.alive or not self.port:
            return False, b"starting"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=ASK_S) as answer:
                return True, answer.read()
        except urllib.error.HTTPError as error:
            return False, error.read()
        except (URLError, OSError):
            return False, b"no answer"


class Workers:
    """The worker processes: starts them, starts again those that end, stops them at a signal."""

    def __init__(self, config: Config, listening: socket.socket, *, wait: bool) -> None:
        self._config = config
        self._listening = listening
        self._metrics = Metrics(config.model)
        self._workers = [Worker(config, listening, number, wait=wait) for number in range(config.serve.workers)]
        self._log = get_logger("serve")
        self._pulse = Heartbeat()
        self._look_at_s = 0.0

    def run(self, stopping: Stopping) -> int:
        """Run until a signal, and return 0; or until a worker fails at its first start, and return its exit code."""
        telemetry = self._config.telemetry
        self._metrics.follow(names.SERVE_WORKERS, lambda: float(sum(worker.alive for worker in self._workers)))
        with ExitStack() as stack:
            stack.callback(self._close)
            if telemetry.http_port:
                address = (telemetry.http_host, telemetry.http_port)
                server = TelemetryServer(
                    *address, metrics=self, health=self._health, ready=self._readiness, token=telemetry.token
                )
                stack.enter_context(server)
            for worker in self._workers:
                worker.start()
                self._metrics.inc(names.SERVE_WORKER_STARTS)
            while not stopping.wait(TURN_S):
                code = self._turn()
                if code:
                    return code
            if not any(worker.ask("/readyz")[0] for worker in self._workers):
                self._log.info("stopped_while_starting")
        return 0

    def _turn(self) -> int:
        """Look after each worker. Returns the exit code of one whose first start failed for good, else 0."""
        looks = time.monotonic() > self._look_at_s
        if looks:
            self._look_at_s = time.monotonic() + LOOK_S
        for worker in self._workers:
            self._pulse.beat()
            if looks:
                worker.look()
            code = worker.exit_code
            if worker.starts == 1 and code is not None and 0 < code < BrokenInvariant.exit_code:
                return code
            if worker.turn():
                self._metrics.inc(names.SERVE_WORKER_STARTS)
        return 0

    def _close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._listening.close()  # or connections would wait here that no worker takes any more
        until_s = time.monotonic() + _stop_s(self._config)
        for worker in self._workers:
            worker.wait(until_s)

    def text(self) -> bytes:
        """The metrics of this process and of all workers; those of a worker have the label `worker`."""
        return merged(self._texts())

    def _texts(self) -> Iterable[tuple[dict[str, str], bytes]]:
        yield {}, self._metrics.text()
        for worker in self._workers:
            found, text = worker.ask("/metrics")
            if found:
                yield {"worker": str(worker.number)}, text

    def _health(self) -> tuple[bool, str]:
        if not self._pulse.alive():
            return False, "the process that looks after the workers hangs"
        alive = any(worker.alive for worker in self._workers)
        return alive, "ok" if alive else "no worker runs"

    def _readiness(self) -> tuple[bool, str]:
        missing = []
        for worker in self._workers:
            ready, text = worker.ask("/readyz")
            if not ready:
                missing.append(f"worker {worker.number}: {text.decode(errors='replace').strip()}")
        return not missing, "; ".join(missing) or "ok"


def work() -> None:
    """Run a worker process."""
    parent = Parent.meet()
    config = Config.model_validate(parent.message["config"])
    parent.when_gone(lambda: _end_orphan(config, parent.stopping))
    telemetry = config.telemetry
    configure_logging(log_format=telemetry.log_format, log_level=telemetry.log_level, model=config.model)
    try:
        with socket.socket(fileno=parent.message["socket_fd"]) as listening:
            process = ServingProcess(config, listening, parent.stopping, wait=parent.message["wait"])
            end_where_starting(parent.stopping, lambda: process.started, say=False)
            process.run(("127.0.0.1", 0), parent.report, accept_late=parent.message["accept_late"])
        if not process.started:
            startup.end(say=False)
    except StreamLearnerError as error:
        get_logger("serve").error("worker_failed", reason=error.message, action=error.action)
        sys.exit(error.exit_code)


def _end_orphan(config: Config, stopping: Stopping) -> None:
    """Let the process drain; its parent is gone, so it has the time that the parent would have given it."""
    stopping.set()
    time.sleep(_stop_s(config))


def _stop_s(config: Config) -> float:
    """How long a worker may take from the request to stop to its end, seconds."""
    serve = config.serve
    return (serve.drain_ms + serve.request_timeout_ms) / 1000 + CLOSE_S


if __name__ == "__main__":
    work()
