"""CSV text: every line as `csv`, `float` and the table of features say, damage included."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.evaluate.formats.csv import CsvText, column_index, csv_names
from tests.evaluate.formats import text_oracle
from tests.evaluate.formats.test_libsvm import numbers
from tests.oracles import feature_rows

NAMES = ["y", "site", "age", "w", "a name that is longer than thirty-two bytes =", "s=ize", "\\x", "skipped"]
SPEC: dict[str, Any] = {
    "categorical": ["\\x"],
    "exclude": ["skipped"],
    "fields": {
        "s=ize": {"kind": "bucket", "edges": [0.0, 1.5, 100.0], "missing": "indicator"},
        "age": {"kind": "log", "edges": [], "missing": "skip"},
    },
    "crosses": [["site", "\\x"], ["age", "s=ize"]],
}
SPECS = [{**SPEC, "key_rule": rule} for rule in (2, 3)]
PARSERS = [CsvText(NAMES, label="y", weight="w", features=FeatureSpec.from_dict(s), header=False) for s in SPECS]

plain = st.text(st.sampled_from("ab7.-e \t\"'=é日"), max_size=40).filter(lambda text: not text.startswith('"'))
quoted = st.text(st.sampled_from("ab7,.\" \té='"), max_size=40).map(lambda text: '"' + text.replace('"', '""') + '"')
small_numbers = st.one_of(
    st.floats(-1e6, 1e6).map(repr),
    st.integers(-99, 99).map(str),
    st.sampled_from([" 5", "5 ", "\t.5 ", "1_0", "+", "-"]),
)
cells = st.one_of(plain, quoted, small_numbers, st.just(""), st.just('"a"b'), st.just('"a'), st.just("Nan"))
roles = st.one_of(small_numbers, st.sampled_from(["", "0", "1", "true", "False", "yes", "-1", '"1"', "1e999", "nan"]))
ends = st.sampled_from(["\n", "\n", "\r\n"])


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line with about as many cells as there are columns."""
    row = [draw(roles if name in ("y", "w") else cells) for name in NAMES]
    row = draw(st.sampled_from([row, row, row, row, row[:-1], [*row, ""], []]))
    return (",".join(row) + draw(ends)).encode()


@given(st.lists(lines(), max_size=10), st.integers(1, 10**12))
@settings(max_examples=150, deadline=None)
def test_every_line_is_read_as_the_slow_reader_reads_it(texts: list[bytes], first_line: int) -> None:
    """Quotes, blanks, numbers, logarithms, buckets, crosses and indicators, to the bit; the same lines are faulty."""
    for spec, parser in zip(SPECS, PARSERS, strict=True):
        wanted = [text_oracle.csv_line(line, NAMES, "y", "w", spec) for line in texts]
        text_oracle.check(parser.parse(b"".join(texts), first_line), wanted, first_line)


@given(st.lists(numbers, min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_numbers_are_the_nearest_float64(texts: list[str]) -> None:
    """Whatever Python's `float` says, and a fault for what is infinite."""
    parser = CsvText(["n"], features=FeatureSpec(bias=False, key_rule=2), header=False)
    got = text_oracle.examples(parser.parse("\n".join(texts).encode(), 1))
    wanted = {place: float(text) for place, text in enumerate(texts, 1) if abs(float(text)) != float("inf")}
    assert {place: sum(value for _, value in row) for place, (_, _, row) in got.items()} == wanted


def test_a_column_of_times_has_their_hours() -> None:
    """Written as numbers or as text; a cell that is no time is a fault where it stands."""
    spec = FeatureSpec(fields={"at": FieldSpec("hour", zone="Asia/Kolkata")}, bias=False)
    lines = b"y,at\n1,1700000000000\n0,2023-11-14T22:13:20Z\n0,1.7e9\n0,\n1,noon\n"
    parsed = CsvText(["y", "at"], label="y", features=spec).parse(lines, 1)
    assert [row for _, _, row in text_oracle.examples(parsed).values()] == [[(feature_rows.h("at=3"), 1.0)]] * 3 + [[]]
    assert parsed.faults == [(6, 3, "a time in each field of kind hour, weekday or hour_of_week")]


def test_damage_changes_no_other_line() -> None:
    """Bytes are overwritten anywhere, newlines and quotes too: each line still is what the slow reader says of it."""
    rng = random.Random(5)
    for _ in range(150):
        rows = [[rng.choice(["1", "0.5", "", '"a,b"', '"x""y"', "word", "-3"]) for _ in NAMES] for _ in range(8)]
        for row in rows:
            row[0], row[3] = rng.choice(["0", "1", ""]), rng.choice(["", "2", "0"])
        text = bytearray("\n".join(",".join(row) for row in rows).encode() + b"\n")
        for _ in range(rng.randrange(6)):
            text[rng.randrange(len(text))] = rng.choice(b'\n",,1 a.-"\x7f')
        split = [line + b"\n" for line in bytes(text).split(b"\n")]
        split = split[:-1] if split[-1] == b"\n" else [*split[:-1], split[-1][:-1]]
        wanted = [text_oracle.csv_line(line, NAMES, "y", "w", SPECS[-1]) for line in split]
        text_oracle.check(PARSERS[-1].parse(bytes(text), 1), wanted)


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        (b"1,a", 4, "3 cells, but the line ends here"),
        (b"1,a,2,3", 6, "3 cells, but there are more from here on"),
        (b"yes,a,1", 1, "a finite number as label, or true or false"),
        (b'1,"a,2', 3, "a closing quote on the same line"),
        (b'1,"a" ,2', 6, "a separator or the end of the line behind the closing quote"),
        (b"1,a,-2", 5, "a finite number of 0 or more as weight"),
        (b"1,12e45678,2", 3, "a finite number, or the column listed as categorical"),
        (b"1,caf\xc3\xa9,x", 9, "a finite number of 0 or more as weight"),
        (b"1,caf\xe9,2", 3, "text in UTF-8"),
        (b"1,a\rb,2", 4, "no carriage return within a line"),
        (b"1," + b"a" * 4097 + b",2", 3, "names and texts of at most 4,096 bytes"),
        (b'1,"""' + b"a" * 5000 + b'""",2', 3, "names and texts of at most 4,096 bytes"),
    ],
)
def test_a_fault_names_the_byte_of_its_cell(line: bytes, column: int, expected: str) -> None:
    """The column counts from 1, and lines from the number that the block begins with."""
    parser = CsvText(["label", "site", "weight"], label="label", weight=3)
    (fault,) = parser.parse(b"1,b,1\n" + line + b"\n0,c,1\n", 41).faults
    assert fault == (42, column, expected)


def test_the_header_is_left_out_of_the_first_block_only() -> None:
    """Line 1 has the names; a later block begins with an example."""
    parser = CsvText(["y", "a"], label="y")
    assert parser.parse(b"y,a\r\n1,2\n", 1).lines.tolist() == [2]
    assert parser.parse(b"0,2\n", 3).lines.tolist() == [3]
    assert parser.parse(b"y,a", 1).lines.tolist() == []


def test_too_many_features_are_a_fault() -> None:
    """The limit of the specification counts cells that give a feature."""
    parser = CsvText(["a", "b", "c"], features=FeatureSpec(max_features=2), header=False)
    parsed = parser.parse(b"1,,3\n1,2,3\n", 1)
    assert (parsed.lines.tolist(), parsed.faults) == ([1], [(2, 1, "at most 2 features")])


def test_tabs_separate() -> None:
    """Then a comma is a letter as any other."""
    parser = CsvText(["y", "a", "b"], label="y", separator="\t", header=False)
    parsed = parser.parse(b'1\t,"x\t5 \n', 1)
    row = text_oracle.feature_rows.row({"a": ',"x', "b": 5}, {"key_rule": 3})
    assert text_oracle.examples(parsed)[1][2] == list(zip(*row, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "lable"}, "no column 'lable'; the nearest is 'label'"),
        ({"label": 9}, "no column '9'; there are 'label', 'site'"),
        ({"label": "label", "weight": 1}, "column 'label' cannot be label and weight"),
        ({"features": FeatureSpec(categorical=("sit",))}, "no column 'sit'; the nearest is 'site'"),
        ({"label": "label", "features": FeatureSpec(categorical=("label",))}, "field 'label' is the event's"),
        ({"separator": ";;"}, "the separator must be one ASCII character and no quote, not ';;'"),
        ({"separator": '"'}, "the separator must be one ASCII character and no quote"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    """Before any line is read."""
    with pytest.raises(ValueError, match=message):
        CsvText(["label", "site"], **options)


def test_a_header_gives_distinct_names() -> None:
    """In UTF-8, with the mark before it or not; blanks around names do not count."""
    assert csv_names(b'\xef\xbb\xbfy, "a",caf\xc3\xa9\r\n') == ("y", '"a"', "café")
    for header, message in [(b"a,,b", "column 2 has no name"), (b"a,b,a", "column 3 has the name"), (b"", "no column")]:
        with pytest.raises(ValueError, match=message):
            csv_names(header)
    assert column_index(["2", "a"], "2") == 0
