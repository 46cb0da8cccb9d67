"""Lays an example's features side by side for the folds, and computes the dot product in a fixed order.

The dot product is a tree over eight lanes. Its order must stay: every digest depends on it.

A local row is float64[4]: the weight that predicts, then up to three values that belong to the feature. The scratch
holds one plane each for the values x and for the four parts of the row, PLANE_BYTES apart, feature by feature, so
that an optimizer's update is one loop over planes, which LLVM turns into vector instructions. A plane is padded with
zeros to whole blocks of eight features; adding the product of two zeros changes no bit of a lane.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_learner.core.machine.arithmetic import sum_lanes
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_f64, load_f64_at, load_u16, load_u32, store_f64_at
from stream_learner.core.model.optimizers.record import Record

LOCAL_BYTES: Final = 32
LONGEST_ROW: Final = 65536
PLANE_BYTES: Final = 8 * LONGEST_ROW + 832
"""832 bytes more than the values need, so that equal places of two planes fall into different sets of the L1 cache."""
X: Final = 0
W: Final = PLANE_BYTES
A: Final = 2 * PLANE_BYTES
B: Final = 3 * PLANE_BYTES
C: Final = 4 * PLANE_BYTES
SCRATCH_BYTES: Final = 5 * PLANE_BYTES

_QUAD = ir.VectorType(ir.DoubleType(), 4)
_I64 = ir.IntType(64)


def _shuffle(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), 4), [ir.IntType(32)(place) for place in places])
    return builder.shuffle_vector(a, b, mask)


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns of a 4 x 4 matrix given as four vectors."""
    even = [_shuffle(builder, rows[i], rows[i + 1], [0, 4, 2, 6]) for i in (0, 2)]
    odd = [_shuffle(builder, rows[i], rows[i + 1], [1, 5, 3, 7]) for i in (0, 2)]
    return [
        _shuffle(builder, even[0], even[1], [0, 1, 4, 5]),
        _shuffle(builder, odd[0], odd[1], [0, 1, 4, 5]),
        _shuffle(builder, even[0], even[1], [2, 3, 6, 7]),
        _shuffle(builder, odd[0], odd[1], [2, 3, 6, 7]),
    ]


def _quad(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _QUAD.as_pointer())


def _planes(builder: Any, place: Any) -> list[Any]:
    return [_quad(builder, builder.add(place, _I64(plane))) for plane in (W, A, B, C)]


@intrinsic
def _gather_four(typingctx: Any, row0: Any, row1: Any, row2: Any, row3: Any, place: Any) -> Any:
    """Spread four local rows over the planes, at a place of the x plane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = [builder.load(_quad(builder, row), align=1) for row in args[:4]]
        for plane, part in zip(_planes(builder, args[4]), _transpose(builder, rows), strict=True):
            builder.store(part, plane, align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _scatter_four(typingctx: Any, row0: Any, row1: Any, row2: Any, row3: Any, place: Any) -> Any:
    """Collect four local rows from the planes: the inverse of `_gather_four`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = [builder.load(plane, align=1) for plane in _planes(builder, args[4])]
        for row, whole in zip(args[:4], _transpose(builder, parts), strict=True):
            builder.store(whole, _quad(builder, row), align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@kernel
def _row(local: int, indices: int, j: int) -> int:
    return local + LOCAL_BYTES * load_u16(indices + 2 * j)


@kernel
def padded(length: int) -> int:
    """The next multiple of eight."""
    return (length + 7) & -8


@kernel
def gather(local: int, indices: int, length: int, scratch: int) -> None:
    """Spread the local rows of u16[length] indices over the planes, and pad with zeros. x is left alone."""
    for j in range(0, length - 3, 4):
        _gather_four(
            _row(local, indices, j),
            _row(local, indices, j + 1),
            _row(local, indices, j + 2),
            _row(local, indices, j + 3),
            scratch + 8 * j,
        )
    for j in range(length & -4, length):
        row = _row(local, indices, j)
        store_f64_at(scratch, W + 8 * j, load_f64(row))
        store_f64_at(scratch, A + 8 * j, load_f64(row + 8))
        store_f64_at(scratch, B + 8 * j, load_f64(row + 16))
        store_f64_at(scratch, C + 8 * j, load_f64(row + 24))
    for j in range(length, padded(length)):
        store_f64_at(scratch, W + 8 * j, 0.0)
        store_f64_at(scratch, A + 8 * j, 0.0)
        store_f64_at(scratch, B + 8 * j, 0.0)
        store_f64_at(scratch, C + 8 * j, 0.0)


@kernel
def scatter(local: int, indices: int, length: int, scratch: int) -> None:
    """Collect the local rows of u16[length] indices from the planes."""
    for j in range(0, length - 3, 4):
        _scatter_four(
            _row(local, indices, j),
            _row(local, indices, j + 1),
            _row(local, indices, j + 2),
            _row(local, indices, j + 3),
            scratch + 8 * j,
        )
    for j in range(length & -4, length):
        row = _row(local, indices, j)
        store_f64_at(row, 0, load_f64_at(scratch, W + 8 * j))
        store_f64_at(row, 8, load_f64_at(scratch, A + 8 * j))
        store_f64_at(row, 16, load_f64_at(scratch, B + 8 * j))
        store_f64_at(row, 24, load_f64_at(scratch, C + 8 * j))


@kernel
def spread_values(record: Record, scratch: int, first: int, length: int, exception: int) -> int:
    """Fill the x plane for the features at first .. first + length of the record: 1.0, or the value of an exception.

    `exception` is the first one that may belong here; returns the first that belongs to a later example.
    """
    for j in range(length):
        store_f64_at(scratch, X + 8 * j, 1.0)
    for j in range(length, padded(length)):
        store_f64_at(scratch, X + 8 * j, 0.0)
    while exception < record.exceptions:
        j = load_u32(record.positions + 4 * exception) - first
        if j >= length:
            break
        store_f64_at(scratch, X + 8 * j, load_f64(record.values + 8 * exception))
        exception += 1
    return exception


@kernel
def only_ones(record: Record, first: int, length: int, exception: int) -> bool:
    """Whether the features at first .. first + length have the value 1; `exception` as `spread_values` takes it."""
    return exception == record.exceptions or load_u32(record.positions + 4 * exception) >= first + length


@kernel
def dot(scratch: int, length: int) -> float:
    """w.x over the planes: lane j takes the features i = j mod 8 in order."""
    l0 = l1 = l2 = l3 = l4 = l5 = l6 = l7 = 0.0
    for j in range(0, length, 8):
        o = 8 * j
        l0 += load_f64_at(scratch, W + o) * load_f64_at(scratch, X + o)
        l1 += load_f64_at(scratch, W + o + 8) * load_f64_at(scratch, X + o + 8)
        l2 += load_f64_at(scratch, W + o + 16) * load_f64_at(scratch, X + o + 16)
        l3 += load_f64_at(scratch, W + o + 24) * load_f64_at(scratch, X + o + 24)
        l4 += load_f64_at(scratch, W + o + 32) * load_f64_at(scratch, X + o + 32)
        l5 += load_f64_at(scratch, W + o + 40) * load_f64_at(scratch, X + o + 40)
        l6 += load_f64_at(scratch, W + o + 48) * load_f64_at(scratch, X + o + 48)
        l7 += load_f64_at(scratch, W + o + 56) * load_f64_at(scratch, X + o + 56)
    return sum_lanes(l0, l1, l2, l3, l4, l5, l6, l7)


@kernel
def dot_with_ones(scratch: int, length: int) -> float:
    """`dot` where every x is 1: the same bits, without the x plane."""
    l0 = l1 = l2 = l3 = l4 = l5 = l6 = l7 = 0.0
    for j in range(0, length, 8):
        o = 8 * j
        l0 += load_f64_at(scratch, W + o)
        l1 += load_f64_at(scratch, W + o + 8)
        l2 += load_f64_at(scratch, W + o + 16)
        l3 += load_f64_at(scratch, W + o + 24)
        l4 += load_f64_at(scratch, W + o + 32)
        l5 += load_f64_at(scratch, W + o + 40)
        l6 += load_f64_at(scratch, W + o + 48)
        l7 += load_f64_at(scratch, W + o + 56)
    return sum_lanes(l0, l1, l2, l3, l4, l5, l6, l7)
