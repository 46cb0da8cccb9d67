"""Impressions and clicks of a known logistic model, in the order of their arrival.

`TrafficModel` gives chunks of events for a producer to pace and send; and, for any moment, the loss of the model that
knows the true probabilities. Times are epoch milliseconds of the caller's choice: no clock is read. An event takes less
than 10 µs, so that the demo measures the product and not its traffic.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from stream_learner.traffic.shape import DEMO, TrafficShape

Event = tuple[int, bytes, bytes]
"""Arrival in epoch ms, the id (the record's key), the JSON (the record's value)."""

CHUNK_MS = 100
HOUR_MS = 3_600_000
DUPLICATE_WITHIN_MS = 2_000
BAD_VALUES = (
    b"",
    b"{",
    b"null",
    b"[1,2,3]",
    b'{"time":1700000000000}',
    b'{"id":null,"time":1700000000000}',
    b'{"id":"bad","time":"yesterday"}',
    b'{"id":"bad","time":-1}',
    b'\xff\xfe{"id":"bad"}',
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The events that arrive in [start_ms, end_ms), each list in the order of arrival."""

    start_ms: int
    end_ms: int
    impressions: list[Event]
    clicks: list[Event]


@dataclass(slots=True)
class Emitted:
    """The number of records in the chunks handed out so far, by kind."""

    impressions: int = 0
    impression_duplicates: int = 0
    impressions_bad: int = 0
    clicks: int = 0
    click_duplicates: int = 0
    clicks_late: int = 0
    orphans: int = 0
    clicks_bad: int = 0

    @property
    def impression_records(self) -> int:
        """The number of records for the impression topic."""
        return self.impressions + self.impression_duplicates + self.impressions_bad

    @property
    def click_records(self) -> int:
        """The number of records for the click topic."""
        return self.clicks + self.click_duplicates + self.clicks_late + self.orphans + self.clicks_bad


@dataclass(frozen=True, slots=True)
class BestPossible:
    """The loss of the true model on the impressions before a moment.

    log_loss: the mean over the actual labels. Compare a learner's log-loss with this: chance affects both alike.
    expected_log_loss: mean entropy of the true probabilities.
    normalized_entropy: log_loss over the entropy of the mean label; nan where all labels are equal.
    """

    impressions: int
    positives: int
    log_loss: float
    expected_log_loss: float
    normalized_entropy: float


class TrafficModel:
    """Traffic whose true click probabilities are known.

    The log-odds of an impression's label are a bias plus one weight a field, so the model that
    stream-learner learns can reach them exactly. The label is the one the window decides: a click at most
    `window_ms` after its impression, and not arriving late. (A click within a few ms of the window's end
    may be decided otherwise by the order of arrival.)

    One instance, one seed and the same calls give the same events. `best` may be called from another thread
    than `events`.
    """

    def __init__(self, seed: int = 0, shape: TrafficShape = DEMO) -> None:
        self.shape = shape
        self.emitted = Emitted()
        self._rng = np.random.default_rng(seed)
        self._cdf = [_zipf_cdf(f.values, f.zipf) for f in shape.fields]
        self._weights = [self._rng.normal(0.0, f.spread, f.values) for f in shape.fields]
        self._hour_weights = 0.3 * np.sin((np.arange(24) - 9.0) / 24.0 * 2.0 * math.pi)
        self._fragments = [_fragments(f.name, f.values, f.integer) for f in shape.fields]
        self._hours = _fragments("hour", 24, True, first=0)
        self._template = b'{"id":"%b","time":%d' + b",%b" * (len(shape.fields) + 1) + b"}"
        self.capture = _share_in_time(shape)
        self._bias = self._find_bias()
        self._totals: list[tuple[int, int, int, float, float]] = []
        self._emitted_ids = 0

    @property
    def categorical(self) -> tuple[str, ...]:
        """The integer fields, which a feature specification must list as categorical."""
        return (*(f.name for f in self.shape.fields if f.integer), "hour")

    def events(self, rate: float, start_ms: int, duration_ms: int | None = None, drain: bool = True) -> Iterator[Chunk]:
        """Chunks of `CHUNK_MS`, one after another, from `start_ms` on.

        `rate` is impressions a second. After `duration_ms` (None: never) no new impressions are made, and with
        `drain` the chunks go on until the last click of theirs has arrived. A second call must start after the
        first one's impressions, or `best` cannot cut by time. Raises ValueError for a rate or time below 0.
        """
        if rate < 0 or start_ms < 0:
            raise ValueError("rate and start_ms must not be negative")
        impressions, clicks = _Arrivals(start_ms), _Arrivals(start_ms)
        prefix = b"%x-" % start_ms
        number = 0
        while True:
            begin = start_ms + number * CHUNK_MS
            making = duration_ms is None or begin < start_ms + duration_ms
            if not making and not (drain and (impressions.waiting or clicks.waiting)):
                return
            if making:
                per_chunk = rate * CHUNK_MS / 1000.0
                count = int((number + 1) * per_chunk) - int(number * per_chunk)
                self._make(begin, count, prefix, impressions, clicks)
            yield Chunk(begin, begin + CHUNK_MS, impressions.take(number), clicks.take(number))
            number += 1

    def best(self, before_ms: int | None = None) -> BestPossible:
        """The true model's loss on the impressions made with times before `before_ms` (None: all), in steps
        of `CHUNK_MS`.

        Impressions count once, however often they are repeated. nan where there are none.
        """
        totals = self._totals
        index = len(totals) if before_ms is None else bisect_right(totals, before_ms, key=itemgetter(0))
        if index == 0:
            return BestPossible(0, 0, math.nan, math.nan, math.nan)
        _, count, positives, realised, expected = totals[index - 1]
        if count == 0:
            return BestPossible(0, 0, math.nan, math.nan, math.nan)
        share = positives / count
        entropy = float(_entropy(np.array([share]))[0]) if 0.0 < share < 1.0 else math.nan
        return BestPossible(count, positives, realised / count, expected / count, realised / count / entropy)

    def _find_bias(self) -> float:
        """The bias with which the mean probability of a label, over drawn impressions, is that of the shape."""
        draws = self._draw(20_000)
        hours = self._rng.integers(0, 24, 20_000)
        logits = self._logits(draws, hours, 0.0)
        low, high = -20.0, 20.0
        for _ in range(60):
            middle = (low + high) / 2.0
            if float(np.mean(_sigmoid(logits + middle))) < self.shape.label_share:
                low = middle
            else:
                high = middle
        return low

    def _draw(self, count: int) -> list[NDArray[np.intp]]:
        """Draw the index of a value for each field and impression; frequent values have small indices."""
        return [np.searchsorted(cdf, self._rng.random(count), side="right") for cdf in self._cdf]

    def _logits(self, draws: list[NDArray[np.intp]], hours: NDArray[np.int64], bias: float) -> NDArray[np.float64]:
        total: NDArray[np.float64] = bias + self._hour_weights[hours]
        for weights, index in zip(self._weights, draws, strict=True):
            total += weights[index]
        return total

    def _make(self, begin: int, count: int, prefix: bytes, impressions: _Arrivals, clicks: _Arrivals) -> None:
        """Make the impressions with times in one chunk, and all records that follow from them."""
        rng, shape = self._rng, self.shape
        times = np.sort(rng.integers(begin, begin + CHUNK_MS, count))
        hours = times // HOUR_MS % 24
        draws = self._draw(count)
        p_label = np.minimum(_sigmoid(self._logits(draws, hours, self._bias)), self.capture)
        clicked = np.flatnonzero(rng.random(count) * self.capture < p_label)
        drawn = rng.lognormal(math.log(shape.delay_median_ms), shape.delay_sigma, clicked.size)
        delays = np.maximum(1, drawn.astype(np.int64))
        late = rng.random(clicked.size) < shape.late_share
        labels = np.zeros(count, np.bool_)
        labels[clicked] = (delays <= shape.window_ms) & ~late
        self._add_totals(begin + CHUNK_MS, p_label, labels)

        ids = [b"%b%x" % (prefix, i) for i in range(self._emitted_ids, self._emitted_ids + count)]
        self._emitted_ids += count
        columns = [f[index].tolist() for f, index in zip(self._fragments, draws, strict=True)]
        rows = zip(ids, times.tolist(), *columns, self._hours[hours].tolist(), strict=True)
        values = [self._template % row for row in rows]
        arrivals = times + rng.exponential(shape.jitter_ms, count).astype(np.int64)
        impressions.add(zip(arrivals.tolist(), ids, values, strict=True))
        self._make_clicks(times[clicked], [ids[i] for i in clicked.tolist()], delays, late, clicks)
        self.emitted.impressions += count
        repeated = np.flatnonzero(rng.random(count) < shape.duplicate_share)
        waits = rng.integers(1, DUPLICATE_WITHIN_MS, repeated.size) + arrivals[repeated]
        impressions.add((at, ids[i], values[i]) for at, i in zip(waits.tolist(), repeated.tolist(), strict=True))
        self.emitted.impression_duplicates += repeated.size
        self.emitted.impressions_bad += self._make_bad(begin, count, impressions)
        self.emitted.clicks_bad += self._make_bad(begin, clicked.size, clicks)

    def _make_clicks(
        self,
        times: NDArray[np.int64],
        ids: list[bytes],
        delays: NDArray[np.int64],
        late: NDArray[np.bool_],
        clicks: _Arrivals,
    ) -> None:
        """Make clicks at `times + delays`, some of them late, repeated or orphaned."""
        rng, shape = self._rng, self.shape
        count = times.size
        at = times + delays
        arrivals = at + rng.exponential(shape.jitter_ms, count).astype(np.int64)
        behind = np.maximum(at, times + shape.window_ms) + rng.integers(
            shape.late_after_ms, 2 * shape.late_after_ms + 1, count
        )
        arrivals = np.where(late, behind, arrivals)
        clicks.add(_click_events(arrivals, ids, at))
        repeated = np.flatnonzero((rng.random(count) < shape.click_duplicate_share) & ~late)
        gap = rng.integers(1, DUPLICATE_WITHIN_MS, repeated.size)
        clicks.add(_click_events(arrivals[repeated] + gap, [ids[i] for i in repeated], at[repeated] + gap))
        orphaned = np.flatnonzero(rng.random(count) < shape.orphan_share)
        orphan_ids = [b"orphan-" + ids[i] for i in orphaned]
        clicks.add(_click_events(arrivals[orphaned], orphan_ids, at[orphaned]))
        self.emitted.clicks_late += int(late.sum())
        self.emitted.clicks += count - int(late.sum())
        self.emitted.click_duplicates += repeated.size
        self.emitted.orphans += orphaned.size

    def _make_bad(self, begin: int, among: int, arrivals: _Arrivals) -> int:
        """Make a few records that are no events. Returns how many."""
        count = int(self._rng.binomial(among, self.shape.bad_share))
        at = self._rng.integers(begin, begin + CHUNK_MS, count).tolist()
        kinds = self._rng.integers(0, len(BAD_VALUES), count).tolist()
        arrivals.add((when, b"bad-%x" % when, BAD_VALUES[kind]) for when, kind in zip(at, kinds, strict=True))
        return count

    def _add_totals(self, end_ms: int, p: NDArray[np.float64], labels: NDArray[np.bool_]) -> None:
        last = self._totals[-1] if self._totals else (0, 0, 0, 0.0, 0.0)
        realised = -float(np.log(np.where(labels, p, 1.0 - p)).sum())
        expected = float(_entropy(p).sum())
        self._totals.append(
            (end_ms, last[1] + p.size, last[2] + int(labels.sum()), last[3] + realised, last[4] + expected)
        )


class _Arrivals:
    """Events that are made and not handed out yet, by the chunk in which they arrive."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._by_chunk: dict[int, list[Event]] = {}

    @property
    def waiting(self) -> bool:
        return bool(self._by_chunk)

    def add(self, events: Iterator[Event]) -> None:
        start_ms, by_chunk = self._start_ms, self._by_chunk
        for event in events:
            number = (event[0] - start_ms) // CHUNK_MS
            if number in by_chunk:
                by_chunk[number].append(event)
            else:
                by_chunk[number] = [event]

    def take(self, number: int) -> list[Event]:
        events = self._by_chunk.pop(number, [])
        events.sort(key=itemgetter(0))
        return events


def _click_events(arrivals: NDArray[np.int64], ids: list[bytes], times: NDArray[np.int64]) -> Iterator[Event]:
    for arrival, name, time in zip(arrivals.tolist(), ids, times.tolist(), strict=True):
        yield arrival, name, b'{"id":"%b","time":%d}' % (name, time)


def _zipf_cdf(values: int, exponent: float) -> NDArray[np.float64]:
    shares = np.arange(1, values + 1, dtype=np.float64) ** -exponent
    cdf = np.cumsum(shares / shares.sum())
    cdf[-1] = 1.0
    return cdf


def _fragments(name: str, values: int, integer: bool, first: int = 1) -> NDArray[np.object_]:
    """The JSON text of each value of a field, name included."""
    template = '"{0}":{1}' if integer else '"{0}":"{0}-{1}"'
    texts = [template.format(name, first + i).encode() for i in range(values)]
    return np.array(texts, dtype=np.object_)


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-x)), dtype=np.float64)


def _entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-(p * np.log(p) + (1.0 - p) * np.log1p(-p)), dtype=np.float64)


def _share_in_time(shape: TrafficShape) -> float:
    """The probability that a click comes within the window and does not arrive late."""
    deviations = (math.log(shape.window_ms) - math.log(shape.delay_median_ms)) / shape.delay_sigma
    return 0.5 * (1.0 + math.erf(deviations / math.sqrt(2.0))) * (1.0 - shape.late_share)
