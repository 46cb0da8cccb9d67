"""The join of one partition up to a last tick: the same marks' end and the same counts, however it was fed."""

from __future__ import annotations

import random
from collections import Counter

from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState, TickOutput
from tests.core.join.join_histories import History, closed_by_log, mark_of, random_history
from tests.core.join.plain_join import PlainJoin, Record, clicks_batch, impressions_batch, plain

HISTORIES = 80


def run(history: History, until_tick: int | None, rng: random.Random) -> tuple[JoinState, list[TickOutput]]:
    """Feed batches of random sizes in random turns, and emit whenever possible."""
    join = JoinState(history.spec, impression_start=0, click_start=0, until_tick=until_tick)
    outputs = []
    impressions, clicks = list(history.impressions), list(history.clicks)
    while True:
        source, add, batch = rng.choice(
            [(impressions, join.add_impressions, impressions_batch), (clicks, join.add_clicks, clicks_batch)]
        )
        n = rng.randrange(1, 12)
        add(*batch(source[:n]))
        del source[:n]
        at_end = not impressions and not clicks
        while cut := join.next_cut(allow_empty=at_end or rng.random() < 0.5):
            outputs.append(join.emit(cut))
        if at_end:
            return join, outputs


def total(outputs: list[TickOutput]) -> tuple[list[object], Counter[str], int]:
    """All examples, the counts added up, the clicks that wait after the last."""
    ticks = [plain(output) for output in outputs]
    counts: Counter[str] = Counter()
    for tick in ticks:
        counts += tick.counts
    return [example for tick in ticks for example in tick.examples], counts, ticks[-1].waiting


def some_tick(history: History, rng: random.Random) -> int:
    """A tick within the history's time, or in the silence after it."""
    last = history.clicks[-1].time // history.spec.tick_ms
    return rng.randrange(2 * last // 3) if rng.random() < 0.8 else last - 1


def test_it_ends_exactly_with_the_last_tick_however_it_was_fed() -> None:
    """Runs of empty ticks are cut off there; two runs, fed differently, make the oracle's examples and counts."""
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng), rng)
        until_tick = some_tick(history, rng)
        oracle = PlainJoin(history.spec, history.impressions, history.clicks)
        expected: tuple[list[object], Counter[str], int] = ([], Counter(), 0)
        for _ in range(until_tick + 1):
            step = oracle.step(len(oracle.impressions), len(oracle.clicks))
            assert step is not None
            made = oracle.emit(step)
            expected = (expected[0] + made.examples, expected[1] + made.counts, made.waiting)
        for _ in range(2):
            join, outputs = run(history, until_tick, rng)
            assert join.ended and join.next_cut() is None, seed
            assert outputs[-1].cut.last_tick == until_tick, seed
            assert total(outputs) == expected, seed


def test_the_wall_clock_closes_no_tick_beyond_the_last() -> None:
    """With nothing after the last events, and the clock far past them, the run of empty ticks ends there, too."""
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        history = random_history(rng)
        until_tick = history.last_arrival // history.spec.tick_ms + rng.randrange(50)
        join, outputs = run(history, until_tick, rng)
        now_ms = (until_tick + 1000) * history.spec.tick_ms
        while cut := join.next_cut(now_ms, now_ms):
            outputs.append(join.emit(cut))
        assert join.ended and outputs[-1].cut.last_tick == until_tick, seed


def test_it_goes_on_from_its_last_tick_as_if_it_had_never_ended() -> None:
    """A resume point at the end leads to the same examples and counts as a join without an end."""
    for seed in range(HISTORIES // 2):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng), rng)
        until_tick = some_tick(history, rng)
        _, whole = run(history, None, rng)
        first, outputs = run(history, until_tick, rng)
        mark = mark_of(outputs[-1], first)
        join = JoinState.resume(history.spec, mark)
        assert mark.resume is not None
        join.add_impressions(
            *impressions_batch([r for r in history.impressions if r.offset >= mark.resume.dedupe_from])
        )
        join.add_clicks(*clicks_batch([r for r in history.clicks if r.offset >= mark.first_click]))
        while cut := join.next_cut():
            outputs.append(join.emit(cut))
        assert total(outputs) == total(whole), seed


def test_it_reads_no_clicks_beyond_what_its_last_tick_needs() -> None:
    """An impression that waits for a later tick does not make it want more, where the buffer has no room."""
    spec = JoinSpec(window_ms=10, skew_ms=0, tick_ms=1, dedupe_ms=0, agree=1)
    for until_tick, wanted in ((50, False), (None, True)):
        join = JoinState(spec, impression_start=0, click_start=0, until_tick=until_tick)
        join.add_impressions(*impressions_batch([Record(0, 1_000, 1, 2.0, 1_000)]))
        join.add_clicks(*clicks_batch([Record(0, 60, 2, 1.0, 60)]))
        assert join.wants_clicks(0) is wanted
