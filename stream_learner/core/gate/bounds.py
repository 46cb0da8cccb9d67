"""The numbers and kinds of the gate's statistics. `core.gate` has the theory, `steps` the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
YEAR_MS: Final = 365 * DAY_MS

EVIDENCE: Final = 50.0
"""How many found events an estimate needs before anything is held against it."""
FINE_EVIDENCE: Final = 100.0
"""How many it needs before it is held against finer tests."""
FAST_FOUND: Final = 150.0
"""The fast estimate remembers an hour, or so many found events if they take longer."""
FAST_MS: Final = (3 * HOUR_MS // 4, 5 * HOUR_MS // 4)
"""Finer tests need an estimate of that much time: with less, what is usual has only just been learned anew, and with
more it lags too far behind the day's course."""
ALIKE: Final = (0.75, 1.5)
"""A day is held against others if it has that many times their examples for the time (`Bound.capped`)."""
OF_A_DAY: Final = 0.6
"""One day gives no more than this share of the evidence that is needed: a launch may spoil a single one."""
MOST_DAYS: Final = 28
"""So many days at most wait to be learned."""
SLOW_MS: Final = 7 * DAY_MS
SLOW_FOUND: Final = 300.0
GAP_MS: Final = HOUR_MS
"""After a pause of log time that is longer, the fast estimate may be that of another time of day."""
BURST: Final = 10.0
"""How many expected events may come at once, whatever the time that has passed (`Bound.capped`)."""
LAUNCH: Final = 2.2
"""How many times the usual events of the time are expected at most (`Bound.capped`)."""
LULL: Final = 0.6
"""Where the last `LULL_MS` had less than this share of the usual examples, finer tests say nothing; where it also had
less than this share of the usual clicks, something has ended, and what is usual is learned anew (`Bound.capped`)."""
DAYS: Final = 7
LOWEST_DAYS: Final = 3
"""A day is held against those of the last `DAYS` that had the smallest shares: the others may have had a launch."""
RISE: Final = (1.7, 1.4)
"""Where the last `LULL_MS` had that many times the usual examples and that many times the usual clicks, something new
has begun, and what is usual is learned anew (`Bound.capped`)."""
LAUNCHED: Final = (2.2, 9.0)
"""So does that many times the usual examples, however many clicks; with more it is no launch (`Bound.capped`)."""
RISING: Final = (1.5, 1.3)
"""While the last `RISING_MS` had that many times the usual examples and that many times those of the last `LULL_MS`,
the evidence of finer tests is summed, and breaks no bound: the rise may be a launch's, which `RISE` or `LAUNCHED` will
find. A step to twice the examples rises for four minutes (`Bound.capped`)."""
RISING_MS: Final = MINUTE_MS
LULL_MS: Final = 5 * MINUTE_MS
HIGH_SUSPICION: Final = 3.0
"""Evidence for too many events that makes suspicious; for too few any does. A few events in a row give some of it."""
PATIENCE_MS: Final = 3 * HOUR_MS
PATIENCE: Final = 300.0
"""Suspicion that has lasted so long, and so many expected events, is given up: what it began with counts as usual."""
PRIOR: Final = 20.0
"""Expected events for which the dispersion is taken to be 1 beforehand."""


class Alternative(NamedTuple):
    """Found events are usual at `usual` times what is expected or on its other side, wrong at `wrong` times.

    fine: whether it needs an estimate that follows the day. lenient: whether the slow estimate may excuse it.
    """

    usual: float
    wrong: float
    fine: bool = False
    lenient: bool = False

    @property
    def is_low(self) -> bool:
        """Whether it looks for too few events."""
        return self.wrong < self.usual


@dataclass(frozen=True, slots=True)
class Bound:
    """A count, and the tests that it is put to.

    day: the test of whole days, None for none. floor: a usual share below it counts as it. capped: for tests that look
    for too few, no more events are expected of a time than `LAUNCH` times its usual ones; finer tests say nothing while
    there are far fewer examples than usual, since what left may be what was clicked, and while their number rises.
    by_exposure: evidence is how much there was that could have been found, not what was found. dispersion: the least.
    """

    name: str
    tests: tuple[Alternative, ...]
    day: Alternative | None = None
    floor: float = 0.0
    capped: bool = False
    by_exposure: bool = False
    dispersion: float = 1.0


DEAD: Final = Alternative(0.6, 0.05, lenient=True)
DEAD_SOON: Final = Alternative(0.85, 0.05, fine=True)
HALF: Final = Alternative(0.9, 0.4, fine=True)
HALF_DAY: Final = Alternative(0.85, 0.4)
MANY: Final = Alternative(2.5, 6.0, lenient=True)
FLOOD: Final = Alternative(6.0, 20.0)
FAILING: Final = Alternative(2.0, 5.0, lenient=True)


class Excess(NamedTuple):
    """A test that was broken: events found and expected since a tick, and what would have been in bounds."""

    found: float
    expected: float
    low: float
    high: float
    since_tick: int
