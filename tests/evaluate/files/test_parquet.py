"""Parquet: the examples that JSON lines with the same values give."""

from __future__ import annotations

import datetime
import json
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.errors import BadInput
from stream_learner.evaluate.files.parquet import ParquetRows, ParquetSource
from stream_learner.evaluate.files.reading import Meaning, block_parsers, open_source
from stream_learner.evaluate.formats.json_lines import JsonLines
from tests.evaluate.formats import text_oracle

texts = st.text(st.sampled_from('ab é日\n,"'), max_size=40)
whole = st.integers(-(2**31), 2**31)
floats = st.floats(-1e6, 1e6)
SCHEMA = pa.schema(
    [
        ("y", pa.float64()),
        ("site", pa.string()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("a=ge", pa.int64()),
        ("size:missing", pa.float64()),
        ("shown", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("user", pa.struct([("id", pa.int32()), ("words", pa.large_list(pa.large_string()))])),
        ("w", pa.float32()),
        ("pairs", pa.list_(pa.struct([("a", pa.int16()), ("b", pa.bool_())]))),
        ("skipped", pa.date32()),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "y": st.none() | st.sampled_from([0.0, 1.0, -1.0, 0.25]),
            "site": st.none() | texts,
            "kind": st.none() | st.sampled_from(["u", "v", ""]),
            "a=ge": st.none() | whole,
            "size:missing": st.none() | floats,
            "shown": st.none() | st.booleans(),
            "tags": st.none() | st.lists(st.none() | texts, max_size=3),
            "user": st.none()
            | st.fixed_dictionaries(
                {"id": st.none() | st.integers(0, 99), "words": st.none() | st.lists(texts, max_size=2)}
            ),
            "w": st.none() | st.sampled_from([0.0, 1.0, 2.5]),
            "pairs": st.none()
            | st.lists(st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.booleans()}), max_size=2),
            "skipped": st.none() | st.just(datetime.date(2026, 1, 2)),
        }
    ),
    min_size=1,
    max_size=12,
)
SPEC: dict[str, Any] = {
    "exclude": ["skipped"],
    "categorical": ["a=ge", "user.id"],
    "fields": {
        "size:missing": {"kind": "bucket", "edges": [-1.0, 0.0, 100.5], "missing": "indicator"},
        "pairs.a": {"kind": "log"},
    },
    "key_rule": 3,
    "crosses": [["site", "shown"], ["tags", "kind", "a=ge"]],
}


def write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> Path:
    """A file with two rows in each of its groups."""
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=2)
    return path


def examples(path: Path, batch_rows: int, spec: FeatureSpec) -> dict[int, Any]:
    """Label, weight and sorted features of every row."""
    source = ParquetSource([str(path)], batch_rows=batch_rows)
    parser = ParquetRows(source.columns, label="y", weight="w", features=spec)
    found: dict[int, Any] = {}
    for block in source.blocks():
        found |= text_oracle.examples(parser.parse(block))
    assert source.bytes_read == source.bytes_total == path.stat().st_size
    return in_no_order(found)


def in_no_order(found: dict[int, Any]) -> dict[int, Any]:
    """Sorted by key; sums rounded, since columns come one after the other and not element by element."""
    return {
        line: (label, weight, sorted((key, round(value, 9)) for key, value in row))
        for line, (label, weight, row) in found.items()
    }


@given(ROWS, st.integers(1, 5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_as_json_lines_with_the_same_values(
    tmp_path: Path, rows: list[dict[str, Any]], batch_rows: int
) -> None:
    """Nulls, lists, structures, dictionaries, buckets, crosses and indicators; in batches of any size."""
    spec = FeatureSpec.from_dict(SPEC)
    lines = "".join(json.dumps({**row, "skipped": None}) + "\n" for row in rows)
    wanted = text_oracle.examples(JsonLines(label="y", weight="w", features=spec).parse(lines.encode(), 1))
    assert examples(write(tmp_path / "t", rows), batch_rows, spec) == in_no_order(wanted)


def test_nan_is_no_value_and_infinity_a_fault(tmp_path: Path) -> None:
    """The fault has row and column; so has a label or weight that cannot be."""
    schema = pa.schema([("y", pa.float64()), ("x", pa.float64()), ("w", pa.float64())])
    values = [(1, math.nan, 1), (math.nan, 2, 1), (1, math.inf, 1), (math.inf, 2, 1), (0, 2, -1), (0, 3, None)]
    path = write(tmp_path / "t", [{"y": y, "x": x, "w": w} for y, x, w in values], schema)
    source = ParquetSource([str(path)])
    parsed = ParquetRows(source.columns, label="y", weight="w").parse(next(iter(source.blocks())))
    assert [row[1:] for row in text_oracle.examples(parsed).values()] == [
        (1.0, [(text_oracle.BIAS, 1.0)]),
        (1.0, [(text_oracle.feature_rows.h("x=b2048"), 1.0), (text_oracle.BIAS, 1.0)]),
        (1.0, [(text_oracle.feature_rows.h("x=b2049"), 1.0), (text_oracle.BIAS, 1.0)]),
    ]
    assert parsed.lines.tolist() == [1, 2, 6]
    assert parsed.faults == [
        (3, 2, "a finite number in this column"),
        (4, 1, "a finite number as label, or none"),
        (5, 3, "a finite number of 0 or more as weight"),
    ]


def test_whole_numbers_are_categories_whatever_their_type(tmp_path: Path) -> None:
    """Integers with nulls are often written as floats; what is not whole stays a number."""
    schema = pa.schema([("a", pa.float64()), ("b", pa.decimal128(9, 2)), ("c", pa.list_(pa.float32()))])
    path = write(tmp_path / "t", [{"a": 2.0, "b": 2, "c": [3.0, 2.5]}, {"a": None, "b": None, "c": None}], schema)
    spec = FeatureSpec(categorical=("a", "b", "c"), bias=False)
    (parsed,) = [ParquetRows(["a", "b", "c"], features=spec).parse(b) for b in ParquetSource([str(path)]).blocks()]
    h = text_oracle.feature_rows.h
    assert [row for _, _, row in text_oracle.examples(parsed).values()] == [
        [(h("a=2"), 1.0), (h("b=2"), 1.0), (h("c=3"), 1.0), (h("c"), 2.5)],
        [],
    ]


def test_a_text_that_is_too_long_is_a_fault(tmp_path: Path) -> None:
    """The rows around it are kept."""
    path = write(tmp_path / "t", [{"s": "a"}, {"s": "x" * 11}, {"s": "b" * 10}], pa.schema([("s", pa.string())]))
    parsed = ParquetRows(["s"], features=FeatureSpec(max_value_bytes=10)).parse(
        next(iter(ParquetSource([str(path)]).blocks()))
    )
    assert parsed.lines.tolist() == [1, 3]
    assert parsed.faults == [(2, 1, "names and texts of at most 10 bytes")]


def test_a_type_that_is_no_feature_is_refused_by_name(tmp_path: Path) -> None:
    """Unless the column is left out."""
    path = write(tmp_path / "t.parquet", [{"y": 1.0, "skipped": datetime.date(2026, 1, 2)}])
    source, found = open_source([str(path)])
    with pytest.raises(BadInput, match=r"column 'skipped' is of type date32.*, which is no number, boolean or text"):
        block_parsers(source, found, Meaning())()(next(iter(source.blocks())))
    spec = FeatureSpec(exclude=("skipped",))
    parsed = block_parsers(source, found, Meaning(features=spec))()(next(iter(source.blocks())))
    assert parsed.batch.label.tolist() == [1.0]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Cut off, or no Parquet at all behind its first bytes."""
    path = write(tmp_path / "t.parquet", [{"y": 1.0}] * 100)
    whole_file = path.read_bytes()
    for damaged in (whole_file[:-10], whole_file[:4], b"PAR1" + bytes(100)):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"t\.parquet: no Parquet file, or a damaged one"):
            open_source([str(path)])
    with pytest.raises(BadInput, match="cannot be read from standard input"):
        ParquetSource(["-"])


def test_a_missing_library_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next command is plain."""
    path = write(tmp_path / "t.parquet", [{"y": 1.0}])
    frame = tmp_path / "t.zst"
    frame.write_bytes(b"\x28\xb5\x2f\xfd\x00")
    for name, file in (("pyarrow", path), ("zstandard", frame)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(BadInput, match=f"the package {name} is not installed") as refused:
            open_source([str(file)])
        assert "stream-learner[evaluate]" in refused.value.action
