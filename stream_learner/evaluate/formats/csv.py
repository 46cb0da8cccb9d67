"""CSV text: cells of named columns, one example a line (RFC 4180, but no newlines inside quotes).

A column is the label, the weight, left out, or a feature by its name. Nothing is guessed from its cells.

| a cell | becomes |
|---|---|
| a number | the category of its size, or what else the specification says, as `core.events.features` has it |
| anything else, and any cell of a categorical column | key `XXH64("N=text")`, value 1 |
| empty | nothing, or the missing indicator |

`N` is the name of the column, as `feature_keys` writes it.

Crosses and bias are those of the specification. The features are therefore the ones that the joiner makes of a JSON
object with the same fields, in which text that looks like a number is written as a number. A number may have a sign, a
point and an exponent; blanks around it are ignored. Text keeps its blanks. The values of equal keys of a line are
summed; a sum of 0 is no feature.

The kernel never reads behind the newline that ends a line: every search stops at it.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence

import numpy as np

from stream_learner.core.events.fast import layout as ctx
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.events.fast.finish import emit, finish_row, start_row
from stream_learner.core.events.fast.layout import (
    CTX_MAX_VALUE_BYTES,
    CTX_TEXT,
    FAIL,
    FIELD_NUMBER,
    FIELD_WATCH,
    TAKE_CATEGORY,
)
from stream_learner.core.events.fast.strings import category_key
from stream_learner.core.events.fast.values import take_number
from stream_learner.core.events.feature_spec import FeatureSpec, covered
from stream_learner.core.events.field_numbers import NOT_COUNTED
from stream_learner.core.events.plan import Plan
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import address_of, load_byte, load_i64, load_u64, store_byte
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.formats.kernel_parser import KernelParser
from stream_learner.evaluate.formats.kernel_state import (
    KEPT,
    NEWLINE,
    PASSED_OVER,
    RETURN,
    SPACE,
    STOPPED,
    TAB,
    State,
    ends_line,
    find_either,
    keep,
    read_decimal,
    read_lines,
    settle,
)


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
        """columns: their names, in order. header: line 1 has the names and is left out. label, weight: columns by name,
        or by number from 1. Without a label column, or with an empty label cell, there is nothing to learn; an empty
        weight is 1.

        Raises ValueError for names, numbers or characters that cannot be used.
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
        self._work = KernelParser(memory, _expected(len(columns), spec))
        self._work.state.columns = address_of(self._table)
        self._work.state.column_count = len(columns)
        self._work.state.separator = ord(separator)
        self._work.state.quote = -1 if quote is None else ord(quote)

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """The examples of whole lines, the first of which has number `first_line`."""
        if self._header and first_line == 1:
            view = memoryview(text)
            behind = bytes(view).find(b"\n") + 1
            text, first_line = view[behind or len(view) :], 2
        return self._work.run(csv_lines, text, first_line)


def _check_characters(separator: str, quote: str | None) -> None:
    for name, character in (("separator", separator), ("quote", quote)):
        if character is not None and (len(character) != 1 or not character.isascii() or character in "\r\n"):
            raise ValueError(f"the {name} must be one ASCII character, not {character!r}")
    if separator == quote:
        raise ValueError(f"separator and quote are both {quote!r}")


def _roles(columns: Sequence[str], label: str | int | None, weight: str | int | None) -> dict[int, int]:
    """Label and weight: the kind of column by its index."""
    roles: dict[int, int] = {}
    for kind, wanted in ((LABEL, label), (WEIGHT, weight)):
        if wanted is not None:
            place = column_index(columns, wanted)
            if place in roles:
                raise ValueError(f"column {columns[place]!r} cannot be label and weight")
            roles[place] = kind
    return roles


def _table(memory: FieldMemory, columns: Sequence[str], roles: dict[int, int], spec: FeatureSpec) -> np.ndarray:
    """For each column its kind, and the address of what the decoder knows of the field: i64[columns, 2]."""
    offsets = [memory.add_column(name) for name in columns]
    rows = memory.get(ctx.CTX_FIELDS)
    table = np.empty((len(columns), 2), np.int64)
    for place, (name, offset) in enumerate(zip(columns, offsets, strict=True)):
        feature = FEATURE if spec.takes(name) else IGNORED
        table[place] = roles.get(place, feature), rows + offset
    return table


def _expected(columns: int, spec: FeatureSpec) -> dict[int, str]:
    return {
        BAD_LABEL: "a finite number as label, or true or false",
        BAD_WEIGHT: "a finite number of 0 or more as weight",
        INFINITE: "a finite number, or the column listed as categorical",
        TOO_LONG: f"a text of at most {spec.max_value_bytes:,} bytes",
        TOO_MANY: f"at most {spec.max_features:,} features, crosses among them, with finite values",
        UNCLOSED: "a closing quote on the same line",
        BEHIND_QUOTE: "a separator or the end of the line behind the closing quote",
        FEW_CELLS: f"{columns:,} cells, but the line ends here",
        MANY_CELLS: f"{columns:,} cells, but there are more from here on",
    }


# Kinds of columns: the first of the two words of a column in the table.
IGNORED, FEATURE, LABEL, WEIGHT = 0, 1, 2, 3

# Faults.
BAD_LABEL, BAD_WEIGHT, INFINITE, TOO_LONG, TOO_MANY = -1, -2, -3, -4, -5
UNCLOSED, BEHIND_QUOTE, FEW_CELLS, MANY_CELLS = -6, -7, -8, -9

_TRUE = np.uint64(int.from_bytes(b"true", "little"))
_FALSE = np.uint64(int.from_bytes(b"false", "little"))
_SMALL_4 = np.uint64(0x20202020)
_SMALL_5 = np.uint64(0x2020202020)
_BYTES_4 = np.uint64(0xFFFFFFFF)
_BYTES_5 = np.uint64(0xFFFFFFFFFF)


@kernel
def _number(state: State, text: int, stop: int) -> tuple[int, float]:
    """Read [text, stop) as a number, without the blanks around it: (result, value).

    The result is KEPT; PASSED_OVER if it is no number; STOPPED if its value must be decided by Python first.
    """
    at = text
    while at < stop and (load_byte(at) == SPACE or load_byte(at) == TAB):
        at += 1
    behind, value, certain = read_decimal(at)
    if behind < 0:
        return PASSED_OVER, 0.0
    end = behind
    while end < stop and (load_byte(end) == SPACE or load_byte(end) == TAB):
        end += 1
    if end != stop:
        return PASSED_OVER, 0.0
    if not certain:
        value, known = settle(state, at, behind)
        if not known:
            return STOPPED, 0.0
    return KEPT, value


@inlined
def _may_be_number(byte: int) -> bool:
    """Whether a number can begin with this byte: a digit, a sign, a point, a blank."""
    return (byte >= 0x2B and byte <= 0x39 and byte != 0x2C and byte != 0x2F) or byte == SPACE or byte == TAB


@inlined
def _take_feature(context: int, state: State, row: int, text: int, length: int) -> int:
    """Add the feature of a cell that is not empty. Returns KEPT, STOPPED or a fault."""
    if load_i64(row + FIELD_NUMBER) != TAKE_CATEGORY and _may_be_number(load_byte(text)):
        answer, value = _number(state, text, text + length)
        if answer == STOPPED:
            return STOPPED
        if answer == KEPT:
            if not np.isfinite(value):
                return INFINITE
            return KEPT if take_number(context, row, value) else TOO_MANY
    if length > load_i64(context + CTX_MAX_VALUE_BYTES):
        return TOO_LONG
    key = category_key(context, row, text, length, True)
    return KEPT if emit(context, load_i64(row + FIELD_WATCH), NOT_COUNTED, key, 1.0) else TOO_MANY


@kernel
def _read_label(state: State, text: int, length: int) -> tuple[int, float]:
    """The label in a cell that is not empty, `true` and `false` among them: (KEPT, STOPPED or a fault, label)."""
    word = load_u64(text)
    if length == 4 and (word & _BYTES_4) | _SMALL_4 == _TRUE:
        return KEPT, 1.0
    if length == 5 and (word & _BYTES_5) | _SMALL_5 == _FALSE:
        return KEPT, 0.0
    answer, label = _number(state, text, text + length)
    if answer == PASSED_OVER or not np.isfinite(label):
        return BAD_LABEL, np.nan
    return answer, label


@kernel
def _read_weight(state: State, text: int, length: int) -> tuple[int, float]:
    """The weight in a cell that is not empty: (KEPT, STOPPED or a fault, weight)."""
    answer, weight = _number(state, text, text + length)
    if answer == PASSED_OVER or not np.isfinite(weight) or weight < 0.0:
        return BAD_WEIGHT, 0.0
    return answer, abs(weight)


@kernel
def _undouble(context: int, text: int, quote: int) -> tuple[int, int, int]:
    """Write a quoted text, with each doubled quote as one, into scratch memory: (its address, length, end in the line).

    A text that is too long is cut one byte behind the limit. The end is FAIL if there is no closing quote.
    """
    out = load_i64(context + CTX_TEXT)
    most = load_i64(context + CTX_MAX_VALUE_BYTES)
    length = 0
    while True:
        byte = load_byte(text)
        if byte == quote:
            text += 1
            if load_byte(text) != quote:
                break
        elif byte == NEWLINE:
            return out, length, FAIL
        if length <= most:
            store_byte(out + length, byte)
            length += 1
        text += 1
    store_byte(out + length, NEWLINE)
    return out, length, text


@kernel
def _quoted_cell(context: int, state: State, at: int) -> tuple[int, int, int]:
    """Read the quoted cell at an address: (address of its text, length, address behind its closing quote).

    If it is faulty: (address of the fault, fault, FAIL).
    """
    quote = state.quote
    text = at + 1
    close = find_either(text, quote, NEWLINE)
    if load_byte(close) == NEWLINE:
        return at, UNCLOSED, FAIL
    length = close - text
    behind = close + 1
    if load_byte(behind) == quote:
        text, length, behind = _undouble(context, text, quote)
        if behind < 0:
            return at, UNCLOSED, FAIL
    if ends_line(behind):
        behind += load_byte(behind) == RETURN
    elif load_byte(behind) != state.separator:
        return behind, BEHIND_QUOTE, FAIL
    return text, length, behind


@kernel
def _line(context: int, state: State, at: int) -> tuple[int, int]:
    """Read the line at an address: (address it was read to, KEPT, PASSED_OVER, STOPPED or a fault)."""
    if ends_line(at):
        return at, PASSED_OVER
    columns, count = state.columns, state.column_count
    separator, quote = state.separator, state.quote
    label, labelled, weight, answer = np.nan, False, 1.0, KEPT
    start_row(context)
    behind = at - 1
    for column in range(count):
        if column > 0 and load_byte(behind) == NEWLINE:
            return behind, FEW_CELLS
        at = behind + 1
        if load_byte(at) == quote:
            text, length, behind = _quoted_cell(context, state, at)
            if behind < 0:
                return text, length
        else:
            text, behind = at, find_either(at, separator, NEWLINE)
            length = behind - text
            if load_byte(behind) == NEWLINE and length > 0 and load_byte(behind - 1) == RETURN:
                length -= 1
        if length == 0:
            continue
        kind = load_i64(columns + 16 * column)
        if kind == FEATURE:
            answer = _take_feature(context, state, load_i64(columns + 16 * column + 8), text, length)
        elif kind == LABEL:
            answer, label = _read_label(state, text, length)
            labelled = True
        elif kind == WEIGHT:
            answer, weight = _read_weight(state, text, length)
        if answer != KEPT:
            return at, answer
    if load_byte(behind) != NEWLINE:
        return behind, MANY_CELLS
    if not finish_row(context):
        return state.at, TOO_MANY
    keep(context, state, label, weight, labelled)
    return behind, KEPT


@entry
def csv_lines(context: int, state: State) -> int:
    """Read lines, as `read_lines` says."""
    return read_lines(_line, context, state)
