"""The laws of the joiner's protocol on random histories: arrivals, quiet ends, crashes anywhere, resuming from marks.

1. Ticks and positions go on without gaps, every record has exactly one outcome, the counts add up.
2. A joiner that starts from a mark, or from nothing, and follows the marks makes the same ticks, to the last count.
3. Every cut is that of the single ticks of the protocol, under what had been read and asked for at that moment.
4. Where log time alone closes ticks, examples and marks' ends are a pure function of the two logs.
The same histories find each of a set of deliberate mistakes.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from stream_learner.core.join import click_memory
from stream_learner.core.join.batches import ClickBatch
from stream_learner.core.join.click_memory import ClickMemory
from stream_learner.core.join.impressions import ImpressionBuffer
from stream_learner.core.join.log_time import LogTime
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.log.marks import Mark
from tests.core.join.join_histories import History, closed_by_log, mark_of, random_history
from tests.core.join.plain_join import (
    PlainJoin,
    PlainTick,
    Record,
    clicks_batch,
    impressions_batch,
    plain,
)
from tests.suite.share import share

MUTANT_HISTORIES = 150


def cut_of(mark: Mark) -> Cut:
    return Cut(mark.first_tick, mark.last_tick, mark.next_impression, mark.click_cursor)


@dataclass
class World:
    """Two partitions that fill, the training log, and the joiner that happens to be alive."""

    history: History
    rng: random.Random
    eof_live: bool
    marks: list[Mark] = field(default_factory=list)
    ticks: list[PlainTick] = field(default_factory=list)
    now: int = 0
    crashes: int = 0

    def __post_init__(self) -> None:
        self.oracle = PlainJoin(self.history.spec, self.history.impressions, self.history.clicks)
        self.resume_share = self.rng.choice([0.05, 0.3, 1.0])
        self.crash_share = self.rng.choice([0.0, 0.05, 0.3])
        self.join = self.follow(self.marks)

    def feed(self, join: JoinState, impressions_to: int, clicks_to: int) -> None:
        """Add what lies between the join's positions and these offsets, in random pieces."""
        i, c = join.next_impression_to_read, join.next_click_to_read
        for records, add, batch, start, end in (
            (self.history.impressions, join.add_impressions, impressions_batch, i, impressions_to),
            (self.history.clicks, join.add_clicks, clicks_batch, c, clicks_to),
        ):
            there = [r for r in records if start <= r.offset < end]
            while there:
                n = self.rng.randrange(1, 20)
                add(*batch(there[:n]))
                del there[:n]
        join.set_impression_position(impressions_to)
        join.set_click_position(clicks_to)

    def follow(self, marks: list[Mark], use_resume_points: bool = True) -> JoinState:
        """A new joiner's start: from the last resume point, make the ticks again up to the last mark."""
        known = [k for k, mark in enumerate(marks) if mark.resume is not None and use_resume_points]
        if known:
            join = JoinState.resume(self.history.spec, marks[known[-1]])
            rest = marks[known[-1] + 1 :]
            ahead = self.rng.randrange(3) if rest else 0
            self.feed(join, marks[known[-1]].next_impression + ahead, marks[known[-1]].click_cursor + ahead)
            assert join.rebuilt
        else:
            join, rest = JoinState(self.history.spec, impression_start=0, click_start=0), marks
        for mark in rest:
            self.feed(join, mark.next_impression, mark.click_cursor)
            again = join.emit(cut_of(mark))
            k = marks.index(mark)
            assert plain(again) == self.ticks[k], "replay differs"
            assert (again.counts, again.first_click) == (mark.counts, mark.first_click), "replayed mark differs"
        return join

    def turn(self, read_all: bool = False) -> None:
        """Time passes, something is read, the ticks that may close are emitted; or the joiner dies."""
        if self.rng.random() < 0.7:
            self.now += self.rng.choice([1, 2, 3, 40])
        there_i = end_of(self.history.impressions, self.now)
        there_c = end_of(self.history.clicks, self.now)
        share = 0.0 if read_all else 0.3
        self.feed(
            self.join,
            self.some_of(self.join.next_impression_to_read, there_i, share),
            self.some_of(self.join.next_click_to_read, there_c, share),
        )
        idle = self.now - self.history.grace_ms
        click_idle = idle if self.eof_live and self.join.next_click_to_read >= there_c else None
        impression_idle = idle if self.eof_live and self.join.next_impression_to_read >= there_i else None
        while self._emit(click_idle, impression_idle):
            pass
        if self.rng.random() < self.crash_share / 3:
            self.restart()

    def some_of(self, position: int, end: int, share: float) -> int:
        """How far to read: mostly to the end, sometimes not."""
        return self.rng.randint(position, max(position, end)) if self.rng.random() < share else end

    def _emit(self, click_idle: int | None, impression_idle: int | None) -> bool:
        allow_empty = self.rng.random() < 0.7
        cut = self.join.next_cut(click_idle, impression_idle, allow_empty=allow_empty)
        if cut is None:
            return False
        output = self.join.emit(cut)
        mark = mark_of(output, self.join, self.marks, is_resume_point=self.rng.random() < self.resume_share)
        if self.rng.random() < self.crash_share / 2:
            self.restart()
            return False
        self.marks.append(mark)
        self.ticks.append(plain(output))
        self.check_against_single_ticks(cut, self.ticks[-1], click_idle, impression_idle)
        if self.rng.random() < self.crash_share / 2:
            self.restart()
            return False
        return True

    def restart(self) -> None:
        """The joiner dies; another one follows the marks."""
        self.crashes += 1
        self.join = self.follow(self.marks)

    def check_against_single_ticks(
        self, cut: Cut, made: PlainTick, click_idle: int | None, impression_idle: int | None
    ) -> None:
        """The protocol's own single ticks, under the same circumstances, come to the same positions and examples.

        Where the clock closes a run of ticks, the first single one takes all clicks; what they are called may differ.
        """
        position = self.join.next_click_to_read
        read_i = sum(r.offset < self.join.next_impression_to_read for r in self.history.impressions)
        read_c = sum(r.offset < position for r in self.history.clicks)
        total, examples = Counter(), []
        for _ in range(cut.first_tick, cut.last_tick + 1):
            single = self.oracle.step(read_i, read_c, position, click_idle, impression_idle)
            assert single is not None, "closed too early"
            one = self.oracle.emit(single)
            assert cut.first_tick == cut.last_tick or one.counts["read"] == 0, "a tick inside a run is not empty"
            total += one.counts
            examples += one.examples
        assert (single.next_impression, single.click_cursor) == (cut.next_impression, cut.click_cursor), "positions"
        assert examples == made.examples, "not the single ticks' examples"
        if click_idle is None:
            assert (total, one.waiting, one.first_click) == (made.counts, made.waiting, made.first_click), "outcomes"
        elif cut.first_tick < cut.last_tick:
            self.oracle = self.plain_after_marks()

    def plain_after_marks(self) -> PlainJoin:
        """The oracle with the words that the marks have given."""
        oracle = PlainJoin(self.history.spec, self.history.impressions, self.history.clicks)
        for mark in self.marks:
            oracle.emit(cut_of(mark))
        return oracle


def end_of(records: list[Record], now: int) -> int:
    """Offset after the last record that has arrived; the first record's offset if none has."""
    arrived = [r.offset + 1 for r in records if r.arrival <= now]
    return max(arrived, default=0)


def check_history(seed: int) -> World:
    """Run one history to its end and check the laws; AssertionError where one breaks."""
    rng = random.Random(seed)
    eof_live = rng.random() < 0.7
    history = random_history(rng, rng.choice([1.0, 1.0, 0.3]))
    if not eof_live:
        history = closed_by_log(history, rng)
    world = World(history, rng, eof_live)
    spec = history.spec
    times = [r.time or 0 for r in history.impressions + history.clicks]
    last = max([history.last_arrival, *times]) + 3 * spec.keep_ms + history.grace_ms + 10
    while world.now <= last:
        world.turn()
    world.crash_share = 0.0
    for _ in range(50):
        world.turn(read_all=True)
    check_balance(world)
    world.follow(world.marks, use_resume_points=False)
    if not eof_live:
        alone = PlainJoin(spec, history.impressions, history.clicks)
        wanted: list[tuple[object, ...]] = []
        while cut := alone.step(len(history.impressions), len(history.clicks)):
            wanted += alone.emit(cut).examples
        assert [e for tick in world.ticks for e in tick.examples] == wanted, "not a function of the two logs"
    return world


def check_balance(world: World) -> None:
    """Ticks without gaps, positions that never go back, and counts that add up to the records."""
    marks = world.marks
    assert [m.first_tick for m in marks] == [0] + [m.last_tick + 1 for m in marks[:-1]], "ticks are not in a row"
    for a, b in itertools.pairwise(marks):
        positions = [(m.next_impression, m.first_click, m.click_cursor) for m in (a, b)]
        assert all(x <= y for x, y in zip(*positions, strict=True)), "positions go back"
    total = sum((t.counts for t in world.ticks), Counter())
    closed_i = [r for r in world.history.impressions if r.offset < marks[-1].next_impression]
    read_c = [r for r in world.history.clicks if r.offset < marks[-1].click_cursor]
    if world.eof_live:
        assert (len(closed_i), len(read_c)) == (len(world.history.impressions), len(world.history.clicks))
        assert world.ticks[-1].waiting == 0, "a quiet end leaves clicks waiting"
    assert total["read"] == len(closed_i)
    ends = ("examples", "duplicates", "late_impressions", "sampled_out", "dead")
    assert total["read"] == sum(total[k] for k in ends)
    outcomes = ("matched", "clicks_duplicates", "orphans", "late", "clicks_dead")
    assert total["clicks_read"] == len(read_c) == sum(total[k] for k in outcomes) + world.ticks[-1].waiting


def check_histories(histories: int) -> list[World]:
    """The first so many histories, each run to its end."""
    return [check_history(seed) for seed in range(histories)]


@share(50, nightly=500)
def test_the_laws_hold_on_random_histories(examples: int) -> None:
    """Every law, on every history, through all crashes."""
    worlds = check_histories(examples)
    assert sum(w.crashes for w in worlds) > examples
    assert sum(len(w.marks) for w in worlds) > 10 * examples


def forget_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume point that says to read only what is not emitted."""
    monkeypatch.setattr(ImpressionBuffer, "remembered_from", property(lambda self: self.next))


def forget_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume point in which no click has been matched."""
    monkeypatch.setattr(ClickMemory, "codes", lambda self: np.zeros(len(self), np.uint8))


def take_all_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clicks count however far the joiner happens to have read."""
    monkeypatch.setattr(JoinState, "_cursor_at", lambda self, end_ms: self._ahead.position)


def expire_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clicks that expire a tick later than they must."""
    right = ClickMemory.forget
    monkeypatch.setattr(ClickMemory, "forget", lambda self, end, *rest: right(self, end - self._spec.tick_ms, *rest))


def no_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clicks that are kept for window and skew alone."""
    monkeypatch.setattr(JoinSpec, "keep_ms", property(lambda spec: spec.span_ms))


def one_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log time that takes every clock's word."""
    right = LogTime.__init__
    monkeypatch.setattr(LogTime, "__init__", lambda self, agree, log_time: right(self, 1, log_time))


def no_wait_for_impressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks close without impressions having been read past them."""
    right = JoinState.next_cut
    monkeypatch.setattr(
        JoinState,
        "next_cut",
        lambda self, click_idle, impression_idle, **kw: right(self, click_idle, 10**9, **kw),
    )


def run_as_one_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run of ticks all clicks belong to the first."""
    monkeypatch.setattr(ClickBatch, "end_of_those_before", lambda self, time_ms, stop: stop)


@pytest.mark.parametrize(
    "mutate",
    [
        forget_duplicates,
        forget_codes,
        take_all_clicks,
        expire_late,
        no_lateness,
        one_agrees,
        no_wait_for_impressions,
        run_as_one_tick,
    ],
)
def test_a_mistake_in_the_join_breaks_a_law(mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories are sharp enough to find each of these mistakes."""
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check_histories(MUTANT_HISTORIES)


def test_codes_are_two_bits() -> None:
    """What a resume point holds for a click fits the training log's two bits, dead clicks included."""
    assert {click_memory.UNMATCHED, click_memory.LATE, click_memory.MATCHED, click_memory.DUPLICATE} == {
        0,
        1,
        2,
        3,
    }
