"""LIBSVM text: every line as the slow reader reads it, damage included."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.evaluate.formats.libsvm import LibsvmText
from tests.evaluate.formats import text_oracle

PARSER = LibsvmText()

numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**24), 10**24).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from(
        ["0", "-0", "+1", "1", "007", ".5", "5.", "1e5", "1E-3", "1e400", "1e-400", "-1e999", "5e-324", "2.5e-310",
         "0.00012345678901234567", "9007199254740993", "123456789012345678901234567890", "0." + "0" * 30 + "1",
         "1.7976931348623157e308", "1.7976931348623159e308", "00000000000000000000000001.5", "1e00000005"]
    ),
)  # fmt: skip
indices = st.one_of(st.integers(0, 20), st.integers(0, 10**19 - 1)).map(str)
blanks = st.sampled_from([" ", " ", " ", "\t", "  ", " \t "])
tokens = st.one_of(
    st.tuples(indices, numbers).map(":".join),
    st.sampled_from(
        ["qid:3", "3:", ":3", "3", "x:1", "3:x", "3:1x", "3:nan", "3:inf", "1" * 20 + ":1", "0003:2", "3::1"]
    ),
)
good_tokens = st.tuples(indices, numbers).map(":".join)
labels = st.one_of(numbers, st.sampled_from(["", "x", "nan", "1,2", "+", "-1", "+1"]))
ends = st.sampled_from(["\n", "\n", "\r\n", " \n", " # a comment 3:4\n", "#\n", "\t\r\n"])


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line, mostly a good one."""
    features = draw(st.lists(good_tokens if draw(st.booleans()) else tokens, max_size=12))
    text = "".join(draw(blanks) + token for token in features)
    return (draw(labels) + text + draw(ends)).encode()


@given(st.lists(lines(), max_size=12), st.integers(1, 10**12), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_line_is_read_as_the_slow_reader_reads_it(texts: list[bytes], first_line: int, cut: bool) -> None:
    """Labels, keys, values and their order to the bit; the same lines are faulty; the last newline may be missing."""
    text = b"".join(texts)
    if cut and texts:
        text, texts[-1] = text[:-1], texts[-1][:-1]
        texts = texts if texts[-1] else texts[:-1]
    text_oracle.check(PARSER.parse(text, first_line), [text_oracle.libsvm(line) for line in texts], first_line)


def test_damage_changes_no_other_line() -> None:
    """Bytes are overwritten anywhere, newlines too: each line still is what the slow reader says of it."""
    rng = random.Random(3)
    for _ in range(150):
        text = bytearray(b"".join(b"%d %s\n" % (rng.choice((-1, 1)), _features(rng)) for _ in range(10)))
        for _ in range(rng.randrange(6)):
            text[rng.randrange(len(text))] = rng.choice(b"\n\r 0:#.-+eq\x00\xff\tx9")
        whole = bytes(text)
        text_oracle.check(PARSER.parse(whole, 1), [text_oracle.libsvm(line) for line in text_oracle.split(whole)])


def test_a_long_line_keeps_all_its_features() -> None:
    """65,535 of them with the constant, repeats among them; one more is a fault, and the lines around it are read."""
    most = b"1 " + b" ".join(b"%d:1" % i for i in range(65_534))
    parsed = PARSER.parse(most + b"\n" + most + b" 70000:1\n1 3:1 3:2\n" + most + b" 5:0\n", 1)
    assert parsed.lines.tolist() == [1, 3, 4]
    assert parsed.batch.row_start.tolist() == [0, 65_535, 65_537, 131_072]
    assert parsed.faults == [(2, len(most) + 9, "at most 65,535 features")]


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        (b"x 1:2", 1, "a number as label, and a blank behind it"),
        (b"1 1:2 2:", 9, "a number behind `index:`, and a blank behind it"),
        (b"1 1:2 x:3", 7, "an index of at most 19 digits and `:`, as in 7:0.5"),
        (b"1 1:2 3:1e999", 9, "a finite number"),
        (b"  -1e999", 3, "a finite number"),
    ],
)
def test_a_fault_names_the_byte_where_something_else_should_stand(line: bytes, column: int, expected: str) -> None:
    """The column counts from 1."""
    (fault,) = PARSER.parse(b"1 1:1\n" + line + b"\n1 1:1\n", 7).faults
    assert fault == (8, column, expected)


def test_the_constant_feature_can_be_left_out() -> None:
    """Without it a line may have no feature at all."""
    parsed = LibsvmText(bias=False).parse(b"1\n2 5:0 5:0\n3 5:1\n", 1)
    assert parsed.batch.row_start.tolist() == [0, 0, 0, 1]


def _features(rng: random.Random) -> bytes:
    places = sorted(rng.sample(range(100_000), rng.randrange(8)))
    return b" ".join(b"%d:%s" % (place, repr(round(rng.random(), rng.randrange(1, 17))).encode()) for place in places)
