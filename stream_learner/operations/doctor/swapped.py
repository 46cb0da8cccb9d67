"""Whether the topic of impressions holds the clicks, and the topic of clicks the impressions."""

from __future__ import annotations

from collections.abc import Sequence

from stream_learner.operations.doctor.clicks import with_clicks_read
from stream_learner.operations.doctor.delays import delays_ms
from stream_learner.operations.doctor.events import Side
from stream_learner.operations.doctor.findings import ENOUGH, Finding, percent, quantile
from stream_learner.operations.doctor.ids import Pair, best_pair, pairs_of_paths
from stream_learner.operations.doctor.times import OF_RECORDS, Clock, span
from stream_learner.wording import count_of

LATER, MOST = 0.95, 0.8
"""At least `LATER` of the clicks come after their impressions; more than `MOST` of the clicks have an impression, and
`MOST` of the impressions at most have a click."""


def swapped(sides: tuple[Side, Side], times: tuple[Sequence[Clock], Sequence[Clock]]) -> Finding | None:
    """Judge both topics the other way round. times: as of `time_fields`, of each.

    One sign alone has other causes: a wrong clock puts clicks before their impressions, and nearly each impression has
    a click where clicks are views. So all signs are asked for.
    """
    clicks, impressions = sides
    of_clicks, of_impressions = (next(iter(found), OF_RECORDS) for found in times)
    ids = best_pair(pairs_of_paths(impressions, clicks, times), clicks)
    pairs = [] if ids is None else ids.pairs(impressions.events, clicks.events)
    delays = delays_ms(pairs, (of_impressions, of_clicks))
    if ids is None or len(delays) < ENOUGH or quantile(delays, 1 - LATER) <= 0:
        return None
    shown = len(with_clicks_read(impressions, pairs, of_impressions))
    clicked = len(with_clicks_read(clicks, [Pair(click, impression) for impression, click in pairs], of_clicks))
    with_click = len({id(pair.impression) for pair in pairs})
    if with_click > MOST * shown or len(pairs) <= MOST * clicked:
        return None
    mine, other = clicks.sample.topic, impressions.sample.topic
    seen = f"{len(pairs):,} of {count_of(clicked, 'event')} of {mine} have the id of an event of {other}, but only "
    seen += f"{with_click:,} of {shown:,} there have one of {mine}; and {mine} has it later, in "
    seen += f"{percent(sum(delay > 0 for delay in delays) / len(delays))} of them, by {span(quantile(delays, 0.5))} in "
    seen += f"the median: the clicks are in {mine}, the impressions in {other}"
    means = "clicks would be learned as impressions; what else the events do not fit is told once the topics are right"
    change = f"{clicks.setting('topic')}: {other}, with {clicks.setting('id')}: {ids.impressions}; and "
    change += f"{impressions.setting('topic')}: {mine}, with {impressions.setting('id')}: {ids.clicks}"
    return Finding("stops", "swapped", seen, means, change)
