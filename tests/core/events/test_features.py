"""Features: their table in `features`, the order of a row, limits, refused specifications, and names of keys."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.features import EncodedRows, FeatureEncoder, FeatureSpec, FieldSpec, names_of_keys
from stream_learner.core.events.reasons import Reason
from tests.core.events import decode_help
from tests.oracles import feature_rows

SPECS: list[dict[str, Any]] = [
    {},
    {"categorical": ["a", "d.e"], "bias": False},
    {"include": ["a", "d"], "exclude": ["d.a"]},
    {
        "fields": {
            "b": {"kind": "log", "missing": "indicator"},
            "a": {"kind": "bucket", "edges": [-1.5, 0, 2], "missing": "indicator"},
            "c": {"kind": "ignore"},
            "d.e": {"kind": "category", "missing": "indicator"},
        },
        "crosses": [["a", "b"], ["d.e", "a", "b"], ["b", "b"]],
    },
    {"key_rule": 2},
    {"key_rule": 3},
    {
        "categorical": ["d=.e"],
        "fields": {
            "": {"kind": "bucket", "edges": [0, 2], "missing": "indicator"},
            "a\\": {"kind": "log", "missing": "indicator"},
            "a:missing": {"missing": "indicator"},
        },
        "crosses": [["", "a\\"], ["d=.e", "a:missing"]],
        "key_rule": 2,
    },
    {
        "categorical": ["d=.e"],
        "fields": {"a": {"missing": "indicator"}, "b": {"kind": "number"}, "": {"kind": "log"}},
        "crosses": [["a", "b"], ["e", "d=.e"], ["a", "a"]],
        "key_rule": 3,
    },
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-20, 20),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(-1e150, 1e150),
    st.sampled_from(["", "x", "y", "é", "a=b", "日本", "longer than thirty-two bytes together"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "e", "="]), v, max_size=3),
    max_leaves=6,
)
NAMES = ["a", "b", "c", "d", "d.e", "e", "", "d=", "a=b", "a:missing", "a\\", "="]
EVENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


def encode(spec: FeatureSpec, *events: dict[str, Any]) -> EncodedRows:
    """Events written by the standard library, encoded."""
    data, bounds = decode_help.batch([json.dumps(event).encode() for event in events])
    return FeatureEncoder(spec).encode_json(data, bounds)


def row(rows: EncodedRows, i: int) -> tuple[list[int], list[float]]:
    """Keys and values of a row."""
    first, last = rows.row_start[i], rows.row_start[i + 1]
    return rows.keys[first:last].tolist(), rows.values[first:last].tolist()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SPECS), st.lists(EVENTS, min_size=1, max_size=4))
def test_rows_are_those_of_the_table(spec: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Any events, twice (the second time by the kernel), against the oracle written from the table."""
    rows = encode(FeatureSpec.from_dict(spec), *events, *events)
    for i, event in enumerate([*events, *events]):
        if rows.status[i] == Reason.OK:
            assert row(rows, i) == feature_rows.row(feature_rows.parse(json.dumps(event).encode()), spec)
        else:
            assert rows.status[i] == Reason.NOT_FINITE
            assert row(rows, i) == ([], [])


@settings(max_examples=50, deadline=None)
@given(st.lists(EVENTS, max_size=4))
def test_dictionaries_give_the_features_of_their_json(events: list[dict[str, Any]]) -> None:
    """encode agrees with encode_json."""
    spec = FeatureSpec.from_dict(SPECS[3])
    from_dicts, from_json = FeatureEncoder(spec).encode(events), encode(spec, *events)
    assert from_dicts.status.tolist() == from_json.status.tolist()
    assert from_dicts.keys.tolist() == from_json.keys.tolist()
    assert from_dicts.values.tolist() == from_json.values.tolist()


def test_dictionaries_may_hold_numpy_values() -> None:
    """NumPy scalars and arrays are numbers and lists; NaN is as null."""
    encoder = FeatureEncoder(FeatureSpec(fields={"x": FieldSpec(missing="indicator")}, key_rule=2))
    rows = encoder.encode([{"a": np.float64(2.5), "b": np.array([1, 2]), "x": float("nan")}])
    assert row(rows, 0)[0] == [feature_rows.h(text) for text in ("a", "b", "x:missing", "")]
    assert row(rows, 0)[1] == [2.5, 3.0, 1.0, 1.0]


def test_a_dictionary_without_json_is_named() -> None:
    """What JSON has no form for raises with the event's position."""
    with pytest.raises(TypeError, match="event 1:"):
        FeatureEncoder(FeatureSpec()).encode([{}, {"a": object()}])


def test_no_event_and_empty_events() -> None:
    """No events give no rows; an event without fields has the bias."""
    encoder = FeatureEncoder(FeatureSpec())
    assert len(encoder.encode([])) == 0
    assert row(encoder.encode([{}]), 0) == ([feature_rows.h("")], [1.0])


def test_ignored_fields_are_no_features() -> None:
    """The paths of id and time, and all below them, are left out."""
    encoder = FeatureEncoder(FeatureSpec(bias=False), ("id", "at.time"))
    rows = encoder.encode([{"id": {"x": 1}, "at": {"time": 3, "zone": "x"}, "id2": 1}])
    assert row(rows, 0)[0] == [feature_rows.h("at.zone=x"), feature_rows.h("id2=b2046")]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"a": [1, 2, 3, 4, 5]}, Reason.OK),
        ({"a": [1, 2, 3, 4, 5, 6]}, Reason.TOO_MANY_FEATURES),
        ({"a": ["x"] * 6}, Reason.TOO_MANY_FEATURES),
        ({"a": [1, 2], "b": [1, 2]}, Reason.TOO_MANY_FEATURES),
        ({"a": [1], "b": [1, 2]}, Reason.OK),
        ({"a": "é" * 8}, Reason.OK),
        ({"a": "é" * 8 + "x"}, Reason.VALUE_TOO_LONG),
        ({"c": {"n" * 14: 1}}, Reason.OK),
        ({"c": {"n" * 15: 1}}, Reason.VALUE_TOO_LONG),
        ({"skip": "x" * 99, "a": 1}, Reason.OK),
        ({"a": [1e308, 1e308]}, Reason.NOT_FINITE),
        ({"a": 1e200, "b": 1e200}, Reason.NOT_FINITE),
    ],
)
def test_limits(event: dict[str, Any], reason: Reason) -> None:
    """Counts before repeats are summed, lengths in bytes, sums and products that leave the floats."""
    spec = FeatureSpec(max_features=5, max_value_bytes=16, crosses=(("a", "b"),), exclude=("skip",), key_rule=2)
    rows = encode(spec, {"a": 1, "b": 2, "c": {}, "skip": 1}, event, event)
    assert rows.status.tolist() == [Reason.OK, reason, reason]


def test_repeats_are_summed_at_the_first_and_zeros_dropped() -> None:
    """Lists with repeats, and numbers that cancel out."""
    event = {"t": ["x", "y", "x"], "n": [1, -1], "z": 0, "m": [1, 2]}
    rows = encode(FeatureSpec(bias=False, key_rule=2), event, event)
    expected = [feature_rows.h(text) for text in ("t=x", "t=y", "m")], [2.0, 1.0, 3.0]
    assert row(rows, 0) == expected
    assert row(rows, 1) == expected


def test_a_specification_survives_json() -> None:
    """to_dict is JSON and from_dict its inverse, the order of fields included."""
    spec = FeatureSpec.from_dict(SPECS[3])
    again = FeatureSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert list(again.fields) == ["b", "a", "c", "d.e"]
    assert hash(again) == hash(spec)
    newest = FeatureSpec(include=("a",))
    assert FeatureSpec.from_dict(json.loads(json.dumps(newest.to_dict()))) == newest


def test_a_specification_without_a_rule_of_keys_is_of_the_first() -> None:
    """Models published before there was a second have none, and are published without one as they go on."""
    old = FeatureSpec().to_dict()
    assert old.pop("key_rule") == 3
    assert FeatureSpec.from_dict(old) == FeatureSpec(key_rule=1)
    assert FeatureSpec.from_dict(old).to_dict() == old


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"fields": {"a": {"kind": "word"}}}, "field 'a': kind must be one of"),
        ({"fields": {"a": {"kind": "bucket"}}}, "field 'a': kind bucket needs edges"),
        ({"fields": {"a": {"kind": "bucket", "edges": [1, 1]}}}, "field 'a': edges must be strictly increasing"),
        ({"fields": {"a": {"kind": "bucket", "edges": [float("inf")]}}}, "field 'a': edges must be finite"),
        ({"fields": {"a": {"edges": [1]}}}, "field 'a': edges belong to kind bucket"),
        ({"fields": {"a": {"missing": "zero"}}}, "field 'a': missing must be one of"),
        ({"fields": {"a": {"kind": "ignore", "missing": "indicator"}}}, "field 'a': an ignored field"),
        ({"fields": {"a": {"knd": "log"}}}, "field 'a': unknown setting 'knd'"),
        ({"fields": {"a": 3}}, "field 'a': settings must be a mapping"),
        ({"fields": {"a": {"kind": "log"}}, "exclude": ["a"]}, "field 'a' has settings but is not taken"),
        ({"fields": {"a": {"kind": "log"}}, "categorical": ["a"]}, "field 'a' is listed as categorical but"),
        ({"categorical": ["a"], "include": ["b"]}, "field 'a' is categorical but is not taken"),
        ({"categorical": "a"}, "categorical must be a list of names"),
        ({"crosses": [["a"]]}, "cross 'a': a cross needs two fields"),
        ({"crosses": ["ab"]}, "cross 'ab': a cross is a list"),
        ({"crosses": [["a", "b.c"]], "exclude": ["b"]}, "cross 'a' x 'b.c': field 'b.c' is not taken"),
        ({"crosses": [["a", "b"], ["a", "b"]]}, "listed twice"),
        ({"include": ["\ud800"]}, "not valid Unicode"),
        ({"max_features": 0}, "max_features must be a whole number from 1"),
        ({"max_value_bytes": True}, "max_value_bytes must be a whole number from 1"),
        ({"key_rule": 4}, "key_rule must be one of 1, 2, 3, not 4"),
        ({"key_rule": True}, "key_rule must be one of 1, 2, 3, not True"),
        ({"fuatures": 1}, "unknown setting 'fuatures'"),
    ],
)
def test_a_specification_that_cannot_work_is_refused(settings_: dict[str, Any], message: str) -> None:
    """The message names the field."""
    with pytest.raises(ValueError, match=message):
        FeatureSpec.from_dict(settings_)


def test_a_specification_may_not_use_the_events_own_fields() -> None:
    """Crosses and settings of the id's or time's field are refused where both specifications meet."""
    for spec in (FeatureSpec(crosses=(("id", "a"),)), FeatureSpec(categorical=("id",))):
        with pytest.raises(ValueError, match="field 'id' is the event's id, time, weight or value"):
            FeatureEncoder(spec, ("id",))


NAMED_EVENT = {
    "site": "news",
    "user": {"level": 3, "new": True},
    "price": 2.5,
    "hour": 7,
    "tags": ["a", "b"],
    "age": None,
    "width": 360,
    "share": 0.25,
}
NAMED_SPEC = FeatureSpec(
    fields={
        "hour": FieldSpec("bucket", (6.0, 12.0)),
        "price": FieldSpec("log"),
        "age": FieldSpec(missing="indicator"),
        "share": FieldSpec("number"),
    },
    categorical=("user.level",),
    crosses=(("site", "tags"),),
    bias=False,
)


def test_every_key_of_an_event_has_its_name() -> None:
    """Categories, numbers, buckets, elements of lists, indicators and crosses, in the order of the keys."""
    text = orjson.dumps(NAMED_EVENT)
    keys = FeatureEncoder(NAMED_SPEC).encode_one(text).keys.tolist()
    assert len(keys) == 12
    expected = ["site", "user.level", "user.new", "price", "hour", "tags", "width", "share", "age", "site x tags"]
    assert names_of_keys(keys, text, NAMED_SPEC) == expected
    for key, name in zip(keys[:5], expected, strict=False):
        assert names_of_keys([key], text, NAMED_SPEC) == [name]


def test_names_that_are_escaped_in_keys_are_shown_as_they_are() -> None:
    """By rule 2 each feature of its own name, though rule 1 would take them for one."""
    text = b'{"a=b":1,"a":"b","price:missing":2,"\\\\":3}'
    spec = FeatureSpec(fields={"price": FieldSpec(missing="indicator")}, bias=False)
    keys = FeatureEncoder(spec).encode_one(text).keys.tolist()
    assert [names_of_keys([key], text, spec) for key in keys] == [["a=b"], ["a"], ["price:missing"], ["\\"], ["price"]]


@pytest.mark.parametrize("event", [b'{"site":"other"}', b"not JSON", b"[]"])
def test_a_key_that_the_event_does_not_explain_is_shown_as_it_is(event: bytes) -> None:
    """The key is shown even if the bytes are no event at all."""
    assert names_of_keys([0xABC], event, FeatureSpec()) == ["0x0000000000000abc"]
