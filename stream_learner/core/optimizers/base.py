"""What an optimizer is to the learner: state columns, how a weight comes from them, and its fold.

In: local rows and a record's columns, by address. Out: local rows changed, margins, scalars of the model state.
This file must never know where rows are stored. Table, checkpoint, digest and publication know columns only.

The learner copies the columns of a record's distinct features into local rows (`lanes`), calls `prepare` once, then
`fold`, and carries back the columns that changed. A new optimizer is a frozen dataclass of its hyper-parameters that
implements `Optimizer`, with its own `prepare`, `fold` and `weights` kernels, entered into the registry of
`stream_learner.core.optimizers`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.optimizers.lanes import LOCAL_BYTES, SCRATCH_BYTES

RECORD_FIELDS: Final = 11
EXAMPLES, EXCEPTIONS, FEATURES, ROW_LEN, INDICES, POSITIONS, VALUES, LABEL, WEIGHT, KEYS, LOG_TIME = range(
    RECORD_FIELDS
)
"""A record as a fold kernel takes it, int64[11]: the numbers of examples n, of values that are not 1, and of distinct
features; then the addresses of row_len u16[n], indices u16, positions u32, values f64, label f64[n], weight f64[n],
the features' keys u64, and log_time_ms i64[n]."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Hyper-parameters and rules of one optimizer. Immutable; all state is in rows and scalars."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """State columns of a row, float64 each; all zero for a feature not seen."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Scalars of the model state besides the loss's own, float64 each, zero at the start."""
    local_bytes: ClassVar[int] = LOCAL_BYTES
    """Length of a local row: the weight, the columns, and what the fold keeps beside them, float64 each."""
    scratch_bytes: ClassVar[int] = SCRATCH_BYTES
    """Memory that `fold` works in; nothing in it lasts from one call to the next."""

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights f64[r] of rows f64[r, ncols], the same bits as the fold predicts with."""
        raise NotImplementedError

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """Complete `count` local rows whose columns were copied in; returns how many weights are not 0.

        local: address of the rows; scalars: f64[], as in `fold`.
        """
        raise NotImplementedError

    def fold(self, record: int, local: int, scratch: int, loss: int, scalars: int, margins: int) -> int:
        """Fold a record's examples in order; returns how many were refused.

        record: address of the int64[11] above; local: of the rows of its features; scratch: of `scratch_bytes`;
        loss: a code of `losses`; scalars: f64[], the loss's two, then `self.scalars`; margins: f64[n], gets the
        margin each example was predicted with, NaN if it was refused. A refused example changes nothing.
        """
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Name and hyper-parameters, as `make_optimizer` takes them."""
        return {"name": self.name, **asdict(self)}
