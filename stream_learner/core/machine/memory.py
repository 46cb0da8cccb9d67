"""Loads, stores and prefetches at plain addresses, and numbers seen as their bits, inside kernels.

In: byte addresses as int64, scalars. Out: scalars.
This file must never check an address: whoever computes it has bounded it, in the same kernel, before.
Loads and stores assume no alignment. Array arguments handed to helpers in hot loops cost reference counting;
addresses cost nothing.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's first element. The array must be contiguous, and outlive every use of the address."""
    return int(array.__array_interface__["data"][0])


_BYTE = ir.IntType(8)


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


def _make_load(result: Any, pointee: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_pointer(builder, args[0], pointee), align=1)

        return result(types.int64), codegen

    return load


def _make_load_at(result: Any, pointee: Any) -> Any:
    """Load `offset` bytes after a base address; in this form LLVM sees the stride of a loop over offsets."""

    @intrinsic
    def load_at(typingctx: Any, base: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = builder.gep(_pointer(builder, args[0], _BYTE), [args[1]])
            return builder.load(builder.bitcast(place, pointee.as_pointer()), align=1)

        return result(types.int64, types.int64), codegen

    return load_at


def _make_store_at(value_type: Any, pointee: Any) -> Any:
    """Store `offset` bytes after a base address; see `_make_load_at`."""

    @intrinsic
    def store_at(typingctx: Any, base: Any, offset: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = builder.gep(_pointer(builder, args[0], _BYTE), [args[1]])
            builder.store(args[2], builder.bitcast(place, pointee.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, value_type), codegen

    return store_at


def _make_store(value_type: Any, pointee: Any) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], _pointer(builder, args[0], pointee), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value_type), codegen

    return store


load_f64 = _make_load(types.float64, ir.DoubleType())
load_i64 = _make_load(types.int64, ir.IntType(64))
load_u64 = _make_load(types.uint64, ir.IntType(64))
load_u32 = _make_load(types.uint32, ir.IntType(32))
load_u16 = _make_load(types.uint16, ir.IntType(16))
load_u8 = _make_load(types.uint8, ir.IntType(8))
load_f64_at = _make_load_at(types.float64, ir.DoubleType())
load_i64_at = _make_load_at(types.int64, ir.IntType(64))
load_u16_at = _make_load_at(types.uint16, ir.IntType(16))
load_u32_at = _make_load_at(types.uint32, ir.IntType(32))
store_f64_at = _make_store_at(types.float64, ir.DoubleType())
store_f64 = _make_store(types.float64, ir.DoubleType())
store_i64 = _make_store(types.int64, ir.IntType(64))
store_u64 = _make_store(types.uint64, ir.IntType(64))


@intrinsic
def float_of_bits(typingctx: Any, bits: Any) -> Any:
    """The float64 whose bits are this int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def bits_of_float(typingctx: Any, value: Any) -> Any:
    """The bits of a float64, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def prefetch_for_write(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address, with the intention to write; any address is allowed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _BYTE.as_pointer()
        flag = ir.IntType(32)
        signature_type = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], signature_type)
        builder.call(function, [_pointer(builder, args[0], _BYTE), flag(1), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen
