"""Keys of features: different things differ, by what a user calls different; and what each rule promises."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_learner.core.events.feature_keys import (
    KEY_RULES,
    NEWEST_RULE,
    SIZE_RULE,
    longest_text,
    name_in_keys,
    size_text,
)
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec, FieldSpec
from tests.core.events import decode_help
from tests.oracles import feature_rows

Thing = tuple[str, str, str]
"""A feature as users name it: its kind (number, category, missing, bias), the field, the text of a category."""

BIAS: Thing = ("bias", "", "")
PIECES = ["a", "=", "\\", ":", ":missing", ".", "e", "b0", "é"]
"""Pieces of names and texts: characters that texts of keys use, characters that escaping may use, ordinary letters."""

NAMES = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
THINGS = st.one_of(
    st.just(BIAS),
    st.tuples(st.just("number"), NAMES, st.just("")),
    st.tuples(st.just("missing"), NAMES, st.just("")),
    st.tuples(st.just("category"), NAMES, NAMES),
)
ORDINARY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="=\\"), min_size=1, max_size=40).filter(
    lambda name: not name.endswith(":missing")
)


def words(most: int) -> list[str]:
    """All names of up to so many pieces, each once."""
    return sorted({"".join(parts) for size in range(most + 1) for parts in product(PIECES, repeat=size)})


def keys_of(events: Sequence[dict[str, Any]], spec: FeatureSpec) -> list[int]:
    """The one key of each event; each is decoded twice, at first plainly and then by the kernels if they can."""
    raws = [json.dumps(event).encode() for event in events]
    encoder = FeatureEncoder(spec)
    first, again = (encoder.encode_json(*decode_help.batch(raws)) for _ in range(2))
    assert first.keys.tolist() == again.keys.tolist()
    assert len(first.keys) == len(events)
    return first.keys.tolist()


def keys_of_things(things: Iterable[Thing], rule: int) -> dict[Thing, int]:
    """The key of each thing, as events with it alone have it."""
    found: dict[str, dict[Thing, dict[str, Any]]] = defaultdict(dict)
    for thing in things:
        kind, name, text = thing
        found[kind][thing] = {name: 1} if kind == "number" else {name: text} if kind == "category" else {}
    keys = {}
    for kind in ("number", "category"):
        keys.update(zip(found[kind], keys_of(list(found[kind].values()), plain(rule)), strict=True))
    for thing in found["missing"]:
        asked = FeatureSpec(fields={thing[1]: FieldSpec(missing="indicator")}, bias=False, key_rule=rule)
        (keys[thing],) = FeatureEncoder(asked).encode([{}]).keys.tolist()
    if BIAS in found["bias"]:
        (keys[BIAS],) = FeatureEncoder(FeatureSpec(key_rule=rule)).encode([{}]).keys.tolist()
    return keys


def plain(rule: int, **more: Any) -> FeatureSpec:
    """A specification without the bias, which would be in every row."""
    return FeatureSpec(bias=False, key_rule=rule, **more)


def shared(keys: dict[Thing, int]) -> set[frozenset[Thing]]:
    """The things that have a key together."""
    things = defaultdict(set)
    for thing, key in keys.items():
        things[key].add(thing)
    return {frozenset(some) for some in things.values() if len(some) > 1}


def all_things(most: int) -> list[Thing]:
    """Every thing of names and texts of up to so many pieces, `most` in all for a category."""
    names = words(most)
    short = [words(size) for size in range(most + 1)]
    categories = {(name, text) for size in range(most + 1) for name in short[size] for text in short[most - size]}
    return [
        BIAS,
        *(("number", name, "") for name in names),
        *(("missing", name, "") for name in words(most - 1)),
        *(("category", name, text) for name, text in sorted(categories)),
    ]


@pytest.mark.parametrize("rule", [2, 3])
def test_no_two_things_share_a_key(rule: int) -> None:
    """All things of up to three of the pieces that texts of keys are made of, or are escaped with: each has its own."""
    assert shared(keys_of_things(all_things(3), rule)) == set()


def test_rule_1_is_what_it_was_with_the_keys_that_things_share() -> None:
    """The test above finds what rule 1 confuses: it could not pass by missing it."""
    together = shared(keys_of_things(all_things(2), rule=1))
    for pair in (
        {BIAS, ("number", "", "")},
        {("number", "a=", ""), ("category", "a", "")},
        {("number", ":missing", ""), ("missing", "", "")},
        {("missing", "=", ""), ("category", "", ":missing")},
    ):
        assert any(pair <= things for things in together), pair


@settings(max_examples=300, deadline=None)
@given(THINGS, THINGS)
@example(("number", "", ""), BIAS)
@example(("number", "a=b", ""), ("category", "a", "b"))
@example(("number", "a:missing", ""), ("missing", "a", ""))
@example(("number", "\\e", ""), ("number", "", ""))
@example(("missing", "a\\", ""), ("number", "a\\:missing", ""))
@example(("category", "a\\", "b"), ("number", "a\\=b", ""))
@example(("category", "a", "b=c"), ("category", "a=b", "c"))
def test_two_things_share_a_key_only_if_they_are_one(one: Thing, other: Thing) -> None:
    """Longer names and texts than all of them can be tried."""
    keys = keys_of_things([one, other], rule=NEWEST_RULE)
    assert (keys[one] == keys[other]) == (one == other)


@settings(deadline=None)
@given(ORDINARY)
def test_ordinary_names_have_the_key_they_always_had(name: str) -> None:
    """A name that is not empty, has neither = nor a backslash, and does not end in :missing is as it is by both."""
    assert name_in_keys(name, 3) == name_in_keys(name, 2) == name_in_keys(name, 1) == name


@settings(deadline=None)
@given(st.text(st.sampled_from("a=\\:missing.e"), max_size=30), st.text(max_size=30))
def test_a_text_is_no_longer_than_the_room_for_it(name: str, text: str) -> None:
    """The kernels put name and text side by side in scratch space of this size."""
    longest = max(1, len(name.encode()), len(text.encode()))
    assert len(f"{name_in_keys(name, 2)}={text}".encode()) <= longest_text(longest)


@pytest.mark.parametrize("rule", KEY_RULES)
def test_long_names_and_texts_of_the_longest_kind(rule: int) -> None:
    """A name of nothing but =, and a text, of as many bytes as there may be: the kernels agree with the oracle."""
    form = {"max_value_bytes": 99, "bias": False, "key_rule": rule}
    spec = FeatureSpec.from_dict(form)
    events = [{"=" * size: "x" * 99} for size in range(100)]
    assert keys_of(events, spec) == [feature_rows.row(event, form)[0][0] for event in events]


@pytest.mark.parametrize("rule", KEY_RULES)
def test_what_is_one_feature_on_purpose(rule: int) -> None:
    """Joined names, lists, and the texts of categories: the same key by both rules."""
    spec = plain(rule, categorical=("n",), fields={"p": FieldSpec("bucket", (1.0, 10.0))})
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a.b": 1}, {"a": {"b": 1}}),
        ({"a.b.c": "x"}, {"a": {"b.c": "x"}}),
        ({".": 1}, {"": {"": 1}}),
        ({"a=": {"=": "x"}}, {"a=.=": ["x"]}),
        ({"f": True}, {"f": "true"}),
        ({"n": 7}, {"n": "7"}),
        ({"p": 5}, {"p": "b1"}),
        *(() if rule < SIZE_RULE else [({"z": 0}, {"z": "b0000"}), ({"z": 4}, {"z": 5.5})]),
    ]
    assert keys_of([one for one, _ in pairs], spec) == keys_of([other for _, other in pairs], spec)


def test_the_kernels_read_names_that_are_escaped() -> None:
    """Once they are known, events with them are not handed over: only names that JSON itself escapes are."""
    encoder = FeatureEncoder(FeatureSpec())
    events = [{"a=b": 1, "": 2, "x:missing": "y", "=": {"=": True}}, {"=": {"=": "text of thirty-two bytes and more"}}]
    first, second = (feature_rows.row(event, {"key_rule": NEWEST_RULE}) for event in events)
    encoder.encode(events)
    before = encoder.handed_over
    rows = encoder.encode(events)
    assert encoder.handed_over == before
    assert (rows.keys.tolist(), rows.values.tolist()) == (first[0] + second[0], first[1] + second[1])


def test_the_empty_name_leaves_the_bias_alone() -> None:
    """A number under the empty name is a feature of its own, whatever its value."""
    encoder = FeatureEncoder(FeatureSpec(key_rule=2))
    rows = encoder.encode([{}, {"": 5}, {"": -1}])
    bias = rows.keys[0]
    assert [rows.values[i] for i in range(len(rows.keys)) if rows.keys[i] == bias] == [1.0, 1.0, 1.0]
    assert rows.row_start.tolist() == [0, 1, 3, 5]


def test_a_cross_is_of_the_keys_of_its_fields() -> None:
    """Crosses of fields whose names must be escaped differ as the fields do."""
    spec = FeatureSpec(crosses=(("a", "c"), ("a=b", "c")), bias=False)
    one, other = FeatureEncoder(spec).encode([{"a": "b", "c": 1}, {"a=b": 1, "c": 1}]).keys.reshape(2, 3).tolist()
    assert len({one[0], one[2], other[0], other[2]}) == 4


NEIGHBOURS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=300, deadline=None)
@given(NEIGHBOURS)
@example(-0.0)
@example(5e-324)
@example(2.0**-1022)
def test_the_size_of_a_number_is_that_of_the_oracle(number: float) -> None:
    """The bits of a float say the same as its exponent and its half."""
    assert size_text(number) == f"b{feature_rows.size(number):04d}"


@settings(max_examples=300, deadline=None)
@given(NEIGHBOURS, NEIGHBOURS)
def test_sizes_rise_with_numbers_and_are_narrow(one: float, other: float) -> None:
    """A larger number never has a smaller size, on each side of zero; two of one size differ by at most a half."""
    low, high = sorted((abs(one), abs(other)))
    assert size_text(low) <= size_text(high) < size_text(-high or 0.0) or high == 0.0
    if size_text(low) == size_text(high) and low >= 2.0**-1022:
        assert high < 1.5 * low


def test_small_whole_numbers_have_sizes_of_their_own() -> None:
    """0 to 3 and their opposites; from 4 on two for each power of two."""
    assert len({size_text(number) for number in range(-3, 4)}) == 7
    sizes = [size_text(number) for number in range(4, 4096)]
    assert len({*sizes}) == 20 and sizes == sorted(sizes)
