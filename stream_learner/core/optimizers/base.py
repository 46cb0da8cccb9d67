"""What an optimizer is to the learner: state columns, how a weight comes from them, and its fold.

In: local rows and a record's columns, by address. Out: local rows changed, margins, scalars of the model state.
This file must never know where rows are stored. Table, checkpoint, digest and publication know columns only.

The learner copies the columns of a record's distinct features into local rows (`lanes`), calls `prepare` once, then
`fold`, and carries back the columns that changed. An optimizer is a frozen dataclass of its hyper-parameters, entered
into the registry of `stream_learner.core.optimizers`. FTRL-Proximal has `prepare`, `fold` and `weights` kernels of its
own; the others are a `RuleOptimizer`: a few scalar kernels, which `rules` lists, inside the one loop of `general`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.optimizers.lanes import LOCAL_BYTES, LONGEST_ROW, PLANE_BYTES, SCRATCH_BYTES

RECORD_FIELDS: Final = 12
EXAMPLES, EXCEPTIONS, FEATURES, ROW_LEN, INDICES, POSITIONS, VALUES, LABEL, WEIGHT, KEYS, LOG_TIME, LEARNED = range(
    RECORD_FIELDS
)
"""A record as a fold kernel takes it, int64[12]: the numbers of examples n, of values that are not 1, and of distinct
features; then the addresses of row_len u16[n], indices u16, positions u32, values f64, label f64[n], weight f64[n],
the features' keys u64, log_time_ms i64[n], and learned u8[n]: 0 for an example that is only to be predicted. Without
that last address (0) all are learned from."""

ROW_BYTES: Final = 64
MOST_SCALARS: Final = 128
JOURNAL: Final = PLANE_BYTES
SCALAR_JOURNAL: Final = JOURNAL + ROW_BYTES * LONGEST_ROW
RULE_SCRATCH_BYTES: Final = SCALAR_JOURNAL + 8 * MOST_SCALARS
"""The scratch of the general fold: the values x of an example, its rows as they were, the scalars as they were."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Hyper-parameters and rules of one optimizer. Immutable; all state is in rows and scalars."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """State columns of a row, float64 each; all zero for a feature not seen."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Scalars of the model state besides the loss's own, float64 each, zero at the start."""
    moves: ClassVar[bool] = False
    """Whether weights of rows that no example touches change as the scalars do."""
    losses: ClassVar[tuple[str, ...] | None] = None
    """Names of the losses it is defined for; None: all."""
    local_bytes: ClassVar[int] = LOCAL_BYTES
    """Length of a local row: the weight, the columns, and what the fold keeps beside them, float64 each."""
    scratch_bytes: ClassVar[int] = SCRATCH_BYTES
    """Memory that `fold` works in; nothing in it lasts from one call to the next."""

    @property
    def streaming(self) -> bool:
        """Whether it fits the streaming learner; if not, `reason` says why."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why it is for evaluation only, with these hyper-parameters; "" for all that fit the streaming learner."""
        return ""

    def reads_label_range(self, loss: str) -> bool:
        """Whether it predicts and learns by the range of the labels seen so far, when it learns by this loss."""
        return loss == "squared"

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights f64[r] of rows f64[r, ncols], the same bits as the fold predicts with."""
        raise NotImplementedError

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """Complete `count` local rows whose columns were copied in; returns how many weights are not 0.

        local: address of the rows; scalars: f64[], as in `fold`.
        """
        raise NotImplementedError

    def fold(self, record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int) -> int:
        """Fold a record's examples in order; returns how many were refused.

        record: address of the int64[12] above; local: of the rows of its features; scratch: of `scratch_bytes`;
        loss, option: code and option of a loss; scalars: f64[], the loss's two, then `self.scalars`; margins: f64[n],
        gets the margin each example was predicted with, NaN if it was refused. A refused example changes nothing. One
        that is only predicted changes no row and none of `self.scalars`, is never refused, and may have no label (NaN);
        a label that it has counts in the label range, as in Vowpal Wabbit's holdout.
        """
        raise NotImplementedError

    def end_pass(self, scalars: NDArray[np.float64]) -> None:
        """Count the end of a pass over the data in `scalars`, where a learning rate depends on it."""

    def to_dict(self) -> dict[str, Any]:
        """Name and hyper-parameters, as `make_optimizer` takes them."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, slots=True)
class RuleOptimizer(Optimizer):
    """An optimizer that `rules` knows by its code, folded by `general`.

    A local row is float64[8]: the weight, then the columns. The rule's kernels read the hyper-parameters as
    `parameters` has them.
    """

    rule: ClassVar[int]
    """A code of `codes`."""
    local_bytes: ClassVar[int] = ROW_BYTES
    scratch_bytes: ClassVar[int] = RULE_SCRATCH_BYTES

    def parameters(self) -> NDArray[np.float64]:
        """The hyper-parameters as the kernels of the rule read them."""
        raise NotImplementedError

    def weights(self, columns: NDArray[np.float64], scalars: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights f64[r] of rows f64[r, ncols], brought up to date with the scalars."""
        return _general().weights(self, columns, scalars)

    def prepare(self, local: int, count: int, scalars: int) -> int:
        """See `Optimizer.prepare`."""
        return _general().prepare(self, local, count, scalars)

    def fold(self, record: int, local: int, scratch: int, loss: int, option: float, scalars: int, margins: int) -> int:
        """See `Optimizer.fold`."""
        return _general().fold(self, record, local, scratch, loss, option, scalars, margins)


def _general() -> Any:
    """The general fold: it knows every rule, and every rule's file knows this one."""
    from stream_learner.core.optimizers import general

    return general


def check_at_least(low: float, **values: float) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that is not a finite number >= `low`."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= low):
            raise ValueError(f"{name} must be a finite number >= {low:g}, not {value!r}")


def check_whole(**values: int) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that is not a whole number >= 1, exact as a float64."""
    for name, value in values.items():
        if not (1 <= value <= 2**53 and value == int(value)):
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")


def check_above(low: float, **values: float) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that is not a finite number > `low`."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > low):
            raise ValueError(f"{name} must be a finite number > {low:g}, not {value!r}")
