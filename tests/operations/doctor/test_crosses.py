"""Crosses: proposed where two fields say together what they do not say apart, and nowhere else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import numpy as np
import pytest

from stream_learner.operations.doctor.clicks import with_clicks_read
from stream_learner.operations.doctor.crosses import CLICKS, GAIN, MOST, Cross, crosses_of, gain_of
from stream_learner.operations.doctor.events import side_of
from stream_learner.operations.doctor.fields import fields_of
from stream_learner.operations.doctor.ids import IdPaths
from stream_learner.operations.doctor.proposal import Proposal
from stream_learner.operations.doctor.sample import Record, TopicSample
from stream_learner.operations.doctor.times import Clock
from tests.operations.doctor.site import EPOCH_MS, Happened, Site, configuration, impression, iso
from tests.operations.doctor.test_doctor_on_samples import CLICKED, newest, report_of


def xor(one: Happened) -> dict[str, object]:
    """Two fields of which each by itself says nothing: those that are equal click, but for one in ten."""
    draw = random.Random(one.number)
    left = draw.randrange(2)
    same = (one.number in CLICKED) != (draw.random() < 0.1)
    return {"left": "ab"[left], "right": "ab"[left if same else 1 - left]}


def added(one: Happened) -> dict[str, object]:
    """Two fields of which each tells clicks by itself, and both together no more than that."""
    draw, clicked = random.Random(one.number), one.number in CLICKED
    return {name: "ab"[draw.random() < (0.7 if clicked else 0.3)] for name in ("left", "right")}


def with_fields(write: Callable[[Happened], dict[str, object]]) -> Site:
    """A site with more fields."""
    return Site().with_impressions(write=lambda one: {**impression(one), **write(one)})


def test_two_fields_that_tell_clicks_together_only() -> None:
    """They are proposed, as a comment of the first configuration; not where they are crossed already."""
    report = report_of(with_fields(xor))
    assert report.findings == []
    (cross,) = report.crosses
    assert cross.fields == ("left", "right") and cross.gain > 0.2
    proposal = Proposal()
    proposal.add_crosses(report.crosses)
    (note,) = proposal.notes
    assert "features.crosses: [[left, right]]" in note and "features.crosses" not in proposal.settings
    assert report_of(with_fields(xor).with_settings('features.crosses=[["right", "left"]]')).crosses == []
    assert report_of(with_fields(xor), clicks=newest(20)).crosses == [], "too few clicks to say so"


@pytest.mark.parametrize("write", [added, lambda one: {"left": one.number % 3, "right": one.user[-1]}])
def test_none_where_fields_say_no_more_together(write: Callable[[Happened], dict[str, object]]) -> None:
    """Strong ones that add up, and such as say nothing."""
    report = report_of(with_fields(write))
    assert (report.findings, report.crosses) == ([], [])


def test_a_cross_is_judged_by_what_it_was_not_learned_from() -> None:
    """In samples without any, of few and of many values, at rates of a few and of half, none of 240 pairs is near."""
    draw = np.random.default_rng(5)
    for clicks_share in (0.05, 0.5):
        for values in (2, 30, 400):
            for _ in range(40):
                one, other = draw.integers(0, values, (2, 2_000))
                logit = np.log(clicks_share / (1 - clicks_share)) + draw.normal(0, 1, (2, values))[
                    [[0], [1]], [one, other]
                ].sum(0)
                labels = (draw.random(2_000) < 1 / (1 + np.exp(-logit))).astype(float)
                gain, errors = gain_of(one, other, labels, np.arange(2_000) < 1_000)
                assert gain < GAIN or errors < 4
    assert MOST == 3 and CLICKS >= 100


def test_the_gain_of_a_full_cross_is_all_of_the_loss() -> None:
    """Labels that are one pair of values: apart nothing is known, together all."""
    draw = np.random.default_rng(6)
    one, other = draw.integers(0, 2, (2, 4_000))
    gain, errors = gain_of(one, other, (one ^ other).astype(float), np.arange(4_000) < 2_000)
    assert gain > 0.9 and errors > 50


Draw = Callable[[random.Random, float], tuple[int, int, float]]
"""A campaign, a coin and the probability of a click, by the share of the stream that is over."""
PARTITIONS, EACH, SHOWN = 4, 400, 6_000
"""Of a sample of 3,200 records about 220 are clicked."""


def hot_campaign(draw: random.Random, over: float) -> tuple[int, int, float]:
    """7 % in the mean: one campaign of eight has ten times the rate of the others."""
    campaign = draw.randrange(8)
    return campaign, draw.randrange(2), 0.35 if campaign == 0 else 0.035


def real_cross(draw: random.Random, over: float) -> tuple[int, int, float]:
    """7 % in the mean: each campaign clicks with its own side of the coin."""
    campaign, coin = draw.randrange(8), draw.randrange(2)
    return campaign, coin, 0.13 if campaign % 2 == coin else 0.01


def sampled_crosses(world: Draw, seed: int) -> list[Cross]:
    """The crosses of topics of which `read_samples` would read a part: of each partition the newest records, and as
    many impressions from the moment on at which the clicks begin."""
    draw = random.Random(seed)
    shown: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    clicked: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    for n in range(SHOWN):
        at_ms, partition = EPOCH_MS + 200 * n, draw.randrange(PARTITIONS)
        campaign, coin, p_click = world(draw, n / SHOWN)
        event = {"imp": {"id": f"i{n}"}, "ts": iso(at_ms), "campaign": f"c{campaign}", "coin": "ab"[coin]}
        shown[partition].append(Record(partition, n, at_ms, b"", json.dumps(event).encode()))
        if draw.random() < p_click:
            click_ms = at_ms + int(draw.expovariate(1 / 2_000))
            event = {"ref": {"impression_id": f"i{n}"}, "at": click_ms / 1000}
            clicked[partition].append(Record(partition, n, click_ms, b"", json.dumps(event).encode()))
    newest_clicks = {partition: records[-2 * EACH :] for partition, records in clicked.items()}
    begin_ms = max(records[0].time_ms for records in newest_clicks.values())
    newest = {partition: records[-EACH:] for partition, records in shown.items()}
    older = {
        partition: [one for one in records[:-EACH] if one.time_ms >= begin_ms][:EACH]
        for partition, records in shown.items()
    }
    impressions = side_of("impressions", TopicSample("", PARTITIONS, (newest, older), False, SHOWN, None))
    clicks = side_of("clicks", TopicSample("", PARTITIONS, (newest_clicks,), False, SHOWN, None))
    pairs = IdPaths("imp.id", "ref.impression_id").pairs(impressions.events, clicks.events)
    judged = with_clicks_read(impressions, pairs, Clock("ts", "auto"))
    assert len(judged) > 3_000 and len(pairs) > 2 * CLICKS
    config = configuration(Site())
    plan = config.event_specs()[0].impression_plan(config.feature_spec())
    return crosses_of(judged, pairs, fields_of(impressions), plan, ())


def test_a_coin_is_never_worth_a_try() -> None:
    """Nothing in twenty samples beside a value that clicks far more than the others."""
    assert [sampled_crosses(hot_campaign, seed) for seed in range(20)] == [[]] * 20


def test_a_burst_is_no_cross() -> None:
    """A robot clicks on one pair of values for a while: that says nothing of another time."""
    by_halves, by_parity, count = [], [], 20_000
    for seed in range(20):
        draw = np.random.default_rng(seed)
        campaign, coin = draw.integers(0, 8, count), draw.integers(0, 2, count)
        labels = (draw.random(count) < 0.07).astype(float)
        campaign[17_000:17_400] = coin[17_000:17_400] = labels[17_000:17_400] = 1
        by_halves.append(gain_of(campaign, coin, labels, np.arange(count) < count // 2)[0])
        by_parity.append(gain_of(campaign, coin, labels, np.arange(count) % 2 == 1)[0])
    assert max(by_halves) < GAIN < np.mean(by_parity)


def test_a_real_cross_is_found_in_a_sample() -> None:
    """Of as many clicks as the samples of a coin have."""
    for seed in range(5):
        (cross,) = sampled_crosses(real_cross, seed)
        assert {*cross.fields} == {"campaign", "coin"} and 0.02 < cross.gain < 0.3
