"""A schedule of faults as a pure function of its seed and number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

KILLS_PER_SCHEDULE = 30
JOINERS = ("joiner-0", "joiner-1")
SCORERS = ("scorer-0", "scorer-1")
SLOTS = (*JOINERS, "learner", *SCORERS)
STANDBY = "standby"
COLD_SCORER = "scorer-2"
LEARNERS = ("alone", "beside a standby", "two standbys")
"""The ways to run learners: alone, beside a standby, or two standbys."""
BY_LOG_TIME = ("everything", "traffic", "disorder", "duplicates", "late_and_orphans", "edges", "bad_records", "rich")
"""Scenarios of `tests.scenarios`. In two of them clocks jump; in most of them events are repeated."""

AIMS = {
    "joiner": ("steady",),
    "learner": ("checkpoint", "after-checkpoint", "publication", "steady"),
    "standby": ("steady", "steady", "checkpoint"),
    "scorer": ("steady",),
}
"""Phases of a role's life that a kill is aimed at."""

AGAIN: dict[str, tuple[tuple[str, ...], ...]] = {
    "joiner": ((), ("recovery",), ("recovered",), ("recovery", "recovered")),
    "learner": ((), (), ("recovery",), ("recovery", "recovery")),
    "standby": ((), ("recovery",)),
    "scorer": ((), ("recovery",)),
}
"""The phases of kills that follow at once, while the process recovers from the first."""

SHARE_OF_KILLS = {"joiner-0": 3, "joiner-1": 3, "learner": 6, STANDBY: 3, "scorer-0": 2, "scorer-1": 1}


class Fault(Enum):
    """The kinds of faults. Most are undone after `lasts_s`, all but KILL and COLD_SCORER at the end of the schedule."""

    KILL = "kill -9"
    LOSE_STATE = "state directory lost"
    DAMAGE_STATE = "state directory damaged"
    HANG = "SIGSTOP and SIGCONT"
    STOP = "ordered stop"
    JOIN = "joiner added"
    TWIN = "started twice"
    CUT = "network cut"
    STALL = "network stalled"
    MUTE = "answers lost"
    BROKER = "broker killed"
    CONTROLLER = "controller killed"
    TWO_BROKERS = "two brokers killed"
    BROKER_HANGS = "broker hangs"
    DISK_FULL = "disk full"
    LEADERS = "leaders taken and given back"
    CREDENTIALS = "credentials changed, no files left"
    COLD_SCORER = "scorer started cold by four threads"


KILLS = (Fault.KILL, Fault.LOSE_STATE, Fault.DAMAGE_STATE)
"""Faults that begin with a kill -9 of a role."""


@dataclass(frozen=True)
class Step:
    """One fault.

    slot: the process, "" for brokers. after_s: the time since the step before. aim: the phase that a kill waits for;
    wait_s: the time that it waits within the phase. lasts_s: the time until the process is started again, or the
    connection is open. nodes: the brokers.
    """

    fault: Fault
    slot: str
    after_s: float
    lasts_s: float
    aim: str = ""
    wait_s: float = 0.0
    nodes: tuple[int, ...] = ()

    def __str__(self) -> str:
        nodes = " broker " + ",".join(map(str, self.nodes)) if 0 < len(self.nodes) < 3 else ""
        aim = f" at {self.aim}+{self.wait_s:.2f} s" if self.aim else ""
        return f"{self.fault.value} {self.slot}{nodes}{aim}, for {self.lasts_s:.1f} s".replace("  ", " ")


@dataclass(frozen=True)
class Plan:
    """A schedule. bounded: whether learners keep their models in RocksDB, with `learner.memory`. repeats: stretches of
    the traffic that are sent twice, as shares of it: from, to, and where they are sent again.
    """

    seed: int
    number: int
    scenario: str
    traffic_seed: int
    partitions: int
    by_clock: bool
    learners: str
    bounded: bool
    repeats: tuple[tuple[float, float, float], ...]
    steps: tuple[Step, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the processes."""
        return SLOTS if self.learners == LEARNERS[0] else (*SLOTS, STANDBY)

    @property
    def kills(self) -> int:
        """The number of processes of roles that the schedule kills."""
        return sum(step.fault in KILLS for step in self.steps)

    @property
    def name(self) -> str:
        """Its name in a line of output."""
        how = "by the clock" if self.by_clock else "by log time"
        memory = ", learner.memory" if self.bounded else ""
        return f"schedule {self.number}: {self.scenario}, {how}, learner {self.learners}{memory}, {self.kills} kills"


def sizes(kills: int) -> list[int]:
    """The number of kills of each schedule of a run."""
    whole, rest = divmod(kills, KILLS_PER_SCHEDULE)
    return [KILLS_PER_SCHEDULE] * whole + ([rest] if rest else [])


def plan_of(seed: int, number: int, kills: int = KILLS_PER_SCHEDULE) -> Plan:
    """The schedule with this number in the run with this seed."""
    rng = random.Random(f"{seed}/{number}")
    by_clock = number % 5 == 4
    scenario = "late_and_orphans" if by_clock else BY_LOG_TIME[(number - number // 5 + seed) % len(BY_LOG_TIME)]
    learners = LEARNERS[number % 3]
    groups = [*_kills(rng, kills, learners), *([step] for step in _others(rng, number, learners))]
    rng.shuffle(groups)
    steps = [step for group in groups for step in group]
    return Plan(
        seed=seed,
        number=number,
        scenario=scenario,
        traffic_seed=rng.randrange(1 << 30),
        partitions=rng.choice([2, 4, 4]),
        by_clock=by_clock,
        learners=learners,
        bounded=number % 2 == 1,
        repeats=() if by_clock else tuple(_repeats(rng)),
        steps=tuple(steps),
    )


def _repeats(rng: random.Random) -> Iterator[tuple[float, float, float]]:
    for _ in range(rng.randrange(3)):
        start = rng.uniform(0.0, 0.7)
        stop = start + rng.uniform(0.02, 0.15)
        yield start, stop, rng.uniform(stop, 0.95)


def _kills(rng: random.Random, kills: int, learners: str) -> Iterator[list[Step]]:
    """The kills, in groups: the further kills of a group meet the process while it recovers from the first."""
    left = kills
    shares = {slot: share for slot, share in SHARE_OF_KILLS.items() if slot != STANDBY or learners != LEARNERS[0]}
    while left:
        slot = rng.choices(list(shares), list(shares.values()))[0]
        kind = slot.split("-")[0]
        aims = [rng.choice(AIMS[kind]), *rng.choice(AGAIN[kind])][:left]
        left -= len(aims)
        yield [_kill(rng, slot, aim) for aim in aims]


def _kill(rng: random.Random, slot: str, aim: str) -> Step:
    fault = Fault.KILL
    if slot == "learner" and rng.random() < 0.2:
        fault = rng.choice([Fault.LOSE_STATE, Fault.DAMAGE_STATE])
    brief = aim in ("recovery", "recovered")
    wait_s = rng.uniform(0.0, 0.15 if brief else 1.0)
    return Step(fault, slot, _pause(rng), rng.choice([0.0, rng.uniform(0.0, 2.5)]), aim, wait_s)


def _others(rng: random.Random, number: int, learners: str) -> Iterator[Step]:
    """The faults between the kills: of networks and brokers, and of members that come and go."""
    node = rng.randrange(1, 4)
    nodes: tuple[int, ...]
    for fault in rng.sample([Fault.CUT, Fault.STALL, Fault.MUTE], 2):
        nodes = (1, 2, 3) if rng.random() < 0.5 else (rng.randrange(1, 4),)
        yield Step(fault, rng.choice(SLOTS[:4]), _pause(rng), rng.uniform(0.3, 4.0), nodes=nodes)
    yield Step(Fault.HANG, rng.choice(SLOTS), _pause(rng), rng.uniform(0.3, 5.0))
    yield Step(rng.choice([Fault.STOP, Fault.JOIN]), rng.choice(JOINERS), _pause(rng), rng.uniform(0.5, 3.0))
    if learners != LEARNERS[0]:
        yield Step(rng.choice([Fault.HANG, Fault.CUT, Fault.STOP]), "learner", _pause(rng), 4.0, nodes=(1, 2, 3))
    yield Step(Fault.TWIN, rng.choice(["joiner-0", "learner"]), _pause(rng), rng.uniform(1.0, 4.0))
    if number % 2 == 0:
        yield Step(Fault.DISK_FULL, "learner", _pause(rng), rng.uniform(0.5, 3.0))
    big = (Fault.BROKER, Fault.CONTROLLER, Fault.BROKER_HANGS, Fault.TWO_BROKERS)[number % 4]
    nodes = (node, node % 3 + 1) if big is Fault.TWO_BROKERS else (node,)
    yield Step(big, "", _pause(rng), rng.uniform(0.5, 4.0), nodes=() if big is Fault.CONTROLLER else nodes)
    yield Step(Fault.LEADERS, "", _pause(rng), rng.uniform(0.5, 2.0), nodes=(node % 3 + 1,))
    yield Step(Fault.CREDENTIALS, rng.choice(JOINERS), _pause(rng), rng.uniform(0.0, 2.0))
    if number % 2 == 1:
        yield Step(Fault.COLD_SCORER, COLD_SCORER, _pause(rng), 0.0)


def _pause(rng: random.Random) -> float:
    return rng.uniform(0.0, 0.8)
