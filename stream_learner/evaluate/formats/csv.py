"""CSV text: cells of named columns, one example a line (RFC 4180, but no newlines inside quotes).

In: whole lines, and what the columns are. Out: examples.
This file must never guess what a column means: it is the label, the weight, left out, or a feature by its name.

| a cell | becomes |
|---|---|
| a number | key `XXH64("N")`, value the number, or its logarithm or bucket, as the specification says |
| anything else, and any cell of a categorical column | key `XXH64("N=text")`, value 1 |
| empty | nothing, or the missing indicator |

`N` is the name of the column, as `feature_keys` writes it.

Crosses and bias are those of the specification; so the features are those that the joiner makes of the JSON object
with the same fields, where text that looks like a number is written as one. A number has a sign, a point and an
exponent, or not; blanks around it are left out. Text keeps its blanks. Equal keys of a line are summed; a sum of 0 is
no feature.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence

import numpy as np

from stream_learner.core.events.fast import layout as ctx
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.events.feature_spec import FeatureSpec, covered
from stream_learner.core.events.plan import Plan
from stream_learner.core.machine.memory import address_of
from stream_learner.evaluate.formats import csv_kernel as cells
from stream_learner.evaluate.formats import work_layout as lay
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.formats.line_work import LineWork


def csv_names(line: bytes, separator: str = ",", quote: str | None = '"') -> tuple[str, ...]:
    """The names in a header line, blanks around them left out.

    Raises ValueError where it is not UTF-8 or not CSV, or where a name is empty or there twice.

    >>> csv_names(b'label,"site, page",age')
    ('label', 'site, page', 'age')
    """
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        rows = [text.split(separator)]
        if quote is not None:
            rows = list(csv.reader([text], delimiter=separator, quotechar=quote, strict=True))
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


def column_place(names: Sequence[str], wanted: str | int) -> int:
    """The place, from 0, of the column of a name, or of a number from 1 where no name is that.

    Raises ValueError naming the nearest name.

    >>> column_place(["label", "site"], "site"), column_place(["label", "site"], "1")
    (1, 0)
    """
    text = str(wanted)
    if text in names:
        return names.index(text)
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return int(text) - 1
    raise ValueError(f"no column {text!r}{_hint(text, names)}")


def _hint(name: str, names: Sequence[str]) -> str:
    """What may have been meant."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; the nearest is {near[0]!r}" if near else f"; there are {', '.join(map(repr, names[:10]))}"


def check_spec(names: Sequence[str], features: FeatureSpec, *, nested: bool = False) -> None:
    """Raise ValueError where the specification names what is no column nor above one (`user` for `user.age`).

    nested: columns may hold others, so that a name below one may be there too.
    """
    used = [*features.include, *features.exclude, *features.fields, *features.categorical]
    for name in [*used, *(name for cross in features.crosses for name in cross)]:
        if any(covered(column, (name,)) or (nested and covered(name, (column,))) for column in names):
            continue
        raise ValueError(f"no column {name!r}{_hint(name, names)}")


class CsvText:
    """Parses CSV text. The columns it hands out are overwritten by the next block. One thread at a time."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        label: str | int | None = None,
        weight: str | int | None = None,
        features: FeatureSpec | None = None,
        header: bool = True,
        separator: str = ",",
        quote: str | None = '"',
    ) -> None:
        """columns: their names, in order. header: line 1 has the names and is left out. label, weight: by name, or
        by place from 1; where the label is None or a cell empty there is nothing to learn, and an empty weight is 1.

        Raises ValueError for names, places or characters that cannot be.
        """
        check_names(columns)
        _check_characters(separator, quote)
        spec = FeatureSpec() if features is None else features
        check_spec(columns, spec)
        roles = _roles(columns, label, weight)
        memory = FieldMemory(Plan({}, spec, tuple(columns[place] for place in roles)))
        self._columns = columns
        self._header = header
        self._table = _table(memory, columns, roles, spec)
        self._work = LineWork(memory, _expected(len(columns), spec))
        self._work.set(lay.COLUMNS, address_of(self._table))
        self._work.set(lay.COLUMN_COUNT, len(columns))
        self._work.set(lay.SEPARATOR, ord(separator))
        self._work.set(lay.QUOTE, -1 if quote is None else ord(quote))

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """The examples of whole lines, the first of which has number `first_line`."""
        if self._header and first_line == 1:
            view = memoryview(text)
            behind = bytes(view).find(b"\n") + 1
            text, first_line = view[behind or len(view) :], 2
        return self._work.run(cells.csv_lines, text, first_line)


def _check_characters(separator: str, quote: str | None) -> None:
    for name, character in (("separator", separator), ("quote", quote)):
        if character is not None and (len(character) != 1 or not character.isascii() or character in "\r\n"):
            raise ValueError(f"the {name} must be one ASCII character, not {character!r}")
    if separator == quote:
        raise ValueError(f"separator and quote are both {quote!r}")


def _roles(columns: Sequence[str], label: str | int | None, weight: str | int | None) -> dict[int, int]:
    """What columns are, by place, that are no features."""
    roles: dict[int, int] = {}
    for kind, wanted in ((cells.LABEL, label), (cells.WEIGHT, weight)):
        if wanted is not None:
            place = column_place(columns, wanted)
            if place in roles:
                raise ValueError(f"column {columns[place]!r} cannot be label and weight")
            roles[place] = kind
    return roles


def _table(memory: FieldMemory, columns: Sequence[str], roles: dict[int, int], spec: FeatureSpec) -> np.ndarray:
    """Kind and address of the row of each column, i64[columns, 2]."""
    offsets = [memory.add_column(name) for name in columns]
    rows = memory.get(ctx.CTX_FIELDS)
    table = np.empty((len(columns), 2), np.int64)
    for place, (name, offset) in enumerate(zip(columns, offsets, strict=True)):
        feature = cells.FEATURE if spec.takes(name) else cells.IGNORED
        table[place] = roles.get(place, feature), rows + offset
    return table


def _expected(columns: int, spec: FeatureSpec) -> dict[int, str]:
    return {
        cells.BAD_LABEL: "a finite number as label, or true or false",
        cells.BAD_WEIGHT: "a finite number of 0 or more as weight",
        cells.INFINITE: "a finite number, or the column listed as categorical",
        cells.TOO_LONG: f"a text of at most {spec.max_value_bytes:,} bytes",
        cells.TOO_MANY: f"at most {spec.max_features:,} features, crosses among them, with finite values",
        cells.UNCLOSED: "a closing quote on the same line",
        cells.BEHIND_QUOTE: "a separator or the end of the line behind the closing quote",
        cells.FEW_CELLS: f"{columns:,} cells, but the line ends here",
        cells.MANY_CELLS: f"{columns:,} cells, but there are more from here on",
    }
