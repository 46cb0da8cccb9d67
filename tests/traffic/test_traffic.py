"""Synthetic traffic: its order, its oddities, its true model, and the batches for benchmarks."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from stream_learner.traffic import (
    DEMO,
    REALISTIC,
    Chunk,
    TrafficModel,
    TrafficShape,
    benchmark_clicks,
    benchmark_fields,
    benchmark_id,
    benchmark_impressions,
)
from tests.oracles import loop

START_MS = 1_700_000_000_000
ODD = replace(DEMO, window_ms=4_000, bad_share=0.003)


def joined(chunks: list[Chunk], model: TrafficModel, end_ms: int) -> tuple[loop.Joined, loop.Settings]:
    """The oracle's join of the chunks in one partition, closed by a sentinel.

    Each click has its word on log time, so that what the model means to be late is late.
    """
    s = loop.settings(
        agree=1,
        window_ms=model.shape.window_ms,
        time="time",
        click_time="time",
        categorical=model.categorical,
        max_skew_ms=10**9,
    )
    last_ms = end_ms + 10**7
    last = [(last_ms, b"end", b'{"id":"end-%d","time":%d}' % (n, last_ms)) for n in range(s["agree"])]
    topics: list[list[list[loop.Record]]] = []
    for events in ([c.impressions for c in chunks], [c.clicks for c in chunks]):
        flat = [event for part in events for event in part] + last
        topics.append([[loop.Record(o, at, value) for o, (at, _, value) in enumerate(flat)]])
    return loop.join_topics(topics[0], topics[1], s)[0], s


def test_events_come_in_the_order_of_arrival_inside_their_chunk() -> None:
    """Arrivals never go back, over chunks too; and event times do, as in the field."""
    chunks = list(TrafficModel(3, ODD).events(500, START_MS, 3_000))
    assert [c.start_ms for c in chunks[:3]] == [START_MS, START_MS + 100, START_MS + 200]
    for events in ([e for c in chunks for e in c.impressions], [e for c in chunks for e in c.clicks]):
        arrivals = [at for at, _, _ in events]
        assert arrivals == sorted(arrivals)
    assert all(c.start_ms <= at < c.end_ms for c in chunks for at, _, _ in c.impressions + c.clicks)
    times = [json.loads(value)["time"] for _, key, value in chunks[5].impressions if key[:3] != b"bad"]
    assert times != sorted(times)


def test_the_same_seed_gives_the_same_events() -> None:
    """Equal seeds give equal events, and another seed gives another model."""
    one, two, other = (list(TrafficModel(seed).events(300, START_MS, 1_000)) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_emitted_counts_every_record_and_the_oracle_finds_them() -> None:
    """What the generator meant is what the definition of the join says it is."""
    model = TrafficModel(4, ODD)
    chunks = list(model.events(1_000, START_MS, 8_000))
    result, _ = joined(chunks, model, chunks[-1].end_ms)
    emitted = model.emitted
    assert sum(len(c.impressions) for c in chunks) == emitted.impression_records
    assert sum(len(c.clicks) for c in chunks) == emitted.click_records
    assert result.impressions["examples"] == emitted.impressions == 8_000
    assert result.impressions["duplicates"] == emitted.impression_duplicates > 0
    assert result.impressions["dead"] == emitted.impressions_bad > 0
    assert result.clicks["dead"] == emitted.clicks_bad > 0
    assert result.clicks["duplicates"] == emitted.click_duplicates > 0
    assert result.clicks["matched"] == result.impressions["positives"]
    assert result.clicks["late"] > 0


def test_best_is_the_true_model_on_the_labels_that_the_window_decides() -> None:
    """Positives as the oracle counts them, but for clicks within some ms of the window's end; loss near its mean."""
    model = TrafficModel(5, ODD)
    chunks = list(model.events(1_000, START_MS, 10_000))
    result, _ = joined(chunks, model, chunks[-1].end_ms)
    best = model.best()
    assert best.impressions == 10_000
    assert best.positives == pytest.approx(result.impressions["positives"], abs=3)
    assert best.positives / best.impressions == pytest.approx(ODD.label_share, abs=0.015)
    assert best.log_loss == pytest.approx(best.expected_log_loss, abs=0.015)
    assert 0.5 < best.normalized_entropy < 0.95


def test_best_cuts_by_event_time() -> None:
    """Cumulative over whole chunks that end by then; nan before the first."""
    model = TrafficModel(6)
    chunks = model.events(1_000, START_MS)
    for _ in range(20):
        next(chunks)
    assert [model.best(START_MS + ms).impressions for ms in (99, 100, 150, 1_000, 9_999)] == [0, 100, 100, 1_000, 2_000]
    assert math.isnan(model.best(START_MS).log_loss)


def test_a_learner_comes_near_the_best_within_a_minute_of_demo_traffic() -> None:
    """After 30,000 impressions FTRL's progressive loss on the last third is within 5 % of the true model's."""
    model = TrafficModel(7)
    chunks = list(model.events(3_000, START_MS, 10_000))
    result, s = joined(chunks, model, chunks[-1].end_ms)
    predictions = loop.fold(result.examples, s).predictions
    third = slice(len(predictions) * 2 // 3, None)
    losses = [
        -math.log(q if e.label else 1 - q) for q, e in zip(predictions[third], result.examples[third], strict=True)
    ]
    before, after = model.best(START_MS + 6_700), model.best()
    best = (after.log_loss * after.impressions - before.log_loss * before.impressions) / (
        after.impressions - before.impressions
    )
    assert np.mean(losses) < 1.05 * best


def test_realistic_traffic_is_clicked_two_per_cent_of_the_time() -> None:
    """The other shape that ships."""
    model = TrafficModel(8, REALISTIC)
    for _ in model.events(20_000, START_MS, 1_000, drain=False):
        pass
    assert model.best().positives / 20_000 == pytest.approx(0.02, abs=0.006)


def test_generation_leaves_the_core_to_the_product() -> None:
    """It works on arrays: fewer than three calls an event, about a microsecond."""
    calls: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: calls.update((event,)))
    try:
        for _ in TrafficModel(9).events(20_000, START_MS, 1_000, drain=False):
            pass
    finally:
        sys.setprofile(before)
    assert (calls["call"] + calls["c_call"]) / 20_000 < 3


def test_shapes_that_cannot_be_are_refused() -> None:
    """Shares outside [0, 1), no window, a negative rate."""
    for wrong in ({"late_share": 1.0}, {"label_share": 0.0}, {"window_ms": 0}, {"bad_share": -0.1}):
        with pytest.raises(ValueError, match="must be"):
            TrafficShape(**wrong)
    with pytest.raises(ValueError, match="negative"):
        next(TrafficModel().events(-1, START_MS))


def test_benchmark_impressions_are_json_of_about_600_bytes() -> None:
    """39 features, 13 of them integers; distinct ids; bounds that cut the records; the same bytes again."""
    data, bounds = benchmark_impressions(20_000, seed=3)
    assert bounds.dtype == np.int64
    assert (bounds.shape, bounds[0], bounds[-1]) == ((20_001,), 0, len(data))
    assert 570 < len(data) / 20_000 < 630
    integers, strings = benchmark_fields()
    rows = [json.loads(data[bounds[i] : bounds[i + 1]]) for i in (*range(200), *range(8_190, 8_195), 19_999)]
    for row in rows:
        assert tuple(row) == ("id", *integers, *strings)
        assert {type(row[name]) for name in integers} == {int}
        assert all(len(row[name]) == 8 for name in strings)
    assert (len(integers), len(strings)) == (13, 26)
    assert rows[-1]["id"] == benchmark_id(19_999, seed=3)
    assert len({data[b + 7 : b + 23] for b in bounds[:-1].tolist()}) == 20_000
    assert benchmark_impressions(20_000, seed=3)[0] == data


def test_benchmark_values_are_zipf_distributed_over_their_keys() -> None:
    """The first value is as frequent as the law says, to a tenth; no value lies beyond the keys asked for."""
    data, bounds = benchmark_impressions(20_000, features=3, zipf=1.05, keys=3_000)
    values = [json.loads(data[bounds[i] : bounds[i + 1]]) for i in range(20_000)]
    counts = Counter(row["I01"] for row in values)
    assert max(counts) < 1_000
    assert len({row["C01"] for row in values}) <= 1_000
    harmonic = sum(k**-1.05 for k in range(1, 1_001))
    assert counts[9] / 20_000 == pytest.approx(10**-1.05 / harmonic, rel=0.2)
    assert counts[0] > counts[1] > counts[3] > counts[30]


def test_benchmark_batches_continue_each_other_and_have_their_clicks() -> None:
    """A later batch has the ids that follow; clicks name impressions of the batch, about the share asked for."""
    data, bounds, index = benchmark_clicks(10_000, share=0.05, seed=1, first=500)
    assert 400 < index.size < 600
    assert bounds.shape == (index.size + 1,)
    for k in (0, index.size - 1):
        click = json.loads(data[bounds[k] : bounds[k + 1]])
        assert click == {"id": benchmark_id(500 + int(index[k]), seed=1)}
    later, later_bounds = benchmark_impressions(2, seed=1, first=500)
    assert json.loads(later[later_bounds[1] :])["id"] == benchmark_id(501, seed=1)


def test_benchmarks_of_nothing_and_of_nonsense() -> None:
    """No impressions are no bytes; what makes no event is refused."""
    data, bounds = benchmark_impressions(0)
    assert (data, bounds.tolist()) == (b"", [0])
    with pytest.raises(ValueError, match="features"):
        benchmark_impressions(1, features=2)
