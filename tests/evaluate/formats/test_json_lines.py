"""JSON lines: the features of the joiner, with label and weight from the line itself."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

import numpy as np
import pytest

from stream_learner.core.events.decoders import EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.features import FeatureEncoder
from stream_learner.evaluate.formats.json_lines import JsonLines
from tests.core.events import json_texts
from tests.evaluate.formats import text_oracle
from tests.oracles import feature_rows

SPEC: dict[str, Any] = {
    "exclude": ["log"],
    "categorical": ["cat"],
    "fields": {"bucket": {"kind": "bucket", "edges": [0.0, 10.0], "missing": "indicator"}},
    "crosses": [["a", "b"]],
}
LABELS = [1, 0, -1, 0.5, True, False, None, "1", "0", "-1", "yes", [1], [1, 0], {"x": 1}, [], 1e300, -0.0]
WEIGHTS = [1, 0, 2.5, None, -1, True, "2", [3], [1, 1], 1e-300]


def wanted(line: bytes, weight: str | None = "w") -> text_oracle.Line:
    """A line of JSON, by `json` and the slow oracle of features."""
    if not line.strip(b"\r\n"):
        return None
    try:
        event = feature_rows.parse(line)
    except ValueError:
        return text_oracle.FAULT
    label, importance = event.get("out", {}).get("y"), event.get(weight)
    if isinstance(label, list) and len(label) <= 1:
        label = label[0] if label else None
    if isinstance(importance, list) and len(importance) <= 1:
        importance = importance[0] if importance else None
    label = {"1": 1, "0": 0, "-1": -1}.get(label, label) if isinstance(label, str) else label
    if not isinstance(label, (int, float, type(None))) or isinstance(importance, (bool, str, list)):
        return text_oracle.FAULT
    if (importance or 0) < 0:
        return text_oracle.FAULT
    keys, values = feature_rows.row(event, SPEC, ("id", "t", "out.y", "w"))
    importance = 1.0 if importance is None else float(importance)
    return None if label is None else float(label), importance, list(zip(keys, values, strict=True))


def lines_of(rng: Random, count: int) -> list[bytes]:
    """Lines with all sorts of labels and weights, in any place of the object."""
    lines = []
    for _ in range(count):
        members = [b'"out":' + json.dumps({"y": rng.choice(LABELS), "z": "q"}).encode(), b'"id":7,"t":"x"']
        if rng.random() < 0.5:
            members.append(b'"w":' + json.dumps(rng.choice(WEIGHTS)).encode())
        body = json_texts.obj(rng, 0.0, 2, tuple(members)).replace(b"\n", b" ")
        lines.append(rng.choice([body, body, body, body + b"\r", b"", b"\r"]) + b"\n")
    return lines


def test_every_line_is_read_as_the_slow_reader_reads_it() -> None:
    """Labels as numbers, booleans and texts; a list of one counts as what it holds, a longer one is a fault."""
    rng = Random(11)
    parser = JsonLines(label="out.y", weight="w", features=FeatureSpec.from_dict(SPEC), ignore=("id", "t"))
    for _ in range(12):
        lines = lines_of(rng, 60)
        text_oracle.check(parser.parse(b"".join(lines), 5), [wanted(line) for line in lines], 5)


def test_the_keys_are_those_of_a_training_log() -> None:
    """The joiner's decoder makes the same row, bit by bit, of every line with an id."""
    rng = Random(12)
    events = [json_texts.event(rng, 0.0).replace(b"\n", b" ") for _ in range(200)]
    features = FeatureSpec.from_dict(SPEC)
    spec = EventSpec(id="id", time="t", time_unit="auto", weight="w")
    bounds = np.cumsum([0, *(len(event) + 1 for event in events)])
    text = b"".join(event + b"\n" for event in events)
    joined = ImpressionDecoder(spec, features).decode(text, bounds, np.full(200, -1))
    parsed = JsonLines(label=None, weight="w", features=features, ignore=spec.paths()).parse(text, 1)
    kept = {line - 1: row for line, (_, _, row) in text_oracle.examples(parsed).items()}
    accepted = [i for i in range(200) if joined.status[i] == 0]
    assert len(accepted) > 50
    for i in accepted:
        row = slice(joined.row_start[i], joined.row_start[i + 1])
        assert kept[i] == list(zip(joined.keys[row].tolist(), joined.values[row].tolist(), strict=True))


def test_damaged_lines_are_faults_and_change_no_other() -> None:
    """What the decoder of events accepts is kept, everything else is named."""
    rng = Random(13)
    raws = []
    for _ in range(300):
        raw = json_texts.event(rng, 0.02)
        raw = json_texts.damage(rng, raw) if rng.random() < 0.5 else raw
        raw = raw.replace(b"\n", b" ").replace(b"\r", b" ")
        raws.append(raw if raw.strip() else b"{}")
    encoder = FeatureEncoder(FeatureSpec(), ("id", "label"))
    bounds = np.cumsum([0, *(len(raw) for raw in raws)])
    encoded = encoder.encode_json(b"".join(raws), bounds)
    parsed = JsonLines(features=FeatureSpec(), ignore=("id",)).parse(b"\n".join(raws), 1)
    good = (np.flatnonzero(encoded.status == 0) + 1).tolist()
    assert 50 < len(good) < 250
    assert parsed.lines.tolist() == good
    assert sorted([*good, *(fault.line for fault in parsed.faults)]) == list(range(1, 301))
    assert parsed.batch.keys.tolist() == encoded.keys.tolist()
    assert all(1 <= fault.column <= len(raws[fault.line - 1]) + 1 for fault in parsed.faults)


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        (b'{"label":1,"a":}', 16, "JSON"),
        (b'{"label":1,"a":1e400}', 1, "numbers within float64"),
        ('{"é":"é", x}'.encode(), 13, "JSON"),
        (b'{"a":"\xff"}', 7, "JSON"),
        (b"[1]", 1, "a JSON object"),
        (b'{"a":1,"label":"yes"}', 8, "a finite number as label, or true or false"),
        (b'{"w":-1}', 2, "a finite number of 0 or more as weight"),
        (b'{"a":[1,2,3,4]}', 1, "at most 3 features"),
        (b'{"at":"noon"}', 1, "a time in each field of kind hour, weekday or hour_of_week"),
        (b'{"a":"' + b"x" * 4097 + b'"}', 1, "names and texts of at most 4,096 bytes"),
    ],
)
def test_a_fault_names_the_byte_where_it_can(line: bytes, column: int, expected: str) -> None:
    """Where JSON ends, or where the field is; else the beginning of the line."""
    parser = JsonLines(weight="w", features=FeatureSpec(max_features=3, fields={"at": FieldSpec("hour")}))
    assert parser.parse(b"\n" + line + b"\n{}", 1).faults == [(2, column, expected)]


def test_a_last_line_without_a_newline_is_read_like_any_other() -> None:
    """Such a line is blank only if nothing is in it."""
    parser = JsonLines()
    for text, faults in ((b"\r#", [1]), (b"{}\n\r#", [2]), (b"{}\n\r\n", []), (b"{}\n", []), (b"", [])):
        assert [fault.line for fault in parser.parse(text, 1).faults] == faults, text


def test_label_and_weight_must_be_fields_of_their_own() -> None:
    """Label and weight must not be fields that the specification uses."""
    with pytest.raises(ValueError, match="cannot be label and weight"):
        JsonLines(label="a", weight="a")
    with pytest.raises(ValueError, match="field 'label' is the event's"):
        JsonLines(features=FeatureSpec(categorical=("label",)))


def test_without_a_label_there_is_nothing_to_learn() -> None:
    """Every line is kept, to be predicted."""
    parsed = JsonLines(label=None).parse(b'{"a":1}\n{"label":1}\n', 1)
    assert parsed.labelled.tolist() == [False, False]
    assert all(math.isnan(label) for label in parsed.batch.label)
