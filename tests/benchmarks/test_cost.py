"""The arithmetic of what things cost, beside the code that it is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import cost
from benchmarks.bench_window import rows_of
from stream_learner.config import load_config
from stream_learner.core.join.click_memory import CLICK_BYTES
from stream_learner.core.machine.id_table import ENTRY_BYTES, IdTable, find_entry, put_entry
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.operations.doctor import sizing

BY_SIZE = {100: 262.0, 1000: 187.0, 10_000: 124.0}


def test_its_constants_are_those_of_the_program() -> None:
    """Bytes of a click, of an entry, the defaults of the join, what is kept of the log."""
    config = load_config("configs/minimal.yaml", environ={})
    assert (sizing.CLICK_BYTES, sizing.ID_ENTRY_BYTES) == (CLICK_BYTES, ENTRY_BYTES)
    assert config.join.window_ms == cost.BILLION.window_s * 1000
    assert config.join.skew_ms == cost.BILLION.skew_s * 1000
    assert config.join.lateness_ms == cost.BILLION.lateness_s * 1000
    assert config.join.dedupe_ms == cost.BILLION.dedupe_s * 1000
    assert config.topics.retention_ms == cost.BILLION.log_days * sizing.DAY_S * 1000
    assert load_config("configs/production.yaml", environ={}).topics.replication == cost.REPLICAS
    assert 16 + 8 * len(FtrlProximal.columns) == sizing.CHECKPOINT_ROW_BYTES


@pytest.mark.parametrize("live", [40_000, 66_000])
def test_an_id_table_takes_no_more_than_is_said(live: int) -> None:
    """While ids come and go, so many alive at any time; small sub-tables, below 1,024 slots, may take twice as much."""
    table = IdTable()
    for number in range(4 * live):
        key = (number * 0x9E3779B97F4A7C15 + 1) % 2**64
        key -= 2**64 if key >= 2**63 else 0
        floor = max(0, number - live)
        while not put_entry(table.header, find_entry(table.header, key), key, number):
            table.grow(key, floor)
        if number in (live, 2 * live, 4 * live - 1):
            assert table.nbytes <= sizing.ids_bytes(min(number + 1, live)) * 1.1


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_larger_records_have_fewer_bytes_an_example(one: float, other: float) -> None:
    """Between the sizes measured and beyond them."""
    small, large = sorted((one, other))
    assert cost.record_bytes(small, BY_SIZE) >= cost.record_bytes(large, BY_SIZE)


@pytest.mark.parametrize(("examples", "bytes_each"), [*BY_SIZE.items(), (1, 262.0), (1e6, 124.0), (10**2.5, 224.5)])
def test_measured_sizes_are_given_back(examples: float, bytes_each: float) -> None:
    """And between two of them, half-way by the logarithm is half-way."""
    assert cost.record_bytes(examples, BY_SIZE) == pytest.approx(bytes_each)


@pytest.mark.parametrize("window_s", [1, 60, 3600])
def test_clicks_that_may_still_count_are_counted_one_by_one(window_s: int) -> None:
    """A click is remembered for the window, the skew and the lateness."""
    remembered = sum(1 for second in range(100_000) if second < window_s + 5 + 600) * 500 * 0.02
    assert sizing.click_memory_bytes(replace(cost.BILLION, a_s=500, window_s=window_s)) == pytest.approx(
        remembered * (32 + 16 * 5)
    )


def test_the_rest_is_what_the_parts_leave() -> None:
    """Also where the parts are more than the whole: that is shown, not hidden."""
    *_, rest = cost.spent(100.0, {"a": 70.0, "b": 50.0}, "rest")
    assert rest.ns == -20.0


def test_the_learner_limits_many_joiners() -> None:
    """The sum of the joiners up to what one learner folds, and no more."""
    assert cost.throughput_a_s(1, 5000, 2000) == (200_000, "joiners")
    assert cost.throughput_a_s(2, 5000, 2000) == (400_000, "joiners")
    assert cost.throughput_a_s(3, 5000, 2000) == (500_000, "learner")
    assert cost.throughput_a_s(300, 5000, 2000) == (500_000, "learner")


def test_clicks_in_memory_take_no_more_than_is_said() -> None:
    """A join that has as many as the arithmetic says holds them in at most its bytes."""
    clicks, measured, most = [row["value"] for row in rows_of(60)]
    assert clicks == pytest.approx(sizing.remembered_clicks(replace(cost.BILLION, window_s=60)), rel=0.03)
    assert sizing.CLICK_BYTES + sizing.ID_ENTRY_BYTES < measured <= most * 1.1
    assert most == pytest.approx(112)


def test_the_network_carries_an_event_to_brokers_copies_and_a_reader() -> None:
    """Four ways with three copies."""
    impressions, log, weights = cost.network(600, 200, 8.0)
    assert impressions.size == pytest.approx(cost.BILLION.a_s * 600 * 4, rel=1e-3)
    assert log.size == pytest.approx(cost.BILLION.a_s * 200 * 4, rel=1e-3)
    assert weights.size == pytest.approx(cost.BILLION.a_s * 8 * 12, rel=1e-3)


def test_what_the_page_says_of_three_sizes_is_what_doctor_would_say() -> None:
    """With a hundredth as many features as impressions a day."""
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    for name, a_day in (("10 M", 1e7), ("100 M", 1e8), ("1 G", 1e9)):
        traffic = replace(cost.BILLION, a_s=a_day / sizing.DAY_S, model_features=a_day / 100)
        needs = {need.what: need for need in sizing.needs(traffic)}
        cores = sum(need.size * sizing.PEAK for need in needs.values() if need.unit == "cores")
        besides = needs["each process: memory besides"].size
        joiner = needs["joiners: memory"].size * sizing.PEAK + besides
        learner, scorer = (needs[f"{role}: memory"].size + besides for role in ("learner", "scorer"))
        disks = sum(need.size for what, need in needs.items() if what.startswith("brokers:") and need.unit == "bytes")
        memory = ", ".join(sizing.amount(size) for size in (joiner, learner, scorer))
        assert f"| {name} | {cores:.2g} | {memory} | {sizing.amount(disks)} |" in page
