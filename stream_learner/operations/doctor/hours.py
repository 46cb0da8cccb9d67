"""Whether clicks go by the hour of the day, so that the hour of the event's time is worth a feature.

The hours are learned from every other day and judged by the log-loss of the days between, and the other way round: what
one evening did is no habit. A sample that spans less than two days says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_learner.config.values import DAY_MS, HOUR_MS
from stream_learner.operations.doctor.crosses import ERRORS, GAIN, gain_of
from stream_learner.operations.doctor.events import Event, can_be_named
from stream_learner.operations.doctor.findings import ENOUGH, percent
from stream_learner.operations.doctor.ids import Pair
from stream_learner.operations.doctor.times import Clock

DAYS = 2
CLICKS = 10 * ENOUGH
HOURS = 24


@dataclass(frozen=True)
class Hours:
    """path: of the event's time. gain: by which share its hour makes the log-loss less. lowest, highest: the click
    rates of the hours that have the least and the most, and these hours, in UTC.
    """

    path: str
    gain: float
    lowest: tuple[float, int]
    highest: tuple[float, int]

    def __str__(self) -> str:
        (low, at_low), (high, at_high) = self.lowest, self.highest
        rates = f"click rates from {percent(low)} at {at_low}:00 to {percent(high)} at {at_high}:00 UTC"
        return f"hour of {self.path}: {rates}, log-loss of other days {percent(self.gain)} less with it"


def hours_of(events: Sequence[Event], pairs: Sequence[Pair], clock: Clock) -> Hours | None:
    """The hours, where clicks go by them. events: as of `with_clicks_read`."""
    if clock.path is None or not can_be_named(clock.path):
        return None
    of_clicked = {id(pair.impression) for pair in pairs}
    timed = [(time, id(event) in of_clicked) for event in events if (time := clock.of(event)) is not None]
    times, labels = np.array([time for time, _ in timed], np.int64), np.array([is_clicked for _, is_clicked in timed])
    if labels.sum() < CLICKS or np.ptp(times) < DAYS * DAY_MS:
        return None
    days, hours = (times - times.min()) // DAY_MS, times // HOUR_MS % HOURS
    learned = [labels[days % 2 == parity] for parity in (0, 1)]
    if min(int(of.sum()) for of in learned) < CLICKS // 4:
        return None
    gain, errors = gain_of(np.zeros_like(hours), hours, labels.astype(float), days % 2 == 1, alone=False)
    if gain <= GAIN or errors <= ERRORS:
        return None
    shown = np.bincount(hours, minlength=HOURS)
    clicked = np.bincount(hours, labels, minlength=HOURS)
    rates = sorted((float(clicked[hour] / shown[hour]), hour) for hour in range(HOURS) if shown[hour] >= 5 * ENOUGH)
    return Hours(clock.path, gain, rates[0], rates[-1]) if len(rates) > 1 else None
