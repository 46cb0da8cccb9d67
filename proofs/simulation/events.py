"""Random traffic of one partition: when each record arrives, its time, and its bytes. And how the oracle reads it."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any, NamedTuple

from proofs.simulation.kafka import Entry
from stream_learner.core.events.decoders import EventSpec
from stream_learner.core.join.spec import JoinSpec
from tests.oracles.events import Click, Impression, Record, read_click, read_impression, settings

IMPRESSION_EVENTS = EventSpec(weight="w")
CLICK_EVENTS = EventSpec(value="v")
BEGINNING_MS = 1000
STEP_BACK_SHARE = 0.2
"""The share of partitions in which times step back after a pause long enough to give every click up."""
BAD_VALUES = (b"not json", b"{}", None, b'{"id":null}')


class Arrival(NamedTuple):
    """A record on its way to an input. at: when it arrives. time_ms: its timestamp."""

    at: int
    time_ms: int
    value: bytes | None


class Traffic(NamedTuple):
    """The arrivals in one partition of each input, in their order."""

    impressions: list[Arrival]
    clicks: list[Arrival]


def random_spec(rng: random.Random) -> JoinSpec:
    """Settings of the join with windows of a few ticks, so that the edges of every rule are near."""
    return JoinSpec(
        window_ms=rng.choice((3, 10, 30)),
        skew_ms=rng.choice((0, 2)),
        tick_ms=rng.choice((1, 2, 5)),
        dedupe_ms=rng.choice((0, 4, 20)),
        keep_negatives=rng.choice((1.0, 1.0, 0.3)),
        lateness_ms=rng.choice((0, 3, 8, 40)),
        agree=rng.choice((1, 1, 2, 3, 4, 6)),
    )


class _Field:
    """The habits of one partition's clients, chosen once, and the records that follow from them."""

    def __init__(self, rng: random.Random, spec: JoinSpec) -> None:
        self.rng, self.spec = rng, spec
        self.ids = rng.randrange(1, 20)
        self.bad = rng.choice((0.0, 0.1, 0.3))
        self.ahead, self.behind = (rng.choice((0.0, 0.0, 0.1, 0.3)) for _ in range(2))
        self.wrong = rng.choice((0.0, 0.0, 0.03, 0.2))  # the share of wrong clocks
        self.burst = rng.choice((0.0, 0.2, 0.6))
        self.resend = rng.choice((0.0, 0.1, 0.3))
        self.slow = rng.choice((4, 4, 13, 40))
        self.old = rng.choice((0, 0, 0, 25, 60))  # old events, fed into a running joiner: from a moment on, or all
        self.old_from = rng.choice((0, BEGINNING_MS + 20))
        self.pauses = rng.choice((0.05, 0.05, 0.2))

    def traffic(self) -> Traffic:
        rng, now = self.rng, BEGINNING_MS
        impressions: list[Arrival] = []
        clicks: list[Arrival] = []
        for _ in range(rng.randrange(rng.choice((5, 25, 25)))):
            now += 0 if rng.random() < self.burst else rng.choice((0, 1, 1, 2))
            now += rng.choice((9, 40, self.spec.keep_ms + 20)) if rng.random() < self.pauses else 0
            key, time_ms = rng.randrange(self.ids), self._clock(now)
            impressions.append(self._impression(now + rng.randrange(self.slow), time_ms, key))
            if rng.random() < self.resend:
                again = rng.choice((0, 1, 5, self.spec.dedupe_ms + rng.choice((-1, 0, 1, self.spec.tick_ms))))
                impressions.append(self._impression(now + max(again, 0), time_ms + rng.choice((0, 1)), key))
            while rng.random() < 0.4:
                clicks.append(self._click(now, time_ms, key))
        return Traffic(*(sorted(side, key=lambda arrival: arrival.at) for side in (impressions, clicks)))

    def _clock(self, now: int) -> int:
        """The time by a client's clock."""
        rng = self.rng
        time_ms = now - (self.old if now >= self.old_from else 0)
        time_ms += rng.choice((3, 9, 25)) if rng.random() < self.ahead else 0
        time_ms -= rng.choice((1, 3, 25)) if rng.random() < self.behind else 0
        return self._wrong(time_ms)

    def _wrong(self, time_ms: int) -> int:
        return time_ms + self.rng.choice((-100, -60, 60, 100, 300)) if self.rng.random() < self.wrong else time_ms

    def _impression(self, at: int, time_ms: int, key: int) -> Arrival:
        value = b'{"id":"u%d","w":%d,"x":"y%d"}' % (key, self.rng.randrange(1, 4), self.rng.randrange(3))
        return Arrival(at, time_ms, self._or_bad(value))

    def _click(self, now: int, time_ms: int, key: int) -> Arrival:
        """A click near either end of the span in which it counts; sometimes it arrives before its impression."""
        rng, window, skew = self.rng, self.spec.window_ms, self.spec.skew_ms
        after = rng.choice((-skew - 1, -skew, 0, 1, 2, 5, 9, window - 1, window, window + 1, 31))
        known = key if rng.random() < 0.9 else 99
        value = b'{"id":"u%d","v":%s}' % (known, rng.choice((b"1", b"1", b"0.5", b"0")))
        late = rng.choice((0, 0, 1, 4, 12)) if rng.random() < 0.9 else -after - rng.choice((1, 5, 20))
        return Arrival(max(now + after + late, BEGINNING_MS), self._wrong(time_ms + after), self._or_bad(value))

    def _or_bad(self, value: bytes) -> bytes | None:
        return self.rng.choice(BAD_VALUES) if self.rng.random() < self.bad else value


def random_traffic(rng: random.Random, spec: JoinSpec) -> Traffic:
    """Up to 24 impressions and their clicks: out of order, sent again, late, bad, of unknown ids, by wrong clocks."""
    traffic = _Field(rng, spec).traffic()
    return _with_step_back(rng, spec, traffic) if rng.random() < STEP_BACK_SHARE else traffic


def _with_step_back(rng: random.Random, spec: JoinSpec, traffic: Traffic) -> Traffic:
    """The traffic, a last click, a pause in which every click is given up, then a click far ahead with old ones behind.

    By its row that click has a log time from before the pause, and is kept `lateness` longer than it would be by the
    log time of the click given up last. A joiner that goes on from a resume point in the pause reads no click that
    tells this log time: only the resume point does.
    """
    last = max((arrival.at for side in traffic for arrival in side), default=BEGINNING_MS)
    at = last + spec.keep_ms + 2 * spec.tick_ms + rng.randrange(1, 12)
    old = [last - rng.randrange(1, spec.keep_ms) for _ in range(max(spec.agree - 1, 1))]
    clicks = [Arrival(last, last, b'{"id":"last"}'), Arrival(at, at + spec.keep_ms, b'{"id":"ahead","v":1}')]
    clicks += [Arrival(at, time_ms, b'{"id":"back","v":1}') for time_ms in old]
    impression = Arrival(at, rng.choice((at + spec.keep_ms, old[0])), b'{"id":"ahead","w":1,"x":"y0"}')
    return Traffic([*traffic.impressions, impression], [*traffic.clicks, *clicks])


def with_sentinels(traffic: Traffic, spec: JoinSpec) -> Traffic:
    """The traffic with `agree` last events in both inputs, so late that log time closes every tick before them."""
    times = [time for side in traffic for arrival in side for time in (arrival.at, arrival.time_ms)]
    last = max(times, default=BEGINNING_MS) + 3 * spec.keep_ms + 3 * spec.tick_ms + 10
    ends = [Arrival(last, last, b'{"id":"end%d"}' % n) for n in range(spec.agree)]
    return Traffic([*traffic.impressions, *ends], [*traffic.clicks, *ends])


def oracle_settings(spec: JoinSpec) -> dict[str, Any]:
    """The settings by which the oracle reads and joins."""
    return settings(
        window_ms=spec.window_ms,
        skew_ms=spec.skew_ms,
        tick_ms=spec.tick_ms,
        dedupe_ms=spec.dedupe_ms,
        lateness_ms=spec.lateness_ms,
        agree=spec.agree,
        keep_negatives=spec.keep_negatives,
        weight="w",
        value="v",
    )


_READS = settings(weight="w", value="v")


@lru_cache(100_000)
def _impression(value: bytes | None) -> Impression:
    return read_impression(Record(0, 1, value), _READS)


@lru_cache(100_000)
def _click(value: bytes | None) -> Click:
    return read_click(Record(0, 1, value), _READS)


def good_impression(value: bytes | None) -> bool:
    """Whether these bytes are an impression."""
    return _impression(value).time_ms is not None


def good_click(value: bytes | None) -> bool:
    """Whether these bytes are a click."""
    return _click(value).time_ms is not None


def oracle_impressions(entries: list[Entry]) -> list[Impression]:
    """Records of impressions as the oracle reads them."""
    read = [(entry, _impression(entry.value)) for entry in entries]
    return [imp._replace(offset=e.offset, time_ms=None if imp.time_ms is None else e.time_ms) for e, imp in read]


def oracle_clicks(entries: list[Entry]) -> list[Click]:
    """Records of clicks as the oracle reads them."""
    read = [(entry, _click(entry.value)) for entry in entries]
    return [click._replace(offset=e.offset, time_ms=None if click.time_ms is None else e.time_ms) for e, click in read]
