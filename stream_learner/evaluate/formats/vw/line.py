"""Reads the words of a line of VW text: label, importance, tag, namespaces, features.

Features are written behind those there are, but no count of the state moves beyond the line: a line is undone by not
counting it. The text ends with a line feed.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_i64, store_f64, store_i64, store_u64
from stream_learner.evaluate.formats.vw.layout import (
    EXAMPLES,
    HAS_BASE,
    KEEP,
    KEYS,
    LABELS,
    LETTERS,
    MAX_FEATURES,
    NO_BAR,
    NO_BLANK,
    NO_END,
    NO_FAULT,
    NO_LABEL,
    NO_NAMESPACE,
    NO_NUMBER,
    NO_ROOM,
    NOT_FINITE,
    ROOM,
    SEGMENT_COUNT,
    SEGMENTS,
    SOME_DROPPED,
    STAMP,
    TAB,
    TAG_NOT_LAST,
    TAGS,
    TOO_MANY,
    TOO_MANY_LABELS,
    VALUES,
    WEIGHTS,
)
from stream_learner.evaluate.formats.vw.names import (
    ends_line,
    enter_namespace,
    is_blank,
    name_end,
    name_key,
    nameless_key,
)
from stream_learner.evaluate.formats.vw.numbers import MALFORMED, read_number

_BAR, _COLON, _QUOTE, _TAB, _BLANK = 0x7C, 0x3A, 0x27, 0x09, 0x20


@kernel
def read_label(state: int, at: int) -> tuple[int, int]:
    """Read label, importance and tag: (address of the bar, NO_FAULT), or (address of the fault, the fault)."""
    row = load_i64(state + EXAMPLES)
    store_f64(load_i64(state + LABELS) + 8 * row, np.nan)
    store_f64(load_i64(state + WEIGHTS) + 8 * row, 1.0)
    tag = load_i64(state + TAGS) + 16 * row
    store_i64(tag, at)
    store_i64(tag + 8, at)
    words = 0
    while True:
        while load_byte(at) == _BLANK:
            at += 1
        byte = load_byte(at)
        if byte == _BAR:
            return at, NO_FAULT
        if byte == _TAB:
            return at, TAB
        if ends_line(byte):
            return at, NO_BAR
        behind, value = read_number(state, at)
        if behind == MALFORMED or load_byte(behind) != _BLANK:
            return _read_tag(tag, at)
        if not abs(value) < np.inf:
            return at, NOT_FINITE
        if words == 0:
            store_f64(load_i64(state + LABELS) + 8 * row, value)
        elif words == 1:
            store_f64(load_i64(state + WEIGHTS) + 8 * row, value)
        elif words > 2:
            return at, TOO_MANY_LABELS
        elif value != 0.0:
            return at, HAS_BASE
        words += 1
        at = behind


@kernel
def _read_tag(tag: int, at: int) -> tuple[int, int]:
    """Read a word that is no number as the tag: it must touch the bar, or begin with a quote and be the last before
    it."""
    end = at
    byte = load_byte(end)
    while byte != _BAR and not is_blank(byte) and not ends_line(byte):
        end += 1
        byte = load_byte(end)
    bar = end
    while load_byte(bar) == _BLANK:
        bar += 1
    quoted = load_byte(at) == _QUOTE
    if ends_line(load_byte(bar)):
        return bar, NO_BAR
    if load_byte(bar) == _TAB:
        return bar, TAB
    if load_byte(bar) != _BAR:
        return _no_tag(at, bar, TAG_NOT_LAST if quoted else NO_LABEL)
    if bar > end and not quoted:
        return at, NO_LABEL
    store_i64(tag, at + 1 if quoted else at)
    store_i64(tag + 8, end)
    return bar, NO_FAULT


@kernel
def _no_tag(at: int, behind: int, fault: int) -> tuple[int, int]:
    """The fault of a word in a line with a bar; in a line without one, NO_BAR."""
    byte = load_byte(behind)
    while byte != _BAR and not ends_line(byte):
        behind += 1
        byte = load_byte(behind)
    return (at, fault) if byte == _BAR else (behind, NO_BAR)


@kernel
def read_namespaces(state: int, at: int, first: int) -> tuple[int, int, int, bool]:
    """Read all namespaces from the bar on, and write their features from index `first` on.

    Returns the address behind the last byte of the line before its end, NO_FAULT, the index behind the features, and
    whether a letter has come twice; or the address of a fault and the fault. Segments without features are left out.
    """
    store_i64(state + SEGMENT_COUNT, 0)
    m = first
    again = False
    while load_byte(at) == _BAR:
        at += 1
        begin = m
        letter = _BLANK
        scale = 1.0
        byte = load_byte(at)
        if byte == _COLON:
            return at, NO_NAMESPACE, m, again
        end = name_end(at)
        enter_namespace(state, at, end - at)
        if end > at:
            letter = byte
            at = end
        if load_byte(end) == _COLON:
            at, scale = read_number(state, end + 1)
            if at == MALFORMED:
                return end + 1, NO_NUMBER, m, again
            if not abs(scale) < np.inf:
                return end + 1, NOT_FINITE, m, again
        at, fault, m = _read_features(state, at, m, first, scale)
        if fault != NO_FAULT:
            return at, fault, m, again
        if load_i64(state + SOME_DROPPED) != 0 and load_byte(load_i64(state + KEEP) + letter) == 0:
            m = begin
        if m > begin:
            again = _note_segment(state, letter, begin, m) or again
    if load_byte(at) == 0x0D:
        at += 1
        if load_byte(at) != 0x0A:
            return at, NO_END, m, again
    return at, NO_FAULT, m, again


@inlined
def _note_segment(state: int, letter: int, begin: int, end: int) -> bool:
    """Note a segment of features. Returns whether its letter had one before in this line."""
    n = load_i64(state + SEGMENT_COUNT)
    store_i64(state + SEGMENT_COUNT, n + 1)
    segment = load_i64(state + SEGMENTS) + 24 * n
    store_i64(segment, letter)
    store_i64(segment + 8, begin)
    store_i64(segment + 16, end)
    group = load_i64(state + LETTERS) + 24 * letter
    stamp = load_i64(state + STAMP)
    if load_i64(group) == stamp:
        return True
    store_i64(group, stamp)
    store_i64(group + 8, begin)
    store_i64(group + 16, end)
    return False


@kernel
def _read_features(state: int, at: int, m: int, first: int, scale: float) -> tuple[int, int, int]:
    """Read the features of a namespace: (address of the bar or line end behind, NO_FAULT or a fault, index behind)."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    most = first + MAX_FEATURES
    limit = min(load_i64(state + ROOM), most)
    nameless = 0
    while True:
        byte = load_byte(at)
        if not is_blank(byte):
            return at, NO_FAULT if byte == _BAR or ends_line(byte) else NO_BLANK, m
        at += 1
        byte = load_byte(at)
        if is_blank(byte) or byte == _BAR or ends_line(byte):
            continue
        end = name_end(at)
        behind = end
        x = scale
        if load_byte(end) == _COLON:
            behind, x = read_number(state, end + 1)
            if behind == MALFORMED:
                return end + 1, NO_NUMBER, m
            x *= scale
            if not abs(x) < np.inf:
                return end + 1, NOT_FINITE, m
        if end == at:
            nameless += 1
        if x != 0.0:
            if m >= limit:
                return at, TOO_MANY if m >= most else NO_ROOM, m
            if end == at:
                key = nameless_key(state, at, end - at, nameless - 1)
            else:
                key = name_key(state, at, end - at)
            store_u64(keys + 8 * m, key)
            store_f64(values + 8 * m, x)
            m += 1
        at = behind
