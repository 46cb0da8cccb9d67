"""Cells of CSV lines as features, labels and weights, inside a kernel.

In: the context and the state of `work_layout`, with a table of what each column is. Out: examples and faults.
This file must never read behind the newline that ends a line: every search stops at it.
"""

from __future__ import annotations

import numpy as np

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
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_i64, load_u64, store_byte
from stream_learner.evaluate.formats import work_layout as lay
from stream_learner.evaluate.formats.work_layout import (
    KEPT,
    NEWLINE,
    PASSED_OVER,
    RETURN,
    SPACE,
    STOPPED,
    TAB,
    ends_line,
    find_either,
    has_room,
    keep,
    next_line,
    note_fault,
    read_decimal,
    settle,
)

# What a column is: the first of its two words in the table; the second is the address of its row.
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
def _number(state: int, text: int, stop: int):  # type: ignore[no-untyped-def]
    """The number that [text, stop) is, blanks around it left out: (what it was, value).

    PASSED_OVER: it is no number. STOPPED: its value is in doubt, and has been asked for.
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
def _may_be_number(byte):  # type: ignore[no-untyped-def]
    """Whether a number can begin with this byte: a digit, a sign, a point, a blank."""
    return (byte >= 0x2B and byte <= 0x39 and byte != 0x2C and byte != 0x2F) or byte == SPACE or byte == TAB


@inlined
def _take_feature(context, state, row, text, length):  # type: ignore[no-untyped-def]
    """The feature of a cell that is not empty; KEPT, STOPPED or a fault."""
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
    return KEPT if emit(context, load_i64(row + FIELD_WATCH), key, 1.0) else TOO_MANY


@kernel
def _read_label(state: int, text: int, length: int):  # type: ignore[no-untyped-def]
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
def _read_weight(state: int, text: int, length: int):  # type: ignore[no-untyped-def]
    """The weight in a cell that is not empty: (KEPT, STOPPED or a fault, weight)."""
    answer, weight = _number(state, text, text + length)
    if answer == PASSED_OVER or not np.isfinite(weight) or weight < 0.0:
        return BAD_WEIGHT, 0.0
    return answer, abs(weight)


@kernel
def _undouble(context: int, text: int, quote: int):  # type: ignore[no-untyped-def]
    """A quoted text with doubled quotes, written out in scratch space: (its address, length, address of its end).

    Of a text that is too long only so much is written that this is seen. FAIL where it has no end.
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
def _quoted_cell(context: int, state: int, at: int):  # type: ignore[no-untyped-def]
    """The cell whose quote is at an address: (its text, length, address behind its closing quote).

    Where it is wrong: (place, fault, FAIL).
    """
    quote = load_i64(state + lay.QUOTE)
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
    elif load_byte(behind) != load_i64(state + lay.SEPARATOR):
        return behind, BEHIND_QUOTE, FAIL
    return text, length, behind


@kernel
def _line(context: int, state: int, at: int):  # type: ignore[no-untyped-def]
    """The line at an address: (address it was read to, what it was)."""
    if ends_line(at):
        return at, PASSED_OVER
    columns, count = load_i64(state + lay.COLUMNS), load_i64(state + lay.COLUMN_COUNT)
    separator, quote = load_i64(state + lay.SEPARATOR), load_i64(state + lay.QUOTE)
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
        return load_i64(state + lay.AT), TOO_MANY
    keep(context, state, label, weight, labelled)
    return behind, KEPT


@kernel
def csv_lines(context: int, state: int) -> int:
    """Take lines until the end, or until there is no room or a number in doubt; says which."""
    end = load_i64(state + lay.END)
    at = load_i64(state + lay.AT)
    while at < end:
        if not has_room(context, state):
            return lay.NO_ROOM
        behind, answer = _line(context, state, at)
        if answer == STOPPED:
            return lay.IN_DOUBT
        if answer < 0:
            note_fault(state, behind, answer)
        at = next_line(state, behind)
    return lay.DONE
