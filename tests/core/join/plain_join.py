"""Histories of plain records for the join, and its single ticks one by one.

When a tick may close, with only a part of the records read, stands here (`PlainJoin.step`). What it emits is what the
oracle, `tests/oracles/join.py`, makes of its mark.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Clicks, Impressions
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.join.state import TickOutput
from tests.oracles.events import Click, Features, Impression, Settings, settings
from tests.oracles.join import Mark, Replay, label_by_definition

BAD = 1
OUTCOMES = ("read", "examples", "positives", "duplicates", "late", "sampled_out", "dead")
JOIN_SETTINGS = ("window_ms", "skew_ms", "tick_ms", "dedupe_ms", "keep_negatives", "lateness_ms", "agree")
CLICK_OUTCOMES = ("read", "matched", "duplicates", "orphans", "late", "dead")


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
    """The output of a cut, as lists and counters that can be compared.

    counts: by outcome; those of clicks that impressions have too begin with `clicks_`, and `late` is `late_impressions`
    where it is an impression's.
    """

    examples: list[tuple[int, int, float, float, Features]]
    counts: Counter[str]
    waiting: int
    first_click: int


def settings_of(spec: JoinSpec) -> Settings:
    """The oracle's settings."""
    return settings(**{name: getattr(spec, name) for name in JOIN_SETTINGS})


def spec_of(s: Settings) -> JoinSpec:
    """The join's settings."""
    return JoinSpec(**{name: s[name] for name in JOIN_SETTINGS})


def impression_of(r: Record) -> Impression:
    """With none, one or two features, which depend on its offset."""
    if r.time is None:
        return Impression(r.offset, None, 0, 1.0, ())
    features = tuple((r.offset * 4 + j + 1, r.offset + j / 2 + 1.0) for j in range(r.offset % 3))
    return Impression(r.offset, r.time, r.key, r.number, features)


def click_of(r: Record) -> Click:
    """A bad click has no id and no value."""
    return Click(r.offset, None, 0, 0.0) if r.time is None else Click(r.offset, r.time, r.key, r.number)


def impressions_of(events: Sequence[Impression]) -> tuple[NDArray[np.int64], Impressions]:
    """Offsets and decoded columns."""
    flat = [feature for event in events for feature in event.features]
    columns = Impressions(
        np.array([BAD if e.time_ms is None else 0 for e in events], np.uint8),
        np.array([e.time_ms or 0 for e in events], np.int64),
        np.array([e.id_hash for e in events], np.uint64),
        np.array([e.weight for e in events], np.float64),
        np.cumsum([0] + [len(e.features) for e in events]).astype(np.int64),
        np.array([key for key, _ in flat], np.uint64),
        np.array([value for _, value in flat], np.float64),
    )
    return np.array([e.offset for e in events], np.int64), columns


def clicks_of(events: Sequence[Click]) -> tuple[NDArray[np.int64], Clicks]:
    """Offsets and decoded columns."""
    columns = Clicks(
        np.array([BAD if e.time_ms is None else 0 for e in events], np.uint8),
        np.array([e.time_ms or 0 for e in events], np.int64),
        np.array([e.id_hash for e in events], np.uint64),
        np.array([e.value for e in events], np.float64),
    )
    return np.array([e.offset for e in events], np.int64), columns


def impressions_batch(records: Iterable[Record]) -> tuple[NDArray[np.int64], Impressions]:
    """Offsets and decoded columns."""
    return impressions_of([impression_of(r) for r in records])


def clicks_batch(records: Iterable[Record]) -> tuple[NDArray[np.int64], Clicks]:
    """Offsets and decoded columns."""
    return clicks_of([click_of(r) for r in records])


@dataclass
class PlainJoin:
    """All records of both partitions are known; ticks are emitted one after the other, or by cuts."""

    spec: JoinSpec
    impressions: list[Record]
    clicks: list[Record]
    next_tick: int = 0
    next_impression: int = 0
    cursor: int = 0
    replay: Replay = field(init=False)

    def __post_init__(self) -> None:
        impressions, clicks = ([impression_of(r) for r in self.impressions], [click_of(r) for r in self.clicks])
        self.replay = Replay(impressions, clicks, settings_of(self.spec), partition=0)

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
        """What the oracle makes of the cut."""
        joined = self.replay.close(Mark(cut.first_tick, cut.last_tick, cut.next_impression, cut.click_cursor))
        self.next_tick, self.next_impression, self.cursor = cut.last_tick + 1, cut.next_impression, cut.click_cursor
        examples = [(e.log_time_ms, e.id_hash, e.label, e.weight, e.features) for e in joined.examples]
        kept = self.replay.kept
        first_click = kept[0].click.offset if kept else self.cursor
        return PlainTick(examples, _counts(joined.impressions, joined.clicks), joined.clicks["waiting"], first_click)


def true_labels(spec: JoinSpec, impressions: Iterable[Record], clicks: Iterable[Record]) -> dict[int, float]:
    """Labels by offset of all impressions, as the definition reads where every click is read in time."""
    s, known = settings_of(spec), [click_of(c) for c in clicks]
    shown = [impression_of(r) for r in impressions if r.time is not None]
    return {imp.offset: label_by_definition(imp, known, sys.maxsize, s) for imp in shown}


def _counts(impressions: Counter[str], clicks: Counter[str]) -> Counter[str]:
    counts = Counter({"late_impressions" if name == "late" else name: impressions[name] for name in OUTCOMES})
    shared = {*OUTCOMES} - {"late"}
    counts.update({f"clicks_{name}" if name in shared else name: clicks[name] for name in CLICK_OUTCOMES})
    return +counts


def plain(output: TickOutput) -> PlainTick:
    """A tick as the join made it, in the words of the oracle."""
    b, i, c = output.examples, output.counts.impressions, output.counts.clicks
    counts = _counts(
        Counter({name: getattr(i, name) for name in OUTCOMES}),
        Counter({name: getattr(c, name) for name in CLICK_OUTCOMES}),
    )
    columns = (b.log_time_ms, b.id_hash, b.label, b.weight)
    rows = zip(*(column.tolist() for column in columns), rows_of(output), strict=True)
    return PlainTick(list(rows), counts, c.waiting, output.first_click)


def rows_of(output: TickOutput) -> list[Features]:
    """The features of each example."""
    b = output.examples
    features = list(zip(b.keys.tolist(), b.values.tolist(), strict=True))
    starts = b.row_start.tolist()
    assert starts[0] == 0
    assert starts[-1] == len(features)
    return [tuple(features[a:z]) for a, z in itertools.pairwise(starts)]
