"""A scorer that writes down what it serves: `python -m proofs.chaos.witness TASK` (a JSON object in a file).

For each version it writes a line with the digest, every weight of the replica, and every answer that readers got for
the same request. It may be killed at any moment; complete lines still hold.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
from stream_learner.errors import NotReady, StreamLearnerError
from stream_learner.roles.scorer.scorer import Scorer

ASK_EVERY_S = 0.02
COPY_EVERY_MS = 1_000


class Witness:
    """Follows a model with the library's `Scorer`. The thread that applies versions uses it, and readers, which begin
    to ask before it starts.
    """

    def __init__(self, task: dict[str, Any], out: IO[str]) -> None:
        self._keys = np.array(task["keys"], np.uint64)
        self._out = out
        self._writing = threading.Lock()
        self._answers: dict[int, set[bytes]] = {}
        self._stop = threading.Event()
        self._threads = int(task.get("threads", 1))
        self.scorer = Scorer(
            model=task["model"],
            kafka=task["kafka"],
            stale_after_ms=None,
            state_dir=task.get("state_dir"),
            copy_every_ms=COPY_EVERY_MS,
            on_version=self._note_version,
        )

    def _note_version(self, version: int) -> None:
        """Write a version down. Called in the thread that applies versions, so that none is applied meanwhile."""
        keys, weights = self.scorer.largest_weights(max(1, self.scorer.weights))
        order = np.argsort(keys)
        self._write(
            {
                "kind": "replica",
                "version": version,
                "digest": self.scorer.description["digest"],
                "keys": _text(keys[order].astype("<u8")),
                "weights": _text(weights[order].astype("<f4")),
            }
        )

    def run(self) -> None:
        """Ask again and again until told to stop."""
        with ThreadPoolExecutor(self._threads) as pool:
            readers = [pool.submit(self._keep_asking) for _ in range(self._threads)]
            try:
                self._follow()
            finally:
                self._stop.set()
        for reader in readers:
            reader.result()

    def _follow(self) -> None:
        ready = False
        with self.scorer:
            get_logger("witness").info("scorer_started")
            while not self._stop.wait(ASK_EVERY_S):
                if not ready and self.scorer.ready:
                    ready = True
                    get_logger("witness").info("scorer_ready", version=self.scorer.version)

    def _keep_asking(self) -> None:
        try:
            while not self._stop.wait(ASK_EVERY_S):
                with suppress(NotReady):
                    self._ask()
        finally:
            self._stop.set()  # after an error, so that it ends the process

    def _ask(self) -> None:
        count = len(self._keys)
        found = self.scorer.predict_hashed(self._keys, np.ones(count), np.arange(count + 1))
        answer = found.p_click.astype("<f8").tobytes()
        known = self._answers.setdefault(found.version, set())
        if answer not in known:
            known.add(answer)
            self._write({"kind": "answers", "version": found.version, "p_click": _text(found.p_click.astype("<f8"))})

    def _write(self, line: dict[str, Any]) -> None:
        with self._writing:
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()

    def stop(self, *_: object) -> None:
        """Stop soon; a signal handler."""
        self._stop.set()


def _text(values: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def main() -> None:
    """Run until SIGTERM. An error ends the process with its exit code, as for commands."""
    configure_logging(log_format="json", stream=sys.stderr)
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with Path(task["out"]).open("a", encoding="utf-8") as out:
        witness = Witness(task, out)
        signal.signal(signal.SIGTERM, witness.stop)
        try:
            witness.run()
        except StreamLearnerError as error:
            get_logger("witness").error("stopped", error=type(error).__name__, message=error.message)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
