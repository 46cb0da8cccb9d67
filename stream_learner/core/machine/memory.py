"""Loads, stores and prefetches at plain addresses, and the machine instructions on words that kernels need.

Addresses are int64 and need no alignment; numbers are little-endian. No function here checks an address: the kernel
that computes one bounds it first. The page of the package says when a kernel takes addresses instead of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from stream_learner.core.machine.entries import I64, U8, U64, ReadOnly, entry

_BYTE = ir.IntType(8)
_FLAG = ir.IntType(32)
_WORD = ir.IntType(64)
_WIDE = ir.IntType(128)
_WIDER = ir.IntType(256)
_DOUBLE = ir.DoubleType()
_16_BYTES = ir.VectorType(_BYTE, 16)
_64_BYTES = ir.VectorType(_BYTE, 64)
_8_WORDS = ir.VectorType(_WORD, 8)


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's first element. The array must be contiguous, and outlive every use of the address."""
    return int(array.__array_interface__["data"][0])


@entry
def _array_address(array: U8 | I64 | U64 | ReadOnly[np.uint8] | ReadOnly[np.int64] | ReadOnly[np.uint64]) -> int:
    return array.ctypes.data


def buffer_address(data: bytes | bytearray | memoryview | NDArray[Any]) -> int:
    """Address of the first byte of a buffer that is not empty and outlives every use of the address.

    It takes 0.3 us where `address_of` takes 1.0 us, which counts when one event is decoded at a time. But it compiles
    a kernel for each type of array, so use it only for those of `_array_address`.
    """
    return int(_array_address(data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)))


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


def _pointer_at(builder: Any, base: Any, offset: Any, pointee: Any) -> Any:
    """Pointer to `offset` bytes after a base address; in this form LLVM sees the stride of a loop over offsets."""
    return builder.bitcast(builder.gep(_pointer(builder, base, _BYTE), [offset]), pointee.as_pointer())


def _make_load(result: Any, pointee: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_pointer(builder, args[0], pointee), align=1)

        return result(types.int64), codegen

    return load


def _make_load_at(result: Any, pointee: Any) -> Any:
    @intrinsic
    def load_at(typingctx: Any, base: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_pointer_at(builder, args[0], args[1], pointee), align=1)

        return result(types.int64, types.int64), codegen

    return load_at


def _make_store(value_type: Any, pointee: Any) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], _pointer(builder, args[0], pointee), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value_type), codegen

    return store


def _make_store_at(value_type: Any, pointee: Any) -> Any:
    @intrinsic
    def store_at(typingctx: Any, base: Any, offset: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[2], _pointer_at(builder, args[0], args[1], pointee), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, value_type), codegen

    return store_at


# load_T(address), store_T(address, value), and at an offset: load_T_at(base, offset), store_T_at(base, offset, value).
load_f64 = _make_load(types.float64, _DOUBLE)
load_i64 = _make_load(types.int64, _WORD)
load_u64 = _make_load(types.uint64, _WORD)
load_u32 = _make_load(types.uint32, ir.IntType(32))
load_u16 = _make_load(types.uint16, ir.IntType(16))
load_f64_at = _make_load_at(types.float64, _DOUBLE)
load_i64_at = _make_load_at(types.int64, _WORD)
load_u32_at = _make_load_at(types.uint32, ir.IntType(32))
load_u16_at = _make_load_at(types.uint16, ir.IntType(16))
store_f64 = _make_store(types.float64, _DOUBLE)
store_i64 = _make_store(types.int64, _WORD)
store_u64 = _make_store(types.uint64, _WORD)
store_f64_at = _make_store_at(types.float64, _DOUBLE)


@intrinsic
def load_byte(typingctx: Any, address: Any) -> Any:
    """The byte at an address, as int64 in [0, 256)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], _BYTE), align=1), _WORD)

    return types.int64(types.int64), codegen


@intrinsic
def store_byte(typingctx: Any, address: Any, number: Any) -> Any:
    """Store the lowest byte of an int64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[1], _BYTE), _pointer(builder, args[0], _BYTE), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def make_record_at(dtype: np.dtype[Any]) -> Any:
    """A function of an address, for kernels: the record of this structured dtype that lies there, with its fields.

    Handing a kernel an array of records instead takes 3 us a call once other work has taken the cache.
    """
    record = from_dtype(dtype)

    @intrinsic
    def record_at(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(record))

        return record(types.int64), codegen

    return record_at


def _prefetch(builder: Any, address: Any, for_write: int) -> None:
    pointer = _BYTE.as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [pointer, _FLAG, _FLAG, _FLAG])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], signature)
    builder.call(function, [_pointer(builder, address, _BYTE), _FLAG(for_write), _FLAG(3), _FLAG(1)])


@intrinsic
def prefetch_for_read(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address; any address is allowed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, args[0], 0)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def prefetch_for_write(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address, with the intention to write; any address is allowed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, args[0], 1)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def float_of_bits(typingctx: Any, bits: Any) -> Any:
    """The float64 whose bits are this int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _DOUBLE)

    return types.float64(types.int64), codegen


@intrinsic
def bits_of_float(typingctx: Any, value: Any) -> Any:
    """The bits of a float64, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _WORD)

    return types.int64(types.float64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Number of zero bits below the lowest one bit, as int64; 64 for the word 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


@intrinsic
def leading_zeros(typingctx: Any, word: Any) -> Any:
    """Number of zero bits above the highest one bit, as int64; 64 for the word 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


@intrinsic
def product_high(typingctx: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of the 128-bit product of two words."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.mul(builder.zext(args[0], _WIDE), builder.zext(args[1], _WIDE))
        return builder.trunc(builder.lshr(product, _WIDE(64)), _WORD)

    return types.uint64(types.uint64, types.uint64), codegen


def _make_special_bytes(size: int) -> Any:
    text_type = ir.VectorType(_BYTE, size)

    @intrinsic
    def special(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            text = builder.load(_pointer(builder, args[0], text_type), align=1)
            low = builder.icmp_signed("<", text, text_type([0x20] * size))
            quotes = builder.icmp_unsigned("==", text, text_type([0x22] * size))
            backslashes = builder.icmp_unsigned("==", text, text_type([0x5C] * size))
            special = builder.or_(builder.or_(low, quotes), backslashes)
            return builder.zext(builder.bitcast(special, ir.IntType(size)), _WORD)

        return types.uint64(types.int64), codegen

    return special


# The bytes among 16, or 32, that end plain text, one bit each: quote, backslash, control character, or not ASCII.
# As signed bytes, the last two kinds are those below 0x20.
special_bytes = _make_special_bytes(16)
special_bytes_32 = _make_special_bytes(32)


@intrinsic
def places_of_byte(typingctx: Any, address: Any, wanted: Any) -> Any:
    """Where among 64 bytes one byte stands, an int64 in [0, 256): one bit for each place."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = builder.load(_pointer(builder, args[0], _64_BYTES), align=1)
        first = builder.insert_element(_64_BYTES(ir.Undefined), builder.trunc(args[1], _BYTE), _FLAG(0))
        everywhere = builder.shuffle_vector(first, _64_BYTES(ir.Undefined), ir.VectorType(_FLAG, 64)([0] * 64))
        return builder.bitcast(builder.icmp_unsigned("==", text, everywhere), _WORD)

    return types.uint64(types.int64, types.int64), codegen


@intrinsic
def places_of_word(typingctx: Any, address: Any, wanted: Any) -> Any:
    """Where among the 8 words at an address one stands, an uint64: one bit for each place."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = builder.load(_pointer(builder, args[0], _8_WORDS), align=1)
        first = builder.insert_element(_8_WORDS(ir.Undefined), args[1], _FLAG(0))
        everywhere = builder.shuffle_vector(first, _8_WORDS(ir.Undefined), ir.VectorType(_FLAG, 8)([0] * 8))
        return builder.zext(builder.bitcast(builder.icmp_unsigned("==", words, everywhere), _BYTE), _WORD)

    return types.uint64(types.int64, types.uint64), codegen


@intrinsic
def same_under_mask(typingctx: Any, address: Any, pattern: Any) -> Any:
    """Whether 32 bytes at an address equal those at `pattern`, in the bits that the 32 bytes after the pattern set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = builder.load(_pointer(builder, args[0], _WIDER), align=1)
        wanted = builder.load(_pointer(builder, args[1], _WIDER), align=1)
        mask = builder.load(_pointer(builder, builder.add(args[1], _WORD(32)), _WIDER), align=1)
        return builder.icmp_unsigned("==", builder.and_(builder.xor(text, wanted), mask), _WIDER(0))

    return types.boolean(types.int64, types.int64), codegen
