"""LIBSVM text, also called SVMlight: `label index:value index:value … # comment`, one example a line.

A feature's name is its index in decimal digits, as written: key `XXH64(index)`. Indices are not renumbered, whether
they begin at 0 or at 1.

- The label is a number. A line that begins with `index:value` has no label: there is nothing to learn from it.
- Blanks are spaces and tabs. What follows `#` is a comment; empty lines are skipped.
- `qid:…`, which groups examples for ranking, is ignored.
- Indices may come in any order; the values of equal indices of a line are summed. A value of 0 is no feature.

State, numbers and the end of a line are those of VW text; an index is a name without a namespace.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.numbers import MAX_DIGITS, leading_digits, more_digits
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_f64, load_i64, load_u64, store_f64, store_u64
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.formats.vw.arrange import FULL, add_constant, sum_repeats
from stream_learner.evaluate.formats.vw.kernel import finish_line, first_of, read_lines
from stream_learner.evaluate.formats.vw.layout import (
    BAD_INDEX,
    BAD_LABEL,
    BAD_VALUE,
    BLANK,
    EXAMPLES,
    KEYS,
    LABELS,
    MAX_FEATURES,
    NO_FAULT,
    NO_ROOM,
    NOT_FINITE,
    ROOM,
    TOO_MANY,
    VALUES,
    WEIGHTS,
)
from stream_learner.evaluate.formats.vw.names import enter_namespace, is_blank, name_key
from stream_learner.evaluate.formats.vw.numbers import MALFORMED, read_number
from stream_learner.evaluate.formats.vw.parser import VwText, VwTextOptions

_COLON, _COMMENT, _RETURN, _NEWLINE = 0x3A, 0x23, 0x0D, 0x0A
_QID = np.uint64(int.from_bytes(b"qid:", "little"))
_LOW_HALF = np.uint64(0xFFFFFFFF)


@inlined
def _ends_data(at: int) -> bool:
    """Whether a comment or the end of the line stands at an address."""
    byte = load_byte(at)
    return byte == _COMMENT or byte == _NEWLINE or (byte == _RETURN and load_byte(at + 1) == _NEWLINE)


@inlined
def _number(state: int, at: int) -> tuple[int, float]:
    """Read a whole token as a number: (address behind it or MALFORMED, value)."""
    behind, value = read_number(state, at)
    if behind != MALFORMED and not is_blank(load_byte(behind)) and not _ends_data(behind):
        behind = MALFORMED
    return behind, value


@inlined
def _index(at: int) -> tuple[int, int, np.uint64]:
    """Read the index at an address: (address of its first digit without leading zeros, of its `:` or MALFORMED, its
    number)."""
    count, index = leading_digits(load_u64(at))
    behind = at + count
    if count == 8:
        behind, index = more_digits(behind, index)
    while load_byte(at) == 0x30 and behind > at + 1:
        at += 1
    if load_byte(behind) != _COLON or behind == at or behind - at > MAX_DIGITS:
        return at, MALFORMED, index
    return at, behind, index


@kernel
def _features(state: int, at: int, first: int) -> tuple[int, int, int, bool]:
    """Read all features from an address on: (address behind, NO_FAULT or a fault, index behind, whether indices
    rise)."""
    keys, values = load_i64(state + KEYS), load_i64(state + VALUES)
    most = first + MAX_FEATURES
    limit = min(load_i64(state + ROOM), most)
    m, rising, before = first, True, np.uint64(0)
    while True:
        while is_blank(load_byte(at)):
            at += 1
        if _ends_data(at):
            return at, NO_FAULT, m, rising
        start, colon, index = _index(at)
        if colon == MALFORMED:
            if load_u64(at) & _LOW_HALF != _QID:
                return at, BAD_INDEX, m, rising
            while not is_blank(load_byte(at)) and not _ends_data(at):
                at += 1
            continue
        behind, value = _number(state, colon + 1)
        if behind == MALFORMED:
            return colon + 1, BAD_VALUE, m, rising
        if not np.isfinite(value):
            return colon + 1, NOT_FINITE, m, rising
        if value != 0.0:
            if m >= limit:
                return at, TOO_MANY if m >= most else NO_ROOM, m, rising
            rising = rising and (index > before or m == first)
            before = index
            store_u64(keys + 8 * m, name_key(state, start, colon - start))
            store_f64(values + 8 * m, value)
            m += 1
        at = behind


@kernel
def _line(state: int, at: int) -> tuple[int, int, int]:
    """Read a line, as `read_lines` says."""
    first = first_of(state)
    while is_blank(load_byte(at)):
        at += 1
    if _ends_data(at):
        return at, BLANK, first
    label = np.nan
    _, colon, _ = _index(at)
    if colon == MALFORMED:
        behind, label = _number(state, at)
        if behind == MALFORMED:
            return at, BAD_LABEL, first
        if not np.isfinite(label):
            return at, NOT_FINITE, first
        at = behind
    row = 8 * load_i64(state + EXAMPLES)
    store_f64(load_i64(state + LABELS) + row, label)
    store_f64(load_i64(state + WEIGHTS) + row, 1.0)
    enter_namespace(state, at, 0)
    at, fault, m, rising = _features(state, at, first)
    if fault != NO_FAULT:
        return at, fault, m
    m = add_constant(state, first, m)
    if m != FULL and not rising:
        m = _without_zeros(state, first, sum_repeats(state, first, m))
    fault, m = finish_line(state, first, m)
    return at, fault, m


@kernel
def _without_zeros(state: int, first: int, m: int) -> int:
    """Take the features of value 0 out of [first, m). Returns the index behind the last one that is left."""
    keys, values = load_i64(state + KEYS), load_i64(state + VALUES)
    kept = first
    for j in range(first, m):
        value = load_f64(values + 8 * j)
        store_u64(keys + 8 * kept, load_u64(keys + 8 * j))
        store_f64(values + 8 * kept, value)
        kept += value != 0.0
    return kept


@entry
def libsvm_lines(state: int) -> int:
    """Read lines, as `read_lines` says."""
    return read_lines(_line, state)


class LibsvmText:
    """Parses LIBSVM text. One thread at a time."""

    def __init__(self, *, bias: bool = True) -> None:
        """bias: add the constant feature to every example, key `XXH64("")`."""
        self._work = VwText(VwTextOptions(noconstant=not bias), libsvm_lines)

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """The examples of whole lines, the first of which has number `first_line`. The columns are the caller's."""
        return self._work.parse(text, first_line)
