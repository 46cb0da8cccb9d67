"""The join at a size where its tables grow, its blocks of clicks come and go, and batches cut across everything."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_learner.core.events.decoders import Clicks, Impressions
from stream_learner.core.join import click_memory, crowded, gather, labels, log_time
from stream_learner.core.join.click_memory import BLOCK
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState, TickOutput, WrongResume
from stream_learner.core.log.marks import InputIdentity, encode_mark
from stream_learner.core.machine import id_table
from stream_learner.core.machine.entries import ENTRIES, signatures
from stream_learner.core.parts import JOIN, compile_parts
from tests.core.join.join_histories import mark_of

IMPRESSIONS = 60_000
CLICKS = 25_000
SPEC = JoinSpec(window_ms=20_000, skew_ms=100, tick_ms=250, dedupe_ms=5_000, lateness_ms=2_000)
START = 1_000_000


class Traffic:
    """A minute of random impressions and clicks as columns, ids repeated, one of them very often."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        pool = rng.integers(0, 2**64, IMPRESSIONS // 2, np.uint64)
        pool[0] = 7
        times = START + np.sort(rng.integers(0, 60_000, IMPRESSIONS)) - rng.integers(0, 300, IMPRESSIONS)
        ids = pool[rng.integers(0, len(pool), IMPRESSIONS)]
        ids[rng.random(IMPRESSIONS) < 0.01] = 7
        status = (rng.random(IMPRESSIONS) < 0.01).astype(np.uint8) * 3
        lengths = np.where(status == 0, rng.integers(0, 4, IMPRESSIONS), 0)
        row_start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        keys = np.arange(row_start[-1], dtype=np.uint64) + np.uint64(1)
        weights = np.arange(IMPRESSIONS, dtype=np.float64)
        self.offsets = np.cumsum(rng.integers(1, 3, IMPRESSIONS)).astype(np.int64)
        counted = (keys % np.uint64(256)).astype(np.uint8)
        self.impressions = Impressions(status, times, ids, weights, row_start, keys, keys / 2.0, counted)
        of = rng.integers(0, IMPRESSIONS, CLICKS)
        click_times = times[of] + rng.integers(-150, 21_000, CLICKS)
        order = np.argsort(click_times + rng.integers(0, 200, CLICKS))
        clicked = ids[of]
        clicked[rng.random(CLICKS) < 0.05] = 7
        self.clicks = Clicks(
            (rng.random(CLICKS) < 0.01).astype(np.uint8) * 2,
            click_times[order],
            clicked[order],
            rng.choice([0.25, 1.0], CLICKS),
        )
        self.click_offsets = np.cumsum(rng.integers(1, 3, CLICKS)).astype(np.int64)

    def impressions_at(self, a: int, b: int) -> tuple[np.ndarray, Impressions]:
        """Rows a..b-1."""
        i, r = self.impressions, self.impressions.row_start[a : b + 1]
        columns = [c[a:b].copy() for c in (i.status, i.time_ms, i.id_hash, i.weight)]
        features = (column[r[0] : r[-1]] for column in (i.keys, i.values, i.counted))
        return self.offsets[a:b], Impressions(*columns, r - r[0], *features)

    def clicks_at(self, a: int, b: int) -> tuple[np.ndarray, Clicks]:
        """Rows a..b-1."""
        c = self.clicks
        return self.click_offsets[a:b], Clicks(c.status[a:b], c.time_ms[a:b], c.id_hash[a:b], c.value[a:b])


def feed(join: JoinState, traffic: Traffic, batch: int, until: tuple[int, int] | None = None) -> None:
    """Add everything from the join's positions on, or what lies before these offsets."""
    ends = until or (int(traffic.offsets[-1]) + 1, int(traffic.click_offsets[-1]) + 1)
    a, b = np.searchsorted(traffic.offsets, (join.next_impression_to_read, ends[0]))
    for i in range(a, b, batch):
        join.add_impressions(*traffic.impressions_at(i, min(i + batch, b)))
    a, b = np.searchsorted(traffic.click_offsets, (join.next_click_to_read, ends[1]))
    for i in range(a, b, batch):
        join.add_clicks(*traffic.clicks_at(i, min(i + batch, b)))
    join.set_impression_position(ends[0])
    join.set_click_position(ends[1])


def emit_all(join: JoinState) -> list[TickOutput]:
    outputs = []
    while cut := join.next_cut():
        outputs.append(join.emit(cut))
    return outputs


def expected_labels(traffic: Traffic, outputs: list[TickOutput]) -> dict[int, float]:
    """Row of each example and its label, tick by tick from dictionaries: the last tick of each id, its clicks."""
    c, i = traffic.clicks, traffic.impressions
    clicks: dict[int, list[tuple[int, int, float]]] = {}
    for k in np.flatnonzero(c.status == 0).tolist():
        found = clicks.setdefault(int(c.id_hash[k]), [])
        found.append((int(traffic.click_offsets[k]), int(c.time_ms[k]), float(c.value[k])))
    labels: dict[int, float] = {}
    seen: dict[int, int] = {}
    alone: set[int] = set()  # clicks that repeat no other
    matched: dict[int, int] = {}  # the last click of an id that was matched
    k, steps = 20, 3  # the ticks of `dedupe`, and of its eighth
    row = cursor = first_click = 0
    for output in outputs:
        tick = output.cut.last_tick
        for offset, key, time in taken(traffic, cursor, output.cut.click_cursor):
            if all(abs(t - time) > SPEC.span_ms for o, t, _ in clicks[key] if first_click <= o < offset):
                alone.add(offset)
        cursor = output.cut.click_cursor
        while row < IMPRESSIONS and traffic.offsets[row] < output.cut.next_impression:
            time, key = int(i.time_ms[row]), int(i.id_hash[row])
            row += 1
            if i.status[row - 1]:
                continue
            repeats = seen.get(key, -1) >= (tick - k) // steps * steps
            seen[key] = tick
            hits = [
                (offset, value)
                for offset, t, value in clicks.get(key, ())
                if first_click <= offset < cursor and time - SPEC.skew_ms <= t <= time + SPEC.window_ms
            ]
            if repeats or matched.get(key, -1) >= first_click:
                continue
            if hits:
                matched[key] = max((o for o, _ in hits if o in alone), default=hits[0][0])
            labels[row - 1] = max((value for _, value in hits), default=0.0)
        first_click = output.first_click
    return labels


def taken(traffic: Traffic, begin: int, end: int) -> list[tuple[int, int, int]]:
    """Offset, id and time of the good clicks between two offsets."""
    a, b = np.searchsorted(traffic.click_offsets, (begin, end))
    c = traffic.clicks
    good = [n for n in range(a, b) if c.status[n] == 0]
    return [(int(traffic.click_offsets[n]), int(c.id_hash[n]), int(c.time_ms[n])) for n in good]


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return Traffic(5)


@pytest.fixture(scope="module")
def outputs(traffic: Traffic) -> list[TickOutput]:
    """All ticks that the traffic closes, fed in one go."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    feed(join, traffic, IMPRESSIONS)
    return emit_all(join)


def same(a: TickOutput, b: TickOutput) -> bool:
    columns = ("log_time_ms", "id_hash", "label", "weight", "row_start", "keys", "values", "counted")
    return ((a.cut, a.counts, a.first_click) == (b.cut, b.counts, b.first_click)) and all(
        np.array_equal(getattr(a.examples, name), getattr(b.examples, name)) for name in columns
    )


def test_labels_are_those_of_dictionaries(traffic: Traffic, outputs: list[TickOutput]) -> None:
    """Every example, its label, and its features, in order; ids with very many clicks included."""
    made = [(int(w), float(y)) for o in outputs for w, y in zip(o.examples.weight, o.examples.label, strict=True)]
    rows = [row for row, _ in made]
    assert made == list(expected_labels(traffic, outputs).items())
    assert sum(y > 0 for _, y in made) > 5_000
    starts = traffic.impressions.row_start
    features = np.concatenate([traffic.impressions.keys[starts[row] : starts[row + 1]] for row in rows])
    assert np.array_equal(np.concatenate([o.examples.keys for o in outputs]), features)
    assert np.array_equal(np.concatenate([o.examples.values for o in outputs]), features / 2.0)
    assert np.array_equal(np.concatenate([o.examples.counted for o in outputs]), features % np.uint64(256))


def test_more_clicks_are_remembered_than_a_block_holds(outputs: list[TickOutput]) -> None:
    """The traffic fills and empties several blocks, so the other tests here mean something."""
    waiting = [o.counts.clicks.waiting for o in outputs]
    assert max(waiting) > 2 * BLOCK
    assert sum(o.counts.clicks.read for o in outputs) - waiting[-1] > 2 * BLOCK


@pytest.mark.parametrize("batch", [97, 1000])
def test_batches_and_scratch_make_no_difference(traffic: Traffic, outputs: list[TickOutput], batch: int) -> None:
    """Small batches, ticks emitted in between into memory used again: the same ticks, bit for bit."""
    join, scratch, k = JoinState(SPEC, impression_start=0, click_start=0), ExampleScratch(), 0
    ends = (traffic.offsets[-1] + 1, traffic.click_offsets[-1] + 1)
    total = 0
    for step in range(1, 41):
        feed(join, traffic, batch, (int(ends[0] * step // 40), int(ends[1] * step // 40)))
        while cut := join.next_cut(allow_empty=step == 40):
            output = join.emit(cut, scratch)
            total += len(output.examples)
            if output.cut == outputs[k].cut:
                assert same(output, outputs[k])
            k += 1
    assert total == sum(len(o.examples) for o in outputs)


@pytest.mark.parametrize("step", [97, 1000])
def test_values_that_are_left_out_are_1(traffic: Traffic, outputs: list[TickOutput], step: int) -> None:
    """Batches with and without values, in the same ticks: only the features of every third batch are not 1."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    wanted: list[NDArray[np.float64]] = []
    for number, first in enumerate(range(0, IMPRESSIONS, step)):
        offsets, columns = traffic.impressions_at(first, min(first + step, IMPRESSIONS))
        with_values = number % 3 == 0
        wanted.append(columns.values if with_values else np.ones(len(columns.keys)))
        join.add_impressions(offsets, columns if with_values else replace(columns, values=np.zeros(0)))
    feed(join, traffic, IMPRESSIONS)
    value_of = dict(zip(traffic.impressions.keys.tolist(), np.concatenate(wanted).tolist(), strict=True))
    both = 0
    for output, right in zip(emit_all(join), outputs, strict=True):
        made = output.examples
        assert np.array_equal(made.keys, right.examples.keys) and np.array_equal(made.counted, right.examples.counted)
        values = [value_of[key] for key in made.keys.tolist()]
        assert (made.values if len(made.values) else np.ones(len(made.keys))).tolist() == values
        both += 0 < sum(value == 1.0 for value in values) < len(values)
    assert both > 0


@pytest.mark.parametrize("at", [3, 60, 120])
def test_a_resumed_join_goes_on_as_if_it_had_never_stopped(
    traffic: Traffic, outputs: list[TickOutput], at: int
) -> None:
    """From a resume point in the middle, fed in small batches, all later ticks are the same."""
    first = JoinState(SPEC, impression_start=0, click_start=0)
    feed(first, traffic, 500)
    for output in outputs[: at + 1]:
        first.emit(output.cut)
    mark = mark_of(outputs[at], first)
    assert len(mark.resume.codes) == outputs[at].counts.clicks.waiting
    assert first.resume_bytes == len(encode_mark(mark)) - len(encode_mark(replace(mark, resume=None)))
    join = JoinState.resume(SPEC, mark)
    assert (join.next_impression_to_read, join.next_click_to_read) == (mark.resume.dedupe_from, mark.first_click)
    assert not join.rebuilt and join.next_cut() is None
    assert join.wants_impressions(0) and join.wants_clicks(0)
    feed(join, traffic, 250)
    assert join.rebuilt
    assert join.next_impression == mark.next_impression
    assert join.click_cursor == mark.click_cursor
    again = emit_all(join)
    assert len(again) == len(outputs) - at - 1
    assert all(same(a, b) for a, b in zip(again, outputs[at + 1 :], strict=True))


def test_to_know_the_duplicates_little_more_than_the_dedupe_span_is_read_again(
    traffic: Traffic, outputs: list[TickOutput]
) -> None:
    """A resume point reaches back about `dedupe` of closed ticks, not to the beginning."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    feed(join, traffic, 500)
    for output in outputs[:120]:
        join.emit(output.cut)
    point = join.resume_point(InputIdentity(b"i" * 16, b"c" * 16, 1))
    emitted = {o.cut.next_impression: o.cut.last_tick for o in reversed(outputs[:120])}
    ticks = outputs[119].cut.last_tick - emitted[point.dedupe_from]
    dedupe = SPEC.dedupe_ms // SPEC.tick_ms
    assert dedupe <= ticks <= dedupe * 9 / 8 + 1
    assert point.dedupe_from == point.steps[0][1] and len(point.steps) <= 10


def test_clicks_that_are_gone_are_noticed(traffic: Traffic, outputs: list[TickOutput]) -> None:
    """A resume point does not fit a topic with fewer or more clicks between its positions."""
    first = JoinState(SPEC, impression_start=0, click_start=0)
    feed(first, traffic, 500)
    for output in outputs[:60]:
        first.emit(output.cut)
    mark = mark_of(outputs[59], first)
    a, b = np.searchsorted(traffic.click_offsets, (mark.first_click, mark.click_cursor))
    assert a < b
    join = JoinState.resume(SPEC, mark)
    with pytest.raises(WrongResume, match="1 clicks"):
        join.add_clicks(*traffic.clicks_at(int(a) + 1, int(b)))
        join.set_click_position(mark.click_cursor)
    fewer = replace(mark, resume=replace(mark.resume, codes=mark.resume.codes[:-1]))
    join = JoinState.resume(SPEC, fewer)
    with pytest.raises(WrongResume, match="more clicks"):
        join.add_clicks(*traffic.clicks_at(int(a), int(b)))


def test_a_mark_that_cannot_be_resumed_from_is_refused(traffic: Traffic, outputs: list[TickOutput]) -> None:
    """Without a resume point, with one of other settings, or with one whose codes are still ahead of it."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    feed(join, traffic, 5000)
    join.emit(outputs[0].cut)
    mark = mark_of(outputs[0], join)
    with pytest.raises(ValueError, match="not a resume point"):
        JoinState.resume(SPEC, replace(mark, resume=None))
    with pytest.raises(ValueError, match="other settings"):
        JoinState.resume(replace(SPEC, skew_ms=99), mark)
    with pytest.raises(ValueError, match="put back"):
        JoinState.resume(SPEC, replace(mark, resume=replace(mark.resume, detached=3)))


def test_state_does_not_grow_with_the_length_of_the_stream() -> None:
    """After the first windows, memory stays what it is."""
    spec = JoinSpec(window_ms=1000, skew_ms=0, tick_ms=100, dedupe_ms=500, lateness_ms=1000)
    join, sizes = JoinState(spec, impression_start=0, click_start=0), []
    n = 5000
    tracemalloc.start()
    for k in range(30):
        ids = np.arange(k * n, (k + 1) * n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        times = START + k * 1000 + np.arange(n) // 5
        offsets = np.arange(k * n, (k + 1) * n, dtype=np.int64)
        ok = np.zeros(n, np.uint8)
        row_start = np.zeros(n + 1, np.int64)
        none = np.zeros(0)
        join.add_impressions(offsets, Impressions(ok, times, ids, np.ones(n), row_start, none.view(np.uint64), none))
        join.add_clicks(offsets, Clicks(ok, times, ids, np.ones(n)))
        outputs = emit_all(join)
        clicks_waiting, impression_border = outputs[-1].counts.clicks.waiting, outputs[-1].cut.next_impression
        del outputs
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(sizes[20:]) <= 1.02 * max(sizes[:10])
    assert clicks_waiting < 4 * n
    assert join.next_impression_to_read - impression_border < 3 * n


def test_the_join_calls_its_kernels_with_the_types_that_they_say(outputs: list[TickOutput]) -> None:
    """So nothing is compiled at the first tick. Helpers that only kernels call may well serve several types."""
    compile_parts([JOIN])
    modules = (id_table, log_time, click_memory, labels, crowded, gather)
    entries = [kernel for module in modules for kernel in ENTRIES[module.__name__]]
    assert len(entries) > 10
    assert {f.__name__: f.signatures for f in entries if f.signatures != list(signatures(f.py_func, 0))} == {}


@pytest.mark.parametrize("keep_negatives", [1.0, 0.3])
def test_ids_with_very_many_clicks_get_the_same_labels(keep_negatives: float) -> None:
    """Two ids with thousands of clicks each, where every impression stands for itself: every pair is compared here."""
    rng = np.random.default_rng(3)
    spec = JoinSpec(1000, 50, 500, 0, keep_negatives, lateness_ms=300, agree=1)
    n, m, end = 3000, 4000, START + 4000
    ids = rng.choice(np.array([7, 8, 9], np.uint64), n, p=[0.5, 0.4, 0.1])
    times = START + np.sort(rng.integers(0, 4000, n)) - rng.choice([0, 0, 100, 900], n)
    clicked = rng.choice(np.array([7, 8, 9], np.uint64), m, p=[0.6, 0.39, 0.01])
    click_times = START + np.sort(rng.integers(0, 5000, m)) + rng.choice([0, 0, -300, 300], m)
    values = rng.choice([0.0, 0.25, 1.0], m)
    status = (rng.random(n) < 0.02).astype(np.uint8)
    none = np.zeros(0)
    join = JoinState(spec, impression_start=0, click_start=0)
    offsets, starts, weights = np.arange(n), np.zeros(n + 1, np.int64), np.arange(n) + 1.0
    join.add_impressions(offsets, Impressions(status, times, ids, weights, starts, none.view(np.uint64), none))
    join.add_clicks(np.arange(m), Clicks(np.zeros(m, np.uint8), click_times, clicked, values))
    outputs = []
    while cut := join.next_cut(10 * end, 10 * end):
        outputs.append(join.emit(cut))
    made, row = {}, 0
    wanted, counted, gone = {}, set(), 0
    for output in outputs:
        late_before = output.cut.last_tick * spec.tick_ms - spec.window_ms - spec.lateness_ms
        for weight, label in zip(output.examples.weight.tolist(), output.examples.label.tolist(), strict=True):
            made[round(weight * (1 if label else keep_negatives))] = label
        for row in range(row, output.cut.next_impression):  # noqa: B020 -- goes on where the tick before ended
            if status[row] == 0 and times[row] >= late_before:
                span = (clicked == ids[row]) & (click_times >= times[row] - 50) & (click_times <= times[row] + 1000)
                span[:gone] = span[output.cut.click_cursor :] = False
                counted |= set(np.flatnonzero(span).tolist())
                wanted[row + 1] = float(values[span].max(initial=0.0))
        row, gone = output.cut.next_impression, output.first_click
    assert sum(o.counts.impressions.late for o in outputs) > 50
    assert 0 < sum(o.counts.clicks.matched for o in outputs) <= len(counted)
    assert sum(o.counts.clicks.matched + o.counts.clicks.duplicates for o in outputs) >= len(counted) > 1000
    assert {key: label for key, label in wanted.items() if key in made} == made
    assert keep_negatives < 1 or made.keys() == wanted.keys()
    assert all(label == 0.0 for key, label in wanted.items() if key not in made)
