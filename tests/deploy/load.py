"""A steady stream of the page's requests.

It must never ask again for an answer that did not come.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from dataclasses import dataclass, field

from tests.waiting import patience, wait_until

RATE, THREADS = 40, 2


@dataclass
class Requests:
    """Requests on connections that are kept, for as long as the `with` block lasts. models: who answered, in order."""

    command: str
    port: int
    models: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = re.search(r"localhost:8080(\S+) -d '(.*)'", self.command)
        assert found is not None
        self._path, self._body = found[1], found[2]
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(THREADS)]

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(10.0))
        due_s = time.monotonic()
        while not self._stop.is_set():
            try:
                connection.request("POST", self._path, self._body)
                found = connection.getresponse()
                text = found.read().decode()
                if found.status == 200:
                    self.models.append(json.loads(text)["model_name"])
                else:
                    self.failures.append(text)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
            due_s += THREADS / RATE
            self._stop.wait(max(0.0, due_s - time.monotonic()))
        connection.close()

    def wait_for(self, model: str) -> None:
        """Wait until a model answers, and no other any more."""
        wait_until(
            lambda: set(self.models[-4 * THREADS :]) == {model},
            lambda: f"{model} answers, but {self.models[-3:]} {self.failures[-3:]}",
        )

    def __enter__(self) -> Requests:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
