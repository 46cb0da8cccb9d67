"""The state that the kernels of text formats share, and the steps that all of them take.

Features are written through the context of `core.events.fast.layout`, everything else through the state: one record
whose fields are numbers and addresses. Numba checks the names of its fields.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

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

_FIELDS = (
    # The text: the address of the next line and its number; the address behind it, where we put a newline.
    "at",
    "line",
    "end",
    # Examples: how many there are, how many fit, and the addresses of their columns.
    "examples",
    "example_room",
    "labels",
    "weights",
    "lines",
    "labelled",
    # Faults: how many there are, how many fit, and the address of i64[n, 3]: line, column, code.
    "faults",
    "fault_room",
    "fault_list",
    # Numbers whose nearest float64 64 bits cannot decide: begin and end of the one the kernel stopped at; how many of
    # this line are decided, and the address of [n, 2]: address i64, value f64.
    "doubt",
    "doubt_end",
    "known",
    "known_list",
    # What the format needs: the address of its table of columns, their count, the separator, the quote or -1; of a
    # table of rows the addresses of its labels and weights.
    "columns",
    "column_count",
    "separator",
    "quote",
    "labels_in",
    "weights_in",
)
_STATE = np.dtype([(name, np.int64) for name in _FIELDS], align=True)

State: TypeAlias = Annotated[Any, np.zeros(1, _STATE).view(np.recarray)[0]]
"""A record of `_STATE`, in Python and in kernels, which change it in place. (NumPy's types know no names of fields.)"""


def new_state() -> State:
    """A state of zeros."""
    return np.zeros(1, _STATE).view(np.recarray)[0]


# Why a kernel stopped.
DONE = 0
NO_ROOM = 1
IN_DOUBT = 2

# What a kernel makes of a line. Faults are negative codes of the format.
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
def find_either(at: int, one: int, other: int) -> int:
    """The first address from `at` on that holds one of two bytes; one of them must be there."""
    marks = either_marks(at, one, other)
    while marks == _0:
        at += 16
        marks = either_marks(at, one, other)
    return at + trailing_zeros(marks)


@inlined
def ends_line(at: int) -> bool:
    """Whether a newline stands at an address, or a carriage return and a newline."""
    byte = load_byte(at)
    return byte == NEWLINE or (byte == RETURN and load_byte(at + 1) == NEWLINE)


@inlined
def skip_blanks(at: int) -> int:
    """The first address from `at` on that holds neither space nor tab."""
    byte = load_byte(at)
    while byte == SPACE or byte == TAB:
        at += 1
        byte = load_byte(at)
    return at


@kernel
def _read_exponent(at: int) -> tuple[int, int, bool]:
    """Read the exponent whose `e` is at an address: (address behind, exponent, whether it has at most 4 digits).

    If no digits follow, the address is that of the `e`.
    """
    sign = load_byte(at + 1)
    first = at + 2 if sign == PLUS or sign == MINUS else at + 1
    behind, power = more_digits(first, _0)
    if behind == first:
        return at, 0, True
    exponent = -np.int64(power) if sign == MINUS else np.int64(power)
    return behind, exponent, behind <= first + 4


@kernel
def _read_rest(first: int, at: int, mantissa: np.uint64) -> tuple[int, float, bool]:
    """Read on behind the digits in [first, at). Returns what `read_decimal` does, without the sign."""
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
def read_decimal(at: int) -> tuple[int, float, bool]:
    """Read a decimal number, sign, point and exponent optional: (address behind or FAIL, value, whether certain).

    A certain value is the nearest float64. FAIL if there is no digit.
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
def settle(state: State, at: int, behind: int) -> tuple[float, bool]:
    """Look up the number in [at, behind) among those Python has decided: (value, whether it is there).

    If it is not, it is noted in the state for Python to decide.
    """
    known = state.known_list
    for i in range(state.known):
        if load_i64(known + 16 * i) == at:
            return load_f64(known + 16 * i + 8), True
    state.doubt = at
    state.doubt_end = behind
    return 0.0, False


@inlined
def has_room(context: int, state: State) -> bool:
    """Whether one more example and one more fault fit, whatever the line holds."""
    features = load_i64(context + CTX_FILLED) + load_i64(context + CTX_MAX_FEATURES) + 1
    rows = state.examples < state.example_room
    faults = state.faults < state.fault_room
    return features <= load_i64(context + CTX_CAPACITY) and rows and faults


@inlined
def keep(context: int, state: State, label: float, weight: float, labelled: bool) -> None:
    """Make an example of the features that the context holds."""
    row = state.examples
    filled = load_i64(context + CTX_FILLED) + load_i64(context + CTX_COUNT)
    store_i64(context + CTX_FILLED, filled)
    store_i64(load_i64(context + CTX_ROW_STARTS) + 8 * row + 8, filled)
    store_f64(state.labels + 8 * row, label)
    store_f64(state.weights + 8 * row, weight)
    store_i64(state.lines + 8 * row, state.line)
    store_i64(state.labelled + 8 * row, np.int64(labelled))
    state.examples = row + 1


@kernel
def note_fault(state: State, at: int, code: int) -> None:
    """Note that this line is left out, because of what stands at an address."""
    count = state.faults
    fault = state.fault_list + 24 * count
    store_i64(fault, state.line)
    store_i64(fault + 8, at - state.at + 1)
    store_i64(fault + 16, code)
    state.faults = count + 1


@inlined
def next_line(state: State, at: int) -> int:
    """Move to the line behind the next newline. Returns its address."""
    following = find_either(at, NEWLINE, NEWLINE) + 1
    state.at = following
    state.line += 1
    return following


@inlined
def read_lines(line: Any, context: int, state: State) -> int:
    """Read lines until all are read, room is short, or a number must be decided. Returns which: DONE, NO_ROOM,
    IN_DOUBT.

    line: the kernel of a format that reads the line at an address. It returns the address behind it and KEPT,
    PASSED_OVER, STOPPED, or the code of a fault.
    """
    end = state.end
    at = state.at
    while at < end:
        if not has_room(context, state):
            return NO_ROOM
        behind, answer = line(context, state, at)
        if answer == STOPPED:
            return IN_DOUBT
        if answer < 0:
            note_fault(state, behind, answer)
        at = next_line(state, behind)
    return DONE
