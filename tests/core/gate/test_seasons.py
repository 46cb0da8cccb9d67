"""Ordinary weeks are not held, poison is. `python -m benchmarks gate` has years, and all volumes."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from benchmarks.bench_gate import POISONS, alarms, delay, taught
from benchmarks.gate_seasons import DAY_MS, HOUR_MS, Poison, Season, ticks
from benchmarks.gate_talkingdata import sums_of_talkingdata
from stream_learner.core.gate.gate import Gate, GatePolicy

DAYS = 12
TICK_MS = 600_000
SEASONS: dict[str, dict[str, Any]] = {
    "flat": {"day": False},
    "weekends and launches": {"week": True, "launches": 3},
    "bursts and pauses": {"bursts": True, "gaps": 4},
    "quiet nights": {"night_ms": 7 * HOUR_MS},
    "few negatives kept": {"keep_negatives": 0.1},
    "a third is clicked": {"click_share": 0.3},
}
HELD_WITHIN = {
    "dead clicks": 120,
    "clicks an hour late": 120,
    "half the clicks lost": 1_000,
    "bots, 20 times the volume": 200,
    "a tenth of the examples all positive": 60,
    "labels flipped": 60,
}


@pytest.mark.parametrize("name", SEASONS)
@pytest.mark.parametrize("per_second", [0.05, 5.0, 500.0])
def test_an_ordinary_fortnight_is_not_held(per_second: float, name: str) -> None:
    """A day's course of clicks and volume, and what else there is in the life of a site."""
    season = Season("", per_second, TICK_MS, **{"day": True, "slices": (0.1,), **SEASONS[name]})
    count, found = alarms(season, DAYS)
    assert found == []
    assert count > 500


@pytest.fixture(scope="module")
def site() -> tuple[Season, dict[str, Any]]:
    """A site with a click every ten seconds, and its gate after a day and a half."""
    season = Season("", 10.0, 10_000, day=True, slices=(0.1,))
    return season, taught(season, 1.5, 1)


@pytest.mark.parametrize("name", HELD_WITHIN)
def test_poison_is_held_within_so_many_expected_clicks(site: tuple[Season, dict[str, Any]], name: str) -> None:
    """One time of day stands for all."""
    poison = next(poison for poison in POISONS if poison.name == name)
    found = delay(site[1], site[0], poison, int(1.5 * DAY_MS), 0.5, 2)
    assert found is not None and found[1] < HELD_WITHIN[name], found


def test_the_same_site_without_poison_goes_on(site: tuple[Season, dict[str, Any]]) -> None:
    """What is held above is held for the poison."""
    gate = Gate(GatePolicy(), tick_ms=10_000, slices=[("slice", 1)])
    gate.restore(site[1])
    for tick in islice(ticks(site[0], 0.5, 2, None, int(1.5 * DAY_MS)), 4_000):
        assert gate.judge_sums(tick.tick, tick.sums) is None
        gate.take()


@pytest.fixture(scope="module")
def clicked_site() -> tuple[Season, dict[str, Any]]:
    """A small site with a click a second, two of five examples, and its gate after two and a half hours."""
    season = Season("", 3.0, 5_000, click_share=0.4)
    return season, taught(season, 0.1, 1)


def after_a_step(
    site: tuple[Season, dict[str, Any]], extra: float, extra_share: float, seed: int
) -> tuple[float, float, str] | None:
    """Minutes, expected clicks and bound, where from one tick on there are more examples, so many of them clicked."""
    return delay(site[1], site[0], Poison("", extra=extra, extra_share=extra_share), DAY_MS // 10, 0.06, seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_step_to_twice_the_examples_with_the_same_clicks_is_held_within_minutes(
    clicked_site: tuple[Season, dict[str, Any]], seed: int
) -> None:
    """Impressions that are doubled under other ids: the rise of traffic hides the fall of the share of clicks for a few
    minutes, and what they have is not learned as usual."""
    found = after_a_step(clicked_site, 1.0, 0.0, seed)
    assert found is not None and found[0] < 6 and found[2] == "positives", found


@pytest.mark.parametrize(("extra", "share"), [(1.0, 0.4), (1.0, 0.3), (1.0, 0.5), (4.0, 0.4), (4.0, 0.1), (1.5, 0.1)])
def test_a_step_of_the_traffic_that_brings_clicks_is_a_launch(
    clicked_site: tuple[Season, dict[str, Any]], extra: float, share: float
) -> None:
    """With about as many clicks for an example as before, or a quarter of them."""
    assert after_a_step(clicked_site, extra, share, 1) is None


@pytest.mark.parametrize("tick_ms", [10_000, 60_000, 600_000])
def test_talkingdata_in_the_order_of_time_is_not_held(tick_ms: int) -> None:
    """Four days of real clicks and installs."""
    found = sums_of_talkingdata(tick_ms)
    if found is None:
        pytest.skip("the TalkingData sample is not there")
    gate = Gate(GatePolicy(), tick_ms=tick_ms)
    for tick in found:
        assert gate.judge_sums(tick.tick, tick.sums) is None
        gate.take()
