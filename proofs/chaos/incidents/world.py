"""A deployment for one incident: topics of its own, two joiners, a learner, two servers under load, each a process."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from proofs.chaos.disk import Disk
from proofs.chaos.incidents.load import Load
from proofs.chaos.incidents.traffic import Traffic, probes
from proofs.chaos.process import Process
from stream_learner.adapters.kafka import TopicPlan
from stream_learner.operations import gate
from tests.cli_e2e.world import free_port
from tests.e2e.configuration import Tree
from tests.e2e.site import Site
from tests.kafka_broker.broker import Broker, delete_topics
from tests.waiting import wait_until

ROLES = {"joiner-0": "join", "joiner-1": "join", "learner": "learn", "serve-0": "serve", "serve-1": "serve"}
JOINERS = ("joiner-0", "joiner-1")
SERVERS = ("serve-0", "serve-1")
LOCAL = "127.0.0.1"
STALE_S, LEAD_S, SESSION_S, SOCKET_S = 3, 2, 3, 5
"""The time-outs: of a version, of the lease, of a joiner's session, of requests to brokers."""
SECTIONS: dict[str, Tree] = {
    "kafka": {
        "socket.timeout.ms": 1000 * SOCKET_S,
        "session.timeout.ms": 1000 * SESSION_S,
        "reconnect.backoff.max.ms": 500,
    },
    "join": {"max_bad_share": 0.1, "close_idle": False},
    "learner": {"copy_interval": "500ms", "lease_timeout": f"{LEAD_S}s", "min_free": "8MiB"},
    "snapshots": {"interval": "250ms", "shards": 2},
    "telemetry": {"log_format": "json"},
}
"""Time-outs are short; the gates, their bounds and `join.hold_on_silence` are as they come."""
PATIENCE_S = 120.0


class World:
    """Everything of one incident. `close` leaves nothing behind."""

    def __init__(self, broker: Broker, folder: Path, name: str, traffic: Traffic, seed: int, changes: Tree) -> None:
        self.broker = broker
        self.traffic = traffic
        self.folder = folder
        self.disk = Disk(folder / "disk")
        self.control = f"control-{uuid.uuid4().hex[:8]}"
        merged: dict[str, Any] = {}
        for section in {*SECTIONS, *changes}:
            merged[section] = {**SECTIONS.get(section, {}), **changes.get(section, {})}
        merged["kafka"] = {"bootstrap.servers": broker.bootstrap, **merged["kafka"]}
        merged["learner"] |= {"state_dir": str(self.disk.path / "state"), "checkpoint_interval": "1s"}
        merged["topics"] = {"control": self.control}
        self.site = Site(broker.bootstrap, traffic.scenario(name), folder, **merged)
        self.site.admin.create([TopicPlan(self.control, 1, configs={"cleanup.policy": "compact"})])
        self.ports = {role: free_port() for role in ROLES}
        self.processes: dict[str, Process] = {}
        self.loads = {name: Load(self.ports[name], self.site.model, probes(seed)) for name in SERVERS}
        self.decided_to = -1
        """The last tick of the last decision."""
        self.skipped: list[tuple[int, int]] = []
        self.decisions: list[str] = []
        self.seen: dict[str, Any] = {}
        """What was seen of the reaction, for the result."""
        self.problems: list[str] = []
        self._sent_ms = 0

    @property
    def tick_ms(self) -> int:
        """The length of a tick."""
        return self.site.config.join.tick_ms

    @property
    def last_tick(self) -> int:
        """The last tick with impressions of the incident: that in which the window of the last one closes."""
        return (self.traffic.end_ms + self.site.config.join.window_ms) // self.tick_ms + 1

    def start(self, name: str) -> None:
        """Start the process of a role."""
        sections: dict[str, Tree] = {"telemetry": {"http_port": self.ports[name], "http_host": LOCAL}}
        if name in SERVERS:
            copies = str(self.folder / f"copies-{name}")
            sections = {
                "serve": {"port": self.ports[name], "host": LOCAL, "drain": "0s", "request_timeout": "1m"},
                "scorer": {"stale_after": f"{STALE_S}s", "state_dir": copies, "copy_every": "1s"},
            }
        config = self.site.write_config(**sections)
        command = [sys.executable, "-m", "stream_learner", ROLES[name], "--config", str(config)]
        self.processes[name] = Process(command, config.with_suffix(".log"))

    def kill(self, *names: str) -> None:
        """Kill roles with kill -9."""
        for name in names:
            self.processes[name].kill()

    def send(self, until_ms: int | None = None) -> None:
        """Send the events up to a time that are not sent yet; all without one."""
        limit_ms = 1 << 62 if until_ms is None else until_ms
        made = self.site.scenario
        for topic, parts in ((self.site.clicks, made.clicks), (self.site.impressions, made.impressions)):
            for partition, part in enumerate(parts):
                new = [m for m in part if self._sent_ms <= m.timestamp_ms < limit_ms]
                self.site.send(topic, partition, new)
        self._sent_ms = limit_ms

    def wait(self, true: Callable[[], object], what: str) -> None:
        """Wait for a condition. A role that has ended by itself ends the incident."""

        def holds() -> bool:
            for name, process in self.processes.items():
                if process.exit_code is not None and process.exit_code != -9:
                    raise AssertionError(f"{name} ended with {process.exit_code}: {process.last_lines(3)}")
            return bool(true())

        wait_until(holds, lambda: f"{what}; {self.told()}", patience_s=PATIENCE_S, look_s=0.2)

    def told(self) -> str:
        """Where everything is."""
        served = [load.version for load in self.loads.values()]
        return f"log at {self.joined()}, learner at {self.tick()}, served {served}; learner: {self.why('learner')}"

    def joined(self) -> int:
        """The last tick that is in the log, -1 if that cannot be read now."""
        return self.site.last_tick()

    def metric(self, role: str, name: str) -> float:
        """The sum of a metric over its labels, 0 while the role does not answer."""
        try:
            with urllib.request.urlopen(f"http://{LOCAL}:{self.ports[role]}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            return 0.0
        return sum(map(float, re.findall(rf"^stream_learner_{name}(?:{{.*}})? (\S+)$", text, re.M)))

    def why(self, role: str) -> str | None:
        """Why a role is not ready; "" if it is, None if it does not answer."""
        path = "/v2/health/ready" if role in SERVERS else "/readyz"
        try:
            with urllib.request.urlopen(f"http://{LOCAL}:{self.ports[role]}{path}", timeout=10):
                return ""
        except HTTPError as error:
            return error.read().decode()
        except OSError:
            return None

    def tick(self) -> int:
        """The last tick that the learner has folded or passed."""
        return int(self.metric("learner", "learner_tick_time_seconds") * 1000) // self.tick_ms - 1

    def events(self, role: str, event: str) -> list[dict[str, Any]]:
        """What a role has logged under a name."""
        lines = self.processes[role].log.splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [one for one in found if one.get("event") == event]

    def held(self) -> dict[str, Any] | None:
        """What the learner holds, as `gate status` says it."""
        if self.metric("learner", "learner_gate_state") != 1:
            return None
        found = gate.status(self.site.config)
        return found if found["state"] == "held" else None

    def told_of(self, held: dict[str, Any]) -> str:
        """The bound that a tick is held by, what was found, what is usual, and when."""
        since_s = (held["tick"] * self.tick_ms - self.traffic.begin_ms) // 1000
        return f"{held['bound']}: {held['found']:.0f}, usual {held['expected']:.0f}, {since_s} s into it"

    def served(self, tick: int) -> bool:
        """Whether both servers answer with a version at or after a tick."""
        return all(load.version >= tick for load in self.loads.values())

    def servers_are_ready(self) -> bool:
        """Whether no server has become unready."""
        return all(self.why(name) == "" for name in SERVERS)

    def stop(self) -> None:
        """Stop load and roles in order."""
        for load in self.loads.values():
            load.stop()
        for process in self.processes.values():
            process.tell_to_stop()
        for name, process in self.processes.items():
            code = process.wait(PATIENCE_S)
            if code not in (0, -9):
                self.problems.append(f"{name} ended with {code}: {process.last_lines(3)}")

    def logs(self) -> str:
        """The last lines of each role."""
        return "\n".join(f"-- {name}\n{process.last_lines(12)}" for name, process in self.processes.items())

    def close(self) -> None:
        """End and delete what there is."""
        for load in self.loads.values():
            load.stop()
        for process in self.processes.values():
            process.kill()
        self.site.close()
        self.disk.close()
        delete_topics(self.broker.bootstrap, [*self.site.topics, self.control])
