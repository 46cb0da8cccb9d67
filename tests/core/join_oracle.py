"""The join once more, slowly: plain Python over lists, written from the protocol's rules, sharing no code with it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events import Clicks, Impressions
from stream_learner.core.join import Cut, JoinSpec, TickOutput

BAD = 1


@dataclass(frozen=True)
class Record:
    """An impression or a click; a bad one has no time. `number` is an impression's weight, a click's value."""

    offset: int
    time: int | None
    key: int
    number: float
    arrival: int = 0


@dataclass
class PlainTick:
    """What a cut emits, as lists and counters that compare."""

    examples: list[tuple[int, int, float, float, list[tuple[int, float]]]]
    counts: Counter[str]
    waiting: int
    first_click: int
    dead_impressions: list[int]
    dead_clicks: list[int]


def row_of(offset: int) -> list[tuple[int, float]]:
    """The features of the impression at an offset: none, one or two of them."""
    return [(offset * 4 + j + 1, offset + j / 2 + 1.0) for j in range(offset % 3)]


def impressions_batch(records: list[Record]) -> tuple[NDArray[np.int64], Impressions]:
    """Offsets and decoded columns."""
    rows = [row_of(r.offset) if r.time is not None else [] for r in records]
    flat = [feature for row in rows for feature in row]
    columns = Impressions(
        np.array([BAD if r.time is None else 0 for r in records], np.uint8),
        np.array([r.time or 0 for r in records], np.int64),
        np.array([0 if r.time is None else r.key for r in records], np.uint64),
        np.array([1.0 if r.time is None else r.number for r in records], np.float64),
        np.cumsum([0] + [len(row) for row in rows]).astype(np.int64),
        np.array([key for key, _ in flat], np.uint64),
        np.array([value for _, value in flat], np.float64),
    )
    return np.array([r.offset for r in records], np.int64), columns


def clicks_batch(records: list[Record]) -> tuple[NDArray[np.int64], Clicks]:
    """Offsets and decoded columns."""
    columns = Clicks(
        np.array([BAD if r.time is None else 0 for r in records], np.uint8),
        np.array([r.time or 0 for r in records], np.int64),
        np.array([0 if r.time is None else r.key for r in records], np.uint64),
        np.array([0.0 if r.time is None else r.number for r in records], np.float64),
    )
    return np.array([r.offset for r in records], np.int64), columns


def log_times_of(records: list[Record]) -> list[int]:
    """Log time at each record; -1 before the first good one."""
    out, log_time = [], -1
    for r in records:
        log_time = log_time if r.time is None else max(log_time, r.time)
        out.append(log_time)
    return out


def duplicates_of(records: list[Record], dedupe_ms: int) -> list[bool]:
    """Which impressions repeat an id seen, as an example or a duplicate, within `dedupe_ms` of log time."""
    out, seen = [], {}
    for r, log_time in zip(records, log_times_of(records), strict=True):
        out.append(r.time is not None and seen.get(r.key, -(10**18)) >= log_time - dedupe_ms)
        if r.time is not None:
            seen[r.key] = log_time
    return out


def is_sampled_out(key: int, keep: float) -> bool:
    """SplitMix64's finalizer of the salted id, as a fraction of 2^64, is at or above the share to keep."""
    whole = 2**64 - 1
    z = key ^ 0x9E3779B97F4A7C15
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & whole
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & whole
    z ^= z >> 31
    numerator, denominator = keep.as_integer_ratio()
    return z * denominator >= numerator * 2**64


@dataclass
class _Pending:
    record: Record
    log_time: int
    code: str


@dataclass
class PlainJoin:
    """All records of both partitions are known; ticks are emitted one after the other, or by cuts."""

    spec: JoinSpec
    impressions: list[Record]
    clicks: list[Record]
    next_tick: int = 0
    next_impression: int = 0
    cursor: int = 0
    pending: list[_Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.impression_logs = log_times_of(self.impressions)
        self.click_logs = log_times_of(self.clicks)
        self.duplicates = duplicates_of(self.impressions, self.spec.dedupe_ms)

    def step(
        self,
        impressions_read: int,
        clicks_read: int,
        click_position: int = 0,
        click_idle: int | None = None,
        impression_idle: int | None = None,
    ) -> Cut | None:
        """The cut of the next single tick if it may close, with only the first so many records of each there."""
        end = (self.next_tick + 1) * self.spec.tick_ms
        window = self.spec.window_ms
        logs = self.impression_logs[:impressions_read]
        passed = any(log >= 0 and log + window >= end for log in logs)
        if not passed and (impression_idle is None or impression_idle + window < end):
            return None
        reaching = [k for k, log in enumerate(self.click_logs[:clicks_read]) if log >= end]
        if reaching:
            cursor = self.clicks[reaching[0]].offset
        elif click_idle is not None and click_idle >= end:
            cursor = max(self.cursor, click_position)
        else:
            return None
        before = [r.offset + 1 for r, log in zip(self.impressions, logs, strict=False) if log + window < end]
        return Cut(self.next_tick, self.next_tick, max([self.next_impression, *before]), cursor)

    def emit(self, cut: Cut) -> PlainTick:
        """The outcome of a cut, by its definition as a pure function."""
        spec, n = self.spec, Counter()
        dead_clicks = self._read_clicks(cut, n)
        if cut.first_tick < cut.last_tick:
            self._expire(cut.last_tick * spec.tick_ms, n)
        examples, dead = [], []
        for i, r in enumerate(self.impressions):
            if self.next_impression <= r.offset < cut.next_impression:
                n["read"] += 1
                if r.time is None:
                    n["dead"] += 1
                    dead.append(r.offset)
                elif self.duplicates[i]:
                    n["duplicates"] += 1
                else:
                    label = self._label(r)
                    weight = r.number if label > 0 else r.number / spec.keep_negatives
                    if label == 0 and spec.keep_negatives < 1 and is_sampled_out(r.key, spec.keep_negatives):
                        n["sampled_out"] += 1
                        continue
                    n["examples"] += 1
                    n["positives"] += label > 0
                    examples.append((self.impression_logs[i], r.key, label, weight, row_of(r.offset)))
        self._expire((cut.last_tick + 1) * spec.tick_ms, n)
        self.next_tick, self.next_impression, self.cursor = (
            cut.last_tick + 1,
            cut.next_impression,
            cut.click_cursor,
        )
        first = self.pending[0].record.offset if self.pending else self.cursor
        return PlainTick(examples, +n, len(self.pending), first, dead, dead_clicks)

    def _read_clicks(self, cut: Cut, n: Counter[str]) -> list[int]:
        tick_ms, dead = self.spec.tick_ms, []
        for r, log in zip(self.clicks, self.click_logs, strict=True):
            if not self.cursor <= r.offset < cut.click_cursor:
                continue
            n["clicks_read"] += 1
            code = "orphans"
            if r.time is None:
                code = "clicks_dead"
                dead.append(r.offset)
            elif any(
                e.record.key == r.key and e.code != "clicks_dead" and e.log_time >= log - self.spec.memory_ms
                for e in self.pending
            ):
                code = "clicks_duplicates"
            elif r.time < max(cut.first_tick, min(log // tick_ms, cut.last_tick)) * tick_ms:
                code = "late"
            self.pending.append(_Pending(r, log, code))
        return dead

    def _expire(self, before: int, n: Counter[str]) -> None:
        while self.pending and self.pending[0].log_time + self.spec.memory_ms < before:
            n[self.pending.pop(0).code] += 1

    def _label(self, impression: Record) -> float:
        label = 0.0
        for e in self.pending:
            if e.code != "clicks_dead" and e.record.key == impression.key:
                late_by = e.record.time - impression.time
                if -self.spec.skew_ms <= late_by <= self.spec.window_ms:
                    label = max(label, e.record.number)
                    if e.code in ("orphans", "late"):
                        e.code = "matched"
        return label


def order_free_labels(spec: JoinSpec, impressions: list[Record], clicks: list[Record]) -> dict[int, float]:
    """Labels by offset, from the two logs alone, of all impressions whose tick the clicks' log time closes."""
    click_logs = log_times_of(clicks)
    labels = {}
    logs = log_times_of(impressions)
    for r, log, repeats in zip(impressions, logs, duplicates_of(impressions, spec.dedupe_ms), strict=True):
        end = ((log + spec.window_ms) // spec.tick_ms + 1) * spec.tick_ms
        if r.time is None or repeats or not click_logs or click_logs[-1] < end:
            continue
        labels[r.offset] = max(
            (
                c.number
                for c, click_log in zip(clicks, click_logs, strict=True)
                if c.time is not None
                and c.key == r.key
                and click_log < end
                and click_log + spec.memory_ms >= end - spec.tick_ms
                and r.time - spec.skew_ms <= c.time <= r.time + spec.window_ms
            ),
            default=0.0,
        )
    return labels


def plain(output: TickOutput) -> PlainTick:
    """A tick as the join made it, in the words of the oracle."""
    b, i, c = output.examples, output.counts.impressions, output.counts.clicks
    counts = Counter(
        read=i.read,
        examples=i.examples,
        positives=i.positives,
        duplicates=i.duplicates,
        sampled_out=i.sampled_out,
        dead=i.dead,
        clicks_read=c.read,
        matched=c.matched,
        clicks_duplicates=c.duplicates,
        orphans=c.orphans,
        late=c.late,
        clicks_dead=c.dead,
    )
    columns = (b.log_time_ms, b.id_hash, b.label, b.weight)
    return PlainTick(
        list(zip(*(column.tolist() for column in columns), rows_of(output), strict=True)),
        +counts,
        c.waiting,
        output.first_click,
        [d.offset for d in output.dead_impressions],
        [d.offset for d in output.dead_clicks],
    )


def rows_of(output: TickOutput) -> list[list[tuple[int, float]]]:
    """The features of each example."""
    b = output.examples
    features = list(zip(b.keys.tolist(), b.values.tolist(), strict=True))
    starts = b.row_start.tolist()
    assert starts[0] == 0
    assert starts[-1] == len(features)
    return [features[a:z] for a, z in itertools.pairwise(starts)]
