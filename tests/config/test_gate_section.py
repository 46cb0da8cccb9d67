"""Slices of the gate are categories among the model's features."""

from __future__ import annotations

from typing import Any

import pytest

from stream_learner.config import Config
from stream_learner.core.events.features import FeatureEncoder

BASE: dict[str, Any] = {
    "model": "m",
    "kafka": {"bootstrap.servers": "localhost:9092"},
    "input": {"impressions": {"topic": "i"}, "clicks": {"topic": "c"}},
}


def config(features: dict[str, Any], *slices: dict[str, Any]) -> Config:
    return Config.model_validate({**BASE, "features": features, "gate": {"slices": list(slices)}})


@pytest.mark.parametrize(
    ("features", "field", "value", "event"),
    [
        ({}, "site", "news", {"site": "news", "price": 3}),
        ({}, "ad.size", "tall", {"ad": {"size": "tall"}, "site": "x"}),
        ({}, "mobile", True, {"mobile": True}),
        ({"categorical": ["campaign"]}, "campaign", 7, {"campaign": 7}),
        ({"fields": {"age": {"kind": "bucket", "edges": [18, 65]}}}, "age", 30, {"age": 44}),
        ({"fields": {"at": {"kind": "hour", "zone": "Asia/Kolkata"}}}, "at", 3, {"at": 1_700_000_000}),
        (
            {"crosses": [["site", "ad"]], "fields": {"z": {"missing": "indicator"}}},
            "site",
            "a",
            {"site": "a", "ad": "b"},
        ),
    ],
)
def test_a_slice_has_the_key_that_its_value_becomes(
    features: dict[str, Any], field: str, value: Any, event: dict[str, Any]
) -> None:
    """As the encoder makes it of an event that belongs to the slice."""
    made = config(features, {"field": field, "value": value})
    ((name, key),) = made.gate_slices()
    assert name.startswith(f"{field}=")
    assert key in FeatureEncoder(made.feature_spec()).encode_one(event).keys.tolist()


@pytest.mark.parametrize(
    ("features", "field", "value"),
    [
        ({}, "price", 3),
        ({"fields": {"at": {"kind": "hour"}}}, "at", 24),
        ({"exclude": ["site"]}, "site", "news"),
        ({"fields": {"p": {"kind": "log"}}}, "p", 2),
    ],
)
def test_a_slice_that_is_no_category_is_refused(features: dict[str, Any], field: str, value: Any) -> None:
    """By its path and its name."""
    with pytest.raises(ValueError, match=rf"gate.slices: {field} with the value .* is not a category"):
        config(features, {"field": field, "value": value})


def test_unknown_bounds_cannot_be_ignored() -> None:
    """A name that was written wrong is no bound that is off."""
    with pytest.raises(ValueError, match=r"gate\.ignore"):
        Config.model_validate({**BASE, "gate": {"ignore": ["volumes"]}})
