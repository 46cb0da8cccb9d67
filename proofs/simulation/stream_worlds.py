"""Worlds for the stream's own clock: when each event happens, which time it bears, and when its record is there.

In: a name. Out: the arrivals of impressions and clicks, a function of the name alone. A world knows nothing of joiners,
except when their process is restarted and what clocks show. Moments are ms of the right clock.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
BEGINNING = 60 * DAY
"""A world begins here; older times are positive too."""
FOR_EVER = 10**15
"""What is there then never is."""
SHOWN, CLICKED = 0, 1
CLICK_AFTER_S = 20
"""The mean time from an impression to its click."""
BATCH = 32
"""If nothing is said, so many events in a row bear a wrong time where a world says so."""

Way = Callable[[int, int, float], float]
"""The moment at which the record of an event is there, but for the jitter. Of partition, input and the event's moment.
"""
Clock = Callable[[int], int]
"""What a clock shows at a moment."""


class Arrival(NamedTuple):
    """A record on its way. at: when it is there. time_ms: the time that it bears. number: its id."""

    at: float
    time_ms: int
    number: int


class Restart(NamedTuple):
    """All processes end at a moment and come back after `down_ms`. remembers: whether committed metadata is kept."""

    at: float
    down_ms: int
    remembers: bool


class Span(NamedTuple):
    """From hour to hour events happen, so many a second. way: of their records, in place of the world's."""

    begins_h: float
    ends_h: float
    per_s: float
    way: Way | None = None


class WrongBatch(NamedTuple):
    """From its event number `first` on, `size` events of a partition bear times that are off by so much."""

    partition: int
    first: int
    off_ms: int
    size: int = BATCH


def right(now: int) -> int:
    """A right clock."""
    return now


def at_once(partition: int, side: int, moment: float) -> float:
    """Records that are there when their event happens."""
    return moment


def always(hour: float) -> bool:
    """Every hour has events."""
    return True


@dataclass(frozen=True)
class StreamWorld:
    """hours: how long events happen. processes: the partitions are dealt out to so many. per_s: impressions a second of
    each partition; rates: of one each. ctr: the share that is clicked. heavy: some clicks come much later. active:
    whether an hour has events. jitter_ms: the mean of what a record takes beyond its way. wrong: the share of events
    whose clock is two hours off. wall, brokers: what the clock of the joiner, and that of the brokers, shows. is_live:
    whether freshness is measured. most_read: records that a partition reads of an input between two looks. look_s: how
    long from one look to the next while events come. begins_h, ends_h: of each partition, in place of 0 and `hours`.
    spans: in place of both.
    """

    hours: float = 2.5
    partitions: int = 2
    processes: int = 1
    per_s: float = 1.0
    ctr: float = 0.1
    heavy: bool = False
    way: Way = at_once
    active: Callable[[float], bool] = always
    jitter_ms: int = 300
    wrong: float = 0.0
    batch: WrongBatch | None = None
    wall: Clock = right
    brokers: Clock = right
    restarts: tuple[Restart, ...] = ()
    is_live: bool = False
    most_read: int = 4000
    look_s: int = 2
    seed: int = 1
    rates: tuple[float, ...] = ()
    spans: tuple[Span, ...] = ()
    begins_h: tuple[float, ...] = ()
    ends_h: tuple[float, ...] = ()

    def arrivals(self) -> tuple[list[list[Arrival]], list[list[Arrival]]]:
        """The impressions and the clicks of each partition, in the order in which their records are there."""
        rng = random.Random(self.seed)
        made = [self._of_partition(partition, rng) for partition in range(self.partitions)]
        shown, clicked = ([sorted(pair[side], key=lambda one: one.at) for pair in made] for side in (SHOWN, CLICKED))
        return shown, clicked

    def _spans(self, partition: int) -> tuple[Span, ...]:
        begins = self.begins_h[partition] if self.begins_h else 0
        ends = self.ends_h[partition] if self.ends_h else self.hours
        return self.spans or (Span(begins, ends, self.rates[partition] if self.rates else self.per_s),)

    def _moments(self, partition: int, rng: random.Random) -> Iterator[tuple[float, Way]]:
        for begins_h, ends_h, per_s, way in self._spans(partition):
            moment = BEGINNING + begins_h * HOUR
            while per_s and (moment := moment + rng.expovariate(per_s) * SECOND) < BEGINNING + ends_h * HOUR:
                if self.active((moment - BEGINNING) / HOUR):
                    yield moment, way or self.way

    def _of_partition(self, partition: int, rng: random.Random) -> tuple[list[Arrival], list[Arrival]]:
        shown, clicked = [], []
        for number, (moment, way) in enumerate(self._moments(partition, rng), 1):
            off_ms = rng.choice((-2, 2)) * HOUR if rng.random() < self.wrong else 0
            batch = self.batch
            if batch is not None and batch.partition == partition and 0 <= number - batch.first < batch.size:
                off_ms = batch.off_ms
            at = way(partition, SHOWN, moment) + self._jitter(rng)
            shown.append(Arrival(at, int(moment) + off_ms, number))
            if rng.random() < self.ctr:
                click = moment + self._click_after_s(rng) * SECOND
                at = way(partition, CLICKED, click) + self._jitter(rng)
                clicked.append(Arrival(at, int(click) + off_ms, number))
        return shown, clicked

    def _jitter(self, rng: random.Random) -> float:
        return rng.expovariate(1 / self.jitter_ms) if self.jitter_ms else 0.0

    def _click_after_s(self, rng: random.Random) -> float:
        if not self.heavy or rng.random() < 0.7:
            return rng.expovariate(1 / CLICK_AFTER_S)
        return rng.paretovariate(0.8) * CLICK_AFTER_S


def late_by(ms: int, partitions: tuple[int, ...] | None = None, side: int | None = None) -> Way:
    """Records that are there so much later: of some partitions, or of one input."""

    def way(partition: int, of: int, moment: float) -> float:
        is_late = (partitions is None or partition in partitions) and side in (None, of)
        return moment + ms if is_late else moment

    return way


def stalled(
    ms: int,
    *,
    catches_up: bool,
    from_h: float = 1,
    partitions: tuple[int, ...] | None = None,
    side: int | None = None,
    behind_ms: int = 0,
) -> Way:
    """From an hour on nothing comes for so long; then it goes on where it stopped, for good or 20 times as fast."""

    def way(partition: int, of: int, moment: float) -> float:
        if (partitions is not None and partition not in partitions) or side not in (None, of):
            return moment + behind_ms
        since, usual = moment - BEGINNING - from_h * HOUR, moment + behind_ms
        if since < 0:
            return usual
        return max(usual, BEGINNING + from_h * HOUR + behind_ms + ms + since / 20) if catches_up else usual + ms

    return way


def kept_back(ms: int, from_h: float, within_ms: int, side: int | None = None) -> Way:
    """From an hour on nothing comes for so long; then all of it within `within_ms`, in disorder."""
    begins = BEGINNING + from_h * HOUR

    def way(partition: int, of: int, moment: float) -> float:
        if side not in (None, of) or not begins <= moment < begins + ms:
            return moment
        return begins + ms + int(moment) * 7_919 % within_ms

    return way


def catching_up(lag_ms: int, impressions_h: float, clicks_h: float, within_ms: int = 30 * SECOND) -> Way:
    """Both inputs are behind by so much; from an hour of its own on each catches up."""

    def way(partition: int, of: int, moment: float) -> float:
        begins = BEGINNING + (impressions_h if of == SHOWN else clicks_h) * HOUR
        since = moment - (begins - lag_ms)
        return moment + lag_ms if since < 0 else max(moment, begins + since * within_ms / (lag_ms + within_ms))

    return way


def drifting(before_ms: int, after_ms: int, from_h: float, to_h: float) -> Way:
    """The lag goes from one to the other between two hours of event time."""

    def way(partition: int, of: int, moment: float) -> float:
        share = min(1, max(0, ((moment - BEGINNING) / HOUR - from_h) / (to_h - from_h)))
        return moment + before_ms + (after_ms - before_ms) * share

    return way


def fed(speed: int, since_h: float, until_h: float) -> Way:
    """Events of many hours are fed at a speed, those after them live."""

    def way(partition: int, of: int, moment: float) -> float:
        if moment >= BEGINNING + until_h * HOUR:
            return moment
        return max(moment, BEGINNING + (moment - BEGINNING + since_h * HOUR) / speed)

    return way


def replayed(from_h: float, to_h: float, at_h: float, until_h: float) -> Way:
    """Events from one hour to another are fed between two other hours, at an even pace."""
    speed = (to_h - from_h) / (until_h - at_h)
    return lambda partition, of, moment: max(
        moment, BEGINNING + at_h * HOUR + (moment - BEGINNING - from_h * HOUR) / speed
    )


def month_old(hours_ago: float) -> Way:
    """What is older than the world comes so many hours later; the rest at once."""
    return lambda partition, of, moment: moment if moment > BEGINNING - HOUR else moment + hours_ago * HOUR


def every_5_min(partition: int, of: int, moment: float) -> float:
    """Records that come in batches."""
    return (moment // (5 * MINUTE) + 1) * 5 * MINUTE


def clicks_dead(from_h: float) -> Way:
    """Clicks do not come any more from an hour on."""
    ends = BEGINNING + from_h * HOUR
    return lambda partition, of, moment: FOR_EVER if of == CLICKED and moment >= ends else moment


def stepped(by_ms: int, from_h: float, ms: int = FOR_EVER) -> Clock:
    """A clock that is off by so much from an hour on, for so long."""
    begins = BEGINNING + from_h * HOUR
    return lambda now: int(now + by_ms) if begins <= now < begins + ms else now


def begins(hour: float) -> tuple[Restart, ...]:
    """A joiner that begins at an hour, when the topics hold what came before."""
    return (Restart(BEGINNING, int(hour * HOUR), False),)


def restarts(*hours: float, remembers: bool, down_ms: int = 60 * SECOND) -> tuple[Restart, ...]:
    """Restarts at these hours."""
    return tuple(Restart(BEGINNING + hour * HOUR, down_ms, remembers) for hour in hours)


def _live() -> Iterator[tuple[str, StreamWorld]]:
    live = StreamWorld
    yield "live", live(is_live=True)
    yield "live, clicks 1 %, 3 a second", live(is_live=True, per_s=3, ctr=0.01)
    yield "live, clicks 20 %, 8 partitions", live(is_live=True, partitions=8, ctr=0.2, hours=1.2)
    yield "live, heavy tail", live(is_live=True, heavy=True)
    yield "live, an event a minute", live(is_live=True, per_s=1 / 60, ctr=0.2, hours=5, partitions=4, look_s=3)
    yield "live, 10 events an hour", live(is_live=True, per_s=1 / 360, ctr=0.2, hours=38, partitions=4, look_s=3)
    yield "live, one of 4 slow, one empty", live(is_live=True, rates=(1, 1, 1 / 120, 0), partitions=4)
    yield "night of 3 h", StreamWorld(hours=6, active=lambda hour: not 1 < hour < 4)
    yield "a batch every 5 min", StreamWorld(way=every_5_min, jitter_ms=0)
    yield "a partition added after 1 h", live(is_live=True, partitions=3, begins_h=(0, 0, 1))
    one_each = {"is_live": True, "partitions": 3, "processes": 3}
    yield "one partition each process, one slow", live(**one_each, rates=(1, 1, 1 / 120))  # type: ignore[arg-type]
    yield "one partition each process, one empty", live(is_live=True, processes=2, rates=(1, 0))


def _lags() -> Iterator[tuple[str, StreamWorld]]:
    few = {"ctr": 0.025, "hours": 2.6}
    for name, ms in (("10 s", 10), ("2 min", 120), ("6 min", 360), ("12 min", 720), ("35 min", 2100), ("6 h", 21600)):
        way = late_by(ms * SECOND)
        yield f"mirror {name} behind, a click in 40 s", StreamWorld(way=way, ctr=0.025, hours=2.6)
    mirror = late_by(35 * MINUTE)
    yield "mirror 35 min behind, a click in 5 min", StreamWorld(way=mirror, ctr=0.02, per_s=0.15, hours=8)
    yield "mirror 35 min behind, 5 % of devices 2 h wrong", StreamWorld(way=mirror, wrong=0.05, ctr=0.2)
    added = StreamWorld(way=mirror, partitions=3, begins_h=(0, 0, 1))
    yield "mirror 35 min behind, a partition added", added
    for name, way in (
        ("lag grows to 35 min in an hour", drifting(0, 35 * MINUTE, 1, 2)),
        ("lag grows to 2 h in 40 min", drifting(0, 2 * HOUR, 1, 1.67)),
        ("lag shrinks from 35 min", drifting(35 * MINUTE, 0, 1, 2)),
    ):
        yield name, StreamWorld(way=way, ctr=0.025, hours=2.6)
    one = late_by(35 * MINUTE, partitions=(0,))
    begins = (-7 / 12, 0, 0, 0)
    lagging = StreamWorld(way=one, partitions=4, begins_h=begins, **few)  # type: ignore[arg-type]
    yield "one of 4 partitions 35 min behind", lagging
    ends = StreamWorld(way=one, partitions=4, begins_h=begins, ends_h=(1, 2.6, 2.6, 2.6), **few)  # type: ignore[arg-type]
    yield "one of 4 partitions 35 min behind, then empty", ends


def _stalls() -> Iterator[tuple[str, StreamWorld]]:
    for name, ms in (("30 s", 30 * SECOND), ("5 min", 5 * MINUTE), ("20 min", 20 * MINUTE), ("2 h", 2 * HOUR)):
        for catches_up in (False, True):
            what = "catches up" if catches_up else "stays behind"
            yield f"stall of {name}, {what}", StreamWorld(way=stalled(ms, catches_up=catches_up), hours=2.6)
    behind = stalled(20 * MINUTE, catches_up=False, behind_ms=35 * MINUTE)
    yield "mirror 35 min behind, stalls 20 min", StreamWorld(way=behind, hours=2.6)
    yield "clicks alone 5 min late", StreamWorld(way=late_by(5 * MINUTE, side=CLICKED))
    alone = stalled(5 * MINUTE, catches_up=False, side=CLICKED)
    yield "clicks alone stall 5 min, stay behind", StreamWorld(way=alone)
    flood = stalled(40 * MINUTE, catches_up=True, side=CLICKED, from_h=1.5)
    yield "clicks dead 40 min, then a flood", StreamWorld(way=flood, hours=2.6)
    one = stalled(5 * MINUTE, catches_up=True, partitions=(0,))
    yield "one of 4 partitions stalls 5 min", StreamWorld(way=one, partitions=4, hours=2)
    stays = stalled(20 * MINUTE, catches_up=False, partitions=(0,))
    yield "one of 4 stalls 20 min, stays behind", StreamWorld(way=stays, partitions=4, hours=2.6)


def _replays() -> Iterator[tuple[str, StreamWorld]]:
    old = (Span(-720, -718, 1), Span(2, 4, 1))
    yield "month-old at 1x, then live", StreamWorld(spans=old, ctr=0.025, way=month_old_before_all(720))
    spans = (Span(-60, 1, 0.02), Span(1, 3, 1))
    yield "old at 60x, then live", StreamWorld(spans=spans, way=fed(60, 60, 1), jitter_ms=5)
    spans = (Span(-720, 0.72, 0.002), Span(0.72, 3, 1))
    yield "month-old at 1000x, then live", StreamWorld(spans=spans, way=fed(1000, 720, 0.72), jitter_ms=1)
    ends = (Span(-60, -6, 0.02),)
    yield "old at 60x, then silence", StreamWorld(spans=ends, way=fed(60, 60, 1), jitter_ms=5)
    between = (Span(0, 1, 1), Span(-720, -719, 1), Span(2.5, 4, 1))
    yield "live, then month-old at 1x, then live", StreamWorld(spans=between, way=month_old(721))
    among = (Span(0, 2.6, 1), Span(-720, -718.5, 3))
    name = "live, among three times as many month-old"
    yield name, StreamWorld(spans=among, way=month_old(720.7), hours=2.6, is_live=True, look_s=1)


def month_old_before_all(hours_ago: float) -> Way:
    """What is older than the beginning comes so many hours later; the rest at once."""
    return lambda partition, of, moment: moment if moment > BEGINNING else moment + hours_ago * HOUR


def _restarted() -> Iterator[tuple[str, StreamWorld]]:
    clicks_late, stays = late_by(5 * MINUTE, side=CLICKED), stalled(20 * MINUTE, catches_up=False)
    down = (Restart(BEGINNING + HOUR, HOUR, False),)
    name = "down for 1 h, slow reader, clicks 5 min late, nothing remembered"
    yield name, StreamWorld(way=clicks_late, restarts=down, most_read=10)
    for remembers in (True, False):
        rest = "" if remembers else ", nothing remembered"
        long = StreamWorld(way=stalled(2 * HOUR, catches_up=False), restarts=restarts(1.3, remembers=remembers))
        yield "restart in a stall of 2 h" + rest, long
        four = restarts(0.5, 0.9, 1.3, 1.7, remembers=remembers, down_ms=20 * SECOND)
        yield "restarts, live" + rest, StreamWorld(is_live=True, restarts=four)
        three = restarts(1.5, 2.1, 2.7, remembers=remembers)
        mirror = StreamWorld(way=late_by(35 * MINUTE), ctr=0.025, hours=2.6, restarts=three)
        yield "restarts, mirror 35 min behind" + rest, mirror
        two = restarts(1.15, 1.25, remembers=remembers)
        yield "restart in a stall of 20 min" + rest, StreamWorld(way=stays, restarts=two, hours=2.6)
        three = restarts(0.8, 1.3, 1.8, remembers=remembers)
        yield "restarts, clicks alone 5 min late" + rest, StreamWorld(way=clicks_late, ctr=0.025, restarts=three)
        hour = (Restart(BEGINNING + HOUR, HOUR, remembers),)
        yield "down for 1 h, live" + rest, StreamWorld(restarts=hour, hours=3.5)
        ahead = StreamWorld(is_live=True, restarts=restarts(1.0, remembers=remembers), wall=stepped(24 * HOUR, 1))
        yield "restarts, wall 24 h ahead since" + rest, ahead


def _clocks() -> Iterator[tuple[str, StreamWorld]]:
    for name, by_ms, ms in (
        ("1 h ahead for 5 s", HOUR, 5 * SECOND),
        ("24 h ahead for 2 s", 24 * HOUR, 2 * SECOND),
        ("1 h ahead for ever", HOUR, FOR_EVER),
        ("1 h back for ever", -HOUR, FOR_EVER),
    ):
        yield f"wall clock {name}", StreamWorld(is_live=True, wall=stepped(by_ms, 1, ms), ctr=0.025)
    wall = stepped(24 * HOUR, 1, 2 * SECOND)
    yield "wall 24 h ahead for 2 s, slow", StreamWorld(is_live=True, per_s=1 / 20, ctr=0.2, hours=8, wall=wall)
    yield "5 % of devices 2 h wrong", StreamWorld(is_live=True, wrong=0.05)
    for name, off_ms in (("ahead", 2 * HOUR), ("behind", -2 * HOUR)):
        yield f"32 in a row 2 h {name}", StreamWorld(is_live=True, batch=WrongBatch(0, 3000, off_ms))


def _more() -> Iterator[tuple[str, StreamWorld]]:
    """Worlds that the rule was not made from."""
    for name, from_h in (("2 min", 1 / 30), ("20 min", 1 / 3), ("2 h", 2)):
        dead = StreamWorld(way=clicks_dead(from_h), hours=from_h + 0.25, per_s=10, ctr=0.05)
        yield f"clicks dead after {name}", dead
    history = StreamWorld(hours=3, way=clicks_dead(1), restarts=begins(2.5))
    yield "begins when clicks are dead", history
    yield "begins when clicks are dead and the topics have ended", replace(history, hours=2)
    yield "begins when clicks are dead, 5 % of devices 2 h wrong", replace(history, wrong=0.05)
    yield "begins with a history", StreamWorld(hours=3, restarts=begins(2.5))
    down = (Restart(BEGINNING + HOUR, HOUR, True),)
    yield "clicks die while the joiner is down", StreamWorld(way=clicks_dead(1.01), restarts=down)
    for name, by_ms, ms in (
        ("1 h ahead for 5 s", HOUR, 5 * SECOND),
        ("5 min ahead for ever", 5 * MINUTE, FOR_EVER),
        ("5 min back for ever", -5 * MINUTE, FOR_EVER),
    ):
        yield f"brokers' clock {name}", StreamWorld(brokers=stepped(by_ms, 1, ms), is_live=True)


def worlds() -> dict[str, StreamWorld]:
    """All worlds by their names. Those that are not live are looked at every 4 s: they do not measure freshness."""
    parts = (_live, _lags, _stalls, _replays, _restarted, _clocks, _more)
    return {name: world if world.is_live else replace(world, look_s=4) for part in parts for name, world in part()}


MAIN = (
    "live",
    "mirror 35 min behind, a click in 40 s",
    "mirror 6 h behind, a click in 40 s",
    "lag grows to 35 min in an hour",
    "stall of 2 h, stays behind",
    "mirror 35 min behind, stalls 20 min",
    "one of 4 partitions 35 min behind",
    "wall clock 1 h ahead for 5 s",
    "wall clock 24 h ahead for 2 s",
)
"""The worlds that are run with a window of 30 minutes, too."""


def clicked_in_window(shown: list[Arrival], clicked: list[Arrival], window_ms: int, skew_ms: int) -> list[bool]:
    """For each impression: whether a click with its id lies in its window, whenever it comes, and if it never does."""
    times = defaultdict(list)
    for click in sorted(clicked, key=lambda one: one.time_ms):
        times[click.number].append(click.time_ms)
    found = []
    for impression in shown:
        of_id = times.get(impression.number, [])
        first = bisect_left(of_id, impression.time_ms - skew_ms)
        found.append(first < len(of_id) and of_id[first] <= impression.time_ms + window_ms)
    return found
