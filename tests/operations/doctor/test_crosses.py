"""Crosses: proposed where two fields say together what they do not say apart, and nowhere else."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from stream_learner.operations.doctor.crosses import CLICKS, GAIN, MOST, gain_of
from stream_learner.operations.doctor.proposal import Proposal
from tests.operations.doctor.site import Happened, Site, impression
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
                gain, errors = gain_of(one, other, labels)
                assert gain < GAIN or errors < 4
    assert MOST == 3 and CLICKS >= 100


def test_the_gain_of_a_full_cross_is_all_of_the_loss() -> None:
    """Labels that are one pair of values: apart nothing is known, together all."""
    draw = np.random.default_rng(6)
    one, other = draw.integers(0, 2, (2, 4_000))
    gain, errors = gain_of(one, other, (one ^ other).astype(float))
    assert gain > 0.9 and errors > 50
