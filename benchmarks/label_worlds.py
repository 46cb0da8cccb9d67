"""Worlds in which labels are hard to get right: impressions and clicks in the order in which they come.

In: nothing. Out: a `World` for each trouble: events with the time they have and the moment they come, what the join is
set to, how a joiner is shown it; and the labels that the impressions deserve, by the definition and nothing else.
This file must never know what a joiner does with the events.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
WINDOW_MS: Final = 30 * MINUTE_MS
SKEW_MS: Final = 5 * SECOND_MS
MAX_SKEW_MS: Final = 5 * MINUTE_MS
AGREE: Final = 16
"""The defaults of `join.window`, `join.skew`, `join.max_skew` and `join.agree`."""
LASTS_S: Final = 7_200
CTR: Final = 0.2
CLICK_DELAY_S: Final = 20
JITTER_MS: Final = 300
OLD_MS: Final = 3 * DAY_MS
SPEED: Final = 60
"""How much faster than they happened old events are fed into a running joiner."""


class Event(NamedTuple):
    """An impression or a click: when its record is written, which is the record's timestamp, and its own time."""

    at_ms: int
    time_ms: int
    id: str


@dataclass
class World:
    """how: `there` (all is in the topics before the joiner starts), `fed` (as it comes, `SPEED` times as fast, into a
    running joiner), `killed` (as `there`, and the joiner is killed again and again). timed: whether events have a time
    field; if not, their records' timestamps are their times. closing: of a world that is fed, what comes last on both
    sides and is not judged; without it the last windows would wait for as long as they are by the stream's own clock.
    """

    name: str
    impressions: list[Event] = field(default_factory=list)
    clicks: list[Event] = field(default_factory=list)
    join: dict[str, Any] = field(default_factory=dict)
    how: str = "there"
    timed: bool = True
    max_skew_ms: int = MAX_SKEW_MS
    closing: list[Event] = field(default_factory=list)

    def records(self, events: list[Event]) -> list[Event]:
        """The records in their order; without a time field, a record's timestamp is the event's time."""
        ordered = sorted(events)
        return ordered if self.timed else [event._replace(at_ms=event.time_ms) for event in ordered]

    def is_dead(self, event: Event) -> bool:
        """Whether its time is so far ahead that it cannot be used."""
        return self.timed and event.time_ms > event.at_ms + self.max_skew_ms

    def labels(self) -> dict[str, bool]:
        """For each impression that can be used: True if a click with its id has a time in its span."""
        times = defaultdict(list)
        for click in self.clicks:
            if not self.is_dead(click):
                times[click.id].append(click.time_ms)
        return {
            shown.id: any(shown.time_ms - SKEW_MS <= at <= shown.time_ms + WINDOW_MS for at in times[shown.id])
            for shown in self.impressions
            if not self.is_dead(shown)
        }


def traffic(
    begin_ms: int,
    *,
    lasts_s: int = LASTS_S,
    behind_ms: int = 0,
    behind_share: float = 0.0,
    ahead_ms: int = 0,
    ahead_share: float = 0.0,
) -> tuple[list[Event], list[Event]]:
    """An impression a second, a fifth of them clicked 20 s later on average, each event written within 0.3 s.

    behind: a share of the impressions is written so much later. ahead: the clocks of a share of the devices are so far
    ahead, for an impression and its click.
    """
    rng = random.Random(1)
    impressions, clicks = [], []
    for number in range(lasts_s):
        at = begin_ms + number * SECOND_MS
        behind = behind_ms if rng.random() < behind_share else 0
        ahead = ahead_ms if rng.random() < ahead_share else 0
        impressions.append(Event(at + rng.randrange(JITTER_MS) + behind, at + ahead, f"i{number}"))
        if rng.random() < CTR:
            clicked = at + int(rng.expovariate(1 / CLICK_DELAY_S) * SECOND_MS)
            clicks.append(Event(clicked + rng.randrange(JITTER_MS), clicked + ahead, f"i{number}"))
    return impressions, clicks


def worlds(quick: bool) -> list[World]:
    """All, or those that do not have to be fed as time passes."""
    made = [
        World("clean", *traffic(_long_ago())),
        _one_clock_ahead(),
        *(_late_impressions(seconds) for seconds in ((120,) if quick else (10, 30, 60, 120))),
        _one_timestamp_ahead(),
        World("1 % of devices 200 s ahead", *traffic(_long_ago(), ahead_ms=200_000, ahead_share=0.01)),
        _many_ahead("20 % of devices 1 h ahead, max_skew 2 h", {"max_skew": "2h", "lateness": "2h"}, 2 * HOUR_MS),
        _many_ahead("20 % of devices 1 h ahead, as dead letters", {"max_bad_share": 1}, MAX_SKEW_MS),
        _one_click_ahead(),
        _killed(),
    ]
    return made if quick else [_fed(), *made]


def _long_ago() -> int:
    return (int(time.time() * 1000) - OLD_MS) // HOUR_MS * HOUR_MS


def _with_clocks_ahead(impressions: list[Event]) -> list[Event]:
    """One more impression every 4 minutes, whose time is 4 minutes ahead."""
    begin, lasts = impressions[0].time_ms, len(impressions) * SECOND_MS
    moments = range(begin, begin + lasts, 4 * MINUTE_MS)
    return impressions + [Event(at, at + 4 * MINUTE_MS, f"ahead-{at}") for at in moments]


def _one_clock_ahead() -> World:
    impressions, clicks = traffic(_long_ago())
    return World("every 4 min an impression 240 s ahead", _with_clocks_ahead(impressions), clicks)


def _late_impressions(seconds: int) -> World:
    name = f"a quarter of the impressions {seconds} s late"
    return World(name, *traffic(_long_ago(), behind_ms=seconds * SECOND_MS, behind_share=0.25))


def _one_timestamp_ahead() -> World:
    impressions, clicks = traffic(_long_ago())
    at = impressions[len(impressions) // 4].at_ms
    ahead = Event(at, at + 59 * MINUTE_MS, "ahead")
    return World("no time fields, one impression 59 min ahead", [*impressions, ahead], clicks, timed=False)


def _many_ahead(name: str, join: dict[str, Any], max_skew_ms: int) -> World:
    made = traffic(_long_ago(), ahead_ms=HOUR_MS, ahead_share=0.2)
    return World(name, *made, join=join, max_skew_ms=max_skew_ms)


def _one_click_ahead() -> World:
    impressions, clicks = traffic(_long_ago())
    at = clicks[len(clicks) // 4].at_ms
    ahead = Event(at, at + DAY_MS, "ahead")
    return World("no time fields, one click a day ahead", impressions, [*clicks, ahead], timed=False)


def _fed() -> World:
    begin = _long_ago() - 27 * DAY_MS
    made = traffic(begin, lasts_s=2_400)
    ends = begin + 2 * HOUR_MS
    closing = [Event(ends + number * SECOND_MS, ends + number * SECOND_MS, f"last-{number}") for number in range(AGREE)]
    return World(f"a month old, fed at {SPEED} times their speed", *made, how="fed", closing=closing)


def _killed() -> World:
    impressions, clicks = traffic(_long_ago(), behind_ms=120_000, behind_share=0.25)
    join = {"max_rate": 400, "instance_id": "bench"}
    name = "240 s ahead, a quarter 120 s late, 5 kill -9"
    return World(name, _with_clocks_ahead(impressions), clicks, join=join, how="killed")
