"""The processes of a schedule by slot: joiners, learners and scorers that are started again when they end.

It restarts them as a supervisor would. It decides on no fault, and reports every role that has ended by itself.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofs.chaos.cluster import Cluster
from proofs.chaos.disk import Disk, damage
from proofs.chaos.plan import COLD_SCORER
from proofs.chaos.process import Process
from stream_learner.errors import BrokerUnreachable, DiskFull, Fenced, RetryLater, StateInUse
from tests.e2e.configuration import Tree
from tests.e2e.site import Site

LISTENER_OF = {
    "joiner-0": "JOINER0",
    "joiner-1": "JOINER1",
    "joiner-2": "JOINER1",
    "learner": "LEARNER",
    "standby": "STANDBY",
    "scorer-0": "SCORER",
    "scorer-1": "SCORER",
    COLD_SCORER: "SCORER",
}
CLIENT = {
    "broker.address.family": "v4",
    "reconnect.backoff.max.ms": 500,
    "session.timeout.ms": 2500,
    "heartbeat.interval.ms": 500,
}
START_AGAIN_S = 0.3
STOP_S = 60.0
MAY_END_WITH = {kind.exit_code for kind in (RetryLater, BrokerUnreachable, Fenced, StateInUse)}
"""Exit codes after which a supervisor restarts a role: it was fenced, or asks to try again later. One that begins
while its disk is full may say so, too."""


@dataclass
class Slot:
    """A slot for one process. start_s: when the next one is to be started, None if none is."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: Process | None = None
    start_s: float | None = 0.0
    starts: int = 0
    log_files: list[Path] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive


class Fleet:
    """All slots of a schedule. `tend` must be called often."""

    def __init__(
        self, site: Site, cluster: Cluster, folder: Path, disk: Disk, *, learner_is_standby: bool = False
    ) -> None:
        """disk: for the learner's state. folder: for the state of a standby and the files of witnesses."""
        self.site = site
        self.state_dir = disk.path / "state"
        self.standby_dir = folder / "standby"
        self._verbs = {
            "joiner": ["join"],
            "learner": ["learn", "--standby"] if learner_is_standby else ["learn"],
            "standby": ["learn", "--standby"],
        }
        self.ended: list[str] = []
        """Roles that ended by themselves with another exit code."""
        self._cluster = cluster
        self._disk = disk
        self._folder = folder
        self.slots: dict[str, Slot] = {}
        self.keys: list[int] = []
        """The keys that the witnesses ask for."""
        self._twins: list[Slot] = []

    def add(self, name: str) -> Slot:
        """Add a slot whose process starts at once."""
        self.slots[name] = Slot(name, self.command(name))
        return self.slots[name]

    def command(self, name: str, **changes: Tree) -> list[str]:
        """The command line of a slot. changes: sections of the configuration."""
        kind = name.split("-")[0]
        if kind == "scorer":
            return [sys.executable, "-m", "proofs.chaos.witness", str(self._folder / f"{name}.task")]
        sections = {section: dict(values) for section, values in changes.items()}
        if name == "joiner-0":
            sections.setdefault("join", {})["instance_id"] = name
        if kind in ("learner", "standby"):
            own = {"state_dir": str(self.state_dir if kind == "learner" else self.standby_dir)}
            sections["learner"] = {**own, **sections.get("learner", {})}
        config = self._write_config(name, sections)
        return [sys.executable, "-m", "stream_learner", *self._verbs[kind], "--config", str(config)]

    def _write_config(self, name: str, sections: Mapping[str, Tree]) -> Path:
        tree = self.site.changed(**sections).model_dump(mode="json", by_alias=True)
        tree["kafka"] = {**CLIENT, "bootstrap.servers": self._cluster.address(LISTENER_OF[name])}
        tree["kafka"]["client.rack"] = {"file": str(self._secret(name))}
        tree["telemetry"]["log_format"] = "json"
        path = self._folder / f"{name}-{len(list(self._folder.glob('*.yaml')))}.yaml"
        path.write_text(json.dumps(tree), encoding="utf-8")
        return path

    def _secret(self, name: str) -> Path:
        """The file of a property that brokers without racks do not look at; it stands for a secret."""
        file = self._folder / f"{name}.secret"
        if not file.exists():
            file.write_text("0", encoding="utf-8")
        return file

    def change_secret(self, name: str) -> None:
        """Change what all clients of a slot are made with."""
        file = self._secret(name)
        file.write_text(str(int(file.read_text(encoding="utf-8")) + 1), encoding="utf-8")

    def tend(self) -> None:
        """Start what is due. Note the processes that have ended by themselves, and plan their restart."""
        now_s = time.monotonic()
        for slot in [*self.slots.values(), *self._twins]:
            if slot.start_s is not None and not slot.alive and now_s >= slot.start_s:
                self.start(slot)
            elif slot.process is not None and slot.start_s is None and not slot.alive:
                self._note_end(slot)

    def start(self, slot: Slot) -> Process:
        """Start the process of a slot now."""
        slot.start_s = None
        slot.starts += 1
        log_file = self._folder / f"{slot.name}-{slot.starts}.log"
        slot.log_files.append(log_file)
        if slot.name.startswith("scorer"):
            self._write_task(slot)
        slot.process = Process(slot.command, log_file, slot.environment)
        return slot.process

    def _write_task(self, slot: Slot) -> None:
        """Write the task of a witness. Each process has a file of its own, so that no kill tears the lines of
        another."""
        base = self._folder / f"{slot.name}.base"
        task: dict[str, Any] = json.loads(base.read_text(encoding="utf-8"))
        task["out"] = str(self.witness_file(slot.name, slot.starts))
        Path(slot.command[-1]).write_text(json.dumps(task), encoding="utf-8")

    def prepare_scorer(self, name: str, keys: list[int], **options: Any) -> None:
        """Set what a witness in this slot follows, and what it asks for. options: further ones of its task."""
        self.keys = keys
        kafka = {
            "bootstrap.servers": self._cluster.address(LISTENER_OF[name]),
            "broker.address.family": "v4",
            "reconnect.backoff.max.ms": 500,
        }
        task = {"model": self.site.model, "kafka": kafka, "keys": keys, **options}
        (self._folder / f"{name}.base").write_text(json.dumps(task), encoding="utf-8")

    def add_cold_scorer(self, name: str) -> None:
        """Add a witness that finds no compiled kernel, keeps a copy, and is asked by four threads while it starts."""
        cache, state = self._folder / f"{name}.kernels", self._folder / f"{name}.state"
        self.prepare_scorer(name, self.keys, threads=4, state_dir=str(state))
        self.add(name).environment = {"NUMBA_CACHE_DIR": str(cache)}

    def _note_end(self, slot: Slot) -> None:
        process = slot.process
        assert process is not None
        code = process.exit_code
        slot.process = None
        if slot in self._twins:
            self._twins.remove(slot)
        else:
            slot.start_s = time.monotonic() + START_AGAIN_S
        found_no_room = code == DiskFull.exit_code and self._disk.was_full_since(process.started_s)
        if code not in MAY_END_WITH and not found_no_room:
            self.ended.append(f"{slot.name} ended by itself with exit code {code}:\n{_last_words(process)}")

    def kill(self, name: str, start_after_s: float) -> bool:
        """Kill a process with kill -9, and plan its restart. Returns whether it was running."""
        slot = self.slots[name]
        killed = slot.process is not None and slot.process.kill()
        slot.process = None
        slot.start_s = time.monotonic() + start_after_s
        return killed

    def stop(self, name: str, start_after_s: float | None) -> None:
        """Stop a process with SIGTERM; note a role that does not stop in time, or stops with an error."""
        self.stop_all([name])
        self.slots[name].start_s = None if start_after_s is None else time.monotonic() + start_after_s

    def stop_all(self, names: Sequence[str]) -> None:
        """Send SIGTERM to all processes and wait for each; none is started again."""
        told = [(name, self.slots[name].process) for name in names]
        may_end_with = {}
        for name, process in told:
            self.slots[name].start_s = None
            self.slots[name].process = None
            if process is not None and process.alive:
                # A process that has logged nothing yet is still loading, and the signal itself ends it.
                may_end_with[name] = {0, *MAY_END_WITH} | (set() if process.log else {-signal.SIGTERM})
                process.tell_to_stop()
        for name, process in told:
            if (
                process is not None
                and name in may_end_with
                and (code := process.wait(STOP_S)) not in may_end_with[name]
            ):
                process.kill()
                self.ended.append(f"{name} told to stop ended with {code}:\n{_last_words(process)}")

    def start_twin(self, name: str, **changes: Tree) -> Slot:
        """Start a second process of a slot."""
        twin = Slot(f"{name}-twin-{len(list(self._folder.glob('*.yaml')))}", self.command(name, **changes))
        self.start(twin)
        self._twins.append(twin)
        return twin

    def end_twin(self, twin: Slot) -> None:
        """Kill the second process of a slot with kill -9, if it still runs."""
        if twin in self._twins:
            self._twins.remove(twin)
        if twin.process is not None:
            twin.process.kill()

    @property
    def scorers(self) -> list[str]:
        """The slots of witnesses."""
        return [name for name in self.slots if name.startswith("scorer")]

    def hang(self, name: str) -> None:
        """Stop the process of a slot with SIGSTOP."""
        self._signal(name, signal.SIGSTOP)

    def wake(self, name: str) -> None:
        """Continue the process of a slot with SIGCONT."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        process = self.slots[name].process
        if process is not None:
            process.signal(number)

    def heal(self) -> None:
        """End all second processes, continue stopped ones, and start missing ones, now."""
        for twin in list(self._twins):
            self.end_twin(twin)
        for slot in self.slots.values():
            if slot.process is not None:
                slot.process.signal(signal.SIGCONT)
            if slot.start_s is not None:
                slot.start_s = 0.0

    def lose_state(self) -> None:
        """Empty the learner's state directory."""
        for entry in self.state_dir.iterdir() if self.state_dir.exists() else ():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def damage_state(self, rng: random.Random) -> str:
        """Damage one file of the learner's state directory; what was done. What was set aside before is removed, as an
        operator would: a learner stops after three.
        """
        for aside in self.state_dir.glob("damaged-*"):
            shutil.rmtree(aside, ignore_errors=True)
        return damage(self.state_dir, rng)

    def listener(self, name: str) -> str:
        """The listener that a slot connects to."""
        return LISTENER_OF[name]

    def witness_file(self, name: str, start: int) -> Path:
        """The file of the witness of a slot, by the number of its start."""
        return self._folder / f"{name}-{start}.jsonl"

    def witnessed(self, name: str) -> list[Path]:
        """The lines that all witnesses of a slot have written."""
        return sorted(self._folder.glob(f"{name}-*.jsonl"))

    def logs(self, lines: int = 8) -> str:
        """The last lines of the log of each slot."""
        told = []
        for slot in self.slots.values():
            for file in slot.log_files[-2:]:
                end = [line[:400] for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]]
                told.append("\n".join([f"-- {file.stem}", *end]))
        return "\n".join(told)

    def close(self) -> None:
        """Kill everything that still runs."""
        for slot in [*self.slots.values(), *self._twins]:
            if slot.process is not None:
                slot.process.kill()


def _last_words(process: Process) -> str:
    """The end of its log: of a process that a signal has ended, the stacks of its threads."""
    return process.last_lines(60 if (process.exit_code or 0) < 0 else 3)
