"""Names of keys: every kind of feature is found again in the event that it was made from."""

from __future__ import annotations

import orjson
import pytest

from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.features import FeatureEncoder, names_of_keys

EVENT = {
    "site": "news",
    "user": {"level": 3, "new": True},
    "price": 2.5,
    "hour": 7,
    "tags": ["a", "b"],
    "age": None,
}
SPEC = FeatureSpec(
    fields={
        "hour": FieldSpec("bucket", (6.0, 12.0)),
        "price": FieldSpec("log"),
        "age": FieldSpec(missing="indicator"),
    },
    categorical=("user.level",),
    crosses=(("site", "tags"),),
    bias=False,
)


def test_every_key_of_an_event_has_its_name() -> None:
    """Categories, numbers, buckets, elements of lists, indicators and crosses, in the order of the keys."""
    text = orjson.dumps(EVENT)
    keys = FeatureEncoder(SPEC).encode_one(text).keys.tolist()
    assert len(keys) == 10
    expected = ["site", "user.level", "user.new", "price", "hour", "tags", "age", "site x tags"]
    assert names_of_keys(keys, text, SPEC) == expected
    for key, name in zip(keys[:5], expected, strict=False):
        assert names_of_keys([key], text, SPEC) == [name]


def test_names_that_are_escaped_in_keys_are_shown_as_they_are() -> None:
    """By rule 2 each feature of its own name, though rule 1 would take them for one."""
    text = b'{"a=b":1,"a":"b","price:missing":2,"\\\\":3}'
    spec = FeatureSpec(fields={"price": FieldSpec(missing="indicator")}, bias=False)
    keys = FeatureEncoder(spec).encode_one(text).keys.tolist()
    assert [names_of_keys([key], text, spec) for key in keys] == [["a=b"], ["a"], ["price:missing"], ["\\"], ["price"]]


@pytest.mark.parametrize("event", [b'{"site":"other"}', b"not JSON", b"[]"])
def test_a_key_that_the_event_does_not_explain_is_shown_as_it_is(event: bytes) -> None:
    """Also where the bytes are no event at all."""
    assert names_of_keys([0xABC], event, FeatureSpec()) == ["0x0000000000000abc"]
