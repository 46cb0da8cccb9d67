"""The 64-bit checksum of a learner's state.

It must not depend on where a row lies, on the order of rows, or on rows that are all zero:

    row(key, c_1 ... c_k) = 0 if every column is +0.0 or -0.0,
                            else h_k with h_0 = mix(key), h_i = mix(h_{i-1} xor bits(c_i))
    rows                  = sum of row digests modulo 2^64
    model                 = m_k with m_0 = mix(rows xor mix(examples folded)), m_i = mix(m_{i-1} xor bits(s_i))
    with decisions        = model if no decision took effect, else mix(model xor mix(digest of the decisions))

The scalars s_1 ... s_k of the state are the range of the labels seen, where margins are clipped to it (as with squared
loss), then the optimizer's own (FTRL-Proximal has none). `mix` is the finalizer of splitmix64.

Because the digest of the rows is a sum, the table keeps it up to date row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.hashing import mix
from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import load_i64, load_i64_at, store_i64

_ZERO, _ONE = np.uint64(0), np.uint64(1)
CHANGES_AT_ONCE: Final = 64
_PLANE_BYTES: Final = 8 * CHANGES_AT_ONCE


@inlined
def _digest_from(hashed_key: np.uint64, columns: int, first: int, apart: int, ncols: int) -> np.uint64:
    """`row_digest` of columns that lie `apart` bytes apart, the first one `first` bytes after the address `columns`."""
    h = hashed_key
    nonzero = _ZERO
    for c in range(ncols):
        bits = np.uint64(load_i64_at(columns, first + apart * c))
        nonzero |= bits << _ONE
        h = mix(h ^ bits)
    return h if nonzero != _ZERO else _ZERO


@kernel
def row_digest(key: np.uint64, columns: int, ncols: int) -> np.uint64:
    """Digest of one row: its key (uint64) and `ncols` float64 at address `columns`."""
    return _digest_from(mix(key), columns, 0, 8, ncols)


@kernel
def row_digest_change(key: np.uint64, before: int, after: int, shape: tuple[int, ...]) -> np.uint64:
    """`row_digest` of the columns at address `after`, less that of the columns at `before`, modulo 2^64.

    `shape` is a tuple with one item a column: the compiler knows its length, and unrolls the loop.
    """
    hashed_key, ncols = mix(key), len(shape)
    return _digest_from(hashed_key, after, 0, 8, ncols) - _digest_from(hashed_key, before, 0, 8, ncols)


def changes_bytes(ncols: int) -> int:
    """Length of the memory in which `hold_change` holds changes."""
    return 8 * CHANGES_AT_ONCE * (1 + 2 * ncols)


@kernel
def hold_change(changes: int, held: int, key: int, before: int, after: int, shape: tuple[int, ...]) -> None:
    """Hold the change of a row, as `row_digest_change` takes it, at the place `held` below CHANGES_AT_ONCE.

    Keys lie beside keys and columns beside columns, so that `digest_changes` works on several rows at once.
    """
    at = changes + 8 * held
    store_i64(at, key)
    for c in range(len(shape)):
        store_i64(at + _PLANE_BYTES * (1 + c), load_i64(before + 8 * c))
        store_i64(at + _PLANE_BYTES * (1 + len(shape) + c), load_i64(after + 8 * c))


@kernel
def digest_changes(changes: int, held: int, shape: tuple[int, ...]) -> np.uint64:
    """The sum of `row_digest_change` over the first `held` changes, modulo 2^64."""
    ncols = len(shape)
    grown = _ZERO
    for i in range(held):
        hashed_key = mix(np.uint64(load_i64_at(changes, 8 * i)))
        before, after = _PLANE_BYTES + 8 * i, _PLANE_BYTES * (1 + ncols) + 8 * i
        grown += _digest_from(hashed_key, changes, after, _PLANE_BYTES, ncols)
        grown -= _digest_from(hashed_key, changes, before, _PLANE_BYTES, ncols)
    return grown


def model_digest(rows: int, examples: int, scalars: Sequence[float] | NDArray[np.float64] = ()) -> int:
    """Digest of a model: of the sum of its rows' digests, the number of examples folded, and its scalars."""
    digest = mix(np.uint64(rows) ^ mix(np.uint64(examples)))
    for bits in np.asarray(scalars, np.float64).view(np.uint64):
        digest = mix(digest ^ bits)
    return int(digest)


def with_decisions(model: int, decided: int) -> int:
    """Digest of a model together with that of the decisions that took effect, 0 for none."""
    return int(mix(np.uint64(model) ^ mix(np.uint64(decided)))) if decided else model
