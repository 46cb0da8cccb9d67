"""Clicks that are missing for a time: told where chance and the hour of the day do not explain it, and nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_learner.adapters.kafka import Retention
from stream_learner.config.values import DAY_MS, HOUR_MS, MINUTE_MS
from stream_learner.operations.doctor.events import side_of
from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.doctor.outages import outages_in
from stream_learner.operations.doctor.run import examine
from stream_learner.operations.doctor.sample import Record, TopicSample
from tests.operations.doctor.site import EPOCH_MS, Happened, Site, click, configuration, impression, samples
from tests.operations.doctor.test_doctor_on_samples import proposed

Numbers = NDArray[np.int64]
BEGIN_MS = EPOCH_MS // DAY_MS * DAY_MS
DAY, HOUR = DAY_MS, HOUR_MS


def spread(draw: np.random.Generator, count: int, days: float) -> Numbers:
    """Times after `BEGIN_MS`."""
    return np.sort((draw.random(count) * days * DAY_MS).astype(np.int64))


def hours(times: Numbers) -> Numbers:
    """Of the day."""
    return times // HOUR_MS % 24


def by_night(lowest: float, count: int, days: int) -> Callable[[np.random.Generator], tuple[Numbers, object]]:
    """A rate of eight hours each day, and 0.2 in the others."""

    def made(draw: np.random.Generator) -> tuple[Numbers, object]:
        times = spread(draw, count, days)
        return times, np.where(hours(times) < 8, lowest, 0.2)

    return made


def thin(draw: np.random.Generator) -> tuple[Numbers, object]:
    """Days of a thousand impressions, nights of ten."""
    times = spread(draw, 9_000, 6)
    return times[(hours(times) >= 7) | (draw.random(len(times)) < 0.02)], 0.1


def in_bursts(draw: np.random.Generator) -> tuple[Numbers, object]:
    """500 impressions in a minute, each 40 minutes."""
    at = np.arange(15).repeat(500) * 40 * MINUTE_MS
    return np.sort(at + (draw.random(len(at)) * MINUTE_MS).astype(np.int64)), 0.12


def campaign(draw: np.random.Generator) -> tuple[Numbers, object]:
    """A day of many clicks, and three of few."""
    times = spread(draw, 8_000, 4)
    return times, np.where(times < DAY_MS, 0.2, 0.005)


HEALTHY: Mapping[str, Callable[[np.random.Generator], tuple[Numbers, object]]] = {
    "one rate": lambda draw: (spread(draw, 8_000, 4), 0.1),
    "few clicks": lambda draw: (spread(draw, 20_000, 4), 0.003),
    "quiet nights": by_night(0.01, 12_000, 5),
    "one quiet night": by_night(0.01, 12_000, 1),
    "quiet nights of few impressions": by_night(0.01, 2_000, 4),
    "thin nights": thin,
    "bursts": in_bursts,
    "a campaign": campaign,
    "hardly any click": lambda draw: (spread(draw, 60_000, 4), 0.0002),
}
OUTAGES: Mapping[str, tuple[Callable[[Numbers], NDArray[np.bool_]], int]] = {
    "the last day": (lambda at: at > 3 * DAY, 1),
    "a day, and half a day": (lambda at: ((at > DAY) & (at < 2 * DAY)) | ((at > 3 * DAY) & (at < 3.5 * DAY)), 2),
    "every other half of a day": (lambda at: at // (12 * HOUR) % 2 == 1, 4),
    "each night": (lambda at: hours(at) < 8, 3),
    "six hours": (lambda at: (at > DAY) & (at < DAY + 6 * HOUR), 1),
}


@pytest.mark.parametrize("shape", HEALTHY)
def test_no_healthy_shape_has_an_outage(shape: str) -> None:
    """Whatever the seed."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        times, rates = HEALTHY[shape](draw)
        assert outages_in(times, times[draw.random(len(times)) < rates]) == [], seed


@pytest.mark.parametrize("case", OUTAGES)
def test_stretches_without_a_click_are_found(case: str) -> None:
    """Each of them, from the click before to the one after; what is before the first click is none."""
    is_lost, count = OUTAGES[case]
    for seed in range(20):
        draw = np.random.default_rng(seed)
        times = spread(draw, 8_000, 4)
        lost = is_lost(times)
        found = outages_in(times, times[(draw.random(len(times)) < 0.166) & ~lost])
        assert len(found) == count
        assert all(lost[(times > one.begin_ms) & (times < one.end_ms)].mean() > 0.9 for one in found)
        assert all(abs(one.clicks / one.impressions - 0.166) < 0.03 for one in found)


def site(
    is_lost: Callable[[Numbers], NDArray[np.bool_]], count: int = 6_000, share: float = 0.166
) -> tuple[TopicSample, TopicSample]:
    """Four days, in one partition."""
    draw = np.random.default_rng(1)
    times = spread(draw, count, 4)
    clicked = (draw.random(count) < share) & ~is_lost(times)
    events = [Happened(n, BEGIN_MS + int(at), f"i{n}", "u") for n, at in enumerate(times)]
    clicks = [one._replace(time_ms=one.time_ms + 5_000) for one, has in zip(events, clicked, strict=True) if has]
    of_topics = ("impressions", events, impression), ("clicks", clicks, click)
    made = [
        TopicSample(
            name,
            1,
            ({0: [Record(0, n, e.time_ms, None, json.dumps(write(e)).encode()) for n, e in enumerate(of)]},),
            True,
            len(of),
            Retention(30 * DAY_MS, None),
        )
        for name, of, write in of_topics
    ]
    return made[0], made[1]


def large(samples: tuple[TopicSample, TopicSample], each: int) -> tuple[TopicSample, TopicSample]:
    """The same of which so many of the oldest and of the newest impressions were read."""
    (impressions, clicks), (records,) = samples, samples[0].blocks[0].values()
    blocks, firsts = ({0: records[-each:]}, {0: records[:each]}), {0: records[:50]}
    return replace(impressions, blocks=blocks, whole=False, firsts=firsts), clicks


def found_in(samples: tuple[TopicSample, TopicSample], *settings: str) -> list[Finding]:
    """The findings of outages."""
    sides = side_of("impressions", samples[0]), side_of("clicks", samples[1])
    findings = examine(configuration(Site().with_settings(*settings)), *sides, advises=False).findings
    return [one for one in findings if one.name == "clicks_missing"]


def test_clicks_that_have_stopped() -> None:
    """A quarter of all would be negatives: it stands in the way, and nothing is to be set. Not where the topic of
    clicks was not read to its end, where windows are not over, or where the joiner begins later."""
    dead = site(lambda at: at > 3 * DAY)
    (one,) = found_in(dead)
    assert one.severity == "stops" and one.change.startswith("what sends clicks: no click has come since")
    assert " UTC: 1,483 of 5,950 impressions were shown then, of which about 242 would" in one.seen
    assert found_in((dead[0], replace(dead[1], cut_short=True))) == []
    assert found_in(dead, 'join.window="25h"', 'join.lateness="1h"') == []
    assert found_in(dead, 'join.start="latest"') == []


def test_clicks_that_are_missing_in_between() -> None:
    """Below a tenth it is a warning; `join.start` behind them is right then."""
    (one,) = found_in(site(lambda at: (at > DAY) & (at < DAY + 6 * HOUR)))
    assert one.severity == "warns" and "after the last of them" in one.change
    start = one.change.split(",")[0].removeprefix("join.start: ")
    assert found_in(site(lambda at: (at > DAY) & (at < DAY + 6 * HOUR)), f'join.start="{start}"') == []
    assert found_in(site(lambda at: at < 0)) == []


@pytest.mark.parametrize("each", [300, 1_500])
def test_clicks_of_a_large_topic_that_have_stopped(each: int) -> None:
    """Though the windows of the newest impressions are not over, and those that were read of the time are few. The
    figures are those of the topic. Nothing where clicks come, or where too few are missing."""
    dead = large(site(lambda at: at > 3 * DAY, 60_000, 0.03), each)
    (one,) = found_in(dead, 'join.window="10h"')
    assert one.severity == "stops" and one.change.startswith("what sends clicks: no click has come since")
    words = re.search(r": (\S+) of (\S+) impressions were shown then, of which about (\S+) would", one.seen)
    assert words is not None
    lost, of_all, clicks = (int(word.replace(",", "")) for word in words.groups())
    assert abs(lost - 8_750) < 200 and abs(of_all - 53_750) < 200 and abs(clicks - 262) < 20
    assert found_in((dead[0], replace(dead[1], cut_short=True)), 'join.window="10h"') == []
    assert found_in(dead, 'join.window="23h"') == []
    assert found_in(large(site(lambda at: at < 0, 60_000, 0.03), each), 'join.window="10h"') == []


def test_clicks_of_impressions_that_were_not_read_are_no_measure() -> None:
    """A sample that lacks most impressions of its clicks has no outage for that; one in its older block is found."""
    assert found_in(large(site(lambda at: at < 0, 60_000), 10_000)) == []
    (one,) = found_in(large(site(lambda at: (at > 8 * HOUR) & (at < 10 * HOUR), 60_000), 10_000))
    assert one.severity == "warns" and " 07:59:58 to " in one.seen and "about 199 would" in one.seen


def test_a_partition_without_clicks() -> None:
    """Told where the others have some and lie in the partitions of their impressions, and all clicks were read."""
    shown, clicks = samples(Site())
    (block,) = clicks.blocks
    lacking = replace(clicks, blocks=({**block, 1: []},))
    (one,) = found_in((shown, lacking))
    assert one.severity == "stops" and "has none in partition 1, with 2" in one.seen
    moved = replace(clicks, blocks=({1: [], 2: block[2], 3: block[1], 0: [*block[0], *block[3]]},))
    for other in (clicks, replace(lacking, cut_short=True), moved, replace(clicks, blocks=({**block, 9: []},))):
        assert found_in((shown, other)) == []


def test_an_outage_is_no_habit() -> None:
    """The hour is not proposed where clicks are missing at night."""
    settings, _ = proposed(Site(), site(lambda at: hours(at) < 8))
    assert "features.fields" not in settings
