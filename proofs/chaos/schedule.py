"""Carries out one plan: topics of its own, traffic, roles, faults, and then the comparison.

No fault outlasts the schedule. What is equal is decided by `proofs.chaos.check`.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from proofs.chaos.cluster import Cluster
from proofs.chaos.disk import Disk
from proofs.chaos.fleet import Fleet
from proofs.chaos.gather import keys_of, last_version, verdict
from proofs.chaos.phases import READY, AimedKill, since_s
from proofs.chaos.plan import KILLS, LEARNERS, SCORERS, Fault, Plan, Step
from proofs.chaos.process import Process
from proofs.chaos.proxy import Mode
from proofs.chaos.result import Result
from proofs.chaos.sender import TrafficSender
from proofs.chaos.traffic import traffic_of
from tests.e2e.site import Site, wait_until
from tests.kafka_broker.broker import delete_topics

LOOK_S = 0.02
STEP_S = 1.6
"""The approximate duration of a step; the traffic is spread over the steps by it."""
QUIET_SHARE, QUIET_S = 0.3, 4.0
"""The share of the traffic that is sent after all faults, and the time for it."""
PATIENCE_S = 600.0
LOOK_AHEAD = 7
SIDE_BY_SIDE = 4
KEPT_CLIENTS = "credentials have changed and cannot be used, the ones before stay"
RENEWED_CLIENTS = "credentials have changed: clients are made anew"
NO_CLIENT = "no files for new clients: the old ones went on, then were renewed"
"""How often CREDENTIALS was seen to bite: the process said both."""
NETWORK = {Fault.CUT: Mode.CUT, Fault.STALL: Mode.STALL, Fault.MUTE: Mode.MUTE}
LEARNER = {"checkpoint_interval": "1s", "copy_interval": "500ms", "min_free": "4MiB", "lease_timeout": "1500ms"}
SECTIONS: dict[str, Any] = {
    "snapshots": {"interval": "100ms", "shards": 2, "ring": 8, "page_bytes": "4KiB"},
    "learner": LEARNER,
}
BOUNDED: dict[str, Any] = {"learner": {**LEARNER, "memory": "64MiB"}}
BY_CLOCK: dict[str, Any] = {
    "join": {"close_idle": True, "grace": "300ms", "idle_after": "2s", "max_bad_share": 1.0},
}


class Unfinished(Exception):
    """A schedule did not end in time; the message says what was missing."""


def run_schedule(
    plan: Plan, cluster: Cluster, folder: Path, say: Callable[[str], None], patience_s: float = PATIENCE_S
) -> Result:
    """Carry out a plan, compare, and remove everything."""
    result = Result(plan)
    wait_until(cluster.whole, "the brokers are as they should be", patience_s)
    began_s = time.monotonic()
    term = cluster.controller()[1]
    with ExitStack() as stack:
        disk = Disk(folder / "disk")
        stack.callback(disk.close)
        scenario = traffic_of(plan, int(time.time() * 1000))
        sections = {**SECTIONS, **(BY_CLOCK if plan.by_clock else {}), **(BOUNDED if plan.bounded else {})}
        site = Site(cluster.bootstrap, scenario, folder, **sections)
        stack.callback(delete_topics, cluster.bootstrap, site.topics)
        stack.callback(site.close)
        fleet = Fleet(site, cluster, folder, disk, learner_is_standby=plan.learners == LEARNERS[2])
        stack.callback(fleet.close)
        stack.callback(cluster.heal)
        sender = TrafficSender(cluster.bootstrap, scenario, site.impressions, site.clicks)
        stack.callback(sender.close)
        run = _Run(plan, cluster, site, fleet, disk, sender, result, say, began_s + patience_s)
        try:
            run.carry_out()
            run.come_to_an_end()
            result.problems += verdict(site, fleet, result)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is this schedule that has failed
            result.problems.append(f"{type(error).__name__}: {error}")
        result.problems += fleet.ended
        if result.problems:
            result.logs = fleet.logs(40)
        result.records = sender.sent
    result.controller_changes = max(0, cluster.controller()[1] - term)
    result.seconds = time.monotonic() - began_s
    return result


class _Run:
    """A plan that is being carried out."""

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        site: Site,
        fleet: Fleet,
        disk: Disk,
        sender: TrafficSender,
        result: Result,
        say: Callable[[str], None],
        until_s: float,
    ) -> None:
        self._plan, self._cluster, self._site = plan, cluster, site
        self._fleet, self._disk, self._sender = fleet, disk, sender
        self._result, self._say, self._until_s = result, say, until_s
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._rng = random.Random(f"{plan.seed}/{plan.number}/damage")
        self._began_s = time.monotonic()
        self._aimed_kills: list[AimedKill] = []
        self._without_files: set[str] = set()
        self._done = 0
        self._feeding = True
        self._healed_s = 0.0
        keys = keys_of(site.scenario)
        for name in plan.slots:
            if name in SCORERS:
                fleet.prepare_scorer(name, keys)
            fleet.add(name)

    def carry_out(self) -> None:
        """Do every step of the plan, roughly in order: a few kills wait for their phases side by side."""
        waiting = list(self._plan.steps)
        next_s = time.monotonic()
        while waiting or self._aimed_kills:
            self._wait(partial(self._something_to_do, waiting, next_s), self._waited_for)
            for aimed in [aimed for aimed in self._aimed_kills if aimed.is_due()]:
                self._kill(aimed)
            step = self._next_of(waiting) if time.monotonic() >= next_s else None
            if step is not None:
                waiting.remove(step)
                self._do(step)
                next_s = time.monotonic() + step.after_s
        self._wait(lambda: not self._without_files, "a process that had no files renews its clients")

    def _something_to_do(self, waiting: list[Step], next_s: float) -> bool:
        due = any(aimed.is_due() for aimed in self._aimed_kills)
        return due or (time.monotonic() >= next_s and self._next_of(waiting) is not None)

    def _next_of(self, waiting: list[Step]) -> Step | None:
        """The first of the next few steps that can be done now; steps of one slot keep their order."""
        busy = {aimed.step.slot for aimed in self._aimed_kills} | self._without_files
        for step in waiting[:LOOK_AHEAD]:
            if step.slot not in busy and not (step.fault in KILLS and len(self._aimed_kills) >= SIDE_BY_SIDE):
                return step
            busy.add(step.slot)
        return None

    def _waited_for(self) -> str:
        return ", ".join(f"{aimed.step.slot} at {aimed.step.aim}" for aimed in self._aimed_kills) or "the next step"

    def _note_done(self, step: Step) -> None:
        self._done += 1
        self._say(f"{self._done}/{len(self._plan.steps)} {step}")

    def _do(self, step: Step) -> None:
        if step.fault in KILLS:
            self._aimed_kills.append(AimedKill(self._fleet, step))
            return
        if step.fault is Fault.DISK_FULL and not self._disk.bounded:
            self._note_done(step)
            return
        begin: dict[Fault, Callable[[Step], Callable[[], None] | None]] = {
            Fault.HANG: self._hang,
            Fault.STOP: self._stop,
            Fault.JOIN: self._join,
            Fault.TWIN: self._twin,
            Fault.DISK_FULL: self._fill_disk,
            Fault.BROKER: self._kill_brokers,
            Fault.CONTROLLER: self._kill_brokers,
            Fault.TWO_BROKERS: self._kill_brokers,
            Fault.BROKER_HANGS: self._hang_broker,
            Fault.LEADERS: self._take_leaders,
            Fault.CREDENTIALS: self._change_credentials,
            Fault.COLD_SCORER: self._start_cold_scorer,
        }
        end = self._cut(step) if step.fault in NETWORK else begin[step.fault](step)
        if end is not None:
            self._later(step.lasts_s, end)
        self._result.faults[step.fault.value] += 1
        self._note_done(step)

    def _kill(self, aimed: AimedKill) -> None:
        """Kill the process; if it has just ended by itself, wait for the next process of the slot."""
        step, phase = aimed.step, aimed.phase()
        if not self._fleet.kill(step.slot, step.lasts_s):
            return
        self._aimed_kills.remove(aimed)
        self._result.kills.append((step.slot, phase))
        self._result.faults[Fault.KILL.value] += 1
        if step.fault is Fault.LOSE_STATE:
            self._fleet.lose_state()
            self._result.faults[step.fault.value] += 1
        elif step.fault is Fault.DAMAGE_STATE and self._fleet.damage_state(self._rng):
            self._result.faults[step.fault.value] += 1
        self._note_done(step)

    def _cut(self, step: Step) -> Callable[[], None]:
        listener = self._fleet.listener(step.slot)
        self._cluster.set_network(listener, NETWORK[step.fault], step.nodes)
        return lambda: self._cluster.set_network(listener, Mode.OPEN, step.nodes)

    def _hang(self, step: Step) -> Callable[[], None]:
        self._fleet.hang(step.slot)
        return lambda: self._fleet.wake(step.slot)

    def _stop(self, step: Step) -> None:
        self._fleet.stop(step.slot, step.lasts_s)

    def _join(self, step: Step) -> Callable[[], None]:
        self._fleet.add("joiner-2")
        return lambda: self._fleet.stop("joiner-2", None)

    def _twin(self, step: Step) -> Callable[[], None]:
        """Start a second joiner of the same id, or a second learner, on the same directory or on one of its own."""
        changes = {}
        if step.slot == "learner" and step.lasts_s > 2.0:
            changes = {"learner": {"state_dir": str(self._fleet.state_dir.parent / "twin")}}
        twin = self._fleet.start_twin(step.slot, **changes)
        return lambda: self._fleet.end_twin(twin)

    def _fill_disk(self, step: Step) -> Callable[[], None]:
        self._disk.fill()
        return self._disk.free

    def _kill_brokers(self, step: Step) -> Callable[[], None]:
        nodes = step.nodes or (self._cluster.controller()[0] or 1,)
        for node in nodes:
            self._cluster.kill(node)
        return partial(self._restart_brokers, nodes)

    def _restart_brokers(self, nodes: tuple[int, ...]) -> None:
        for node in nodes:
            self._cluster.restart(node)

    def _hang_broker(self, step: Step) -> Callable[[], None]:
        self._cluster.hang(step.nodes[0])
        return lambda: self._cluster.wake(step.nodes[0])

    def _take_leaders(self, step: Step) -> Callable[[], None]:
        """Kill a broker. Once it is back and in sync, have it lead again what it led before."""
        self._cluster.kill(step.nodes[0])

        def give_back() -> None:
            self._cluster.restart(step.nodes[0])
            for k in range(1, 20):
                self._later(k * 0.5, self._cluster.lead_as_preferred)

        return give_back

    def _change_credentials(self, step: Step) -> None:
        """Change a secret once the process reads, and leave it no files for new clients until it has said so."""
        process = self._fleet.slots[step.slot].process
        self._without_files.add(step.slot)
        if not self._feeding:
            return
        if process is None or since_s(process, READY["joiner"]) is None:  # one that starts could not load the program
            self._later(LOOK_S, partial(self._change_credentials, step))
            return
        process.limit_files()  # first: a process that is fast would have its new clients already
        self._fleet.change_secret(step.slot)
        self._later(step.lasts_s, partial(self._give_files_back, step.slot, process))

    def _give_files_back(self, slot: str, process: Process) -> None:
        """Do so once the process has said that it goes on with its clients; then wait until it has new ones."""
        kept, renewed = KEPT_CLIENTS in process.log, RENEWED_CLIENTS in process.log
        over = renewed or not (process.alive and self._feeding)
        if kept or over:
            process.free_files()
        if over:
            self._without_files.discard(slot)
            self._result.faults[NO_CLIENT] += kept and renewed
        else:
            self._later(LOOK_S, partial(self._give_files_back, slot, process))

    def _start_cold_scorer(self, step: Step) -> None:
        """It is asked while it starts, must come to the last version, and gives the answers of any scorer."""
        self._fleet.add_cold_scorer(step.slot)

    def come_to_an_end(self) -> None:
        """Undo all faults, send the rest, wait until all of it is learned and served; then stop all roles."""
        self._end_faults()
        self._wait(lambda: self._sender.settled, "every record of the traffic in its topic")
        if self._plan.by_clock:
            self._close_by_clock()
        else:
            self._wait(self._site.closed, self._missing_ticks)
        last = self._site.last_tick()
        for name in self._fleet.scorers:
            self._wait(partial(self._serves, name, last), f"{name} at version {last}")
        self._fleet.stop_all(list(self._fleet.slots))

    def _serves(self, name: str, version: int) -> bool:
        return last_version(self._fleet, name) >= version

    def _end_faults(self) -> None:
        self._feeding = False
        for _, _, end in sorted(self._agenda, key=lambda entry: entry[:2]):
            end()
        self._agenda.clear()
        self._disk.free()
        self._cluster.heal()
        self._fleet.heal()
        if not self._plan.by_clock:
            self._healed_s = time.monotonic()
            self._wait(self._all_sent, "the rest of the traffic sent")

    def _all_sent(self) -> bool:
        """Send the rest slowly, so that versions follow each other as without faults."""
        quiet = (time.monotonic() - self._healed_s) / QUIET_S
        self._sender.send_share(1.0 if quiet >= 1 else 1.0 - QUIET_SHARE * (1 - quiet))
        return self._sender.sent == sum(map(len, (*self._site.scenario.impressions, *self._site.scenario.clicks)))

    def _close_by_clock(self) -> None:
        """Wait until the clock has passed every click; stop the joiners, which would go on with empty ticks."""
        scenario, s = self._site.scenario, self._site.scenario.settings
        impressions, clicks = self._sender.sent_of(scenario)
        self._site.scenario = type(scenario)(scenario.name, s, impressions, clicks)
        latest_ms = max(m.timestamp_ms for part in (*impressions, *clicks) for m in part)
        end_ms = latest_ms + s["window_ms"] + s["skew_ms"] + s["lateness_ms"] + 2 * s["tick_ms"]
        self._wait(lambda: self._site.last_tick() * s["tick_ms"] > end_ms, self._missing_ticks)
        self._fleet.stop_all([name for name in self._fleet.slots if name.startswith("joiner")])

    def _missing_ticks(self) -> str:
        return f"ticks closed: {[log.last_tick for log in self._site.logs()]}, wanted {self._site.end_tick}"

    def _later(self, wait_s: float, end: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time.monotonic() + wait_s, next(self._numbers), end))

    def _tend(self) -> None:
        """Do what is due: end faults, start roles, send traffic."""
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()
        self._fleet.tend()
        if not self._feeding:
            return
        if self._plan.by_clock:
            self._sender.send_until(int(time.time() * 1000))
        else:
            share = (time.monotonic() - self._began_s) / (STEP_S * (len(self._plan.steps) + 1))
            share = min(share, (self._done + 1) / (len(self._plan.steps) + 1))
            self._sender.send_share(share * (1.0 - QUIET_SHARE))

    def _wait(self, true: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Do what is due until a condition holds. Raises Unfinished when the schedule's time is over."""
        while True:
            self._tend()
            if true():
                return
            if time.monotonic() > self._until_s:
                raise Unfinished(f"the time was up while waiting for: {what if isinstance(what, str) else what()}")
            time.sleep(LOOK_S)
