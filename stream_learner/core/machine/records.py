"""Copies records out of the structures in which a C library hands them over: nothing is done for each in Python.

`FIELDS` is the layout of librdkafka's `rd_kafka_message_t`, a part of its binary interface, on 64-bit machines:

| offset | field |
|---|---|
| 0 | error code, i32; 0 for a record |
| 16 | partition, i32 |
| 24, 32 | address of the value, 0 for a null value; its length |
| 56 | offset, i64 |

The addresses come from the library itself: this file must never be given any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from stream_learner.core.machine.entries import I32, I64, Flags, entry
from stream_learner.core.machine.memory import load_i64, load_u32

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_ERROR, _PARTITION, _VALUE, _LENGTH, _OFFSET = 0, 16, 24, 32, 56


def _called(builder: Any, address: Any, result: Any, arguments: Any) -> Any:
    function = ir.FunctionType(result, [_WORD] * len(arguments)).as_pointer()
    return builder.call(builder.inttoptr(address, function), arguments)


@intrinsic
def _number_from(typingctx: Any, function: Any, first: Any, second: Any) -> Any:
    """The int64 that the C function at an address returns for two addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _called(builder, args[0], _WORD, args[1:])

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def _call(typingctx: Any, function: Any, argument: Any) -> Any:
    """Call the C function at an address, which returns nothing, with one address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _called(builder, args[0], ir.VoidType(), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def _copy(typingctx: Any, to: Any, origin: Any, size: Any) -> Any:
    """Copy `size` bytes between addresses that do not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = [builder.inttoptr(address, _BYTE.as_pointer()) for address in args[:2]]
        cgutils.raw_memcpy(builder, pointers[0], pointers[1], args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@entry
def describe(
    addresses: I64,
    n: int,
    time_of: int,
    errors: I32,
    partitions: I32,
    offsets: I64,
    times_ms: I64,
    bounds: I64,
    is_null: Flags,
) -> int:
    """Fill the columns of the first n messages. Returns how many values are null.

    addresses: of the messages. time_of: address of `rd_kafka_message_timestamp`. bounds: i64[n + 1], where the
    values will lie once they are copied; the text of an error counts as a null value.
    """
    nulls = 0
    bounds[0] = 0
    for i in range(n):
        message = addresses[i]
        errors[i] = np.int32(load_u32(message + _ERROR))
        partitions[i] = np.int32(load_u32(message + _PARTITION))
        offsets[i] = load_i64(message + _OFFSET)
        times_ms[i] = _number_from(time_of, message, 0)
        absent = errors[i] != 0 or load_i64(message + _VALUE) == 0
        is_null[i] = absent
        nulls += absent
        bounds[i + 1] = bounds[i] + (0 if absent else load_i64(message + _LENGTH))
    return nulls


@entry
def find_runs(errors: I32, partitions: I32, n: int, starts: I64) -> int:
    """Where the runs begin among n >= 1 messages: records of one partition that follow each other, and each error.

    starts: i64[n + 1], filled; n stands after the last start. Returns how many runs there are.
    """
    runs = 0
    for i in range(n):
        if i == 0 or errors[i] != 0 or errors[i - 1] != 0 or partitions[i] != partitions[i - 1]:
            starts[runs] = i
            runs += 1
    starts[runs] = n
    return runs


@entry
def copy_values(addresses: I64, first: int, end: int, bounds: I64, to: int) -> None:
    """Copy the values of messages first to end - 1 to an address, back to back; there must be room for them."""
    for i in range(first, end):
        size = bounds[i + 1] - bounds[i]
        if size:
            _copy(to + bounds[i] - bounds[first], load_i64(addresses[i] + _VALUE), size)


@entry
def release(addresses: I64, n: int, destroy: int) -> None:
    """Give messages back. destroy: address of `rd_kafka_message_destroy`."""
    for i in range(n):
        _call(destroy, addresses[i])
