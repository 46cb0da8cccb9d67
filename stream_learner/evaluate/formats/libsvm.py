"""LIBSVM text, also called SVMlight: `label index:value index:value … # comment`, one example a line.

A feature's name is its index in decimal digits, as written: key `XXH64(index)`. Indices are not renumbered, whether
they begin at 0 or at 1.

- The label is a number. A line that begins with `index:value` has no label: there is nothing to learn from it.
- Blanks are spaces and tabs. What follows `#` is a comment; empty lines are skipped.
- `qid:…`, which groups examples for ranking, is ignored.
- Indices may come in any order; the values of equal indices of a line are summed. A value of 0 is no feature.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast import layout as ctx
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.events.fast.finish import append, finish_row, start_row
from stream_learner.core.events.fast.layout import CTX_BIAS, CTX_COUNT, CTX_FIELDS, CTX_MAX_FEATURES, FAIL
from stream_learner.core.events.fast.numbers import MAX_DIGITS, leading_digits, more_digits
from stream_learner.core.events.fast.strings import category_key
from stream_learner.core.events.feature_spec import MAX_FEATURES_LIMIT, FeatureSpec
from stream_learner.core.events.plan import Plan
from stream_learner.core.log.examples import MAX_FEATURES
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_i64, load_u64, store_i64
from stream_learner.evaluate.formats import kernel_state as lay
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.formats.kernel_parser import KernelParser
from stream_learner.evaluate.formats.kernel_state import (
    KEPT,
    PASSED_OVER,
    STOPPED,
    State,
    ends_line,
    keep,
    read_decimal,
    read_lines,
    settle,
    skip_blanks,
)

_COLON, _COMMENT = 0x3A, 0x23
_QID = np.uint64(int.from_bytes(b"qid:", "little"))
_LOW_HALF = np.uint64(0xFFFFFFFF)
_BIAS = np.uint64(BIAS_KEY)

_BAD_LABEL, _BAD_INDEX, _BAD_VALUE, _INFINITE, _TOO_MANY = -1, -2, -3, -4, -5
_EXPECTED = {
    _BAD_LABEL: "a number as label, and a blank behind it",
    _BAD_INDEX: "an index of at most 19 digits and `:`, as in 7:0.5",
    _BAD_VALUE: "a number behind `index:`, and a blank behind it",
    _INFINITE: "a finite number",
    _TOO_MANY: f"at most {MAX_FEATURES - 1:,} features",
}


@inlined
def _ends_token(at: int) -> bool:
    """Whether a blank, a comment or the end of the line stands at an address."""
    byte = load_byte(at)
    return byte == lay.SPACE or byte == lay.TAB or byte == _COMMENT or ends_line(at)


@inlined
def _number(state: State, at: int) -> tuple[int, int, float]:
    """Read a whole token as a number: (address behind it, KEPT, value); if it is none, (FAIL, KEPT or STOPPED, 0)."""
    behind, value, certain = read_decimal(at)
    if behind < 0 or not _ends_token(behind):
        return FAIL, KEPT, 0.0
    if not certain:
        value, known = settle(state, at, behind)
        if not known:
            return FAIL, STOPPED, 0.0
    return behind, KEPT, value


@inlined
def _index(at: int) -> tuple[int, int, np.uint64]:
    """Read the index at an address: (address of its first digit without leading zeros, of its `:` or FAIL, its
    number)."""
    count, index = leading_digits(load_u64(at))
    behind = at + count
    if count == 8:
        behind, index = more_digits(behind, index)
    while load_byte(at) == 0x30 and behind > at + 1:
        at += 1
    if load_byte(behind) != _COLON or behind == at or behind - at > MAX_DIGITS:
        return at, FAIL, index
    return at, behind, index


@kernel
def _label(state: State, at: int) -> tuple[int, int, float, bool]:
    """Read the label at an address: (address behind it, KEPT, STOPPED or a fault, label, whether there is one)."""
    _, colon, _ = _index(at)
    if colon >= 0:
        return at, KEPT, np.nan, False
    behind, answer, label = _number(state, at)
    if behind < 0:
        return at, STOPPED if answer == STOPPED else _BAD_LABEL, np.nan, True
    if not np.isfinite(label):
        return at, _INFINITE, np.nan, True
    return behind, KEPT, label, True


@kernel
def _features(context: int, state: State, at: int) -> tuple[int, int, bool]:
    """Read all features from an address on: (address behind, KEPT, STOPPED or a fault, whether the indices rise)."""
    names = load_i64(context + CTX_FIELDS) + state.columns
    most = load_i64(context + CTX_MAX_FEATURES)
    rising, before, any_yet = True, np.uint64(0), False
    while True:
        at = skip_blanks(at)
        if _ends_token(at):
            return at, KEPT, rising
        first, colon, index = _index(at)
        if colon < 0:
            if load_u64(at) & _LOW_HALF != _QID:
                return at, _BAD_INDEX, rising
            while not _ends_token(at):
                at += 1
            continue
        behind, answer, value = _number(state, colon + 1)
        if behind < 0:
            return colon + 1, STOPPED if answer == STOPPED else _BAD_VALUE, rising
        if not np.isfinite(value):
            return colon + 1, _INFINITE, rising
        rising = rising and (index > before or not any_yet)
        before, any_yet = index, True
        if value != 0.0:
            if load_i64(context + CTX_COUNT) >= most:
                return at, _TOO_MANY, rising
            append(context, category_key(context, names, first, colon - first, False), value)
        at = behind


@kernel
def _line(context: int, state: State, at: int) -> tuple[int, int]:
    """Read the line at an address: (address it was read to, KEPT, PASSED_OVER, STOPPED or a fault)."""
    at = skip_blanks(at)
    if load_byte(at) == _COMMENT or ends_line(at):
        return at, PASSED_OVER
    start_row(context)
    at, answer, label, labelled = _label(state, at)
    if answer != KEPT:
        return at, answer
    at, answer, rising = _features(context, state, at)
    if answer != KEPT:
        return at, answer
    if rising:
        if load_i64(context + CTX_BIAS) != 0:
            append(context, _BIAS, 1.0)
    else:
        store_i64(context + ctx.CTX_ZEROS, 1)
        if not finish_row(context):
            return at, _INFINITE
    keep(context, state, label, 1.0, labelled)
    return at, KEPT


@entry
def libsvm_lines(context: int, state: State) -> int:
    """Read lines, as `read_lines` says."""
    return read_lines(_line, context, state)


class LibsvmText:
    """Parses LIBSVM text. The columns it hands out are overwritten by the next block. One thread at a time."""

    def __init__(self, *, bias: bool = True) -> None:
        """bias: add the constant feature to every example, key `XXH64("")`."""
        memory = FieldMemory(Plan({}, FeatureSpec(bias=bias, max_features=MAX_FEATURES_LIMIT)))
        memory.set(CTX_MAX_FEATURES, MAX_FEATURES - 1)
        self._work = KernelParser(memory, _EXPECTED)
        self._work.state.columns = memory.add_unnamed()

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """The examples of whole lines, the first of which has number `first_line`."""
        return self._work.run(libsvm_lines, text, first_line)
