"""Words at any address, and the few machine instructions the decoder needs beyond arithmetic.

In: byte addresses as int64, words as uint64. Out: words.
This file must never check an address: the kernel that computes one has bounded it before. Loads and stores here
may be unaligned, in contrast to those of `memory.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_learner.core.machine.kernels import kernel

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_WIDE = ir.IntType(128)
_BYTES = ir.VectorType(_BYTE, 16)

inlined = partial(kernel, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""As `kernel`, but laid into its caller, and not to be called from Python: for the steps of hot loops."""


@intrinsic
def load_byte(typingctx: Any, address: Any) -> Any:
    """The byte at an address, as int64 in [0, 256)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer, align=1), _WORD)

    return types.int64(types.int64), codegen


@intrinsic
def load_word(typingctx: Any, address: Any) -> Any:
    """The 8 bytes from an address on, little-endian, as uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()), align=1)

    return types.uint64(types.int64), codegen


@intrinsic
def store_word(typingctx: Any, address: Any, word: Any) -> Any:
    """Write 8 bytes, little-endian, from an address on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


@intrinsic
def load_int(typingctx: Any, address: Any) -> Any:
    """The 8 bytes from an address on, little-endian, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()), align=1)

    return types.int64(types.int64), codegen


@intrinsic
def store_int(typingctx: Any, address: Any, number: Any) -> Any:
    """Write an int64, little-endian, from an address on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def load_float(typingctx: Any, address: Any) -> Any:
    """The float64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer()), align=1)

    return types.float64(types.int64), codegen


@intrinsic
def store_float(typingctx: Any, address: Any, number: Any) -> Any:
    """Write a float64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.DoubleType().as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), codegen


@intrinsic
def store_byte(typingctx: Any, address: Any, number: Any) -> Any:
    """Write the lowest byte of an int64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _BYTE.as_pointer())
        builder.store(builder.trunc(args[1], _BYTE), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


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


@intrinsic
def float_of_word(typingctx: Any, word: Any) -> Any:
    """The float64 whose bits are this word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@intrinsic
def special_marks(typingctx: Any, address: Any) -> Any:
    """A bit for each of 16 bytes from an address on: quote, backslash, control character, or not ASCII.

    As signed bytes, the last two kinds are those below 0x20.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = builder.load(builder.inttoptr(args[0], _BYTES.as_pointer()), align=1)
        low = builder.icmp_signed("<", text, _BYTES([0x20] * 16))
        quotes = builder.icmp_unsigned("==", text, _BYTES([0x22] * 16))
        backslashes = builder.icmp_unsigned("==", text, _BYTES([0x5C] * 16))
        marks = builder.or_(builder.or_(low, quotes), backslashes)
        return builder.zext(builder.bitcast(marks, ir.IntType(16)), _WORD)

    return types.uint64(types.int64), codegen


@intrinsic
def same_under_mask(typingctx: Any, address: Any, pattern: Any) -> Any:
    """Whether 16 bytes at an address are those at `pattern`, where the 16 bytes behind the pattern have one bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = _WIDE.as_pointer()
        text = builder.load(builder.inttoptr(args[0], wide), align=1)
        wanted = builder.load(builder.inttoptr(args[1], wide), align=1)
        mask = builder.load(builder.inttoptr(builder.add(args[1], _WORD(16)), wide), align=1)
        return builder.icmp_unsigned("==", builder.and_(builder.xor(text, wanted), mask), _WIDE(0))

    return types.boolean(types.int64, types.int64), codegen
