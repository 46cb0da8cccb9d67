"""Threads that can fail: each with its own way to be stopped.

In: a function that runs until it is told to stop. Out: whether it runs, and the error that ended it.
This file must never swallow an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stream_learner.roles.common.lifecycle import Role, Stopping, run_role

JOIN_S = 60.0


class Task:
    """One thread of the demo."""

    def __init__(self, name: str, run: Callable[[Stopping], None]) -> None:
        self._run = run
        self._stopping = Stopping()
        self._thread = threading.Thread(target=self._guard, name=name, daemon=True)
        self.failure: BaseException | None = None

    @classmethod
    def of_role(cls, role: Role, name: str) -> Task:
        """A role in a thread: opened, turned, closed."""
        return cls(name, lambda stopping: run_role(role, stopping))

    def start(self) -> Task:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Tell it to stop and wait until it has. May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _guard(self) -> None:
        try:
            self._run(self._stopping)
        except BaseException as error:  # noqa: BLE001 -- kept for whoever watches the task
            self.failure = error
