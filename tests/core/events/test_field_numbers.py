"""The field that each feature counts under: by the specification, and by both paths of decoding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.decoders import BatchDecoder, EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.field_numbers import OTHERS, FieldNumbers, name_hash, names_by_hash
from stream_learner.core.events.plan import Plan
from stream_learner.core.machine.hashing import xxh64
from tests.core.events.decode_help import batch

SPEC = FeatureSpec.from_dict(
    {
        "exclude": ["user.secret", "late"],
        "fields": {
            "user.age": {"kind": "bucket", "edges": [18, 65], "missing": "indicator"},
            "gone": {"kind": "ignore"},
            "p": {"kind": "log"},
        },
        "categorical": ["ad"],
        "crosses": [["site", "ad"], ["site", "user.age", "tags"]],
    }
)
NAMES = (OTHERS, "user.age", "p", "ad", "site", "tags", "site x ad", "site x user.age x tags")


def test_fields_are_named_by_the_specification() -> None:
    """Each once; not those that give no features. A name stands for all below it, the longest one counts."""
    numbers = FieldNumbers(SPEC)
    assert numbers.names == NAMES
    found = {
        name: numbers.names[numbers.of(name) - 1]
        for name in ("site", "site.a.b", "sites", "user.age.x", "user", "", ".")
    }
    assert found == {
        "site": "site",
        "site.a.b": "site",
        "sites": OTHERS,
        "user.age.x": "user.age",
        "user": OTHERS,
        "": OTHERS,
        ".": OTHERS,
    }
    assert numbers.names[numbers.of(("site", "ad")) - 1] == "site x ad" and numbers.of(None) == 0
    nested = FieldNumbers(FeatureSpec(include=("user", "user.id")))
    assert [nested.names[nested.of(name) - 1] for name in ("user.id.x", "user.ids", "user")] == [
        "user.id",
        "user",
        "user",
    ]


def test_a_log_knows_fields_by_the_hashes_of_their_names() -> None:
    numbers = FieldNumbers(SPEC)
    assert numbers.hashes == (xxh64(b""), *(xxh64(name.encode()) for name in NAMES[1:]))
    assert names_by_hash(SPEC) == {name_hash(name): name for name in NAMES}
    assert names_by_hash(FeatureSpec()) == {xxh64(b""): OTHERS}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (FeatureSpec(), "no field is named"),
        (FeatureSpec(exclude=("a",)), "no field is named"),
        (FeatureSpec(include=tuple(f"f{i}" for i in range(255))), "255 fields and 0 crosses are named; 254 can"),
        (FeatureSpec(include=tuple(f"f{i}" for i in range(254)), crosses=(("f1", "f2"),)), "254 fields and 1 crosses"),
    ],
)
def test_what_cannot_be_counted_is_refused(spec: FeatureSpec, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FieldNumbers(spec)


def test_a_field_that_is_called_as_a_cross_counts_with_it() -> None:
    """And one with the empty name with the others: a log has every hash once."""
    numbers = FieldNumbers(FeatureSpec(include=("", "a x b", "a", "b"), crosses=(("a", "b"), ("b", "a"))))
    assert len({*numbers.hashes}) == len(numbers.hashes) == len(numbers.names) == 5
    assert numbers.of("a x b") == numbers.of(("a", "b")) != numbers.of(("b", "a")) == numbers.crosses[1]
    assert numbers.of("") == numbers.of("else") == 1


def test_as_many_fields_as_there_may_be_are_numbered() -> None:
    numbers = FieldNumbers(FeatureSpec(include=tuple(f"f{i}" for i in range(254))))
    assert numbers.of("f253") == 255


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The oracle's walk: the names and values of an event that are no object, list or null."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list):
        for element in value:
            yield from leaves(name, element)
    elif value is not None:
        yield name, value


def expected(event: dict[str, Any]) -> list[str | None]:
    """The oracle for SPEC and values that are distinct: under which name each feature counts, None for the bias."""
    named: list[str | None] = []
    of: dict[str, int] = {}
    for name, value in leaves("", event):
        covering = [one for one in NAMES[1:6] if name == one or name.startswith(one + ".")]
        if any(name == one or name.startswith(one + ".") for one in ("user.secret", "late", "gone")):
            continue
        if name in ("site", "ad", "user.age", "tags"):
            of[name] = of.get(name, 0) + 1
        if value != 0 or name in ("ad", "user.age"):
            named.append(max(covering, key=len) if covering else OTHERS)
    named += [] if of.get("user.age") else ["user.age"]
    named += ["site x ad"] * (of.get("site", 0) * of.get("ad", 0))
    named += ["site x user.age x tags"] * (of.get("site", 0) * of.get("user.age", 0) * of.get("tags", 0))
    return [*named, None]


COUNT = iter(range(10**9))
WORDS = st.builds(lambda: f"w{next(COUNT)}")
"""Never the same twice, so that no two features of an event are summed."""
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "site": st.one_of(WORDS, st.lists(WORDS, max_size=3)),
        "ad": st.one_of(WORDS, st.integers(1, 9), st.none()),
        "tags": st.lists(WORDS, max_size=3),
        "p": st.sampled_from([0, 1, 2.5]),
        "late": WORDS,
        "user": st.fixed_dictionaries({}, optional={"age": st.integers(1, 90), "name": WORDS, "secret": WORDS}),
        "new": st.dictionaries(st.sampled_from("xyz"), WORDS, max_size=2),
        'caf\u00e9"': WORDS,
    },
)


@settings(max_examples=80, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=6), st.booleans())
def test_every_feature_of_an_event_counts_under_its_field(events: list[dict[str, Any]], escaped: bool) -> None:
    """Known fields and new ones, events that the kernels take and those that they hand over; and the features are those
    that a decoder gives that counts nothing."""
    numbers = FieldNumbers(SPEC)
    decoder = BatchDecoder(Plan({}, SPEC, numbers=numbers))
    raws = [json.dumps(event, ensure_ascii=escaped).encode() for event in events] * 2
    data, bounds = batch(raws)
    columns = decoder.decode(data, bounds)
    plain = BatchDecoder(Plan({}, SPEC)).decode(data, bounds)
    assert columns.keys.tolist() == plain.keys.tolist() and len(plain.counted) == 0
    assert len(columns.counted) == len(columns.keys)
    for i, event in enumerate(events * 2):
        found = columns.counted[columns.row_start[i] : columns.row_start[i + 1]].tolist()
        assert [numbers.names[number - 1] if number else None for number in found] == expected(event), raws[i]


def test_features_that_are_summed_count_under_the_first_of_them() -> None:
    """By key rule 1 the number field `a=b` and the category b of `a` are one feature; zeros go with their numbers."""
    spec = FeatureSpec(include=("a", "a=b", "c"), key_rule=1, bias=False)
    numbers = FieldNumbers(spec)
    raws = [b'{"a=b":1,"c":0,"a":"b"}', b'{"a":"b","c":2,"a=b":1}'] * 3
    data, bounds = batch(raws)
    columns = BatchDecoder(Plan({}, spec, numbers=numbers)).decode(data, bounds)
    assert [numbers.names[number - 1] for number in columns.counted.tolist()] == ["a=b", "a", "c"] * 3


def test_a_batch_that_needs_more_room_keeps_its_numbers() -> None:
    """The columns grow while the kernel runs, in the middle of a batch, and are those of small batches."""
    spec = FeatureSpec(include=("a", "b"))
    decoder = ImpressionDecoder(EventSpec(), spec, FieldNumbers(spec))
    raws = [
        json.dumps({"id": str(i), "a": list(range(i % 400)), "b": [f"{i}-{j}" for j in range(i % 7)]}).encode()
        for i in range(300)
    ]
    data, bounds = batch(raws)
    whole = decoder.decode(data, bounds, np.zeros(len(raws), np.int64))
    single = []
    for raw in raws:
        data, bounds = batch([raw])
        single += decoder.decode(data, bounds, np.zeros(1, np.int64)).counted.tolist()
    assert whole.counted.tolist() == single and set(single) == {0, 2, 3}
