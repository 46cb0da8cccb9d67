"""Delays: how long after their impressions clicks come, the window that covers them, clocks, and disorder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stream_learner.config.values import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_duration_ms
from stream_learner.core.join.spec import JoinSpec
from stream_learner.operations.doctor.events import Event, Side
from stream_learner.operations.doctor.findings import ENOUGH, LOST_STOPS, WORTH_A_WORD, Finding, percent, quantile
from stream_learner.operations.doctor.ids import Pair
from stream_learner.operations.doctor.times import Clock, span, zone_of
from stream_learner.wording import count_of

COVERED_WARNS = 0.95
QUANTILES = (0.5, 0.9, 0.95, 0.99)
LEAST_GAP_MS = 10 * MINUTE_MS
"""Clocks that are closer are told by the delays that they make."""
ROUND_MS = (
    *(n * SECOND_MS for n in (1, 2, 5, 10, 15, 20, 30, 45)),
    *(n * MINUTE_MS for n in (1, 2, 5, 10, 15, 20, 30, 45)),
    *(n * HOUR_MS for n in (1, 2, 3, 6, 12)),
    *(n * DAY_MS for n in (1, 2, 3, 5, 7)),
)
"""Durations that a person would write."""


def rounded_up(value_ms: float) -> int:
    """The least of `ROUND_MS` that is no shorter, or the longest.

    >>> rounded_up(8_300), rounded_up(0), rounded_up(10**12)
    (10000, 1000, 604800000)
    """
    return next((one for one in ROUND_MS if one >= value_ms), ROUND_MS[-1])


def _written(value_ms: float) -> str:
    """A duration that covers this one, as it stands in a configuration."""
    return format_duration_ms(rounded_up(value_ms))


def delays_ms(pairs: Iterable[Pair], clocks: tuple[Clock, Clock]) -> list[float]:
    """click - impression of the pairs with both times, in ascending order."""
    times = ((clocks[0].of(pair.impression), clocks[1].of(pair.click)) for pair in pairs)
    return sorted(click - impression for impression, click in times if click is not None and impression is not None)


def clock_gap_ms(pairs: Iterable[Pair], clocks: tuple[Clock, Clock]) -> float | None:
    """By how much more impressions lie behind their records than their clicks do, the median; None where no clock is
    wrong: where the gap is small, or not the same in nearly all pairs, or their records are as far apart themselves.
    """
    timed = [(clocks[0].lag_of(i), clocks[1].lag_of(c), c.record.time_ms - i.record.time_ms) for i, c in pairs]
    gaps = sorted(of_i - of_c for of_i, of_c, _ in timed if of_i is not None and of_c is not None)
    if len(gaps) < ENOUGH:
        return None
    low, gap, high = (quantile(gaps, share) for share in (0.05, 0.5, 0.95))
    apart = abs(quantile(sorted(records for _, _, records in timed), 0.5))
    return gap if abs(gap) > max(LEAST_GAP_MS, 10 * (high - low), 2 * apart) else None


def check_clocks(
    gap_ms: float, impressions: Side, clicks: Side, clocks: tuple[Clock, Clock], delays: Sequence[float], spec: JoinSpec
) -> Iterable[Finding]:
    """gap_ms: as of `clock_gap_ms`. delays: as of `delays_ms`."""
    lags = [
        (-quantile(clock.ahead_ms(side.events), 0.5), clock.path or "the timestamp", side.sample.topic)
        for clock, side in zip(clocks, (impressions, clicks), strict=True)
    ]
    each = (f"`{path}` of {topic} lies {span(lag)} before its record's timestamp" for lag, path, topic in lags)
    _, _, wrong = max(lags, key=lambda one: abs(one[0]))
    outside = sum(not -spec.skew_ms <= delay <= spec.window_ms for delay in delays) / len(delays)
    seen = f"{', and '.join(each)}: so clicks come {span(quantile(delays, 0.5))} after their impressions"
    means = f"a click counts for an impression by their times, and so {percent(outside)} of them do not count"
    change = f"the clock or the zone of the producer of {wrong}{zone_of(gap_ms)}; not join.window"
    yield Finding("stops" if outside > LOST_STOPS else "warns", "clocks_differ", seen, means, change)


def quantiles_of(delays: Sequence[float]) -> dict[str, float]:
    """How many delays there are, and their quantiles where there are some. delays: as of `delays_ms`."""
    return {f"p{100 * q:g}_ms": quantile(delays, q) for q in QUANTILES if delays} | {"clicks": len(delays)}


def in_words(quantiles: Mapping[str, float]) -> str:
    """quantiles: as of `quantiles_of`, of some delays.

    >>> in_words({"p50_ms": 2000, "p90_ms": 7000, "p95_ms": 9000, "p99_ms": 11_000, "clicks": 938})
    'delays of 938 clicks: median 2 s, 90 % 7 s, 95 % 9 s, 99 % 11 s'
    """
    named = ((f"{100 * q:g} %" if q > 0.5 else "median", quantiles[f"p{100 * q:g}_ms"]) for q in QUANTILES)
    return f"delays of {count_of(int(quantiles['clicks']), 'click')}: {', '.join(f'{n} {span(ms)}' for n, ms in named)}"


def check_some_clocks(
    pairs: Iterable[Pair], topics: tuple[str, str], clocks: tuple[Clock, Clock], spec: JoinSpec
) -> Iterable[Finding]:
    """Clicks that are outside of their window by their times and within by their records, with times that are all as
    far from those of other events: a producer, of some, has a wrong clock. topics: the names of both.
    """
    lags: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for pair in pairs:
        lag = clocks[0].lag_of(pair.impression), clocks[1].lag_of(pair.click)
        if lag[0] is not None and lag[1] is not None:
            by_records = pair.click.record.time_ms - pair.impression.record.time_ms
            spans = by_records + lag[0] - lag[1], by_records
            of_times, of_records = (-spec.skew_ms <= span <= spec.window_ms for span in spans)
            lags[of_records and not of_times].append((lag[0], lag[1]))
    wrong, known = lags[True], len(lags[True]) + len(lags[False])
    share = len(wrong) / max(known, 1)
    if min(map(len, lags.values())) < ENOUGH or share <= WORTH_A_WORD:
        return
    of_sides = (zip(*of, strict=True) for of in (wrong, lags[False]))
    for topic, clock, of_wrong, of_right in zip(topics, clocks, *of_sides, strict=True):
        low, median, high = (quantile(sorted(of_wrong), q) for q in (0.05, 0.5, 0.95))
        lag_ms = median - quantile(sorted(of_right), 0.5)
        if abs(lag_ms) < max(10 * (high - low), SECOND_MS):
            continue
        seen = f"by their times {percent(share)} of {count_of(known, 'click')} are not within join.window of their "
        seen += f"impressions, by their records they are; there the `{clock.path or 'timestamp'}` of {topic} lies "
        seen += f"{span(lag_ms)} further before its record's timestamp than in the others"
        means = f"a click counts for an impression by their times: {percent(share)} of the positives are lost"
        change = f"the clock or the zone of a producer of {topic}{zone_of(lag_ms)}; not join.window"
        yield Finding("stops" if share > LOST_STOPS else "warns", "clocks_differ", seen, means, change)
        return


def check_delays(delays: Sequence[float], spec: JoinSpec) -> Iterable[Finding]:
    """delays: as of `delays_ms`."""
    if len(delays) < ENOUGH:
        return
    early = sum(delay < -spec.skew_ms for delay in delays) / len(delays)
    late = sum(delay > spec.window_ms for delay in delays) / len(delays)
    p95, p99, quantiles = quantile(delays, 0.95), quantile(delays, 0.99), in_words(quantiles_of(delays))
    if early > WORTH_A_WORD:
        skew, needed = format_duration_ms(spec.skew_ms), _written(-quantile(delays, WORTH_A_WORD))
        seen = f"{percent(early)} of the clicks lie more than join.skew ({skew}) before their impression; {quantiles}"
        means = "they do not count: the clocks of the two producers disagree, or one writes another zone"
        change = f"the clock or the zone of a producer; if they cannot agree, join.skew: {needed}"
        yield Finding("stops" if early > LOST_STOPS else "warns", "clocks_differ", seen, means, change)
    if late > 1 - COVERED_WARNS:
        window = format_duration_ms(spec.window_ms)
        seen = f"join.window ({window}) covers {percent(1 - late)} of the clicks; {quantiles}"
        means = "a click after its window is an orphan, and its impression a negative"
        change = f"join.window: {_written(p99)} (99 %), or {_written(p95)} (95 %)"
        yield Finding("stops" if late > LOST_STOPS else "warns", "window", seen, means, change)


def lateness_ms(times: Sequence[int], agree: int) -> list[int]:
    """How far the time of each event lies behind log time when it comes, 0 if it does not, by `docs/join-rules.md`.

    >>> lateness_ms([10, 20, 30, 5, 40], 1), lateness_ms([10, 20, 99, 5, 40], 2)
    ([0, 0, 0, 25, 0], [0, 0, 0, 15, 0])
    """
    found, log_time = [], 0
    for i, time in enumerate(times):
        found.append(max(log_time - time, 0))
        if i + 1 >= agree:
            log_time = max(log_time, min(times[i + 1 - agree : i + 1]))
    return found


def check_disorder(impressions: Side, clock: Clock, spec: JoinSpec) -> Iterable[Finding]:
    """Impressions that lie further behind the events before them than `lateness`."""
    behind = sorted(late for _, late in _behind(impressions, clock, spec.agree))
    late = sum(one > spec.lateness_ms for one in behind)
    if len(behind) >= ENOUGH and late > WORTH_A_WORD * len(behind):
        p99 = quantile(behind, 0.99)
        lateness = format_duration_ms(spec.lateness_ms)
        seen = (
            f"{percent(late / len(behind))} of the impressions lie more than join.lateness ({lateness}) behind those "
        )
        seen += f"before them; 99 % lie less than {span(p99)} behind"
        yield Finding("warns", "disorder", seen, "a late impression is not learned", f"join.lateness: {_written(p99)}")


def check_late_clicks(
    pairs: Iterable[Pair], sides: tuple[Side, Side], clocks: tuple[Clock, Clock], spec: JoinSpec
) -> Iterable[Finding]:
    """Clicks in time for their impressions that lie so far behind the clicks before them that log time, by
    `docs/join-rules.md`, has closed the window when they come: `lateness` is for impressions, and saves none of them.
    """
    both = zip(sides, clocks, strict=True)
    behind = {id(event): late for side, clock in both for event, late in _behind(side, clock, spec.agree)}
    passed: list[int] = []
    closed: list[int] = []
    for impression, click in pairs:
        shown, clicked = clocks[0].of(impression), clocks[1].of(click)
        if shown is not None and clicked is not None and -spec.skew_ms <= clicked - shown <= spec.window_ms:
            log_time = clicked + behind[id(click)]
            passed.append(log_time - shown - behind[id(impression)])
            if passed[-1] - log_time % spec.tick_ms > spec.window_ms:
                closed.append(behind[id(click)])
    share = len(closed) / max(len(passed), 1)
    if len(passed) >= ENOUGH and share > WORTH_A_WORD:
        window, median = format_duration_ms(spec.window_ms), span(quantile(sorted(closed), 0.5))
        seen = f"{percent(share)} of {count_of(len(passed), 'click')} lie so far behind the clicks before them, by "
        seen += f"{median} in the median, that the windows of their impressions (join.window {window}) are closed then"
        means = "a click counts while the window of its impression is open: these impressions are learned as negatives"
        change = f"join.window: {_written(quantile(sorted(passed), 0.99))}, which keeps windows open so long; or the "
        change += "producer that holds clicks back, or whose clock is ahead"
        yield Finding("stops" if share > LOST_STOPS else "warns", "disorder", seen, means, change)


def disorder_ms(side: Side, clock: Clock) -> float:
    """How far the events of a topic lie behind those before them, or ahead of their records; all but one in 100."""
    found = sorted(late for _, late in _behind(side, clock, 1)), clock.ahead_ms(side.events)
    return max(quantile(of, 0.99) if of else 0.0 for of in found)


def _behind(side: Side, clock: Clock, agree: int) -> Iterator[tuple[Event, int]]:
    """Each event that has a time, with its `lateness_ms`."""
    for events in (events for block in side.blocks for events in block.values()):
        timed = [(event, time) for event in events if (time := clock.of(event)) is not None]
        yield from zip((event for event, _ in timed), lateness_ms([time for _, time in timed], agree), strict=True)
