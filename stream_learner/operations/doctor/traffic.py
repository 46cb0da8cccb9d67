"""The traffic that a sample shows, for `sizing`: its rate, and what an impression has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_learner.config import Config
from stream_learner.config.values import SECOND_MS
from stream_learner.core.events.reference import PlainRow
from stream_learner.operations.doctor.events import Event, Side
from stream_learner.operations.doctor.findings import ENOUGH
from stream_learner.operations.doctor.retention import RECORD_BYTES
from stream_learner.operations.doctor.sizing import DAY_S, PEAK, Traffic, needs
from stream_learner.operations.doctor.times import OF_RECORDS, Clock, span

FEW = 9
"""So many records at each end of a partition tell when it begins and ends."""
LEAST_MS = 30 * SECOND_MS
BUNCHED = 2.0


@dataclass(frozen=True)
class Features:
    """of_example: the mean number of features, the bias included. seen: different ones. new: how many an example brings
    that were not seen before, at the most.
    """

    of_example: float
    seen: int
    new: float


def features_of(rows: Sequence[PlainRow]) -> Features | None:
    """The features of some impressions; None where there are too few.

    new: the share of features seen once, by Good and Turing: "The population frequencies of species and the estimation
    of population parameters" (I. J. Good, 1953), equation (9). It falls as more is seen, so what comes later is less.
    """
    if len(rows) < ENOUGH:
        return None
    counts = Counter(key for row in rows for key in row.keys)
    once = sum(count == 1 for count in counts.values())
    return Features(counts.total() / len(rows) + 1, len(counts), once / len(rows))


@dataclass(frozen=True)
class Rate:
    """Impressions a second, the time over which that is the mean, and by what it was found."""

    a_s: float
    over_ms: float
    by: str


def rate_of(side: Side, clock: Clock) -> Rate | None:
    """The rate of a topic, from the offsets and times of the first and the last records of its partitions.

    A sample alone would tell that of its own moments: records come in bunches, and at night. By the times of records;
    by those of events where these took far longer, as where old events were written at once. None where both took less
    than `LEAST_MS`: nothing tells the rate of a day then.
    """
    rates = [_rate(side, of, by) for of, by in ((OF_RECORDS, "timestamps of records"), (clock, "times of events"))]
    by_records, by_events = rates
    found = by_events if by_events.over_ms > BUNCHED * by_records.over_ms else by_records
    return found if found.over_ms >= LEAST_MS else None


def _rate(side: Side, clock: Clock, by: str) -> Rate:
    a_s = over_ms = 0.0
    for partition, newest in side.blocks[0].items():
        firsts = [event for event in side.firsts if event.record.partition == partition]
        blocks = [of for of in (firsts, *(block.get(partition, []) for block in side.blocks)) if of]
        oldest = min(blocks, key=lambda of: of[0].record.offset, default=[])
        begin, end = _middle(oldest[:FEW], clock), _middle(newest[-FEW:], clock)
        if begin is not None and end is not None and end[0] > begin[0]:
            took_ms = end[0] - begin[0]
            a_s += 1000 * (end[1] - begin[1]) / took_ms
            over_ms = max(over_ms, took_ms)
    return Rate(a_s, over_ms, f"offsets and {by}")


def _middle(events: Sequence[Event], clock: Clock) -> tuple[int, int] | None:
    """The median time of some events, and the offset of the event that has it: one wrong clock must not count."""
    timed = sorted((time, event.record.offset) for event in events if (time := clock.of(event)) is not None)
    return timed[len(timed) // 2] if timed else None


def sizing_of(
    config: Config, side: Side, clock: Clock, features: Features | None, click_share: float, replication: int
) -> dict[str, Any] | None:
    """What a model of this configuration takes at the rate of the topic, as `--json` prints it; None where the sample
    does not tell the rate or the features.

    The model has the features that were seen, and the most that a day brings. replication: of the impressions, 0 if not
    known.
    """
    rate, events = rate_of(side, clock), side.some
    if features is None or rate is None:
        return None
    join, kept_ms = config.join, None if side.sample.retention is None else side.sample.retention.ms
    sizes = [len(event.record.key or b"") + len(event.record.value or b"") + RECORD_BYTES for event in events]
    a_s, new = rate.a_s, round(features.new * rate.a_s * DAY_S)
    traffic = Traffic(
        a_s=a_s,
        event_bytes=sum(sizes) / len(sizes),
        features=features.of_example,
        model_features=features.seen + new,
        click_share=click_share,
        window_s=join.window_ms / 1000,
        skew_s=join.skew_ms / 1000,
        lateness_s=join.lateness_ms / 1000,
        dedupe_s=join.dedupe_ms / 1000,
        input_days=kept_ms / 1000 / DAY_S if kept_ms else Traffic.input_days,
        log_days=config.topics.retention_ms / 1000 / DAY_S,
        replicas=config.topics.replication or replication or Traffic.replicas,
    )
    return {
        "impressions_a_second": a_s,
        "rate_by": f"{rate.by}, over {span(rate.over_ms)}",
        "event_bytes": traffic.event_bytes,
        "click_share": click_share,
        "features_an_example": features.of_example,
        "features_seen": features.seen,
        "new_features_a_day": new,
        "peak": PEAK,
        "needs": [one._asdict() for one in needs(traffic)],
    }
