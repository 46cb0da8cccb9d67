"""Where the stream is by its own clock, at the end of a pair of partitions: docs/stream-clock.md.

In: the times of events that arrive, and the monotonic clock, *m*, at each call, in ms. Out: S, the stream time up to
which windows may close. This file must never ask for the wall clock: a clock that is wrong for seconds would close
windows that cannot be opened again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEW, MANY, GAPS = 3, 16, 8
"""So many arrivals slow the clock, so many speed it up; so many gaps together are the longest usual silence."""
MARKS = 4096
"""So many of the last marks can still turn out to have been made too early."""
SURE_AFTER_MS = 60_000
"""The stream must be behind what is closed for so long before examples count as guessed."""


@dataclass(frozen=True)
class ClockRule:
    """grace_ms: how much later than usual an event may come. idle_after_ms: how long windows wait in a silence
    that is longer than usual, and a joiner that knows nothing of clicks. window_ms, lateness_ms: of the join.
    """

    grace_ms: int
    lateness_ms: int
    idle_after_ms: int
    window_ms: int

    @property
    def old_ms(self) -> int:
        """Impressions that are so far behind what is closed are old."""
        return min(self.window_ms, self.lateness_ms)

    @property
    def patience_ms(self) -> int:
        """How long a joiner waits that knows nothing of the lag and to which nothing comes."""
        return min(self.lateness_ms, self.idle_after_ms)


class Arrivals:
    """The last arrivals of one input: of a partition, or of its topic in this process.

    count: of all so far. known: whether there are enough of them. slow, fast: their offsets, time − m, as the page
    defines them; of fewer, from the first on. first_at, silence_ended: m of the first arrival, and of the one that
    ended a silence last; -1 before there is one.
    """

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._offsets: deque[int] = deque(maxlen=MANY)
        self._at: deque[int] = deque(maxlen=GAPS + 1)
        self._fresh = 0
        self.count = 0
        self._pace: int | None = None
        self._stood, self._over_at = 0, -1
        self.slow = self.fast = 0
        self.first_at = self.silence_ended = -1

    @property
    def known(self) -> bool:
        """Whether there have been enough arrivals to go by."""
        return self.count >= FEW

    @property
    def last_at(self) -> int:
        """m at the last arrival, -1 before the first."""
        return self._at[-1] if self._at else -1

    def add(self, offsets: list[int], m: int) -> None:
        """Take the offsets of events that arrived at `m`, in their order."""
        if not offsets:
            return
        if self.count == 0:
            self.first_at = m
        until = self._usual_until
        if until is not None and self.is_silent(m):
            self._fresh, self.silence_ended = 0, m  # arrivals before the silence say nothing of the lag after it
            self._stood, self._over_at = until, m + min(m - until, self._grace_ms)
        latest = offsets[-MANY:]
        self._offsets.extend(latest)
        self._at.extend([m] * len(latest))
        self._fresh = min(self._fresh + len(latest), FEW)
        self.count += len(latest)
        self.fast = sorted(self._offsets)[(len(self._offsets) - 1) // 2]
        self.slow = max(list(self._offsets)[-self._fresh :])
        if self.known:
            gaps = len(self._at) - 1
            self._pace = max((self._at[-1] - self._at[0]) * GAPS // gaps, self._grace_ms)

    @property
    def _usual_until(self) -> int | None:
        return None if self._pace is None else self._at[-1] + self._pace

    def is_silent(self, m: int) -> bool:
        """Whether nothing has arrived for longer than is usual."""
        until = self._usual_until
        return until is not None and m > until

    def goes_on(self, m: int) -> bool:
        """Whether something has arrived, and what was kept back with the first of it has had time to come too."""
        return self.count > 0 and m >= self.first_at + self._grace_ms

    def vouched_until(self, m: int) -> int | None:
        """m up to which arrivals say that the input is not silent; None where its pace is not known.

        After a silence what was kept back with the first arrival has time to come.
        """
        return self._stood if m < self._over_at else self._usual_until


class TopicArrivals(NamedTuple):
    """The arrivals of both topics, of all partitions that a process reads. clicks: by their delay beside impressions;
    click_times: the same by their own times.
    """

    impressions: Arrivals
    clicks: Arrivals
    click_times: Arrivals

    @classmethod
    def none_yet(cls, rule: ClockRule) -> TopicArrivals:
        """Those of a process that begins."""
        return cls(*(Arrivals(rule.grace_ms) for _ in range(3)))


class Remembered(NamedTuple):
    """What a partition's clock has learned, for the next owner of the partition; all in ms.

    lag: how far the stream is behind the brokers' clock. extra: how much later clicks come than impressions, at most 0.
    The others are moments of the brokers' clock up to which arrivals vouch. vouched: for both inputs. clicks: for
    clicks alone, of the partition or its topic. own_impressions, own_clicks: those of the partition, for themselves.
    -1 where nothing is known.
    """

    lag: int
    extra: int
    vouched: int
    clicks: int = -1
    own_impressions: int = -1
    own_clicks: int = -1

    def to_text(self) -> str:
        """The values as text without a colon."""
        return ",".join(map(str, self))

    @classmethod
    def from_text(cls, text: str) -> Remembered | None:
        """The values of a text that `to_text` wrote, in this version or before; None for any other text."""
        try:
            lag, extra, vouched, *more = map(int, text.split(","))
        except ValueError:
            return None
        return cls(lag, min(extra, 0), vouched, *more[:3])  # earlier versions had none or one of these


@dataclass
class StreamClock:
    """The clock of a pair of partitions. began: m at its beginning.

    base: the brokers' clock less m, in every method.
    """

    rule: ClockRule
    topics: TopicArrivals
    began: int
    remembered: Remembered | None = None
    _came: int = field(init=False)

    def __post_init__(self) -> None:
        self._came = self.began
        self.impressions, self.clicks, self._click_times = (Arrivals(self.rule.grace_ms) for _ in range(3))
        self._old: deque[bool] = deque(maxlen=MANY)
        self._old_until = -1

    def note_impressions(
        self,
        times_ms: NDArray[np.int64],
        log_time_ms: int,
        m: int,
        base: int | None,
        *,
        arrived: bool,
        closed_ms: int = 0,
    ) -> None:
        """Take the times of impressions that were read; `arrived`: they came now, and are no backlog.

        closed_ms: the stream time up to which windows are closed.
        """
        if not len(times_ms):
            return
        self._came = m
        kept = self.remembered
        if kept is not None and base is not None:  # the stream went on meanwhile, as far as this
            until = min(log_time_ms + kept.lag, m + base)
            own = kept.own_impressions if arrived else _later(kept.own_impressions, until)
            self.remembered = kept._replace(vouched=max(kept.vouched, until), own_impressions=own)
        if arrived:
            offsets = (self._without_old(times_ms[-MANY:], closed_ms) - m).tolist()
            self.impressions.add(offsets, m)
            self.topics.impressions.add(offsets, m)

    def _without_old(self, times_ms: NDArray[np.int64], closed_ms: int) -> NDArray[np.int64]:
        """The times of impressions that count as arrivals: all of them where most of the last ones are old."""
        old = times_ms < closed_ms - self.rule.old_ms
        self._old.extend(old.tolist())
        if 2 * sum(self._old) > len(self._old):
            return times_ms
        if old.any():
            self._old_until = max(self._old_until, int(times_ms[old].max()) + self.rule.window_ms)
        return times_ms[~old]

    def _without_those_of_old(self, times_ms: NDArray[np.int64], m: int, closed_ms: int) -> NDArray[np.int64]:
        """The times of clicks that count as arrivals: those that may be on old impressions do where no others come."""
        if m - max(self.clicks.last_at, self.began) > self.rule.idle_after_ms:
            return times_ms
        return times_ms[(times_ms > self._old_until) | (times_ms >= closed_ms)]

    def note_clicks(
        self, times_ms: NDArray[np.int64], m: int, base: int | None, *, arrived: bool, closed_ms: int = 0
    ) -> None:
        """Take the times of clicks that were read; all as for impressions."""
        if not len(times_ms):
            return
        self._came = m
        kept, times = self.remembered, sorted(times_ms[-MANY:].tolist())
        if kept is not None and base is not None:
            until = min(times[-min(FEW, len(times))] + kept.lag - kept.extra, m + base)
            own = kept.own_clicks if arrived else _later(kept.own_clicks, until)
            self.remembered = kept._replace(clicks=_later(kept.clicks, until), own_clicks=own)
        lag_offset = self._lag_offset(base)
        if arrived and lag_offset is not None:
            own = (self._without_those_of_old(times_ms[-MANY:], m, closed_ms) - m).tolist()
            delays = [offset - lag_offset for offset in own]
            for arrivals, offsets in (
                (self.clicks, delays),
                (self.topics.clicks, delays),
                (self._click_times, own),
                (self.topics.click_times, own),
            ):
                arrivals.add(offsets, m)

    def lag_ms(self, base: int) -> int | None:
        """How far impressions are behind the brokers' clock when they come, ms; None where that is not known."""
        offset = self._lag_offset(base)
        return None if offset is None else base - offset

    def extra_ms(self) -> int | None:
        """How much later than impressions clicks come, ms, at most 0; None where that is not known."""
        extra = self._delay()
        return None if extra is None else min(extra, 0)

    def stood_at(self, m: int, base: int, *, impressions_seen: bool = True) -> int:
        """m at which the first of the inputs became silent; `m` where none is.

        impressions_seen: whether impressions are read up to the end; else their silence means nothing.
        """
        inputs = [self.clicks, self.topics.clicks]
        if impressions_seen:
            inputs += [self.impressions, self.topics.impressions]
        vouched = [until for until in (one.vouched_until(m) for one in inputs) if until is not None]
        if not vouched and self.remembered is not None:
            vouched = [self.remembered.vouched - base]
        own = self._own_until(m, base) if impressions_seen else self._own_until(m, base)[1:]
        return min([m, *vouched, *self._clicks_until(m, base), *(until for until in own if until is not None)])

    def _own_until(self, m: int, base: int) -> tuple[int | None, int | None]:
        """m up to which the partition's impressions and clicks vouched before this process: until they go on here."""
        kept = self.remembered or Remembered(0, 0, -1)
        own = (self.impressions, kept.own_impressions), (self.clicks, kept.own_clicks)
        impressions, clicks = (None if one.goes_on(m) or until < 0 else until - base for one, until in own)
        return impressions, clicks

    def _clicks_until(self, m: int, base: int, *, of_partition: bool = False) -> list[int]:
        """m up to which clicks vouched for themselves before this process: while it knows of none itself.

        of_partition: whether clicks of other partitions say nothing of this one.
        """
        kept, inputs = self.remembered, [self.clicks] if of_partition else [self.clicks, self.topics.clicks]
        known = any(one.vouched_until(m) is not None for one in inputs)
        return [] if known or kept is None or kept.clicks < 0 else [kept.clicks - base]

    def stream_ms(
        self, m: int, base: int, *, impressions_seen: bool = True, waits_since: int | None = None
    ) -> int | None:
        """S: windows may close up to this stream time, where both inputs have been read to an end that was asked at
        `m`.

        None where only log time tells. waits_since: m since which clicks are waited for, whatever else is known.
        """
        rule = self.rule
        now = self.now_ms(m, base, impressions_seen=impressions_seen)
        if now is None:
            nothing_came = self._lag_offset(base) is None and m - self._came >= rule.patience_ms
            return m + base - rule.grace_ms if nothing_came and waits_since is None else None
        at = max(self.stood_at(m, base, impressions_seen=impressions_seen), m - rule.idle_after_ms)
        if waits_since is not None:
            at = min(at, waits_since, *self._clicks_until(m, base, of_partition=True))
        return now - m + at

    def to_remember(self, m: int, base: int) -> Remembered | None:
        """What the next owner of the partition should know; None while too little is known to close windows by it."""
        lag = self.lag_ms(base)
        if lag is None or self.now_ms(m, base) is None:
            return None
        of_both = (self.clicks.vouched_until(m), self.topics.clicks.vouched_until(m))
        clicks = [until for until in of_both if until is not None]
        of_clicks = min(clicks or self._clicks_until(m, base), default=None)
        own = [
            one.vouched_until(m) if until is None else until
            for one, until in zip((self.impressions, self.clicks), self._own_until(m, base), strict=True)
        ]
        moments = (-1 if until is None else until + base for until in (of_clicks, *own))
        extra = min(self._extra(m, base) or 0, 0)
        return Remembered(lag, extra, self.stood_at(m, base) + base, *moments)

    def now_ms(self, m: int, base: int, *, impressions_seen: bool = True) -> int | None:
        """Where the stream is at `m` if it goes on; None where too little is known."""
        offset, extra, clicks = self._lag_offset(base), self._extra(m, base), self.topics.clicks
        if offset is None or (self.remembered is None and clicks.count and not clicks.goes_on(m)):
            return None
        if extra is None:
            if m < self.began + self.rule.idle_after_ms:
                return None
            few = [one.slow for one in (self.clicks, clicks) if one.count]
            extra = min([0, *few])
        if impressions_seen:
            extra = min(extra, 0)
        return m + min(offset + extra, base) - self.rule.grace_ms

    def _lag_offset(self, base: int | None) -> int | None:
        kept = self.remembered
        fallback = None if kept is None or base is None else base - kept.lag
        offset = _agreed(self.impressions, self.topics.impressions, fallback)
        return offset if offset is None or base is None else min(offset, base)

    def _delay(self) -> int | None:
        return _agreed(self.clicks, self.topics.clicks, None if self.remembered is None else self.remembered.extra)

    def _extra(self, m: int, base: int) -> int | None:
        """The extra delay of clicks. If impressions have caught up, clicks have when one of the last ones says so."""
        extra, offset, came = self._delay(), self._lag_offset(base), self._clicks_came(base)
        if extra is None or offset is None or came is None or offset + extra <= came + self.rule.grace_ms:
            return extra
        patience_ms, own = self.rule.idle_after_ms, self.clicks
        last_at = own.last_at if own.known else max(own.last_at, self.topics.clicks.last_at, self.began)
        return max(came - offset, extra - patience_ms) if m - last_at > patience_ms else came - offset

    def _clicks_came(self, base: int) -> int | None:
        """The offset of clicks by their own times: the largest of the last ones."""
        own, topic, kept = self._click_times, self.topics.click_times, self.remembered
        if own.known:
            return own.slow
        few = [one.slow for one in (own, topic) if one.count]
        return min([*few, *([] if kept is None else [base - kept.lag + kept.extra])], default=None)


def _later(moment: int, until: int) -> int:
    """The later of both; -1 where no moment is known."""
    return max(moment, until) if moment >= 0 else -1


def _agreed(own: Arrivals, topic: Arrivals, kept: int | None) -> int | None:
    """The offset that a partition goes by. Few arrivals slow the clock, many speed it up. kept: what is remembered."""
    known = [] if kept is None else [kept]
    others = [min(topic.slow, topic.fast)] if topic.known else known
    if not own.known:
        few = [own.slow] if own.count else []
        return min([*others, *known, *few]) if others else None
    offset = min(own.slow, max(own.fast, topic.fast) if topic.known else own.fast)
    if own.last_at < topic.silence_ended:
        return min([offset, *others])  # the topic was silent and goes on; nothing of this partition has come since
    return offset


class _Closed(NamedTuple):
    stream_ms: int
    examples: int


@dataclass
class _Doubt:
    """Since `m` the stream seems to be behind what is closed: at `stream_ms` at the least. told: by how many arrivals
    since.
    """

    by: Arrivals
    count: int
    m: int
    stream_ms: int
    closed_ms: int
    told: int = 0


class Guesses:
    """Counts the examples of a partition that were made before it was known that all their clicks were there: "What was
    guessed" in docs/stream-clock.md. total: how many so far. Impressions that came after their window are counted where
    they are read.
    """

    def __init__(self, clock: StreamClock) -> None:
        self.total = 0
        self._clock = clock
        self._last: deque[_Closed] = deque(maxlen=MARKS)
        self._doubt: _Doubt | None = None

    def note(self, stream_ms: int, examples: int) -> None:
        """Windows were closed up to `stream_ms`, with so many examples."""
        if examples:
            self._last.append(_Closed(stream_ms, examples))

    def look(self, m: int, base: int, closed_ms: int) -> None:
        """Count what was closed too early, where windows turn out to have been closed ahead of the stream.

        m, base: as for the clock. closed_ms: the stream time up to which windows are closed.
        """
        now = self._clock.now_ms(m, base)
        if now is None:
            return
        grace_ms, doubt = self._clock.rule.grace_ms, self._doubt
        if doubt is None:
            if now < closed_ms - grace_ms:
                clicks = self._clock.clicks
                late = clicks.known and clicks.slow < clicks.fast - grace_ms
                by = clicks if late else self._clock.impressions
                self._doubt = _Doubt(by, by.count, m, now, closed_ms)
            return
        is_over, seems = now >= closed_ms - grace_ms, now - (m - doubt.m)
        if is_over and seems > doubt.stream_ms + grace_ms and doubt.told < FEW:
            self._doubt = None  # one or two were late, and later ones tell it
            return
        doubt.stream_ms, doubt.told = min(doubt.stream_ms, seems), doubt.by.count - doubt.count
        is_sure = doubt.told >= FEW and m - doubt.m >= min(SURE_AFTER_MS, doubt.closed_ms - doubt.stream_ms - grace_ms)
        if is_sure:
            while self._last and self._last[-1].stream_ms > doubt.stream_ms:
                self.total += self._last.pop().examples
        if is_over:
            self._doubt = None
