"""Chooses the checkpoints that a learner keeps: for each age one that is at least that old, and little older.

Ages are spans of log time, so a log that is folded again keeps the same ones. For each age a learner keeps the state at
every multiple of half of it (the *step* of the age) until that is one and a half ages old. At any moment the newest one
that is at least as old as the age is then younger than one and a half ages, and three are kept for each age.

A boundary is a tick before which a state is kept: that state holds every tick up to the one before.

>>> ages = HistoryAges([3_600_000, 86_400_000], tick_ms=1_000)
>>> [step for step, _ in ages.steps], ages.next_boundary(after=1_799, up_to=10_000, known=10_000)
([1800, 43200], 5400)
>>> ages.kept([1_800, 3_600, 5_400, 7_200], tick=7_300)
[3600, 5400, 7200]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

STEPS = 2
"""So many steps make an age."""


class HistoryAges:
    """The ages of one learner, in ticks. `steps`: for each age its step, and how old a boundary of it may get."""

    def __init__(self, ages_ms: Sequence[int], *, tick_ms: int) -> None:
        self.steps: list[tuple[int, int]] = []
        for age_ms in sorted(set(ages_ms)):
            age = -(-age_ms // tick_ms)
            step = -(-age // STEPS)
            self.steps.append((step, age + step))

    def next_boundary(self, *, after: int, up_to: int, known: int) -> int | None:
        """The first boundary with after < boundary <= up_to that is still to be kept after the tick `known`."""
        firsts = [max(after, known + 1 - oldest) // step * step + step for step, oldest in self.steps]
        return min((first for first in firsts if first <= up_to), default=None)

    def is_kept(self, boundary: int, *, tick: int) -> bool:
        """Whether the state before this boundary is to be kept after a tick."""
        return any(boundary % step == 0 and tick + 1 - boundary < oldest for step, oldest in self.steps)

    def kept(self, boundaries: Iterable[int], *, tick: int) -> list[int]:
        """The boundaries that are to be kept after a tick."""
        return [boundary for boundary in boundaries if self.is_kept(boundary, tick=tick)]

    @property
    def most(self) -> int:
        """How many are kept at one time, at most."""
        return (STEPS + 1) * len(self.steps)
