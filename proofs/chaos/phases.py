"""Tells from outside the phase of life a process is in, by its log, its open files and what scorers serve; and aims
kills at phases."""

from __future__ import annotations

import time

from proofs.chaos.fleet import Fleet
from proofs.chaos.gather import last_version
from proofs.chaos.plan import SCORERS, Step
from proofs.chaos.process import Process

BEGUN = {"joiner": ("joiner_started",), "learner": (), "standby": (), "scorer": ("scorer_started",)}
READY = {
    "joiner": ("partition_begun", "partition_resumed"),
    "learner": ("learner_started",),
    "standby": ("learner_started",),
    "scorer": ("scorer_ready",),
}
LOCK = "/LOCK"
CHECKPOINT_S = 1.0
PATIENCE_S = 60.0
"""How long a kill waits for a process."""
READY_PATIENCE_S = 6.0
"""How long it waits for its phase when the process is ready: without new examples nothing is published."""


def since_s(process: Process, events: tuple[str, ...]) -> float | None:
    """The time when the last of these events was seen in a process's log, None before the first."""
    seen = [at for event in events if (at := process.seen_s(event)) is not None]
    return max(seen, default=None)


def begun(process: Process, kind: str) -> bool:
    """Whether a process has finished loading the program: it is in recovery, or further."""
    if kind in ("learner", "standby"):
        return process.has_open(LOCK) or since_s(process, READY[kind]) is not None
    return since_s(process, BEGUN[kind]) is not None


class AimedKill:
    """A kill that waits until its process is in a certain phase, or until its patience is over."""

    def __init__(self, fleet: Fleet, step: Step) -> None:
        self.step = step
        self._fleet = fleet
        self._kind = step.slot.split("-")[0]
        self._give_up_s = time.monotonic() + PATIENCE_S
        self._process: Process | None = None
        self._checkpoint_s: float | None = None
        self._version = -1
        self._due_s: float | None = None
        self._met_s = 0.0

    def is_due(self) -> bool:
        """Whether it is time to kill."""
        process = self._fleet.slots[self.step.slot].process
        if process is None or not process.alive:
            return False
        if process is not self._process:
            self._meet(process)
        now_s = time.monotonic()
        if self._due_s is None and self._reached(process):
            self._due_s = now_s + _further_s(self.step)
        if self._due_s is not None:
            return now_s >= self._due_s
        ready_s = since_s(process, READY[self._kind])
        return now_s >= self._give_up_s or (
            ready_s is not None and now_s >= max(ready_s, self._met_s) + READY_PATIENCE_S
        )

    def _meet(self, process: Process) -> None:
        """Note that another process runs in the slot; what was known of the one before is dropped."""
        self._process, self._due_s, self._met_s = process, None, time.monotonic()
        self._checkpoint_s = process.seen_s("checkpoint")
        self._version = _served(self._fleet)

    def _reached(self, process: Process) -> bool:
        aim = self.step.aim
        if aim == "recovery":
            return begun(process, self._kind)
        if since_s(process, READY[self._kind]) is None:
            return False
        if aim == "publication":
            return _served(self._fleet) > self._version
        return aim in ("recovered", "steady") or process.seen_s("checkpoint") != self._checkpoint_s

    def phase(self) -> str:
        """The phase that the process is in: "start-up", "recovery", the phase aimed at, or "steady"."""
        process = self._fleet.slots[self.step.slot].process
        if process is None or not begun(process, self._kind):
            return "start-up"
        if since_s(process, READY[self._kind]) is None:
            return "recovery"
        return self.step.aim if self._due_s is not None and self.step.aim != "recovery" else "steady"


def _served(fleet: Fleet) -> int:
    """The last version that a scorer serves."""
    return max(last_version(fleet, name) for name in SCORERS)


def _further_s(step: Step) -> float:
    """How long to wait after the event by which the phase is recognised."""
    if step.aim == "checkpoint":
        return CHECKPOINT_S * (0.97 + 0.1 * step.wait_s)
    if step.aim in ("after-checkpoint", "publication"):
        return 0.25 * step.wait_s
    return step.wait_s
