"""The kernel that reads a block of lines of VW text: it keeps examples, notes faults, and says where to go on.

Nothing remains of a line that is faulty, or that must be read again: only the counts of the state make features count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_f64, load_i64, store_i64
from stream_learner.evaluate.formats.vw.arrange import FULL, arrange, unseen_letters
from stream_learner.evaluate.formats.vw.layout import (
    AT,
    BLANK,
    CROSS_COUNT,
    DONE,
    DOUBT,
    DOUBTS,
    END,
    EXAMPLES,
    FAULT_LIST,
    FAULTS,
    GROW,
    KNOWN,
    LETTER,
    LINE,
    LINES,
    MAX_FEATURES,
    NO_FAULT,
    NO_ROOM,
    NOT_FINITE,
    REPEATS,
    ROOM,
    ROW_START,
    STAMP,
    TAGGED,
    TAGS,
    TOO_MANY,
    VALUES,
)
from stream_learner.evaluate.formats.vw.line import read_label, read_namespaces
from stream_learner.evaluate.formats.vw.names import is_blank


@entry
def parse_block(state: int) -> int:
    """Read lines until all are read, or a line needs something from Python; that line is then read again from its
    start."""
    return read_lines(_read_line, state)


@inlined
def read_lines(line: Any, state: int) -> int:
    """Read lines until all are read, or one needs something from Python.

    line: the kernel that reads the line at an address. It returns its end, NO_FAULT and the index behind its features;
    or the address of a fault, the fault and any index. It appends features only.
    """
    at = load_i64(state + AT)
    end = load_i64(state + END)
    while at < end:
        store_i64(state + DOUBTS, 0)
        store_i64(state + STAMP, load_i64(state + STAMP) + 1)
        behind, fault, m = line(state, at)
        wanted = _wanted(state, fault, m)
        if wanted != DONE:
            store_i64(state + AT, at)
            return wanted
        if fault == NO_FAULT:
            _count_row(state, m)
        elif fault != BLANK:
            _note_fault(state, at, behind, fault)
        store_i64(state + KNOWN, 0)
        store_i64(state + LINE, load_i64(state + LINE) + 1)
        at = _line_end(behind) + 1
    store_i64(state + AT, at)
    return DONE


@inlined
def _is_blank_line(at: int) -> bool:
    """Whether there is nothing but blanks up to the line feed."""
    while is_blank(load_byte(at)) or load_byte(at) == 0x0D:
        at += 1
    return load_byte(at) == 0x0A


@inlined
def _line_end(at: int) -> int:
    """The address of the line feed that ends a line."""
    while load_byte(at) != 0x0A:
        at += 1
    return at


@inlined
def _wanted(state: int, fault: int, m: int) -> int:
    """The code of what Python must do before the line is read again; DONE if nothing.

    LETTER comes first: the letters are marked as seen, and the line would not ask for them again.
    """
    if fault == NO_FAULT and m == FULL:
        return LETTER
    if load_i64(state + DOUBTS) > load_i64(state + KNOWN):
        return DOUBT
    return GROW if fault == NO_ROOM else DONE


@kernel
def _read_line(state: int, at: int) -> tuple[int, int, int]:
    """Read a line, as `read_lines` says. The index FULL: wildcards must be expanded with the line's letters."""
    first = first_of(state)
    if _is_blank_line(at):
        return at, BLANK, first
    at, fault = read_label(state, at)
    if fault != NO_FAULT:
        return at, fault, first
    at, fault, m, again = read_namespaces(state, at, first)
    if fault != NO_FAULT:
        return at, fault, m
    if unseen_letters(state):
        return at, NO_FAULT, FULL
    fault, m = finish_line(state, first, arrange(state, first, m, again))
    return at, fault, m


@inlined
def first_of(state: int) -> int:
    """The index of the first feature of the line that is read."""
    return load_i64(load_i64(state + ROW_START) + 8 * load_i64(state + EXAMPLES))


@inlined
def finish_line(state: int, first: int, m: int) -> tuple[int, int]:
    """What comes of features in [first, m), or of FULL: (NO_FAULT or the fault, index behind them)."""
    if m == FULL:
        return TOO_MANY if load_i64(state + ROOM) - first >= MAX_FEATURES else NO_ROOM, first
    return NO_FAULT if _all_finite(state, first, m) else NOT_FINITE, m


@kernel
def _all_finite(state: int, first: int, m: int) -> bool:
    """Whether all values are finite. Values as written are; sums of repeats and products may have become infinite."""
    if load_i64(state + REPEATS) != 0 and load_i64(state + CROSS_COUNT) == 0:
        return True
    values = load_i64(state + VALUES)
    for j in range(first, m):
        if not abs(load_f64(values + 8 * j)) < np.inf:
            return False
    return True


@kernel
def _note_fault(state: int, start: int, at: int, fault: int) -> None:
    n = load_i64(state + FAULTS)
    entry = load_i64(state + FAULT_LIST) + 24 * n
    store_i64(entry, load_i64(state + LINE))
    store_i64(entry + 8, at - start + 1)
    store_i64(entry + 16, fault)
    store_i64(state + FAULTS, n + 1)


@kernel
def _count_row(state: int, m: int) -> None:
    """Count the line that has just been read as an example."""
    row = load_i64(state + EXAMPLES)
    tag = load_i64(state + TAGS) + 16 * row
    if load_i64(tag + 8) > load_i64(tag):
        store_i64(state + TAGGED, load_i64(state + TAGGED) + 1)
    store_i64(load_i64(state + LINES) + 8 * row, load_i64(state + LINE))
    store_i64(load_i64(state + ROW_START) + 8 * (row + 1), m)
    store_i64(state + EXAMPLES, row + 1)
