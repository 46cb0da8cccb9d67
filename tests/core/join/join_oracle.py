"""The join once more, slowly: plain Python over lists, written from the protocol's rules, sharing no code with it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Clicks, Impressions
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.join.state import TickOutput

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
    """The output of a cut, as lists and counters that can be compared."""

    examples: list[tuple[int, int, float, float, list[tuple[int, float]]]]
    counts: Counter[str]
    waiting: int
    first_click: int


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


def log_times_of(records: list[Record], agree: int) -> list[int]:
    """Log time at each record, where the end of the records ends a row too; a dead one has that of the one before."""
    times = [r.time for r in records if r.time is not None]
    known = itertools.accumulate((min(times[n : n + agree]) for n in range(len(times))), max)
    out, log_time = [], -1
    for r in records:
        log_time = log_time if r.time is None else next(known)
        out.append(log_time)
    return out


def passed_with(records: list[Record], agree: int) -> list[int]:
    """How far log time has come with each record: the largest least time of the rows complete by then; -1 before."""
    out, times, passed = [], [], -1
    for r in records:
        if r.time is not None:
            times.append(r.time)
            if len(times) >= agree:
                passed = max(passed, min(times[-agree:]))
        out.append(passed)
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
    tick_of_id: dict[int, int] = field(default_factory=dict)
    written: int = -1
    gone_usual: int = -1

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
        cursor = self._passing(self.clicks[:clicks_read], end)
        if cursor is None and click_idle is not None and click_idle >= end:
            cursor = max(self.cursor, click_position)
        until = self._border(self.impressions[:impressions_read], end - self.spec.window_ms, impression_idle)
        if cursor is None or until is None:
            return None
        return Cut(self.next_tick, self.next_tick, until, cursor)

    def _passing(self, clicks: list[Record], end: int) -> int | None:
        """The first click, not before the cursor, with which or before which a row past `end` is complete."""
        good = [r for r in clicks if r.time is not None]
        rows = (good[n : n + self.spec.agree] for n in range(len(good) - self.spec.agree + 1))
        done = [row[-1].offset for row in rows if min(r.time for r in row) >= end]
        if not done:
            return None
        later = [r.offset for r in clicks if r.offset >= max(done[0], self.cursor)]
        return later[0] if later else self.cursor

    def _border(self, impressions: list[Record], passed: int, idle: int | None) -> int | None:
        """The offset after the last impression that goes, None where that is not known yet."""
        waiting = [r for r in impressions if r.offset >= self.next_impression]
        rows = [[e.time for e in waiting[n:] if e.time is not None][: self.spec.agree] for n in range(len(waiting))]
        by_log_time = any(len(row) == self.spec.agree and min(row) >= passed for row in rows)
        if not by_log_time and (idle is None or idle < passed):
            return None
        for r, row in zip(waiting, rows, strict=True):
            if r.time is not None and r.time >= passed and 2 * sum(t < passed for t in row) < self.spec.agree:
                before = [e.offset for e in waiting if e.offset < r.offset]
                return before[-1] + 1 if before else self.next_impression
        return waiting[-1].offset + 1 if waiting else self.next_impression

    def emit(self, cut: Cut) -> PlainTick:
        """The outcome of a cut, by its definition as a pure function."""
        n: Counter[str] = Counter()
        self._take_clicks(cut, n)
        examples = []
        going = [r for r in self.impressions if self.next_impression <= r.offset < cut.next_impression]
        floor = cut.first_tick * self.spec.tick_ms - self.spec.window_ms
        for r, log_time in zip(going, log_times_of(going, self.spec.agree), strict=True):
            n["read"] += 1
            if r.time is None:
                n["dead"] += 1
                continue
            self.written = max(self.written, log_time, floor)
            outcome, label = self._judge(r, cut.first_tick, floor)
            n[outcome] += 1
            if outcome == "examples":
                n["positives"] += label > 0
                weight = r.number if label > 0 else r.number / self.spec.keep_negatives
                examples.append((self.written, r.key, label, weight, row_of(r.offset)))
        self._let_go((cut.last_tick + 1) * self.spec.tick_ms, n)
        self.next_tick, self.next_impression, self.cursor = cut.last_tick + 1, cut.next_impression, cut.click_cursor
        first = self.pending[0].record.offset if self.pending else self.cursor
        return PlainTick(examples, +n, len(self.pending), first)

    def _judge(self, r: Record, tick: int, floor: int) -> tuple[str, float]:
        """The outcome and the label of an impression that is not dead."""
        spec = self.spec
        k = -(-spec.dedupe_ms // spec.tick_ms)
        g = max(1, -(-k // 8))
        seen, self.tick_of_id[r.key] = self.tick_of_id.get(r.key), tick
        same = [e for e in self.pending if e.record.key == r.key and e.code != "clicks_dead"]
        hits = [e for e in same if -spec.skew_ms <= e.record.time - r.time <= spec.window_ms]
        if spec.dedupe_ms and seen is not None and seen >= (tick - k) // g * g:
            return "duplicates", 0.0
        if r.time < floor - spec.lateness_ms:
            return "late_impressions", 0.0
        if spec.dedupe_ms and any(e.code == "matched" for e in same):
            return "duplicates", 0.0
        for e in hits:
            e.code = "matched" if e.code in ("orphans", "late") else e.code
        if spec.dedupe_ms and hits and all(e.code != "matched" for e in hits):
            hits[0].code = "matched"
        label = max((e.record.number for e in hits), default=0.0)
        if label == 0 and spec.keep_negatives < 1 and is_sampled_out(r.key, spec.keep_negatives):
            return "sampled_out", label
        return "examples", label

    def _take_clicks(self, cut: Cut, n: Counter[str]) -> None:
        """In a run of ticks that emits nothing, each belongs to the first whose end log time has not passed with it."""
        tick, at_once = cut.first_tick, cut.next_impression > self.next_impression
        for r, passed in zip(self.clicks, passed_with(self.clicks, self.spec.agree), strict=True):
            if not self.cursor <= r.offset < cut.click_cursor:
                continue
            while not at_once and tick < cut.last_tick and passed >= (tick + 1) * self.spec.tick_ms:
                tick += 1
                self._let_go(tick * self.spec.tick_ms, n)
            n["clicks_read"] += 1
            code = "orphans"
            if r.time is None:
                code = "clicks_dead"
            elif any(
                e.record.key == r.key and e.code != "clicks_dead" and abs(e.record.time - r.time) <= self.spec.span_ms
                for e in self.pending
            ):
                code = "clicks_duplicates"
            elif r.time < tick * self.spec.tick_ms:
                code = "late"
            self.pending.append(_Pending(r, code))

    def _let_go(self, end: int, n: Counter[str]) -> None:
        spec = self.spec
        while self.pending:
            first = self.pending[0].record
            if first.time is not None:
                row = [e.record.time for e in self.pending if e.record.time is not None][: spec.agree]
                row += [first.time] * (spec.agree - len(row))
                usual = max(self.gone_usual, sorted(row)[(spec.agree - 1) // 2])
                if min(first.time, usual + spec.lateness_ms) + spec.span_ms + spec.lateness_ms >= end:
                    return
                self.gone_usual = usual
            n[self.pending.pop(0).code] += 1


def true_labels(spec: JoinSpec, impressions: list[Record], clicks: list[Record]) -> dict[int, float]:
    """Labels by offset of all impressions, as the definition reads where every click is read in time."""
    return {
        r.offset: max(
            (
                c.number
                for c in clicks
                if c.time is not None and c.key == r.key and r.time - spec.skew_ms <= c.time <= r.time + spec.window_ms
            ),
            default=0.0,
        )
        for r in impressions
        if r.time is not None
    }


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
        late_impressions=i.late,
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
    )


def rows_of(output: TickOutput) -> list[list[tuple[int, float]]]:
    """The features of each example."""
    b = output.examples
    features = list(zip(b.keys.tolist(), b.values.tolist(), strict=True))
    starts = b.row_start.tolist()
    assert starts[0] == 0
    assert starts[-1] == len(features)
    return [features[a:z] for a, z in itertools.pairwise(starts)]
