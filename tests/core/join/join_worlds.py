"""Random worlds of one partition pair: impressions and clicks as they arrive, with all that goes wrong in a field.

A `World` has the settings, and the arrival, offset, time and bytes of each record. Windows are a few ticks of a few
milliseconds, so that every edge is near. It must never know what a joiner does with the records; only which of them can
be used.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.oracles.events import Click, Impression, Record, Settings, hash_bytes, settings

UNKNOWN = "unknown"
"""The id of clicks on nothing."""
LAST = "last"
"""The prefix of the ids of events that close a world."""
BAD_VALUES = (b"not json", b"{}", None, b'{"id":null}', b'{"id":"x","at":"soon","w":-1,"v":2}')


class Arrival(NamedTuple):
    """A record of an input, and the moment from which on it can be read."""

    at_ms: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    time_ms: int | None  # None: a dead record
    id: str
    number: float  # an impression's weight, a click's value


@dataclass(frozen=True)
class World:
    """The records of an impression partition and the click partition of the same number."""

    settings: Settings
    grace_ms: int
    impressions: list[Arrival]
    clicks: list[Arrival]

    @property
    def last_arrival_ms(self) -> int:
        """The arrival time of the last record."""
        return max((a.at_ms for a in self.impressions + self.clicks), default=0)

    @property
    def memory_ms(self) -> int:
        """How long a click is kept at least."""
        s = self.settings
        return int(s["window_ms"] + s["skew_ms"] + s["lateness_ms"])

    def oracle_impressions(self) -> list[Impression]:
        """The impressions as the oracle reads them, without features but the bias."""
        return [
            Impression(
                a.offset, a.time_ms, *((0, 0.0) if a.time_ms is None else (hash_bytes(a.id.encode()), a.number)), ()
            )
            for a in self.impressions
        ]

    def oracle_clicks(self) -> list[Click]:
        """The clicks as the oracle reads them."""
        return [
            Click(a.offset, a.time_ms, *((0, 0.0) if a.time_ms is None else (hash_bytes(a.id.encode()), a.number)))
            for a in self.clicks
        ]


def records(arrivals: list[Arrival]) -> list[Record]:
    """Records as Kafka hands them out."""
    return [Record(a.offset, a.timestamp_ms, a.value) for a in arrivals]


class _Event(NamedTuple):
    at_ms: int
    time_ms: int
    id: str
    number: float = 1.0


def random_settings(rng: random.Random) -> Settings:
    """Windows of a few ticks; times in a field or those of the records."""
    field = rng.choice([None, "at"])
    return settings(
        window_ms=rng.choice([3, 10, 30]),
        skew_ms=rng.choice([0, 2]),
        tick_ms=rng.choice([1, 2, 5]),
        dedupe_ms=rng.choice([0, 4, 20, 60]),
        lateness_ms=rng.choice([0, 3, 10, 40]),
        agree=rng.choice([1, 2, 3, 3, 4, 5, 6]),
        keep_negatives=rng.choice([1.0, 1.0, 0.3]),
        time=field,
        click_time=field,
        max_skew_ms=rng.choice([50, 90, 60_000]),
        weight="w",
        value="v",
    )


def random_world(rng: random.Random) -> World:
    """Up to some hundred records."""
    s = random_settings(rng)
    impressions, clicks = _Traffic(rng, s).events()
    return World(s, rng.choice([0, 2, 5]), _as_log(rng, s, impressions, "w"), _as_log(rng, s, clicks, "v"))


def closed_by_log(world: World, rng: random.Random) -> World:
    """A copy of the world with `agree` late events in both inputs, so that log time closes all ticks and all clicks go.

    The last `agree` - 1 clicks are taken and wait: a tick is passed only by clicks that come after it.
    """
    s = world.settings
    times = [a.time_ms or 0 for a in world.impressions + world.clicks]
    last = max([world.last_arrival_ms, *times]) + 3 * world.memory_ms + s["dedupe_ms"] + 3 * s["tick_ms"]

    def closed(arrivals: list[Arrival], number: str) -> list[Arrival]:
        events = [_Event(last, last, f"{LAST}-{n}") for n in range(s["agree"])]
        begin = arrivals[-1].offset + 1 if arrivals else 0
        return arrivals + _as_log(rng, s, events, number, begin, dead_share=0.0)

    return replace(world, impressions=closed(world.impressions, "w"), clicks=closed(world.clicks, "v"))


class _Traffic:
    """The events of one world: a few habits, chosen once, and what follows from them."""

    def __init__(self, rng: random.Random, s: Settings) -> None:
        self.rng, self.s = rng, s
        self.begin = rng.choice([0, 150, 150, 1_700_000_000_000])
        self.n = rng.choice([rng.randrange(5), rng.randrange(5, 60), rng.randrange(20, 60)])
        self.ids = rng.randrange(1, 60)
        self.lead, self.lag, self.idle = (rng.choice([0, 0, 0.05, 0.25]) for _ in range(3))
        self.wrong = rng.choice([0, 0, 0, 0.01, 0.2])  # the share of wrong clocks
        self.one_wrong = rng.random() < 0.15
        self.burst = rng.choice([0, 0, 0.1])
        self.ctr = rng.choice([0, 0.1, 0.45, 0.8])
        self.resend = rng.choice([0, 0.15, 0.4])
        self.soft = rng.random() < 0.3
        self.clicks_first = rng.choice([0, 0, 0.3])  # clicks that are there before their impressions
        self.slow = rng.choice([0, 0, 5, 12, 40])  # how much later some impressions arrive
        self.old = rng.choice([0, 0, 0, 0, 20, 60])  # from a third on: old events, fed into a running joiner
        self.quiet = rng.choice(["", "", "", "", "", "", "impressions", "clicks"])

    def events(self) -> tuple[list[_Event], list[_Event]]:
        rng, now = self.rng, self.begin
        impressions: list[_Event] = []
        clicks: list[_Event] = []
        for number in range(self.n):
            now += 0 if rng.random() < self.burst else rng.choice([0, 0, 1, 1, 2])
            now += rng.choice([9, 40, 90, 400]) if rng.random() < self.idle / 3 else 0
            name = f"u{rng.randrange(self.ids)}"
            time = self._clock(now) - (self.old if number > self.n / 3 else 0)
            time += rng.choice([3, 8, 20, 60]) if rng.random() < self.lead else 0
            time -= rng.choice([2, 9, 30]) if rng.random() < self.lag else 0
            weight = rng.choice([1.0, 2.0, 0.5])
            impressions.append(_Event(now + rng.choice([0, 1, 2, 3, 3, self.slow]), time, name, weight))
            impressions += self._repeats(now, time, name)
            clicks += self._clicks(now, time, name)
        if self.one_wrong and impressions + clicks:
            side = rng.choice([side for side in (impressions, clicks) if side])
            at = rng.randrange(len(side))
            side[at] = side[at]._replace(time_ms=self._wrong(side[at].time_ms))
        return ([] if self.quiet == "impressions" else impressions), ([] if self.quiet == "clicks" else clicks)

    def _wrong(self, time: int) -> int:
        return time + self.rng.choice([-100, 100, 60, -60, 30, 3000])

    def _clock(self, time: int) -> int:
        return self._wrong(time) if self.rng.random() < self.wrong else time

    def _repeats(self, now: int, time: int, name: str) -> list[_Event]:
        """Repeats of an impression, once or twice, near the ends of the time for which ids are remembered."""
        rng, out, at = self.rng, [], now
        while rng.random() < self.resend:
            far = self.s["dedupe_ms"] + rng.choice([-1, 0, 1, self.s["tick_ms"], self.s["dedupe_ms"] // 4])
            at += rng.choice([0, 1, 5, 25, max(0, far)])
            time += rng.choice([0, 0, 1, at - now])
            out.append(_Event(at, time, name, rng.choice([1.0, 3.0])))
        return out

    def _clicks(self, now: int, time: int, name: str) -> list[_Event]:
        rng, out, window, skew = self.rng, [], self.s["window_ms"], self.s["skew_ms"]
        while rng.random() < self.ctr:
            edge = [-skew - 1, -skew, window - 1, window, window + 1]
            clicked = time + rng.choice([-3, -2, 0, 1, 2, 5, 9, 31, *edge])
            at = now + (0 if self.old else max(0, clicked - time)) + rng.choice([0, 0, 1, 4, 12])
            if rng.random() < self.clicks_first:
                at = max(self.begin, now - rng.choice([1, 5, 20, 60]))
            known = name if rng.random() < 0.9 else UNKNOWN
            value = rng.choice([0.0, 0.25, 0.5, 1.0]) if self.soft else 1.0
            clicks = 1 + (rng.random() < 0.1) + (rng.random() < 0.03)
            out += [_Event(at, self._clock(clicked), known, value)] * clicks
        return out


def _as_log(
    rng: random.Random, s: Settings, events: list[_Event], number: str, begin: int | None = None, dead_share: float = -1
) -> list[Arrival]:
    """The records in the order of their arrival; a dead one stands in place of an event."""
    offset = rng.choice([0, 0, 7]) if begin is None else begin
    dead_share = rng.choice([0, 0, 0.1, 0.3]) if dead_share < 0 else dead_share
    gap_share, out = rng.choice([0, 0.2]), []
    for at, time_ms, name, amount in sorted(events, key=lambda event: event.at_ms):
        offset += rng.randrange(1, 4) if rng.random() < gap_share else 0
        time = max(time_ms, 0)
        timestamp = time if s["time"] is None else at
        value: bytes | None = b'{"id":"%b","at":%d,"%b":%b}' % (
            name.encode(),
            time,
            number.encode(),
            repr(amount).encode(),
        )
        usable = time <= timestamp + s["max_skew_ms"]
        if rng.random() < dead_share:
            value, usable = rng.choice(BAD_VALUES), False
        out.append(Arrival(at, offset, timestamp, value, time if usable else None, name, amount))
        offset += 1
    return out
