"""What the gate's statistics are, worked out again from the list of all ticks, slowly and without a running state.

Every share is a sum over ticks, each with the weight that all merges after it left it; the evidence for a test is the
largest sum over the last ticks, whichever tick they begin with. `docs/gate.md` has the definitions; nothing here is
taken from the program but its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

HOUR, DAY, YEAR, MINUTE = 3_600_000, 86_400_000, 365 * 86_400_000, 60_000


@dataclass
class Count:
    """What a tick had: its log time, events found, exposure, and the time that it stands for."""

    at_ms: int
    found: float
    exposure: float
    ms: float


def totals(merges: list[list[Count]], keeps: list[float]) -> tuple[float, float, float]:
    """The weighted sums of `merges`, where each merge weighs what the keeps after it leave of it."""
    sums = [0.0, 0.0, 0.0]
    for number, merge in enumerate(merges):
        weight = math.prod(keeps[number + 1 : len(merges)])
        for place, name in enumerate(("found", "exposure", "ms")):
            sums[place] += weight * sum(getattr(tick, name) for tick in merge)
    return sums[0], sums[1], sums[2]


def evidence(steps: list[tuple[float, float]], usual: float, wrong: float) -> float:
    """The largest log-likelihood ratio of the last ticks, 0 if none is above it. steps: found and expected of each."""
    return max(
        [0.0]
        + [
            sum(found * math.log(wrong / usual) - (wrong - usual) * expected for found, expected in steps[begin:])
            for begin in range(len(steps))
        ]
    )


@dataclass
class PlainBound:
    """One bound with one test, without cap, floor, days or slow estimate: enough to check how the parts go together.

    `step` says whether a tick is out of bounds, and learns it if it is not.
    """

    usual: float
    wrong: float
    false_alarms: float
    warm_up_ms: float
    ready: bool = False
    merges: list[list[Count]] = field(default_factory=list)
    keeps: list[float] = field(default_factory=list)
    waiting: list[Count] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    judged: list[tuple[int, float, float]] = field(default_factory=list)
    """Minute, found and expected of every tick that was judged once there was evidence."""
    closed: list[list[int]] = field(default_factory=list)
    """The minutes that had ended when each merge was made, and not before."""
    ended: list[int] = field(default_factory=list)
    last_minute: int = -1

    def step(self, tick: Count) -> tuple[bool, float]:
        """Whether the tick is out of bounds, and the evidence with it."""
        found, exposure, ms = totals(self.merges, self.keeps)
        taken = [past for merge in [*self.merges, self.waiting] for past in merge]
        ready = self.ready or (sum(past.ms for past in taken) >= self.warm_up_ms and found >= 50.0)
        expected = tick.exposure * (found / exposure if exposure else 0.0)
        steps = [*self.steps, (tick.found, expected)] if ready else []
        value = evidence(steps, self.usual, self.wrong)
        if ready and value > self.dispersion() * math.log(max(found / ms * YEAR, 1000) / self.false_alarms):
            return True, value
        self.ready, self.steps = ready, steps
        minute = tick.at_ms // MINUTE
        if minute != self.last_minute:
            self.ended.append(self.last_minute)
            self.last_minute = minute
        if ready:
            self.judged.append((minute, tick.found, expected))
        self.waiting.append(tick)
        if not value > (0.0 if self.wrong < self.usual else 3.0):
            self.keeps.append(self.keep())
            self.merges.append(self.waiting)
            self.closed.append(self.ended)
            self.waiting, self.ended = [], []
        return False, value

    def keep(self) -> float:
        """What a merge leaves of the ones before: an hour is remembered, or 150 events if they take longer."""
        found, exposure, _ = totals(self.merges, self.keeps)
        new = totals([self.waiting], [1.0])
        share = found / exposure if exposure else 0.0
        return 1 / (1 + min(new[2] / HOUR, max(new[0], new[1] * share) / 150.0))

    def dispersion(self) -> float:
        """Squares of how far minutes are off, by what was expected of them; 20 of each stand at the beginning."""
        keeps = [1 / (1 + sum(tick.ms for tick in merge) / DAY) for merge in self.merges]
        squares = of = 20.0 * math.prod(keeps)
        for number, minutes in enumerate(self.closed):
            weight = math.prod(keeps[number + 1 :])
            for minute in minutes:
                mine = [(found, expected) for at, found, expected in self.judged if at == minute]
                squares += weight * sum(found - expected for found, expected in mine) ** 2
                of += weight * sum(expected for _, expected in mine)
        return max(1.0, squares / of)
