"""Words of memory that several threads share, inside kernels.

`atomic_*` take addresses that are multiples of 8 and are sequentially consistent: neither the compiler nor the
processor moves anything across them. `load_f32` and `store_f32` are only indivisible, at an address that is a multiple
of 4. There is nothing larger than a word here: data that belong together are published by one pointer or one index.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_SINGLE = ir.FloatType()
_ORDER = "seq_cst"


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


@intrinsic
def atomic_load(typingctx: Any, address: Any) -> Any:
    """The int64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0], _WORD), _ORDER, 8)

    return types.int64(types.int64), codegen


@intrinsic
def atomic_store(typingctx: Any, address: Any, value: Any) -> Any:
    """Store an int64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0], _WORD), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def atomic_add(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address; returns the number before the addition."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0], _WORD), args[1], _ORDER)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load_f32(typingctx: Any, address: Any) -> Any:
    """The float32 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], _SINGLE), align=1)

    return types.float32(types.int64), codegen


@intrinsic
def store_f32(typingctx: Any, address: Any, value: Any) -> Any:
    """Store a float32 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], _SINGLE), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen
