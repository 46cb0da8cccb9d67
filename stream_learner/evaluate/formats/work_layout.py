"""Where the kernels of text formats keep what they read and write, and the steps that all of them share.

In: nothing. Out: byte offsets into the state, and kernels that read and write it.
This file must never know a format.

The *state* is one block of words. Features go where the context of `events.fast.layout` says, everything else where the
state says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_learner.core.events.fast.layout import (
    CTX_CAPACITY,
    CTX_COUNT,
    CTX_FILLED,
    CTX_MAX_FEATURES,
    CTX_ROW_STARTS,
    FAIL,
)
from stream_learner.core.events.fast.numbers import MAX_DIGITS, more_digits, nearest_float
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_byte, load_f64, load_i64, store_f64, store_i64, trailing_zeros

# The text: address of the next line and its number; address behind the text, where a newline of ours stands.
AT = 0
LINE = 8
END = 16
# Examples: how many there are and fit; addresses of their columns.
ROWS = 24
ROW_ROOM = 32
LABELS = 40
WEIGHTS = 48
LINES = 56
LABELLED = 64
# Faults: how many there are and fit; address of i64[.,3]: line, column, code.
FAULTS = 72
FAULT_ROOM = 80
FAULT_AT = 88
# Numbers whose nearest float64 is in doubt: the one stopped at, by address; those known, by address and value.
DOUBT = 96
DOUBT_END = 104
KNOWN = 112
KNOWN_AT = 120
# What the format needs: address of a table of columns, how many, the separator, the quote or -1; of a table of rows,
# the addresses of its labels and weights.
COLUMNS = 128
COLUMN_COUNT = 136
SEPARATOR = 144
QUOTE = 152
LABELS_IN = 160
WEIGHTS_IN = 168
STATE_BYTES = 176

# Why a kernel stopped.
DONE = 0
NO_ROOM = 1
IN_DOUBT = 2

# What a line was. Faults are negative codes of the format.
KEPT = 0
PASSED_OVER = 1
STOPPED = 2

NEWLINE, RETURN, SPACE, TAB = 0x0A, 0x0D, 0x20, 0x09
POINT, PLUS, MINUS, EXPONENT = 0x2E, 0x2B, 0x2D, 0x65

_0 = np.uint64(0)


@intrinsic
def either_marks(typingctx: Any, address: Any, one: Any, other: Any) -> Any:
    """A bit for each of 16 bytes from an address on that equals one of two bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, width = ir.IntType(8), 16
        vector = ir.VectorType(byte, width)
        text = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=1)

        def splat(number: Any) -> Any:
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(number, byte), _index(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
            return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)

        marks = builder.or_(
            builder.icmp_unsigned("==", text, splat(args[1])), builder.icmp_unsigned("==", text, splat(args[2]))
        )
        return builder.zext(builder.bitcast(marks, ir.IntType(width)), ir.IntType(64))

    return types.uint64(types.int64, types.int64, types.int64), codegen


def _index(place: int) -> Any:
    return ir.Constant(ir.IntType(32), place)


@inlined
def find_either(at, one, other):  # type: ignore[no-untyped-def]
    """The first address from `at` on that holds one of two bytes; one of them must be there."""
    marks = either_marks(at, one, other)
    while marks == _0:
        at += 16
        marks = either_marks(at, one, other)
    return at + trailing_zeros(marks)


@inlined
def ends_line(at):  # type: ignore[no-untyped-def]
    """Whether a newline stands at an address, or a carriage return and a newline."""
    byte = load_byte(at)
    return byte == NEWLINE or (byte == RETURN and load_byte(at + 1) == NEWLINE)


@inlined
def skip_blanks(at):  # type: ignore[no-untyped-def]
    """The first address from `at` on that holds neither space nor tab."""
    byte = load_byte(at)
    while byte == SPACE or byte == TAB:
        at += 1
        byte = load_byte(at)
    return at


@kernel
def _read_exponent(at: int):  # type: ignore[no-untyped-def]
    """The exponent whose `e` is at an address: (address behind, exponent, whether it is of at most 4 digits).

    The address is that of the `e` where no digits follow.
    """
    sign = load_byte(at + 1)
    first = at + 2 if sign == PLUS or sign == MINUS else at + 1
    behind, power = more_digits(first, _0)
    if behind == first:
        return at, 0, True
    exponent = -np.int64(power) if sign == MINUS else np.int64(power)
    return behind, exponent, behind <= first + 4


@kernel
def _read_rest(first: int, at: int, mantissa: np.uint64):  # type: ignore[no-untyped-def]
    """What follows the digits in [first, at), as `read_decimal`, without the sign."""
    significant = at - first if mantissa != _0 or at - first > MAX_DIGITS else 0
    digits = at - first
    exponent = 0
    if load_byte(at) == POINT:
        point = at + 1
        at = point
        while significant == 0 and load_byte(at) == 0x30:
            at += 1
        fraction = at
        at, mantissa = more_digits(fraction, mantissa)
        significant += at - fraction
        digits += at - point
        exponent = point - at
    if digits == 0:
        return FAIL, 0.0, True
    small = True
    if load_byte(at) | 0x20 == EXPONENT:
        at, power, small = _read_exponent(at)
        exponent += power
    if significant > MAX_DIGITS or not small:
        return at, 0.0, False
    value, certain = nearest_float(mantissa, exponent)
    return at, value, certain


@kernel
def read_decimal(at: int):  # type: ignore[no-untyped-def]
    """A decimal number, with sign, point and exponent or without: (address behind or FAIL, value, whether certain).

    What is certain is the nearest float64. FAIL where no digit stands.
    """
    sign = load_byte(at)
    first = at + 1 if sign == MINUS or sign == PLUS else at
    behind, mantissa = more_digits(first, _0)
    byte = load_byte(behind)
    if behind > first and behind - first <= 15 and byte != POINT and byte | 0x20 != EXPONENT:
        value, certain = np.float64(mantissa), True
    else:
        behind, value, certain = _read_rest(first, behind, mantissa)
    return behind, -value if sign == MINUS else value, certain


@kernel
def settle(state: int, at: int, behind: int):  # type: ignore[no-untyped-def]
    """A number in doubt, its text in [at, behind): (its value, whether it is known). What is not known is asked for."""
    known = load_i64(state + KNOWN_AT)
    for i in range(load_i64(state + KNOWN)):
        if load_i64(known + 16 * i) == at:
            return load_f64(known + 16 * i + 8), True
    store_i64(state + DOUBT, at)
    store_i64(state + DOUBT_END, behind)
    return 0.0, False


@inlined
def has_room(context, state):  # type: ignore[no-untyped-def]
    """Whether one more example, or one more fault, surely fits."""
    features = load_i64(context + CTX_FILLED) + load_i64(context + CTX_MAX_FEATURES) + 1
    rows = load_i64(state + ROWS) < load_i64(state + ROW_ROOM)
    faults = load_i64(state + FAULTS) < load_i64(state + FAULT_ROOM)
    return features <= load_i64(context + CTX_CAPACITY) and rows and faults


@inlined
def keep(context, state, label, weight, labelled):  # type: ignore[no-untyped-def]
    """The row of the context becomes an example."""
    row = load_i64(state + ROWS)
    filled = load_i64(context + CTX_FILLED) + load_i64(context + CTX_COUNT)
    store_i64(context + CTX_FILLED, filled)
    store_i64(load_i64(context + CTX_ROW_STARTS) + 8 * row + 8, filled)
    store_f64(load_i64(state + LABELS) + 8 * row, label)
    store_f64(load_i64(state + WEIGHTS) + 8 * row, weight)
    store_i64(load_i64(state + LINES) + 8 * row, load_i64(state + LINE))
    store_i64(load_i64(state + LABELLED) + 8 * row, np.int64(labelled))
    store_i64(state + ROWS, row + 1)


@kernel
def note_fault(state: int, at: int, code: int) -> None:
    """The line under way is left out, for what stands at an address."""
    count = load_i64(state + FAULTS)
    fault = load_i64(state + FAULT_AT) + 24 * count
    store_i64(fault, load_i64(state + LINE))
    store_i64(fault + 8, at - load_i64(state + AT) + 1)
    store_i64(fault + 16, code)
    store_i64(state + FAULTS, count + 1)


@inlined
def next_line(state, at):  # type: ignore[no-untyped-def]
    """Go on behind the newline that follows an address; returns where that is."""
    following = find_either(at, NEWLINE, NEWLINE) + 1
    store_i64(state + AT, following)
    store_i64(state + LINE, load_i64(state + LINE) + 1)
    return following
