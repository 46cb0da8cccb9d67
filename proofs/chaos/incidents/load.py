"""A steady load of predictions on one server, and the bounds that every answer is held against."""

from __future__ import annotations

import http.client
import json
import math
import threading
from collections.abc import Sequence
from typing import Any

FACTOR = 3.0
"""An answer is in its bounds if its odds are within this factor of those of the model before the incident."""
EVERY_S = 0.03
PATIENCE_S = 90.0
HEADERS = {"content-type": "application/json"}
MOST_KEPT = 5


class Load:
    """Asks for the same events again and again, until it is stopped. Any answer but 200 is a failure."""

    def __init__(self, port: int, model: str, events: Sequence[bytes]) -> None:
        self._port = port
        self._path = f"/v1/models/{model}:predict"
        self._body = b'{"instances": [%s]}' % b",".join(events)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._before: list[float] = []
        self.answers = 0
        self.failed = 0
        self.failures: list[str] = []
        self.version = -1
        self.newest = -1
        self.stale_s = 0
        """How old the version of the last answer was."""
        self.predictions: list[float] = []
        self.widest = 1.0
        """The largest factor between the odds of an answer and those of the model before."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def bound(self) -> None:
        """From now on every answer is held against the last one."""
        self._before = list(map(_logit, self.predictions))

    def stop(self) -> None:
        """End, with the answer that is waited for."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        while not self._stop.wait(EVERY_S):
            try:
                connection.request("POST", self._path, self._body, HEADERS)
                answer = connection.getresponse()
                told = answer.read()
                if answer.status != 200:
                    raise OSError(f"status {answer.status}: {told[:200]!r}")
                self._note(json.loads(told))
            except (OSError, http.client.HTTPException, ValueError) as error:
                connection.close()
                self.failed += 1
                self.failures = [*self.failures, f"{type(error).__name__}: {error}"][:MOST_KEPT]
            self.answers += 1
        connection.close()

    def _note(self, answer: dict[str, Any]) -> None:
        self.predictions = answer["predictions"]
        self.version = int(answer["model_version"])
        self.stale_s = int(answer["version_age_s"])
        self.newest = max(self.newest, self.version)
        for now, before in zip(map(_logit, self.predictions), self._before, strict=False):
            self.widest = max(self.widest, math.exp(abs(now - before)))


def _logit(p: float) -> float:
    return math.log(p / (1 - p)) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)
