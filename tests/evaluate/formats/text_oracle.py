"""What a line of LIBSVM or CSV is: `csv`, regular expressions, `float`, and the slow oracle of features.

The result is label, weight and features; FAULT; or None for a line that is passed over. It must never import the code
under test.
"""

from __future__ import annotations

import csv
import math
import re
from typing import Any

from tests.oracles import feature_rows

FAULT = "fault"
BIAS = 0xEF46DB3751D8E999
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"

Example = tuple[float | None, float, list[tuple[int, float]]]
Line = Example | str | None
"""Label (None: nothing to learn), weight, features in order."""


def without_end(line: bytes) -> bytes:
    """A line without its newline, which the last of a file may lack, and one carriage return before that."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def split(text: bytes) -> list[bytes]:
    """Lines with their newlines."""
    parts = [line + b"\n" for line in text.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def summed(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Equal keys added up at the place of the first; zeros left out."""
    sums: dict[int, float] = {}
    for key, value in found:
        sums[key] = sums.get(key, 0.0) + value if key in sums else value
    return [(key, value) for key, value in sums.items() if value != 0.0]


def libsvm(line: bytes) -> Line:
    """A line of LIBSVM text."""
    tokens = re.split(r"[ \t]+", without_end(line).decode("latin-1").partition("#")[0].strip(" \t"))
    if tokens == [""]:
        return None
    label = None
    if not re.fullmatch(r"[0-9]{1,}:.*", tokens[0], re.S):
        if not re.fullmatch(NUMBER, tokens[0]) or math.isinf(float(tokens[0])):
            return FAULT
        label = float(tokens.pop(0))
    found = []
    for token in tokens:
        if token.startswith("qid:"):
            continue
        name, colon, number = token.partition(":")
        if not re.fullmatch("[0-9]+", name) or not colon or not re.fullmatch(NUMBER, number):
            return FAULT
        name = name.lstrip("0") or "0"
        if len(name) > 19 or math.isinf(float(number)):
            return FAULT
        if float(number) != 0.0:
            found.append((feature_rows.h(name), float(number)))
    features = summed([*found, (BIAS, 1.0)])
    return FAULT if any(math.isinf(value) for _, value in features) else (label, 1.0, features)


def csv_line(line: bytes, names: list[str], label: str, weight: str, spec: dict[str, Any]) -> Line:
    """A line of CSV, in UTF-8."""
    text = without_end(line).decode()
    if not text:
        return None
    try:
        cells = next(csv.reader([text], strict=True))
    except csv.Error:
        return FAULT
    if len(cells) != len(names):
        return FAULT
    row = dict(zip(names, cells, strict=True))
    read_label, read_weight = read_number(row.pop(label)), read_number(row.pop(weight))
    truth = {"true": 1.0, "false": 0.0}.get(cells[names.index(label)].lower())
    read_label = truth if truth is not None else read_label
    if isinstance(read_label, str) or isinstance(read_weight, str) or (read_weight or 0.0) < 0.0:
        return FAULT
    event: dict[str, Any] = {}
    for name, cell in row.items():
        number = FAULT if cell and name in spec.get("categorical", ()) else read_number(cell)
        if number == math.inf or number == -math.inf:
            return FAULT
        event[name] = cell if number == FAULT else number
    if any(number in (math.inf, -math.inf) for number in (read_label, read_weight)):
        return FAULT
    keys, values = feature_rows.row(event, spec)
    return read_label, 1.0 if read_weight is None else abs(read_weight), list(zip(keys, values, strict=True))


def read_number(cell: str) -> float | str | None:
    """The number in a cell, None for an empty one, FAULT for anything else."""
    if cell == "":
        return None
    if re.fullmatch(rf"[ \t]*{NUMBER}[ \t]*", cell):
        return float(cell)
    return FAULT


def examples(parsed: Any) -> dict[int, Example]:
    """Parsed examples by their line."""
    batch = parsed.batch
    starts = batch.row_start.tolist()
    assert batch.id_hash.tolist() == parsed.lines.tolist()
    assert len(batch.keys) == len(batch.values) == starts[-1]
    features = list(zip(batch.keys.tolist(), batch.values.tolist(), strict=True))
    rows = [features[start : starts[place + 1]] for place, start in enumerate(starts[:-1])]
    labels = [x if labelled else None for x, labelled in zip(batch.label.tolist(), parsed.labelled, strict=True)]
    assert all(math.isnan(x) != labelled for x, labelled in zip(batch.label.tolist(), parsed.labelled, strict=True))
    return dict(zip(parsed.lines.tolist(), zip(labels, batch.weight.tolist(), rows, strict=True), strict=True))


def check(parsed: Any, lines: list[Line], first_line: int = 1) -> None:
    """Assert that a block was read as the oracle read its lines: what is kept, to the bit, and what is faulty."""
    wanted = dict(enumerate(lines, first_line))
    got = examples(parsed)
    assert [fault.line for fault in parsed.faults] == [line for line, what in wanted.items() if what == FAULT]
    assert got == {line: what for line, what in wanted.items() if what is not None and what != FAULT}
    assert list(got) == sorted(got)
