"""Random inputs of one partition: when each record arrives, its time, and its bytes.

In: a random generator. Out: arrivals in their order. This file must never know what a joiner does with them.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any, NamedTuple

from simulation.kafka import Entry
from stream_learner.core.events import EventSpec
from stream_learner.core.join import JoinSpec
from tests.oracle_events import Click, Impression, Record, read_click, read_impression, settings

IMPRESSION_EVENTS = EventSpec(weight="w")
CLICK_EVENTS = EventSpec(value="v")
BEGINNING_MS = 1000
STEP_BACK_SHARE = 0.15
"""In how many partitions times step back after a pause in which everything has expired."""
BAD_VALUES = (b"not json", b"{}", None, b'{"id":null}')


class Arrival(NamedTuple):
    """A record on its way to an input: when it gets there, its time, its bytes."""

    at: int
    time_ms: int
    value: bytes | None


class Traffic(NamedTuple):
    """What arrives in one partition of each input."""

    impressions: list[Arrival]
    clicks: list[Arrival]


def random_spec(rng: random.Random) -> JoinSpec:
    """Windows of a few ticks, all edges near."""
    return JoinSpec(
        window_ms=rng.choice((3, 10, 30)),
        skew_ms=rng.choice((0, 2)),
        tick_ms=rng.choice((1, 2, 5)),
        dedupe_ms=rng.choice((0, 4, 20)),
        keep_negatives=rng.choice((1.0, 1.0, 0.3)),
    )


def random_traffic(rng: random.Random, spec: JoinSpec) -> Traffic:
    """Up to 24 impressions with their clicks: out of order, repeated, late, bad, of unknown ids."""
    impressions, clicks = [], []
    now, ids, bad = BEGINNING_MS, rng.randrange(1, 20), rng.choice((0.0, 0.1))
    for _ in range(rng.randrange(25)):
        now += rng.choice((0, 0, 1, 1, 2, rng.choice((1, 1, 9, 40))))
        key = rng.randrange(ids)
        time_ms = max(now - rng.choice((0, 0, 0, 1, 3, rng.choice((0, 0, 25)))), 0)
        value = b'{"id":"u%d","w":%d,"x":"y%d"}' % (key, rng.randrange(1, 4), rng.randrange(3))
        impressions.append(Arrival(now + rng.randrange(4), time_ms, _or_bad(rng, value, bad)))
        while rng.random() < 0.4:
            time_ms = max(now + rng.choice((-2, 0, 1, 2, 5, 9, 10, 11, 31)), 0)
            known = key if rng.random() < 0.9 else 99
            value = b'{"id":"u%d","v":%s}' % (known, rng.choice((b"1", b"1", b"0.5")))
            clicks.append(Arrival(time_ms + rng.choice((0, 0, 1, 4, 12)), time_ms, _or_bad(rng, value, bad)))
    if rng.random() < STEP_BACK_SHARE:
        _step_back(rng, spec, impressions, clicks)
    return Traffic(_good_first(impressions), _good_first(clicks))


def _step_back(rng: random.Random, spec: JoinSpec, impressions: list[Arrival], clicks: list[Arrival]) -> None:
    """A last click, a pause in which every click is forgotten, then records with times before that click's.

    The second of the late clicks is a duplicate of the first only by log time: their own times lie further apart than
    clicks are remembered. A joiner that goes on from a resume point in the pause has read no click that tells it.
    """
    last = max((arrival.at for side in (impressions, clicks) for arrival in side), default=BEGINNING_MS)
    clicks.append(Arrival(last, last, b'{"id":"last"}'))
    at = last + spec.memory_ms + 2 * spec.tick_ms + rng.randrange(6, 20)
    back = rng.randrange(1, spec.memory_ms + 2)
    for time_ms in (last - back, last - back + spec.memory_ms + rng.randrange(1, back + 1)):
        clicks.append(Arrival(at, time_ms, b'{"id":"back","v":1}'))
    impressions.append(Arrival(at, last - rng.randrange(back + 1), b'{"id":"back","w":1,"x":"y0"}'))


def with_sentinels(traffic: Traffic, spec: JoinSpec) -> Traffic:
    """The same with a last record in both inputs, so late that log time closes every tick before it."""
    last = max((arrival.at for side in traffic for arrival in side), default=BEGINNING_MS) + 3 * spec.memory_ms + 10
    end = Arrival(last, last, b'{"id":"end"}')
    return Traffic([*traffic.impressions, end], [*traffic.clicks, end])


def _good_first(side: list[Arrival]) -> list[Arrival]:
    """In order; the first can be used, since no rule speaks of log time before the first that can."""
    side.sort(key=lambda arrival: arrival.at)
    return [side[0]._replace(value=b'{"id":"first"}'), *side[1:]] if side else side


def _or_bad(rng: random.Random, value: bytes, share: float) -> bytes | None:
    return rng.choice(BAD_VALUES) if share and rng.random() < share else value


def oracle_settings(spec: JoinSpec) -> dict[str, Any]:
    """The settings by which the oracle reads and joins."""
    return settings(
        window_ms=spec.window_ms,
        skew_ms=spec.skew_ms,
        tick_ms=spec.tick_ms,
        dedupe_ms=spec.dedupe_ms,
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


def oracle_impressions(entries: list[Entry]) -> list[Impression]:
    """The records as the oracle reads them."""
    read = [(entry, _impression(entry.value)) for entry in entries]
    return [imp._replace(offset=e.offset, time_ms=None if imp.time_ms is None else e.time_ms) for e, imp in read]


def oracle_clicks(entries: list[Entry]) -> list[Click]:
    """The records as the oracle reads them."""
    read = [(entry, _click(entry.value)) for entry in entries]
    return [click._replace(offset=e.offset, time_ms=None if click.time_ms is None else e.time_ms) for e, click in read]
