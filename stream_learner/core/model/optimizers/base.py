"""The interface of an optimizer: `Optimizer` has the hyper-parameters, the columns and the scalars, `Fold` the calls.

Neither knows where rows are stored. Table, checkpoint, digest and publication know columns only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.model.optimizers import settings
from stream_learner.core.model.optimizers.lanes import LOCAL_BYTES, LONGEST_ROW, PLANE_BYTES, SCRATCH_BYTES
from stream_learner.core.model.table.kernels import Resolver

ROW_BYTES: Final = 64
MOST_SCALARS: Final = 128
JOURNAL: Final = PLANE_BYTES
SCALAR_JOURNAL: Final = JOURNAL + ROW_BYTES * LONGEST_ROW
RULE_SCRATCH_BYTES: Final = SCALAR_JOURNAL + 8 * MOST_SCALARS
"""The scratch of the general fold: the values x of an example, its rows as they were, the scalars as they were."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Hyper-parameters of one optimizer. Immutable; all state is in rows and scalars.

    Its fields are `settings`, and what they do not allow raises ValueError.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """State columns of a row, float64 each; all zero for a feature not seen."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Scalars of the model state besides the loss's own, float64 each, zero at the start."""
    moves: ClassVar[bool] = False
    """Weights of rows that no example touches change when the scalars do."""
    losses: ClassVar[tuple[str, ...] | None] = None
    """Names of the losses it is defined for; None: all."""
    local_bytes: ClassVar[int] = LOCAL_BYTES
    """Length of a local row: the weight, the columns, and what the fold keeps beside them, float64 each."""
    scratch_bytes: ClassVar[int] = SCRATCH_BYTES
    """Memory that `Fold.fold` works in; nothing in it lasts from one call to the next."""

    def __post_init__(self) -> None:
        settings.check(self)

    @property
    def streaming(self) -> bool:
        """Whether it fits the streaming learner; if not, `reason` says why."""
        return not self.reason

    @property
    def reason(self) -> str:
        """The reason that it can only be evaluated with these hyper-parameters; "" if it fits the streaming learner."""
        return ""

    def reads_label_range(self, loss: str) -> bool:
        """Whether it predicts and learns by the range of the labels seen so far, when it learns by this loss."""
        return loss == "squared"

    def resolver(self) -> Resolver | None:
        """See `Fold`; by default None."""
        return None

    def end_pass(self, scalars: NDArray[np.float64]) -> None:
        """Count the end of a pass over the data in `scalars`, where a learning rate depends on it."""

    def to_dict(self) -> dict[str, Any]:
        """Name and hyper-parameters, as `make_optimizer` takes them."""
        return {"name": self.name, **asdict(self)}


@runtime_checkable
class Fold(Protocol):
    """An optimizer at work."""

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights f64[r] of rows f64[r, ncols], brought up to date with the scalars: the same bits as the fold
        predicts with.
        """

    def resolver(self) -> Resolver | None:
        """What finds the rows of keys and does at once what `prepare` does, for `WeightTable.resolve`, which then says
        what `prepare` returns; None where `prepare` must be called.
        """

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """Complete `count` local rows whose columns were copied in; returns how many weights are not 0.

        local: address of the rows; scalars: f64[], as in `fold`.
        """

    def fold(self, record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int) -> int:
        """Fold a record's examples in order; returns how many were refused.

        record: address of an int64[12] (`record`); local: of the rows of its features; scratch: of `scratch_bytes`;
        loss, option: code and option of a loss; scalars: f64[], the loss's two, then the optimizer's own; margins:
        f64[n], gets the margin each example was predicted with, NaN if it was refused. A refused example changes
        nothing. An example that is only predicted changes no row and none of the optimizer's scalars, is never
        refused, and may have no label (NaN). A label that it has counts in the label range, as in Vowpal Wabbit's
        holdout.
        """
