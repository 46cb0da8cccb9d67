"""The join of one partition against plain Python, over random histories and at chosen edges."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import xxhash

from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.join.state import JoinState, NotRead
from stream_learner.core.log.header import open_record
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, InputIdentity, Mark, decode_mark, encode_mark
from tests.core.join.join_histories import History, closed_by_log, random_history
from tests.core.join.plain_join import (
    PlainJoin,
    PlainTick,
    Record,
    clicks_batch,
    impressions_batch,
    plain,
    true_labels,
)
from tests.oracles.join import log_times

HISTORIES = 120


def fresh(history: History) -> JoinState:
    return JoinState(history.spec, impression_start=0, click_start=0)


def run_in_random_batches(history: History, rng: random.Random):
    """Feed batches of random sizes in random turns, and emit whenever possible; all outputs in order."""
    join, outputs = fresh(history), []
    impressions, clicks = list(history.impressions), list(history.clicks)
    eager = rng.random() < 0.5
    while True:
        source, add, batch = rng.choice(
            [(impressions, join.add_impressions, impressions_batch), (clicks, join.add_clicks, clicks_batch)]
        )
        n = rng.randrange(1, 12)
        add(*batch(source[:n]))
        del source[:n]
        done = not impressions and not clicks
        while (eager or done) and (cut := join.next_cut(allow_empty=done or rng.random() < 0.5)):
            outputs.append(join.emit(cut))
        if done:
            return join, outputs


def single_ticks(oracle: PlainJoin, cut: Cut) -> PlainTick:
    """The cut's ticks one by one, closed by log time alone, put together; all but the last must be empty."""
    total = PlainTick([], Counter(), 0, 0)
    for tick in range(cut.first_tick, cut.last_tick + 1):
        single = oracle.step(len(oracle.impressions), len(oracle.clicks))
        assert single is not None
        made = oracle.emit(single)
        assert tick == cut.last_tick or made.counts["read"] == 0
        total.examples += made.examples
        total.counts += made.counts
        total.waiting, total.first_click = made.waiting, made.first_click
    assert (oracle.next_impression, oracle.cursor) == (cut.next_impression, cut.click_cursor)
    return total


@pytest.mark.parametrize("keep_negatives", [1.0, 0.3])
def test_cuts_equal_the_same_ticks_made_one_by_one(keep_negatives: float) -> None:
    """However it is fed, every cut's examples, counts and positions are those of its single ticks."""
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng, keep_negatives), rng)
        oracle = PlainJoin(history.spec, history.impressions, history.clicks)
        _, outputs = run_in_random_batches(history, rng)
        for output in outputs:
            assert plain(output) == single_ticks(oracle, output.cut), seed
        assert oracle.step(len(oracle.impressions), len(oracle.clicks)) is None, seed


def test_labels_are_true() -> None:
    """Every example has the label of the definition, unless a click lay further ahead of log time than `lateness`."""
    compared = 0
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng), rng)
        ahead = history.spec.lateness_ms
        logs = log_times([c.time for c in history.clicks], history.spec.agree)
        kept = [c for c, log in zip(history.clicks, logs, strict=True) if c.time is None or c.time <= log + ahead]
        _, outputs = run_in_random_batches(history, rng)
        by_weight = {r.number: r.offset for r in history.impressions}
        at_least = true_labels(history.spec, history.impressions, kept)
        at_most = true_labels(history.spec, history.impressions, history.clicks)
        for output in outputs:
            for weight, label in zip(output.examples.weight, output.examples.label, strict=True):
                offset, read = by_weight[weight], [c for c in history.clicks if c.offset < output.cut.click_cursor]
                assert label <= at_most[offset], seed
                in_time = true_labels(history.spec, [history.impressions[place_of(history, offset)]], read)[offset]
                assert label >= min(at_least[offset], in_time), seed
                compared += label > 0
    assert compared > HISTORIES


def place_of(history: History, offset: int) -> int:
    return next(n for n, r in enumerate(history.impressions) if r.offset == offset)


def test_what_is_emitted_depends_on_the_cut_and_not_on_what_was_read_ahead() -> None:
    """A join that holds everything, and one that is given only what each cut covers, emit the same."""
    for seed in range(HISTORIES // 2):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng), rng)
        _, outputs = run_in_random_batches(history, rng)
        greedy, frugal = fresh(history), fresh(history)
        greedy.add_impressions(*impressions_batch(history.impressions))
        greedy.add_clicks(*clicks_batch(history.clicks))
        for output in outputs:
            cut = output.cut
            i, c = frugal.next_impression_to_read, frugal.next_click_to_read
            frugal.add_impressions(
                *impressions_batch([r for r in history.impressions if i <= r.offset < cut.next_impression])
            )
            frugal.add_clicks(*clicks_batch([r for r in history.clicks if c <= r.offset < cut.click_cursor]))
            frugal.set_impression_position(cut.next_impression)
            frugal.set_click_position(cut.click_cursor)
            assert plain(greedy.emit(cut)) == plain(frugal.emit(cut)) == plain(output), seed


def test_reading_only_what_is_wanted_closes_every_tick() -> None:
    """With no room in the buffer at all, what is wanted is still enough to go on to the end."""
    for seed in range(HISTORIES // 2):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng), rng)
        everything = plain_total(run_in_random_batches(history, rng)[1])
        join, outputs = fresh(history), []
        impressions, clicks = list(history.impressions), list(history.clicks)
        allow_empty = rng.random() < 0.5
        while True:
            cut = join.next_cut(allow_empty=allow_empty)
            if cut is not None:
                outputs.append(join.emit(cut))
            elif impressions and join.wants_impressions(0):
                join.add_impressions(*impressions_batch([impressions.pop(0)]))
            elif clicks and join.wants_clicks(0):
                join.add_clicks(*clicks_batch([clicks.pop(0)]))
            elif not allow_empty:
                allow_empty = True
            else:
                break
        assert plain_total(outputs) == everything, seed


def plain_total(outputs):
    """Examples in order and counts of a whole run, whatever its cuts were."""
    ticks = [plain(output) for output in outputs]
    return [e for t in ticks for e in t.examples], sum((t.counts for t in ticks), Counter())


def test_a_prompt_click_among_those_of_an_outage_waits_for_its_impression() -> None:
    """Windows are closed up to 4000 when clicks come back, nearly all from 1000: the one on the impression stays."""
    spec = JoinSpec(window_ms=100, skew_ms=0, tick_ms=10, dedupe_ms=0, lateness_ms=50, agree=3)
    for reads_again in (False, True):
        join = JoinState(spec, impression_start=0, click_start=0)
        join.emit(Cut(0, 399, 0, 0))
        backlog = [at(n, 1000 + n, 100 + n) for n in range(9)]
        clicks = [*backlog[:4], at(4, 4005, 7), *backlog[5:]]
        impressions = impressions_batch([at(0, 4003, 7)])
        join.add_clicks(*clicks_batch(clicks))
        join.add_impressions(*impressions)
        output = join.emit(Cut(400, 402, 0, 9))
        if reads_again:  # after a restart the click is still known not to have been ahead
            point = join.resume_point(InputIdentity(bytes(16), bytes(16), 1))
            mark = Mark(0, 1, 0, 402, 0, output.first_click, 9, 0, 0, -1, output.counts, point)
            join = JoinState.resume(spec, decode_mark(open_record(encode_mark(mark))))
            join.add_clicks(*clicks_batch(clicks[output.first_click :]))
            join.add_impressions(*impressions)
        assert join.emit(Cut(403, 410, 1, 9)).examples.label.tolist() == [1.0]


SPEC = JoinSpec(window_ms=1000, skew_ms=50, tick_ms=100, dedupe_ms=300, lateness_ms=200, agree=1)


def at(offset: int, time: int | None, key: int = 1, number: float = 1.0) -> Record:
    return Record(offset, time, key, number)


def joined(impressions: list[Record], clicks: list[Record], spec: JoinSpec = SPEC):
    """All cuts that log time closes, with late sentinels in both partitions."""
    join = JoinState(spec, impression_start=0, click_start=0)
    ends = range(spec.agree)
    join.add_impressions(*impressions_batch([*impressions, *(at(1000 + n, 10**6, 70 + n) for n in ends)]))
    join.add_clicks(*clicks_batch([*clicks, *(at(1000 + n, 10**6, 80 + n) for n in ends)]))
    outputs = []
    while cut := join.next_cut():
        outputs.append(join.emit(cut))
    return outputs


@pytest.mark.parametrize(
    ("click", "label"),
    [(4949, 0.0), (4950, 1.0), (5000, 1.0), (6000, 1.0), (6001, 0.0)],
)
def test_both_edges_of_the_window_belong_to_it(click: int, label: float) -> None:
    """A click counts from `time - skew` to `time + window`, both included."""
    outputs = joined([at(0, 5000)], [at(0, click)])
    assert [y for o in outputs for y in o.examples.label] == [label]


def test_an_example_belongs_to_the_tick_in_which_its_window_closes() -> None:
    """A window that closes at the very start of a tick belongs to that tick."""
    outputs = joined([at(0, 4999), at(1, 5000, 2)], [])
    assert [(o.cut.last_tick, len(o.examples)) for o in outputs if len(o.examples)] == [(59, 1), (60, 1)]


@pytest.mark.parametrize(("second", "duplicate"), [(5000, 1), (5300, 1), (5399, 1), (5400, 0)])
def test_an_id_seen_again_within_dedupe_is_a_duplicate(second: int, duplicate: int) -> None:
    """An id of tick 60 is remembered in the three ticks that are `dedupe`, and a duplicate renews it."""
    outputs = joined([at(0, 5000), at(1, second)], [])
    assert sum(o.counts.impressions.duplicates for o in outputs) == duplicate
    renewed = joined([at(0, 5000), at(1, 5300), at(2, 5600)], [])
    assert sum(o.counts.impressions.duplicates for o in renewed) == 2


def test_a_click_matches_late_clicks_too() -> None:
    """A click whose time was already behind the progress is late only if it matches nothing."""
    outputs = joined([at(0, 5000)], [at(0, 5900, 5), at(1, 5100, 1), at(2, 5100, 6)])
    total = sum((plain(o).counts for o in outputs), Counter())
    assert (total["matched"], total["late"], total["orphans"]) == (1, 1, 1)


def test_the_greatest_value_of_the_matching_clicks_is_the_label() -> None:
    """Soft labels: a duplicate click counts for the label, and keeps its outcome."""
    outputs = joined([at(0, 5000)], [at(0, 5100, 1, 0.25), at(1, 5200, 1, 0.75)])
    assert [y for o in outputs for y in o.examples.label] == [0.75]
    total = sum((plain(o).counts for o in outputs), Counter())
    assert (total["matched"], total["clicks_duplicates"]) == (1, 1)


def test_a_click_of_value_zero_matches_but_is_no_positive() -> None:
    """The label stays 0; the click's outcome is matched."""
    outputs = joined([at(0, 5000)], [at(0, 5100, 1, 0.0)])
    total = sum((plain(o).counts for o in outputs), Counter())
    assert (total["examples"], total["positives"], total["matched"], total["orphans"]) == (1, 0, 1, 0)


def test_dead_records_keep_their_place() -> None:
    """A bad impression is counted when its place is emitted, a bad click when it is the first that has not gone."""
    outputs = joined([at(0, 5000), at(1, None), at(2, 5001, 2)], [at(0, None), at(1, 5000)])
    assert [(o.cut.last_tick, o.counts.impressions.dead) for o in outputs if o.counts.impressions.dead] == [(60, 1)]
    assert [(o.cut.first_tick, o.counts.clicks.dead) for o in outputs if o.counts.clicks.dead] == [(0, 1)]


def test_a_dead_impression_writes_no_log_time() -> None:
    """A resume point after a tick of dead ones alone tells no log time that no event has."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.add_impressions(*impressions_batch([at(0, None)]))
    join.emit(Cut(0, 0, 1, 0))
    assert join.resume_point(InputIdentity(bytes(16), bytes(16), 1)).impression_log_time == -1


def test_a_quiet_partition_closes_by_progress_at_its_end() -> None:
    """Without more events, ticks close as far as the progress asked for reaches; C is everything read."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.add_impressions(*impressions_batch([at(0, 5000)]))
    join.add_clicks(*clicks_batch([at(0, 5100)]))
    assert join.next_cut(click_idle_ms=6099, impression_idle_ms=6099) == Cut(0, 59, 0, 1)
    assert join.next_cut(click_idle_ms=6100, impression_idle_ms=None) == Cut(0, 59, 0, 1)
    join.set_click_position(3)
    assert join.next_cut(click_idle_ms=6100, impression_idle_ms=5100) == Cut(0, 59, 0, 3)
    join.emit(Cut(0, 59, 0, 3))
    assert join.next_cut(click_idle_ms=6100, impression_idle_ms=5100) == Cut(60, 60, 1, 3)
    output = join.emit(Cut(60, 60, 1, 3))
    assert output.first_click == 0
    assert output.examples.label.tolist() == [1.0]


def test_an_impression_too_late_for_its_tick_goes_into_the_next() -> None:
    """After the wall clock has closed its tick, a late impression joins the next one, labelled by what is there."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.add_clicks(*clicks_batch([at(0, 5100)]))
    first = join.next_cut(click_idle_ms=6100, impression_idle_ms=6100)
    assert first == Cut(0, 60, 0, 1)
    join.emit(first)
    join.add_impressions(*impressions_batch([at(0, 5000)]))
    assert join.next_cut(click_idle_ms=6100, impression_idle_ms=6100) is None
    output = join.emit(join.next_cut(click_idle_ms=6200, impression_idle_ms=6200))
    assert output.cut.last_tick == 61
    assert output.examples.label.tolist() == [1.0]
    assert output.counts.impressions == ImpressionCounts(read=1, examples=1, positives=1)
    assert output.counts.clicks == ClickCounts(waiting=1)


def test_what_a_tick_takes_lives_to_its_end() -> None:
    """A click that is due before the tick begins, but is read for it, counts for an impression that is not late."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.emit(Cut(0, 61, 0, 0))
    join.add_impressions(*impressions_batch([at(0, 5250, 2), at(1, 5001)]))
    join.add_clicks(*clicks_batch([at(0, 4951)]))
    output = join.emit(Cut(62, 62, 2, 1))
    assert output.examples.label.tolist() == [0.0, 1.0]
    assert output.counts.clicks == ClickCounts(read=1, matched=1)


@pytest.mark.parametrize(("time", "late"), [(4999, 1), (5000, 0)])
def test_an_impression_too_far_behind_is_late(time: int, late: int) -> None:
    """Tick 62 begins at 6200: what is before 6200 - window - lateness gets no label."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.emit(Cut(0, 61, 0, 0))
    join.add_impressions(*impressions_batch([at(0, time), at(1, 5250, 2)]))
    output = join.emit(Cut(62, 62, 2, 0))
    assert output.counts.impressions == ImpressionCounts(read=2, examples=2 - late, late=late)
    assert output.examples.log_time_ms.tolist() == [5200, 5250][late:]


def test_a_click_counts_for_one_impression_of_its_id() -> None:
    """A repeat that comes later than ids are remembered: the click that was matched makes it a duplicate."""
    repeats = [at(0, 5000), at(1, 5000, 2), at(2, 5500), at(3, 5500, 2)]
    for dedupe, counted in ((300, (3, 1, 1)), (0, (4, 2, 0))):
        outputs = joined(repeats, [at(0, 5600)], replace(SPEC, dedupe_ms=dedupe))
        total = sum((plain(o).counts for o in outputs), Counter())
        assert (total["examples"], total["positives"], total["duplicates"]) == counted


def test_one_clock_moves_nothing_two_do() -> None:
    """With `agree: 2` a single event ahead of time closes no tick, and an impression behind it gets its click."""
    spec = replace(SPEC, agree=2)
    impressions = [at(0, 5000), at(1, 7000, 2), at(2, 5050, 3)]
    clicks = [at(0, 9000, 9), at(1, 5100), at(2, 5100, 3)]
    join = JoinState(spec, impression_start=0, click_start=0)
    join.add_impressions(*impressions_batch([*impressions, at(3, 5060, 4)]))
    join.add_clicks(*clicks_batch([*clicks, at(3, 5110, 8)]))
    assert (join.impression_log_time, join.click_log_time) == (5050, 5100)
    assert join.next_cut() == Cut(0, 50, 0, 1)
    outputs = joined(impressions, clicks, spec)
    assert {y for o in outputs for y in zip(o.examples.id_hash.tolist(), o.examples.label.tolist(), strict=True)} >= {
        (1, 1.0),
        (3, 1.0),
    }


@pytest.mark.parametrize("agree", [3, 5, 16])
def test_an_old_impression_among_others_makes_none_of_them_go_early(agree: int) -> None:
    """At the end of a partition where little comes: whatever lies in their rows, they wait for their own windows."""
    spec = replace(SPEC, agree=agree)
    join = JoinState(spec, impression_start=0, click_start=0)
    old = {n for n in range(24) if n % 5 == 4}
    times = [5000 + 10 * n - (1100 if n in old else 0) for n in range(24)]
    join.add_impressions(*impressions_batch([at(n, time, n) for n, time in enumerate(times)]))
    gone: dict[int, int] = {}
    for now in range(5300, 6400, 20):
        while cut := join.next_cut(now, now):
            gone.update(dict.fromkeys(join.emit(cut).examples.id_hash.tolist(), now))
    assert gone.keys() == set(range(24)) - old
    assert all(now >= times[n] + spec.window_ms for n, now in gone.items())


def test_runs_of_empty_ticks_are_cut_only_when_asked_for() -> None:
    """Without `allow_empty` the empty ticks wait for the first tick that holds something."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.add_impressions(*impressions_batch([at(0, 5000), at(1, 9000, 2)]))
    join.add_clicks(*clicks_batch([at(0, 5800, 9)]))
    assert join.next_cut(allow_empty=False) is None
    assert join.next_cut() == Cut(0, 57, 0, 0)
    join.add_clicks(*clicks_batch([at(1, 6100, 9)]))
    assert join.next_cut(allow_empty=False) == join.next_cut() == Cut(0, 59, 0, 1)
    join.emit(Cut(0, 59, 0, 1))
    assert join.next_cut(allow_empty=False) == join.next_cut() == Cut(60, 60, 1, 1)


def test_a_cut_that_cannot_be_emitted_changes_nothing() -> None:
    """Data that is missing, and cuts that do not follow, are refused before anything is touched."""
    join = JoinState(SPEC, impression_start=5, click_start=3)
    join.add_impressions(*impressions_batch([at(5, 5000), at(6, 9000, 2)]))
    join.add_clicks(*clicks_batch([at(3, 5100), at(4, 9000, 9)]))
    join.emit(join.next_cut())
    cut = join.next_cut()
    with pytest.raises(ValueError, match="closes no window"):
        join.emit(cut._replace(last_tick=cut.first_tick - 1))
    with pytest.raises(ValueError, match="does not follow"):
        join.emit(cut._replace(last_tick=cut.first_tick - 2))
    with pytest.raises(NotRead):
        join.emit(cut._replace(click_cursor=9))
    with pytest.raises(NotRead):
        join.emit(cut._replace(next_impression=9))
    for wrong in ({"first_tick": 1}, {"last_tick": -1}, {"next_impression": 4}, {"click_cursor": 2}):
        with pytest.raises(ValueError, match="does not follow"):
            join.emit(cut._replace(**wrong))
    assert join.next_cut() == cut
    assert len(join.emit(cut).examples) == 1


def test_batches_out_of_order_are_refused() -> None:
    """Offsets must rise, also across batches; a good record's time is not negative."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.add_impressions(*impressions_batch([at(3, 5000)]))
    with pytest.raises(ValueError, match="position 4"):
        join.add_impressions(*impressions_batch([at(3, 5000)]))
    with pytest.raises(ValueError, match="position 0"):
        join.add_clicks(*clicks_batch([at(2, 1), at(2, 1)]))
    with pytest.raises(ValueError, match="negative"):
        join.add_clicks(*clicks_batch([at(2, -1)]))


def test_a_tick_that_keeps_every_row_of_a_batch_is_not_copied() -> None:
    """Rows that lie together in one batch are handed on as views."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    offsets, batch = impressions_batch([at(i, 5000, 1 + i) for i in range(9)] + [at(9, 9000, 99)])
    join.add_impressions(offsets, batch)
    join.add_clicks(*clicks_batch([at(0, 9000, 98)]))
    join.emit(join.next_cut())
    examples = join.emit(join.next_cut()).examples
    assert len(examples) == 9
    assert np.shares_memory(examples.keys, batch.keys)


def test_buffered_bytes_return_to_what_waits() -> None:
    """Memory is counted while a batch is held and given back with its last row."""
    join = JoinState(SPEC, impression_start=0, click_start=0)
    assert join.buffered_bytes == 0
    join.add_impressions(*impressions_batch([at(0, 5000)]))
    one = join.buffered_bytes
    join.add_impressions(*impressions_batch([at(1, 9000, 2)]))
    join.add_clicks(*clicks_batch([at(0, 9000, 3)]))
    both = join.buffered_bytes
    assert 0 < one < both
    join.emit(join.next_cut())
    output = join.emit(join.next_cut())
    assert output.counts.impressions.read == 1 and join.next_impression == 1
    assert join.buffered_bytes == both - one, "the click and the later impression are still held"
    assert output.counts.clicks.waiting == 0 and join.click_cursor == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"window_ms": 0},
        {"skew_ms": -1},
        {"tick_ms": 0},
        {"dedupe_ms": -1},
        {"keep_negatives": 0.0},
        {"keep_negatives": 1.5},
        {"keep_negatives": float("nan")},
        {"lateness_ms": -1},
        {"agree": 0},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict) -> None:
    """Spans are positive, or not negative; the share of negatives to keep lies in (0, 1]."""
    with pytest.raises(ValueError, match="must"):
        replace(SPEC, **wrong)


def test_the_fingerprint_tells_settings_apart() -> None:
    """Every setting changes it; 1 and 1.0 are the same share. Its value is part of the training log's format."""
    others = [
        replace(SPEC, window_ms=1001),
        replace(SPEC, skew_ms=51),
        replace(SPEC, tick_ms=101),
        replace(SPEC, dedupe_ms=301),
        replace(SPEC, keep_negatives=0.5),
        replace(SPEC, lateness_ms=201),
        replace(SPEC, agree=2),
    ]
    assert len({spec.fingerprint for spec in [SPEC, *others]}) == 8
    assert replace(SPEC, keep_negatives=1).fingerprint == SPEC.fingerprint
    text = b"join 2: window_ms=1000 skew_ms=50 tick_ms=100 dedupe_ms=300 keep_negatives=1.0 lateness_ms=200 agree=1"
    assert SPEC.fingerprint == xxhash.xxh64_intdigest(text)


def test_columns_of_another_type_or_read_only_are_taken_all_the_same() -> None:
    """What kernels are not compiled for is copied first."""
    offsets, batch = impressions_batch([at(0, 5000)])
    batch.time_ms = batch.time_ms.astype(np.int32)
    offsets.flags.writeable = False
    join = JoinState(SPEC, impression_start=0, click_start=0)
    join.add_impressions(offsets, batch)
    join.add_clicks(*clicks_batch([at(0, 9000, 2)]))
    join.emit(join.next_cut(impression_idle_ms=9000))
    assert join.emit(join.next_cut(impression_idle_ms=9000)).examples.log_time_ms.tolist() == [5000]
