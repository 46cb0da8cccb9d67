"""Parsing files of examples: text in memory into columns. One thread, CPU time.

The lines are those of a generated click log with 39 features. It must never let a block be parsed whose lines were
parsed before: a hash of repeated text is no measure.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.evaluate.formats.base import LineParser
from stream_learner.evaluate.formats.csv import CsvText
from stream_learner.evaluate.formats.json_lines import JsonLines
from stream_learner.evaluate.formats.libsvm import LibsvmText
from stream_learner.evaluate.formats.vw.parser import VwText, VwTextOptions

INTEGERS, STRINGS = 13, 26
ZIPF = 1.05
VALUES = 1_000_000
BLOCK_BYTES = 4 << 20
INTEGER_NAMES = [f"I{i}" for i in range(1, INTEGERS + 1)]
STRING_NAMES = [f"C{i}" for i in range(1, STRINGS + 1)]

Row = dict[str, Any]
Cells = tuple[str, list[str], list[str]]
"""An example: label, integers, words."""


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note; the ordinary kind of line first."""
    cells = _cells(4_000 if quick else 40_000)
    rows: list[Row] = []
    for name, note, line, parser in _kinds():
        rows += _measured(name, note, [line(cell) for cell in cells], parser)
    return rows


def _kinds() -> list[tuple[str, str, Callable[[Cells], str], LineParser]]:
    """The kinds of text: name, note, a function that writes an example, the parser."""
    theirs = VwTextOptions(hashing="vw", repeats=True)
    pairs = VwTextOptions(quadratic=("in",))
    columns = ["label", *INTEGER_NAMES, *STRING_NAMES]
    spec = FeatureSpec(categorical=tuple(STRING_NAMES))
    return [
        ("vw", "name=value words, XXH64", _words, VwText()),
        ("vw_numbers", "13 numbers, 26 words, in two namespaces, XXH64", _numbers, VwText()),
        ("vw_murmur", "the same, VW's hashing", _numbers, VwText(theirs)),
        ("vw_namespaces", "each word in its namespace, XXH64", _namespaces, VwText()),
        ("libsvm", "39 hashed indices", _libsvm, LibsvmText()),
        ("csv", "26 of 39 columns categorical", _csv, CsvText(columns, label="label", features=spec, header=False)),
        ("json", "the same fields", _json, JsonLines(features=spec)),
        ("vw_quadratic", "13 numbers with each of 26 words, XXH64", _numbers, VwText(pairs)),
    ]


def _words(cells: Cells) -> str:
    label, integers, words = cells
    tokens = [f"I{i}={x}" for i, x in enumerate(integers, 1)] + [f"C{i}={x}" for i, x in enumerate(words, 1)]
    return f"{label} | {' '.join(tokens)}\n"


def _numbers(cells: Cells) -> str:
    label, integers, words = cells
    numbers = " ".join(f"I{i}:{x}" for i, x in enumerate(integers, 1))
    return f"{label} |ints {numbers} |names {' '.join(words)}\n"


def _namespaces(cells: Cells) -> str:
    label, integers, words = cells
    return f"{label} {' '.join(f'|{chr(64 + i)} {x}' for i, x in enumerate([*integers, *words], 1))}\n"


def _libsvm(cells: Cells) -> str:
    label, integers, words = cells
    names = [
        *map("I{}={}".format, range(1, INTEGERS + 1), integers),
        *map("C{}={}".format, range(1, STRINGS + 1), words),
    ]
    indices = sorted(zlib.crc32(name.encode()) % VALUES for name in names)
    return f"{label} {' '.join(f'{index}:1' for index in indices)}\n"


def _csv(cells: Cells) -> str:
    label, integers, words = cells
    return f"{label},{','.join(integers)},{','.join(words)}\n"


def _json(cells: Cells) -> str:
    label, integers, words = cells
    numbers = [f'"{name}":{x}' for name, x in zip(INTEGER_NAMES, integers, strict=True)]
    texts = [f'"{name}":"{x}"' for name, x in zip(STRING_NAMES, words, strict=True)]
    return f'{{"label":{label},{",".join([*numbers, *texts])}}}\n'


def _cells(n: int) -> list[Cells]:
    """Zipf-distributed values: 13 small integers and 26 hexadecimal words."""
    rng = np.random.default_rng(1)
    integers = rng.zipf(1.3, (n, INTEGERS)) % 1_000_000
    words = rng.zipf(ZIPF, (n, STRINGS)) % VALUES
    clicks = rng.random(n) < 0.1
    return [
        (
            "1" if clicks[i] else "-1",
            [str(x) for x in integers[i]],
            [f"{zlib.crc32(b'%d.%d' % (j, words[i, j])):08x}" for j in range(STRINGS)],
        )
        for i in range(n)
    ]


def _measured(name: str, note: str, lines: list[str], parser: LineParser) -> list[Row]:
    """Speed over blocks of whole lines, each parsed once; the first lines are only to warm up."""
    parser.parse("".join(lines[:1000]).encode(), 1)
    text = "".join(lines[1000:]).encode()
    spent, at, examples = 0, 0, 0
    while at < len(text):
        end = text.rfind(b"\n", at, at + BLOCK_BYTES) + 1
        block = text[at:end]
        start = time.process_time_ns()
        parsed = parser.parse(block, 1)
        spent += time.process_time_ns() - start
        examples += len(parsed.batch)
        at = end
    if examples != len(lines) - 1000:
        raise ValueError(f"{name}: {examples} of {len(lines) - 1000} lines are examples")
    of = f"{note}; {len(text) / examples:.0f} bytes a line"
    return [
        {"name": f"text.{name}", "value": round(examples * 1e9 / spent), "unit": "1/s", "note": of},
        {"name": f"text.{name}_bytes", "value": round(len(text) * 1e3 / spent, 1), "unit": "MB/s", "note": of},
    ]
