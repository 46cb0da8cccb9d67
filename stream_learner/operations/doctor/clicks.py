"""What the clicks say together: when they begin, how many impressions have one, and whether ids are unique."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from stream_learner.config import Config
from stream_learner.core.gate.first_version import CHANCE, LITTLE, REPEATED
from stream_learner.operations.doctor.events import Event, Side
from stream_learner.operations.doctor.findings import ENOUGH, Finding, percent, quantile, shown
from stream_learner.operations.doctor.ids import IdPaths, Pair, id_text
from stream_learner.operations.doctor.sample import FIRSTS
from stream_learner.operations.doctor.times import Clock, moment, span
from stream_learner.wording import count_of

MOSTLY, ALWAYS = 0.5, 0.95
SOME_REPEATED = 0.1
LONG_MS = 86_400_000
"""Clicks that begin later than this are known not to have been collected before: the joiner leaves impressions out."""


def with_clicks_read(impressions: Side, pairs: Sequence[Pair], clock: Clock) -> list[Event]:
    """The impressions whose clicks are likely in the sample: those between the first and the last one that has one."""
    times = [time for pair in pairs if (time := clock.of(pair.impression)) is not None]
    if not times:
        return []
    first, last = min(times), max(times)
    return [event for event in impressions.events if (time := clock.of(event)) is not None and first <= time <= last]


def check_share(events: Sequence[Event], pairs: Sequence[Pair], topic: str) -> Iterable[Finding]:
    """Whether most impressions have a click. events: as of `with_clicks_read`. topic: of the clicks."""
    clicked = len({id(pair.impression) for pair in pairs})
    if clicked < ENOUGH or clicked <= MOSTLY * len(events):
        return
    seen = f"{clicked:,} of {count_of(len(events), 'impression')} of the sample have a click in {topic}"
    means = (
        "events that nearly every impression has are views or the impressions themselves: what is learned is no click"
    )
    change = "input.clicks.topic: the topic of what is to be predicted, where this is another one"
    yield Finding("stops" if clicked > ALWAYS * len(events) else "warns", "mostly_clicked", seen, means, change)


def check_unique(impressions: Side, ids: IdPaths, better: IdPaths) -> Iterable[Finding]:
    """Whether impressions share their ids. better: the pair of fields that fits best, `ids` if it is that one."""
    texts = [text for event in impressions.events if (text := id_text(event.fields.get(ids.impressions))) is not None]
    counts = Counter(texts)
    repeated = len(texts) - len(counts)
    if len(texts) < ENOUGH or repeated <= SOME_REPEATED * len(counts):
        return
    text, most = counts.most_common(1)[0]
    seen = f"{repeated:,} of {count_of(len(texts), 'impression')} have the `{ids.impressions}` of an earlier one: "
    seen += f"{shown(text)} comes {count_of(most, 'time')}"
    means = "an impression whose id came before is left out as a duplicate, and a click counts for the first one"
    change = ids.change_to(better) or (
        "input.impressions.id: a field that is unique, if this is another one; or the producer sends events twice"
    )
    yield Finding("stops" if repeated > REPEATED * len(counts) else "warns", "id_not_unique", seen, means, change)


def check_begin(
    impressions: Side, clicks: Side, clocks: tuple[Clock, Clock], delays: Sequence[float], config: Config
) -> Iterable[Finding]:
    """Whether clicks were collected later than impressions. Where older ones are deleted, or clicks begin more than a
    day later, a joiner leaves impressions out by itself. delays: as of `delays_ms`.
    """
    if (
        clicks.sample.deleted
        or config.join.start == "latest"
        or min(len(s.events) for s in (impressions, clicks)) < ENOUGH
    ):
        return
    first_ms, begin_ms = (_begin_ms(*one) for one in zip((impressions, clicks), clocks, strict=True))
    last_ms = max(clocks[0].times(impressions.events), default=0)
    if isinstance(config.join.start, int):
        first_ms = max(first_ms, config.join.start)
    usual_ms = min(config.join.window_ms, quantile(delays, 0.99)) if len(delays) >= ENOUGH else config.join.window_ms
    until_ms = begin_ms - usual_ms
    ends = (until_ms, math.inf)
    of_before, of_all = (events_between(impressions, clocks[0], first_ms, end_ms) for end_ms in ends)
    before = of_before / max(of_all, 1.0)
    if before <= LITTLE or until_ms >= last_ms or begin_ms - first_ms > LONG_MS:
        return
    if clicks.sample.held * math.log(1 - before) > math.log(CHANCE):
        return
    seen = (
        f"the clicks begin {moment(begin_ms)}, {span(begin_ms - first_ms)} after the impressions ({moment(first_ms)})"
    )
    seen += f": about {percent(before)} of {count_of(impressions.sample.held, 'impression')} were before them"
    means = "they would all be learned as not clicked"
    yield Finding("stops", "clicks_begin_late", seen, means, f"join.start: {moment(begin_ms).replace(' ', 'T')}Z")


def events_between(side: Side, clock: Clock, begin_ms: float, end_ms: float) -> float:
    """About how many events a topic has between two times: by offsets, between events that were read by their times."""
    found = 0.0
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for event in (*side.firsts, *side.events):
        if (time := clock.of(event)) is not None:
            by_partition.setdefault(event.record.partition, []).append((event.record.offset, time))
    for of in by_partition.values():
        offsets, times = (np.array(column, float) for column in zip(*sorted(of), strict=True))
        begin, end = np.interp([begin_ms, end_ms], np.maximum.accumulate(times), offsets)
        found += max(end - begin, 0.0)
    return found


def _begin_ms(side: Side, clock: Clock) -> int:
    """The time with which a topic begins: that of the first events of its partitions, but for one in a hundred.

    Of a topic that was read whole no more of them count than of others: in quiet hours one click in a hundred is late.
    """
    events = side.firsts or [event for block in side.blocks for of in block.values() for event in of[:FIRSTS]]
    times = sorted(clock.times(events))
    return times[len(times) // 100] if times else 0
