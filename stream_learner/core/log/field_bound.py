"""The bound on the rows of each field, as a record of examples brings it to whoever learns from it.

It stands in the log and not in a setting of the learner, so that all who fold a log hold the same features back, also
where the bound was changed on the way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stream_learner.core.machine.entries import U8, U16, entry

MOST_NUMBERS: Final = int(np.iinfo(np.uint8).max)
"""The numbers that fields can have: a byte beside each key."""


class FieldBound(NamedTuple):
    """most_rows: how many rows each field may have, at least 1. hashes: of the names of the fields 1, 2, ..., u64."""

    most_rows: int
    hashes: tuple[int, ...]


@entry
def number_keys_of(indices: U16, features: int, counted: U8, first: int, out: U8) -> None:
    """Write the number of each key to `out`: that of the feature which names it first.

    indices u16[features]: the key of each feature. The number of feature `i` is `counted[first + i]`.
    """
    for i in range(features - 1, -1, -1):
        out[indices[i]] = counted[first + i]
