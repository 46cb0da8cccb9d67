"""CSV text: cells of named columns, one example a line, read by Python's `csv` (RFC 4180).

A column is the label, the weight, left out, or a feature by its name. Nothing is guessed from its cells. A line becomes
the JSON object that an event with these fields would be:

| a cell | in the object |
|---|---|
| a number | the number; in a categorical column, the text |
| empty | nothing |
| anything else | the text |

A number may have a sign, a point and an exponent; blanks around it are ignored. Text keeps its blanks. A quoted text
ends on its line, and only there may a carriage return stand that does not end the line.
"""

from __future__ import annotations

import csv
import difflib
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson

from stream_learner.core.events.feature_spec import FeatureSpec, covered
from stream_learner.evaluate.formats.base import Fault, Parsed
from stream_learner.evaluate.formats.json_lines import ObjectRows

_NUMBER = re.compile(r"[ \t]*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[ \t]*")
_FIRST_OF_NUMBER = frozenset(" \t+-.0123456789")
_MOST_KNOWN_CELLS = 4_096
"""The cells of a column whose numbers are kept: many come again and again."""


def csv_names(line: bytes, separator: str = ",") -> tuple[str, ...]:
    """The names in a header line, blanks around them left out.

    Raises ValueError where it is not UTF-8 or not CSV, or where a name is empty or there twice.

    >>> csv_names(b'label,"site, page",age')
    ('label', 'site, page', 'age')
    """
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        rows = list(csv.reader([text], delimiter=separator, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"the header is not CSV: {error}") from None
    names = tuple(name.strip() for name in (rows[0] if rows else ()))
    check_names(names)
    return names


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError unless there are names of columns, all different and none empty."""
    if not names:
        raise ValueError("there is no column")
    for place, name in enumerate(names, 1):
        if not name:
            raise ValueError(f"column {place} has no name")
        if names.index(name) != place - 1:
            raise ValueError(f"column {place} has the name of column {names.index(name) + 1}, {name!r}")


def column_index(names: Sequence[str], wanted: str | int) -> int:
    """The index, from 0, of the column with this name; if there is none, of the column with this number from 1.

    Raises ValueError naming the nearest name.

    >>> column_index(["label", "site"], "site"), column_index(["label", "site"], "1")
    (1, 0)
    """
    text = str(wanted)
    if text in names:
        return names.index(text)
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return int(text) - 1
    raise ValueError(f"no column {text!r}{_hint(text, names)}")


def _hint(name: str, names: Sequence[str]) -> str:
    """The nearest name, or all names, for the message of an error."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; the nearest is {near[0]!r}" if near else f"; there are {', '.join(map(repr, names[:10]))}"


def check_spec(names: Sequence[str], features: FeatureSpec, *, nested: bool = False) -> None:
    """Raise ValueError if the specification names neither a column nor a prefix of one (`user` of `user.age`).

    nested: columns may hold fields, so that `user.age` may be a field of the column `user`.
    """
    used = [*features.include, *features.exclude, *features.fields, *features.categorical]
    for name in [*used, *(name for cross in features.crosses for name in cross)]:
        if any(covered(column, (name,)) or (nested and covered(name, (column,))) for column in names):
            continue
        raise ValueError(f"no column {name!r}{_hint(name, names)}")


def role_columns(
    columns: Sequence[str], label: str | int | None, weight: str | int | None
) -> tuple[int | None, int | None]:
    """The indices of the columns of label and weight. Raises ValueError as `column_index`, and if they are one."""
    places = [None if wanted is None else column_index(columns, wanted) for wanted in (label, weight)]
    if places[0] is not None and places[0] == places[1]:
        raise ValueError(f"column {columns[places[0]]!r} cannot be label and weight")
    return places[0], places[1]


class CsvText:
    """Parses CSV text. The columns it hands out are the caller's own. One thread at a time."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        label: str | int | None = None,
        weight: str | int | None = None,
        features: FeatureSpec | None = None,
        header: bool = True,
        separator: str = ",",
    ) -> None:
        """columns: their names, in order. header: line 1 has the names and is left out. label, weight: columns by name,
        or by number from 1. Without a label column, or with an empty label cell, there is nothing to learn; an empty
        weight is 1.

        Raises ValueError for names, numbers or a separator that cannot be used.
        """
        check_names(columns)
        if len(separator) != 1 or not separator.isascii() or separator in '\r\n"':
            raise ValueError(f"the separator must be one ASCII character and no quote, not {separator!r}")
        spec = FeatureSpec() if features is None else features
        check_spec(columns, spec)
        self._roles = role_columns(columns, label, weight)
        self._rows = ObjectRows(spec, [columns[at] for at in self._roles if at is not None])
        plans = [self._rows.plan.of(name) for name in columns]
        self._columns = list(columns)
        self._features = [plan.name for plan in plans if plan.feature]
        self._left_out = [at for at, plan in enumerate(plans) if not plan.feature][::-1]
        self._known = {
            at: _Cells(_feature) for at, plan in enumerate(plans) if plan.feature and plan.settings.kind != "category"
        }
        self._known |= {
            at: _Cells(read) for at, read in zip(self._roles, (_label, _weight), strict=True) if at is not None
        }
        self._header = header
        self._separator = separator
        self._cell = re.compile(rf'"(?:[^"]|"")*"(?!")|(?!")[^{re.escape(separator)}]*')
        csv.field_size_limit(sys.maxsize)

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """The examples of whole lines, the first of which has number `first_line`."""
        lines = bytes(text).decode(errors="surrogateescape").split("\n")
        lines = [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
        if self._header and first_line == 1:
            lines, first_line = lines[1:], 2
        objects, numbers, roles, faults = list[bytes](), list[int](), list[tuple[float, float]](), list[Fault]()
        for number, (line, cells) in enumerate(zip(lines, self._cells_of(lines), strict=True), first_line):
            if not line:
                continue
            try:
                found, *role = self._object(cells)
            except (ValueError, TypeError):
                faults.append(self._fault(line, number))
                continue
            objects.append(found)
            numbers.append(number)
            roles.append((role[0], role[1]))

        def column_of(number: int, name: str) -> int:
            return self._byte(lines[number - first_line], self._columns.index(name))

        label, weight = np.array(roles, np.float64).reshape(-1, 2).T
        return self._rows.parsed(objects, numbers, label, weight, faults, column_of)

    def _object(self, cells: list[Any]) -> tuple[bytes, float, float]:
        """The features in the cells of a line as JSON, label and weight. Raises ValueError or TypeError."""
        if len(cells) != len(self._columns):
            raise ValueError
        for at, known in self._known.items():
            cells[at] = known[cells[at]]
        label, weight = (
            default if at is None else cells[at] for at, default in zip(self._roles, (math.nan, 1.0), strict=True)
        )
        for at in self._left_out:
            del cells[at]
        values = [None if cell == "" else cell for cell in cells]
        return orjson.dumps(dict(zip(self._features, values, strict=True))), label, weight

    def _cells_of(self, lines: list[str]) -> list[list[str]]:
        """The cells of each line; none of one that is not CSV."""
        rows = self._read(lines)
        if rows is None or len(rows) != len(lines):  # a quote that is not closed goes on in the next line
            return [(self._read([line]) or [[]])[0] for line in lines]
        return rows

    def _read(self, lines: list[str]) -> list[list[str]] | None:
        try:
            return list(csv.reader(lines, delimiter=self._separator, strict=True))
        except csv.Error:
            return None

    def _fault(self, line: str, number: int) -> Fault:
        """The fault of a line of which no object can be made."""
        (cells,) = self._cells_of([line])
        if not cells:
            return self._not_csv(line, number)
        wanted = len(self._columns)
        if len(cells) < wanted:
            return Fault(number, _bytes(line) + 1, f"{wanted:,} cells, but the line ends here")
        if len(cells) > wanted:
            return Fault(number, self._byte(line, wanted) - 1, f"{wanted:,} cells, but there are more from here on")
        expected = ""
        for at, cell in enumerate(cells):
            try:
                _ = self._known[at][cell] if at in self._known else cell.encode()
            except ValueError as error:
                expected = "text in UTF-8" if isinstance(error, UnicodeError) else str(error)
                break
        return Fault(number, self._byte(line, at), expected)

    def _not_csv(self, line: str, number: int) -> Fault:
        at = 0
        while cell := self._cell.match(line, at):
            at = cell.end()
            if at == len(line):
                return Fault(number, _bytes(line[: line.index("\r")]) + 1, "no carriage return within a line")
            if line[at] != self._separator:
                expected = "a separator or the end of the line behind the closing quote"
                return Fault(number, _bytes(line[:at]) + 1, expected)
            at += 1
        return Fault(number, _bytes(line[:at]) + 1, "a closing quote on the same line")

    def _byte(self, line: str, column: int) -> int:
        """The byte, from 1, at which the cell of a column begins."""
        at = 0
        for _ in range(column):
            cell = self._cell.match(line, at)
            at = cell.end() + 1 if cell else at
        return _bytes(line[:at]) + 1


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


class _Cells(dict[str, Any]):
    """What the cells of a column become. The last ones are kept. Raises ValueError saying what should stand there."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, cell: str) -> Any:
        if len(self) >= _MOST_KNOWN_CELLS:
            self.clear()
        found = self[cell] = self._read(cell)
        return found


def _feature(cell: str) -> float | str:
    if not cell or cell[0] not in _FIRST_OF_NUMBER or not _NUMBER.fullmatch(cell):
        cell.encode()
        return cell
    if math.isinf(number := float(cell)):
        raise ValueError("a finite number, or the column listed as categorical")
    return number


def _label(cell: str) -> float:
    words = {"": math.nan, "true": 1.0, "false": 0.0}
    if cell.lower() in words:
        return words[cell.lower()]
    if not _NUMBER.fullmatch(cell) or math.isinf(label := float(cell)):
        raise ValueError("a finite number as label, or true or false")
    return label


def _weight(cell: str) -> float:
    if not cell:
        return 1.0
    if not _NUMBER.fullmatch(cell) or not 0.0 <= (weight := float(cell)) < math.inf:
        raise ValueError("a finite number of 0 or more as weight")
    return weight
