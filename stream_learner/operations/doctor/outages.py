"""Stretches without any click, which no chance explains: what was shown then would be learned as not clicked.

Between two clicks lie as many impressions as chance has it: k in a row without one are as likely as exp(-e), where e
clicks are expected of them. What is expected goes by the hour of the day on the other days, and by the clicks just
before and after, whichever is less: a quiet hour, or the end of a campaign, is no outage. Of an hour that has no click
on any day a `DIP` of the mean is expected, and its impressions count together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.config import Config
from stream_learner.config.values import HOUR_MS, MINUTE_MS
from stream_learner.operations.doctor.clicks import events_between
from stream_learner.operations.doctor.events import Side
from stream_learner.operations.doctor.findings import ENOUGH, LOST_STOPS, Finding, percent, quantile
from stream_learner.operations.doctor.ids import Pair
from stream_learner.operations.doctor.times import Clock, moment
from stream_learner.wording import count_of

CHANCE = 1e-6
"""Less likely than this, among all stretches of a sample, one is an outage."""
DIP = 0.1
TOGETHER = 0.9
"""Where fewer clicks lie in the partition of their impression, one without clicks is no outage, but of keys."""
FLANK = 10
"""So many clicks before and after a stretch tell the rate there."""
LATER_MS = MINUTE_MS
"""Impressions are read after clicks, by so much at most, and clicks may be sent once a minute."""
HOURS = 24

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Outage:
    """begin_ms, end_ms: of the clicks before and after; where there is none, of the impressions. clicks: expected."""

    begin_ms: int
    end_ms: int
    impressions: int
    clicks: float
    is_last: bool


@dataclass(frozen=True)
class Outages:
    """Of a sample, in the order of time. impressions: that were judged; where clicks have stopped, of the topic."""

    found: Sequence[Outage] = ()
    impressions: int = 0


def outages_in(times: Times, clicked: Times) -> list[Outage]:
    """times: of impressions whose clicks would be known, in order. clicked: of those that have one, in order. What is
    before the first click is none.

    >>> of = np.arange(10_000) * 60_000
    >>> [(one.impressions, round(one.clicks)) for one in outages_in(of, of[(of % 600_000 == 0) & (of < 480_000_000)])]
    [(2009, 201)]
    """
    clicked = clicked[(clicked >= times[:1].sum()) & (clicked <= times[-1:].sum())]
    if len(clicked) < ENOUGH:
        return []
    edges = np.concatenate([[0], np.searchsorted(times, clicked, "right"), [len(times)]])
    sizes, limit = np.diff(edges), math.log(len(clicked) / CHANCE)
    usual = sizes * len(clicked) / len(times) <= limit
    rate = int(usual.sum()) / max(int(sizes[usual].sum()), 1)
    shown, clicks = (np.bincount(of // HOUR_MS % HOURS, minlength=HOURS) for of in (times, clicked))
    found = []
    for i in (int(one) for one in np.flatnonzero(sizes * rate > limit) if one > 0):
        own = np.bincount(times[edges[i] : edges[i + 1]] // HOUR_MS % HOURS, minlength=HOURS)
        flanks = [of for of in (sizes[max(i - FLANK, 0) : i], sizes[i + 1 : i + 1 + FLANK]) if len(of)]
        near = min(len(of) / max(int(of.sum()), 1) for of in flanks)
        rates = np.maximum(np.minimum(clicks / np.maximum(shown - own, 1), near), DIP * rate)
        counted = np.where(clicks == 0, shown, own)[own > 0]
        if float(counted @ rates[own > 0]) > limit:
            is_last = i == len(clicked)
            end = times[-1] if is_last else clicked[i]
            found.append(Outage(int(clicked[i - 1]), int(end), int(sizes[i]), float(sizes[i] * rate), is_last))
    return found


def outages_of(
    sides: tuple[Side, Side],
    pairs: Sequence[Pair],
    clocks: tuple[Clock, Clock],
    delays: Sequence[float],
    config: Config,
) -> Outages:
    """The outages of a sample. delays: as of `delays_ms`."""
    impressions, clicks = sides
    shown = sorted(clocks[0].times(impressions.events))
    by_partition = [[*map(clocks[1].of, events)] for events in clicks.blocks[0].values()]
    known = [of for events in by_partition if (of := [time for time in events if time is not None])]
    if not delays or not shown or not known or config.join.start == "latest":
        return Outages()
    of_click = {id(pair.click): clocks[0].of(pair.impression) for pair in pairs}
    usual_ms = int(quantile(delays, 0.5))
    waits = sorted(c.record.time_ms - i.record.time_ms for i, c in pairs)
    late = sorted(lag for event in clicks.events if (lag := clocks[1].lag_of(event)) is not None)
    due_ms = max(config.join.window_ms, *(int(quantile(of, 0.99)) for of in (waits, late) if of)) + LATER_MS
    begin_ms = shown[0] if clicks.sample.whole else max(min(of) for of in known)
    if isinstance(config.join.start, int):
        begin_ms = max(begin_ms, config.join.start)
    end_ms = shown[-min(ENOUGH, len(shown))] - due_ms
    timed = ((clocks[1].of(event) or 0, of_click.get(id(event))) for event in clicks.events)
    clicked = np.array(sorted(of or at - usual_ms for at, of in timed), np.int64)  # before all others: no time
    if clicks.sample.cut_short:
        end_ms = min(end_ms, min(max(of) for of in known) - due_ms)
    elif not impressions.sample.whole and (since := _since(impressions, clocks[0], clicked, begin_ms, end_ms)).found:
        return since
    if len(delays) < ENOUGH:
        return Outages()
    gap = _gap_ms(impressions, clocks[0])
    times = np.array([t for t in shown if begin_ms <= t <= end_ms and not gap[0] < t < gap[1]], np.int64)
    unread = np.flatnonzero((clicked > gap[0]) & (clicked < gap[1]))
    return Outages(outages_in(times, np.delete(clicked, unread[1:-1])), len(times))


def check_partitions(sides: tuple[Side, Side], pairs: Sequence[Pair]) -> Iterable[Finding]:
    """Partitions of the clicks that have none, though impressions of the same number have some elsewhere."""
    shown, clicked = (Counter(event.record.partition for event in side.events) for side in sides)
    together = sum(pair.impression.record.partition == pair.click.record.partition for pair in pairs)
    if together < max(ENOUGH, TOGETHER * len(pairs)) or sides[1].sample.cut_short:
        return
    of_others = sum(n for partition, n in shown.items() if clicked[partition])
    without = sorted(partition for partition in sides[1].blocks[0] if shown[partition] and not clicked[partition])
    lost = [one for one in without if shown[one] * together / of_others > math.log(len(shown) / CHANCE)]
    share = sum(shown[partition] for partition in lost) / max(shown.total(), 1)
    if lost:
        topic = sides[1].sample.topic
        seen = f"{topic} has none in partition {', '.join(map(str, lost))}, with {percent(share)} of the impressions"
        means = f"they would be learned as not clicked, {percent(share)} of all"
        change = f"what sends {topic}: one of several producers, or what copies partitions, leaves them out"
        yield Finding("stops" if share > LOST_STOPS else "warns", "clicks_missing", seen, means, change)


def _since(side: Side, clock: Clock, clicked: Times, begin_ms: float, end_ms: float) -> Outages:
    """Whether no click has come since a moment: by the offsets of impressions, of which a sample of a large topic has
    few between then and the end. What is expected is a `DIP` of the mean: nothing tells of these hours.
    """
    last_ms = float(clicked[-1 - len(clicked) // 1_000])
    before, since = (events_between(side, clock, *span) for span in ((begin_ms, last_ms), (last_ms, end_ms)))
    clicks = since * np.count_nonzero(clicked >= begin_ms) / max(before, 1.0)
    if DIP * clicks <= math.log(max(len(clicked), ENOUGH) / CHANCE):
        return Outages()
    outage = Outage(int(last_ms), int(end_ms), round(since), clicks, is_last=True)
    return Outages((outage,), round(events_between(side, clock, -math.inf, end_ms)))


def _gap_ms(side: Side, clock: Clock) -> tuple[float, float]:
    """Between which times a sample lacks impressions: from the end of its older block to the beginning of the newest,
    where any partition has a gap there. Clicks of that time have no impression that they could be counted with, but
    the first and the last of them tell that there were some.
    """
    begin_ms, end_ms = math.inf, -math.inf
    for partition, older in (side.blocks[1] if len(side.blocks) > 1 else {}).items():
        newest = side.blocks[0][partition]
        times = [sorted(clock.times(of)) for of in (older, newest)]
        if all(times) and newest[0].record.offset > older[-1].record.offset + 1:
            begin_ms = min(begin_ms, quantile(times[0], 0.99))
            end_ms = max(end_ms, quantile(times[1], 0.01))
    return begin_ms, end_ms


def check_outages(outages: Outages, topic: str) -> Iterable[Finding]:
    """topic: of the clicks."""
    if not outages.found:
        return
    lost, (*_, last) = sum(one.impressions for one in outages.found), outages.found
    each = [f"{moment(one.begin_ms)} to {moment(one.end_ms)} UTC" for one in outages.found]
    more = f" and {len(each) - 3} more" if len(each) > 3 else ""
    seen = f"no click from {', '.join(each[:3])}{more}: {lost:,} of {count_of(outages.impressions, 'impression')} were "
    seen += f"shown then, of which about {sum(one.clicks for one in outages.found):,.0f} would have one"
    change = f"join.start: {moment(last.end_ms).replace(' ', 'T')}Z, after the last of them; or send what is missing"
    if last.is_last:
        change = f"what sends {topic}: no click has come since; once they do, join.start: a moment after that"
    share = lost / outages.impressions
    means = f"they would be learned as not clicked, {percent(share)} of all"
    yield Finding("stops" if share > LOST_STOPS else "warns", "clicks_missing", seen, means, change)
