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

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.hashing import mix
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_u64

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel
def row_digest(key: np.uint64, columns: int, ncols: int) -> np.uint64:
    """Digest of one row: its key (uint64) and `ncols` float64 at address `columns`."""
    h = mix(key)
    nonzero = _ZERO
    for c in range(ncols):
        bits = load_u64(columns + 8 * c)
        nonzero |= bits << _ONE
        h = mix(h ^ bits)
    return h if nonzero != _ZERO else _ZERO


@kernel
def row_digest_change(key: np.uint64, before: int, after: int, shape: tuple[int, ...]) -> np.uint64:
    """`row_digest` of the columns at address `after`, less that of the columns at `before`, modulo 2^64.

    `shape` is a tuple with one item a column: the compiler knows its length, and unrolls the loop.
    """
    old = new = mix(key)
    old_nonzero = new_nonzero = _ZERO
    for c in range(len(shape)):
        old_bits, new_bits = load_u64(before + 8 * c), load_u64(after + 8 * c)
        old_nonzero |= old_bits << _ONE
        new_nonzero |= new_bits << _ONE
        old = mix(old ^ old_bits)
        new = mix(new ^ new_bits)
    old = old if old_nonzero != _ZERO else _ZERO
    return (new if new_nonzero != _ZERO else _ZERO) - old


def model_digest(rows: int, examples: int, scalars: Sequence[float] | NDArray[np.float64] = ()) -> int:
    """Digest of a model: of the sum of its rows' digests, the number of examples folded, and its scalars."""
    digest = mix(np.uint64(rows) ^ mix(np.uint64(examples)))
    for bits in np.asarray(scalars, np.float64).view(np.uint64):
        digest = mix(digest ^ bits)
    return int(digest)


def with_decisions(model: int, decided: int) -> int:
    """Digest of a model together with that of the decisions that took effect, 0 for none."""
    return int(mix(np.uint64(model) ^ mix(np.uint64(decided)))) if decided else model


def warm() -> None:
    """Compile every kernel of this module."""
    columns = np.zeros(1)
    model_digest(1, 1)
    row_digest(np.uint64(1), address_of(columns), 1)
    row_digest_change(np.uint64(1), address_of(columns), address_of(columns), (0, 0))
