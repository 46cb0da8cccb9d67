"""Random histories of one partition: events out of order, repeated, late, bad, at window edges, with gaps and steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState, TickOutput
from stream_learner.core.log.marks import InputIdentity, Mark
from tests.core.join.plain_join import Record

UNKNOWN_KEY = 999


@dataclass
class History:
    """The records of two partitions, and the time at which each arrives."""

    spec: JoinSpec
    grace_ms: int
    impressions: list[Record]
    clicks: list[Record]

    @property
    def last_arrival(self) -> int:
        """The arrival time of the last record."""
        return max([r.arrival for r in self.impressions + self.clicks], default=0)


def random_history(rng: random.Random, keep_negatives: float = 1.0) -> History:
    """A history of up to 60 impressions. Weights tell impressions apart."""
    spec = JoinSpec(
        window_ms=rng.choice([3, 10, 30]),
        skew_ms=rng.choice([0, 2]),
        tick_ms=rng.choice([1, 2, 5]),
        dedupe_ms=rng.choice([0, 4, 20]),
        keep_negatives=keep_negatives,
        lateness_ms=rng.choice([0, 3, 10, 40]),
        agree=rng.choice([1, 2, 3, 5]),
    )
    ids, bad_share, soft = rng.randrange(1, 40), rng.choice([0, 0.1]), rng.random() < 0.3
    impressions: list[tuple[int, int | None, int]] = []
    clicks: list[tuple[int, int | None, int]] = []
    now = 10
    for _ in range(rng.randrange(60)):
        now += rng.choice([0, 0, 1, 1, 2, rng.choice([1, 1, 1, 1, 9, 200])])
        key = rng.randrange(1, ids + 1)
        time = now - rng.choice([0, 0, 0, 1, 3, rng.choice([0, 0, 0, 0, 25, -20])])
        impressions.append((now + rng.randrange(4), _or_bad(rng, max(time, 0), bad_share), key))
        while rng.random() < 0.45:
            click = now + rng.choice([-2, 0, 1, 2, 5, 9, 10, 11, 31])
            arrival = click + rng.choice([0, 0, 1, 4, 12])
            known = key if rng.random() < 0.9 else UNKNOWN_KEY
            clicks.append((arrival, _or_bad(rng, click, bad_share), known))
    values = [0.0, 0.25, 0.5, 1.0] if soft else [1.0]
    return History(
        spec,
        rng.choice([0, 2, 5]),
        _as_log(rng, impressions, lambda offset: 2.0 + offset),
        _as_log(rng, clicks, lambda offset: rng.choice(values)),
    )


def closed_by_log(history: History, rng: random.Random) -> History:
    """A copy of the history with late records of other ids in both partitions, so that log time closes all ticks."""
    last = history.last_arrival + 3 * history.spec.keep_ms + 50

    def closed(records: list[Record]) -> list[Record]:
        offset = records[-1].offset + rng.choice([1, 3]) if records else 0
        ends = range(history.spec.agree)
        return [*records, *(Record(offset + n, last, UNKNOWN_KEY + 1 + n, 1.0, last) for n in ends)]

    return History(history.spec, history.grace_ms, closed(history.impressions), closed(history.clicks))


def _or_bad(rng: random.Random, time: int, bad_share: float) -> int | None:
    return None if rng.random() < bad_share else time


def _as_log(rng, events, number_at) -> list[Record]:
    offset, gap_share, out = rng.choice([0, 7]), rng.choice([0, 0.2]), []
    for arrival, time, key in sorted(events, key=lambda event: event[0]):
        offset += rng.randrange(1, 4) if rng.random() < gap_share else 0
        out.append(Record(offset, time, key, number_at(offset), arrival))
        offset += 1
    return out


def mark_of(output: TickOutput, join: JoinState, before: Sequence[Mark] = (), *, is_resume_point: bool = True) -> Mark:
    """The mark that a writer would append for the output emitted last, behind those before it."""
    cut = output.cut
    return Mark(
        partition=0,
        attempt=1,
        first_tick=cut.first_tick,
        last_tick=cut.last_tick,
        next_impression=cut.next_impression,
        first_click=output.first_click,
        click_cursor=cut.click_cursor,
        records=min(1, len(output.examples)),
        pred_attempt=1 if before else 0,
        pred_tick=before[-1].last_tick if before else -1,
        counts=output.counts,
        resume=join.resume_point(InputIdentity(b"i" * 16, b"c" * 16, 1)) if is_resume_point else None,
    )
