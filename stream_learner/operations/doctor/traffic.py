"""The traffic that a sample shows, for `sizing`: its rate, and what an impression has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_learner.config import Config
from stream_learner.core.events.reference import PlainRow
from stream_learner.operations.doctor.events import Event, Side
from stream_learner.operations.doctor.findings import ENOUGH
from stream_learner.operations.doctor.retention import RECORD_BYTES
from stream_learner.operations.doctor.sizing import DAY_S, PEAK, Traffic, needs
from stream_learner.operations.doctor.times import Clock


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


def rate_a_s(side: Side, clock: Clock) -> float:
    """Impressions a second, by their times in the newest block; 0.0 where they do not tell."""
    return sum(_rate_a_s(events, clock) for events in side.blocks[0].values())


def _rate_a_s(events: Sequence[Event], clock: Clock) -> float:
    """Of a partition. Without the first and the last tenth: a few wrong clocks would count for all others."""
    times = sorted(time for event in events if (time := clock.of(event)) is not None)
    least, largest = len(times) // 10, len(times) - 1 - len(times) // 10
    took_ms = times[largest] - times[least] if largest > least else 0
    return 1000 * (largest - least) / took_ms if took_ms > 0 else 0.0


def sizing_of(
    config: Config, side: Side, clock: Clock, features: Features | None, click_share: float, replication: int
) -> dict[str, Any] | None:
    """What a model of this configuration takes at the rate of the sample, as `--json` prints it; None where the sample
    does not tell the rate or the features.

    The model has the features that were seen, and the most that a day brings. replication: of the impressions, 0 if not
    known.
    """
    a_s, events = rate_a_s(side, clock), side.some
    if features is None or not a_s:
        return None
    join, kept_ms = config.join, None if side.sample.retention is None else side.sample.retention.ms
    sizes = [len(event.record.key or b"") + len(event.record.value or b"") + RECORD_BYTES for event in events]
    new = round(features.new * a_s * DAY_S)
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
        "event_bytes": traffic.event_bytes,
        "click_share": click_share,
        "features_an_example": features.of_example,
        "features_seen": features.seen,
        "new_features_a_day": new,
        "peak": PEAK,
        "needs": [one._asdict() for one in needs(traffic)],
    }
