"""The elements of an array found in a JSON object, against a parser."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_learner.core.events.fast.requests import Elements, TooManyElements, find_elements

KEY = b"instances"
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS | st.text('"\\{}[],: ', max_size=8) | st.text("{}[],: ", max_size=150),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "instance", 'b"', "c\\", "instances ", "ä"]), VALUES, max_size=3)
SPACES = st.text(" \n\t\r", max_size=2).map(str.encode)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """An object that has the array somewhere among other members, with white space wherever it may be."""
    elements = draw(st.lists(VALUES, max_size=5))
    space = draw(SPACES)
    array = b"[" + space + (space + b"," + space).join(map(orjson.dumps, elements)) + space + b"]"
    members = [orjson.dumps(name) + space + b":" + orjson.dumps(value) for name, value in draw(OBJECTS).items()]
    place = draw(st.integers(0, len(members)))
    members.insert(place, b'"instances":' + space + array)
    return space + b"{" + space + (b"," + space).join(members) + space + b"}" + space


def texts(found: Elements) -> list[bytes]:
    """Each element's bytes."""
    data = found.data.tobytes()
    return [data[a:b] for a, b in pairwise(found.bounds.tolist())]


def parsed(text: bytes) -> Any:
    """The parsed text; an exception if it is not JSON."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        return error


@given(requests())
def test_elements_are_those_that_a_parser_finds(text: bytes) -> None:
    """In order; what is left has everything else; the flag says whether one of them is a string."""
    found = find_elements(text, KEY, 100)
    request = orjson.loads(text)
    if found is None:
        assert any("\\" in orjson.dumps(name).decode() for name in request)
        return
    assert [orjson.loads(one) for one in texts(found)] == request["instances"]
    assert orjson.loads(found.rest) == {**request, "instances": []}
    assert found.any_text == any(isinstance(one, str) for one in request["instances"])


def test_an_element_ends_at_the_same_byte_wherever_blocks_begin() -> None:
    """Strings with brackets, quotes behind escapes, and the end of the text at each distance from a block's."""
    for length in range(200):
        for inside in (b"]" * length, b"{" * length + b"\\\\", b"\\" + b'"' + b"}" * length, b"x" * length + b'\\"]'):
            elements = [b'{"a":[{"b":"' + inside + b'"},[]]}', b"[" * 40 + b'"' + inside + b'"' + b"]" * 40, b'"ab"']
            found = find_elements(b'{"instances":[' + b",".join(elements) + b"]}", KEY, 100)
            assert found is not None and texts(found) == elements


@given(requests(), st.data())
@example(b'{"instances":[{"a":1]}]}', None)
@example(b'{"instances":[1,]}', None)
@example(b'{"instances":[1 2]}', None)
@example(b'{"instances":[1],"instances":[2]}', None)
@example(b'{"instances":[1],"inst\\u0061nces":[2]}', None)
@example(b'{"instances":[1]}}', None)
def test_nothing_is_found_in_what_is_no_json(text: bytes, data: st.DataObject | None) -> None:
    """Of damaged bytes: where the rest and every element are JSON, the whole is, and says the same."""
    if data is not None:
        place = data.draw(st.integers(0, len(text) - 1))
        change = data.draw(st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" ", b"1", b"\xff"]))
        text = text[:place] + change + text[place + data.draw(st.integers(0, 2)) :]
    found = find_elements(text, KEY, 100)
    if found is None:
        return
    pieces = [parsed(found.rest), *map(parsed, texts(found))]
    if any(isinstance(piece, ValueError) for piece in pieces):
        return
    whole = parsed(text)
    assert not isinstance(whole, ValueError), text
    assert whole == {**pieces[0], "instances": pieces[1:]}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b'{"instances":',
        b'{"instances":{}}',
        b'{"instances":[',
        b'{"instances":["',
        b'{"instances":["\\',
        b'{"instances":[{',
        b'{"instances":[1]',
        b'{"instances":[1]} x',
        b'{"other":[1]}',
        b'{"instances":[1],"instances":[1]}',
        b'{"\\u0069nstances":[1]}',
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_a_parser(text: bytes) -> None:
    """Cut short anywhere, no array, the key twice or escaped."""
    assert find_elements(text, KEY, 100) is None


def test_more_elements_than_allowed_are_counted_and_not_kept() -> None:
    """The allowed number is found; with one more the request is refused and the number told."""
    text = orjson.dumps({"instances": [1] * 7})
    found = find_elements(text, KEY, 7)
    assert found is not None and len(found) == 7
    with pytest.raises(TooManyElements) as caught:
        find_elements(text, KEY, 6)
    assert caught.value.count == 7
