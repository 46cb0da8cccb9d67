"""Fingerprints of specifications: another one for what is decoded otherwise, the same for the same in other words.

That a setting changes decoding is not only said here: for each there is an event that it decodes otherwise.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.decoders import ClickDecoder, EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_keys import KEY_RULES
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec, FieldSpec
from tests.core.events import decode_help

Columns = list[list[Any]]

BASE = FeatureSpec(
    fields={"a": FieldSpec("log", missing="indicator"), "b": FieldSpec("bucket", (0.0, 1.0), "indicator")},
    crosses=(("a", "c"), ("b", "c")),
)
OTHER_FEATURES: dict[str, tuple[FeatureSpec, dict[str, Any]]] = {
    "include": (replace(BASE, include=("a", "b", "c")), {"d": 1}),
    "exclude": (replace(BASE, exclude=("d",)), {"d": 1}),
    "indicators": (replace(BASE, fields=dict(reversed(BASE.fields.items()))), {}),
    "crosses": (replace(BASE, crosses=BASE.crosses[::-1]), {"a": 3, "b": 0.5, "c": 1}),
    "bias": (replace(BASE, bias=False), {}),
    "max_features": (replace(BASE, max_features=3), {"d": [1, 2, 3, 4]}),
    "max_value_bytes": (replace(BASE, max_value_bytes=3), {"d": "long"}),
    "key_rule": (replace(BASE, key_rule=1), {"d=": 1}),
    "fields.a": (replace(BASE, fields={**BASE.fields, "a": FieldSpec("auto", missing="indicator")}), {"a": 3}),
    "fields.b": (replace(BASE, fields={**BASE.fields, "b": FieldSpec("bucket", (0.0, 2.0), "indicator")}), {"b": 1.5}),
    "fields.c": (replace(BASE, categorical=("c",)), {"c": 7}),
    "fields.d": (replace(BASE, fields={**BASE.fields, "d": FieldSpec("number")}), {"d": 7}),
}
"""By the one setting that differs from BASE: the specification, and an event with other features by it."""

SAME_FEATURES = {
    "bounds written out": replace(BASE, max_features=1_000, max_value_bytes=4_096, bias=True, key_rule=3),
    "a field's defaults": replace(BASE, fields={**BASE.fields, "d": FieldSpec()}),
    "edges as whole numbers": replace(BASE, fields={**BASE.fields, "b": FieldSpec("bucket", (-0.0, 1), "indicator")}),
    "fields without indicators elsewhere": replace(BASE, fields={"z": FieldSpec(), **BASE.fields}),
}

EVENT = EventSpec(id="i", time="t", weight="w", value="v", max_weight=10.0)
NOW_MS = 1_700_000_000_000
WHOLE = {"i": "x", "t": NOW_MS, "w": 2, "v": 0.5}
OTHER_EVENTS: dict[str, tuple[EventSpec, dict[str, Any]]] = {
    "id": (replace(EVENT, id="j"), {**WHOLE, "j": "y"}),
    "time": (replace(EVENT, time="u"), {**WHOLE, "u": 5}),
    "time_unit": (replace(EVENT, time_unit="us"), WHOLE),
    "weight": (replace(EVENT, weight="x"), WHOLE),
    "value": (replace(EVENT, value="x"), WHOLE),
    "max_event_bytes": (replace(EVENT, max_event_bytes=20), WHOLE),
    "max_skew_ms": (replace(EVENT, max_skew_ms=0), {**WHOLE, "t": NOW_MS + 1}),
    "max_weight": (replace(EVENT, max_weight=1.0), WHOLE),
}


def features_of(spec: FeatureSpec, event: dict[str, Any]) -> Columns:
    """An event's columns by a specification."""
    found = FeatureEncoder(spec).encode([event])
    return [column.tolist() for column in (found.status, found.keys, found.values)]


def read(spec: EventSpec, event: dict[str, Any]) -> Columns:
    """The result of decoding an impression and a click with these fields."""
    data, bounds = decode_help.batch([json.dumps(event).encode()])
    times = np.array([NOW_MS])
    shown = ImpressionDecoder(spec, FeatureSpec()).decode(data, bounds, times)
    clicked = ClickDecoder(spec).decode(data, bounds, times)
    columns = (shown.status, shown.time_ms, shown.id_hash, shown.weight, clicked.status, clicked.id_hash, clicked.value)
    return [column.tolist() for column in columns]


@pytest.mark.parametrize("name", OTHER_FEATURES)
def test_a_setting_that_changes_features_changes_the_fingerprint(name: str) -> None:
    """The fingerprint changes, and only this setting is named as different."""
    other, event = OTHER_FEATURES[name]
    assert features_of(BASE, event) != features_of(other, event)
    assert other.fingerprint != BASE.fingerprint
    assert other.differences(BASE) == BASE.differences(other) == [name]


def test_every_setting_of_features_is_tried() -> None:
    """A new setting needs a line above."""
    tried = {name.split(".")[0] for name in OTHER_FEATURES} | {"categorical"}
    assert tried == {*FeatureSpec.__dataclass_fields__, "indicators"}


def test_no_two_of_them_have_the_same_fingerprint() -> None:
    """Nor do two other specifications of features or events."""
    specs: list[FeatureSpec | EventSpec] = [BASE, FeatureSpec(), EVENT, EventSpec()]
    specs += [other for other, _ in OTHER_FEATURES.values()] + [other for other, _ in OTHER_EVENTS.values()]
    assert len({spec.fingerprint for spec in specs}) == len(specs)


@pytest.mark.parametrize("words", SAME_FEATURES)
def test_the_same_features_in_other_words_have_the_same_fingerprint(words: str) -> None:
    """Defaults spelled out, above all."""
    assert SAME_FEATURES[words].fingerprint == BASE.fingerprint
    assert SAME_FEATURES[words].differences(BASE) == []


def test_lists_without_order_have_none_in_the_fingerprint() -> None:
    """Nor have repeats, names below others, and the two ways to leave a field out and to make it a category."""
    for one, other in (
        (FeatureSpec(include=("a", "b")), FeatureSpec(include=("b", "a.x", "a", "b"))),
        (FeatureSpec(exclude=("a", "b")), FeatureSpec(exclude=("b",), fields={"a": FieldSpec("ignore")})),
        (FeatureSpec(categorical=("a", "b")), FeatureSpec(categorical=("b",), fields={"a": FieldSpec("category")})),
        (FeatureSpec(key_rule=2), FeatureSpec(fields={"a": FieldSpec("number")}, key_rule=2)),
    ):
        assert one.fingerprint == other.fingerprint
        assert one.differences(other) == []


names = st.sampled_from(["a", "b", "a.b", "c"])
field_specs = st.sampled_from(
    [FieldSpec(), FieldSpec("number"), FieldSpec("category"), FieldSpec("log", missing="indicator")]
)
some = st.builds(
    FeatureSpec,
    fields=st.dictionaries(names, field_specs, max_size=3),
    bias=st.booleans(),
    key_rule=st.sampled_from(KEY_RULES),
)
values = st.recursive(
    st.one_of(st.integers(0, 3), st.sampled_from(["x", 0.5, None])),
    lambda inner: st.dictionaries(st.sampled_from(["b", "="]), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=200, deadline=None)
@given(some, some, st.lists(st.dictionaries(names, values, max_size=4), min_size=1, max_size=3))
def test_equal_fingerprints_decode_alike(one: FeatureSpec, other: FeatureSpec, events: list[dict[str, Any]]) -> None:
    """Where any event tells two specifications apart, so do their fingerprints; and they agree with what differs."""
    assert (one.fingerprint == other.fingerprint) == (one.differences(other) == [])
    if one.fingerprint == other.fingerprint:
        for event in events:
            assert features_of(one, event) == features_of(other, event)


@settings(max_examples=100, deadline=None)
@given(some)
def test_a_published_specification_has_the_same_fingerprint(spec: FeatureSpec) -> None:
    """The form in the model record says all that decides features."""
    again = FeatureSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again.fingerprint == spec.fingerprint


@pytest.mark.parametrize("name", OTHER_EVENTS)
def test_a_setting_that_changes_what_is_read_changes_the_fingerprint(name: str) -> None:
    """The fingerprint changes, and only this setting is named as different."""
    other, event = OTHER_EVENTS[name]
    assert read(EVENT, event) != read(other, event)
    assert other.fingerprint != EVENT.fingerprint
    assert other.differences(EVENT) == EVENT.differences(other) == [name]


def test_every_setting_of_events_is_tried() -> None:
    """A new setting needs a line above; the format is the decoder's."""
    assert {*OTHER_EVENTS, "format"} == {*EventSpec.__dataclass_fields__}
    other = replace(EVENT, format="avro")
    assert other.fingerprint != EVENT.fingerprint
    assert other.differences(EVENT) == EVENT.differences(other) == ["format"]


def test_settings_without_use_do_not_change_the_fingerprint() -> None:
    """Defaults spelled out, the unit of a time that is not read, the limit of a weight that is not."""
    plain = EventSpec()
    for same in (
        EventSpec("id", None, "ms", None, None, 1 << 20, 60_000, float("inf")),
        EventSpec(time_unit="s", max_skew_ms=5),
        EventSpec(max_weight=2),
    ):
        assert same.fingerprint == plain.fingerprint
        assert same.differences(plain) == []
    assert replace(EVENT, max_weight=10).fingerprint == EVENT.fingerprint


def test_a_fingerprint_is_the_hash_of_a_text_that_does_not_change() -> None:
    """Marks hold fingerprints for ever: another text needs another version at its beginning."""
    text = (
        'features 1: {"bias":true,"crosses":[["a","c"],["b","c"]],"exclude":[],"fields":{"a":["log"],'
        '"b":["bucket",0.0,1.0]},"include":[],"indicators":["a","b"],"key_rule":2,"max_features":1000,'
        '"max_value_bytes":4096}'
    )
    assert replace(BASE, key_rule=2).fingerprint == xxhash.xxh64_intdigest(text.encode())
    assert BASE.fingerprint == xxhash.xxh64_intdigest(text.replace('"key_rule":2', '"key_rule":3').encode())
    text = (
        'events 1: {"id":"i","max_event_bytes":1048576,"max_skew_ms":60000,"max_weight":"10.0","time":"t",'
        '"time_unit":"ms","value":"v","weight":"w"}'
    )
    assert EVENT.fingerprint == xxhash.xxh64_intdigest(text.encode())


def test_the_rule_of_a_log_is_found_by_its_fingerprint() -> None:
    """Where nothing but the rule differs."""
    for rule in KEY_RULES:
        assert BASE.rule_of(replace(BASE, key_rule=rule).fingerprint) == rule
    assert BASE.rule_of(replace(BASE, bias=False, key_rule=2).fingerprint) is None


def test_fingerprints_of_all_pairs_agree_with_their_differences() -> None:
    """Two specifications differ in a setting if and only if their fingerprints do."""
    features = [BASE, *(other for other, _ in OTHER_FEATURES.values()), *SAME_FEATURES.values()]
    for one, other in combinations(features, 2):
        assert (one.fingerprint == other.fingerprint) == (not one.differences(other))
