"""What the laws judge: the accepted ticks of one partition, and its inputs as the oracle reads them.

Log times follow the sentences of docs/join-rules.md. This file must never share code with the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proofs.simulation.events import oracle_clicks, oracle_impressions, oracle_settings
from proofs.simulation.joiners import World
from proofs.simulation.kafka import Entry, Log
from proofs.simulation.process import CLICKS, IMPRESSIONS
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import AcceptedTick
from tests.oracles.events import Click, Impression, Settings

BEFORE_ALL = -(10**18)
"""A time before every other."""


def law(holds: bool, text: str) -> None:
    """Raise AssertionError with the text of the law unless it holds."""
    if not holds:
        raise AssertionError(text)


def committed(log: Log) -> list[Entry]:
    """The records that readers of committed records have ever seen."""
    return [entry for entry in log.archive if entry.transaction not in log.aborted]


def passed_with(times: Sequence[int | None], agree: int) -> list[int]:
    """The log time that each record brings: the latest of the least times of all rows that are complete with it."""
    usable: list[int] = []
    passed, out = BEFORE_ALL, []
    for time in times:
        if time is not None:
            usable.append(time)
            if len(usable) >= agree:
                passed = max(passed, min(usable[-agree:]))
        out.append(passed)
    return out


@dataclass(frozen=True)
class Evidence:
    """One partition. impressions, clicks: all committed records. shown, clicked: the same records as events."""

    world: World
    partition: int
    ticks: list[AcceptedTick]
    impressions: list[Entry]
    clicks: list[Entry]
    shown: list[Impression]
    clicked: list[Click]
    settings: Settings

    @classmethod
    def of(cls, world: World, partition: int, ticks: list[AcceptedTick]) -> Evidence:
        """A partition of a world whose training log holds these ticks."""
        impressions = committed(world.logs[IMPRESSIONS, partition])
        clicks = committed(world.logs[CLICKS, partition])
        shown, clicked = oracle_impressions(impressions), oracle_clicks(clicks)
        return cls(world, partition, ticks, impressions, clicks, shown, clicked, oracle_settings(world.spec))

    @property
    def marks(self) -> list[Mark]:
        """The marks of all ticks, in order."""
        return [tick.mark for tick in self.ticks]
