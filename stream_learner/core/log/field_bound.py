"""The bound on the rows of each field, as a record of examples brings it to whoever learns from it.

It stands in the log and not in a setting of the learner, so that all who fold a log hold the same features back, also
where the bound was changed on the way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.kernels import kernel

MOST_NUMBERS: Final = int(np.iinfo(np.uint8).max)
"""The numbers that fields can have: a byte beside each key."""


class FieldBound(NamedTuple):
    """most_rows: how many rows each field may have, at least 1. hashes: of the names of the fields 1, 2, ..., u64."""

    most_rows: int
    hashes: tuple[int, ...]


@kernel
def number_keys_of(
    indices: NDArray[np.uint16], features: int, counted: NDArray[np.uint8], first: int, out: NDArray[np.uint8]
) -> None:
    """Write the number of each key to `out`: that of the feature which names it first.

    indices u16[features]: the key of each feature. The number of feature `i` is `counted[first + i]`.
    """
    for i in range(features - 1, -1, -1):
        out[indices[i]] = counted[first + i]


def warm() -> None:
    """Compile the kernel."""
    number_keys_of(np.zeros(1, np.uint16), 1, np.zeros(1, np.uint8), 0, np.zeros(1, np.uint8))
