"""The fold: examples into weights, in one exact order.

The result must not depend on how examples are cut into records, or on the order of a record's dictionary.
`core.model` explains the four steps in which a record is folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.dictionary import MAX_KEYS
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.memory import address_of, load_f64, load_i64_at, load_u16_at, load_u32_at, store_f64
from stream_learner.core.model import digest as digests
from stream_learner.core.model import losses
from stream_learner.core.model.losses import Loss, make_loss
from stream_learner.core.model.optimizers import Optimizer, fold_of
from stream_learner.core.model.optimizers.record import (
    EXAMPLES,
    FEATURES,
    KEYS,
    LABEL,
    LOG_TIME,
    RECORD_FIELDS,
    WEIGHT,
)
from stream_learner.core.model.progress import Progress
from stream_learner.core.model.row_bound import FieldRows, RowBound, claim, without_strangers
from stream_learner.core.model.table.bounded import BoundedWeightTable, ColdRows, MemoryBudget
from stream_learner.core.model.table.table import WeightTable

_FAULTS: Final = (
    "",
    "the lengths of its rows do not add up to its indices",
    "an index is beyond the dictionary",
    "the positions of values do not rise within the indices",
    "a feature has key 0",
)


@entry
def _fault(examples: int, row_len: int, m: int, indices: int, v: int, positions: int, k: int, keys: int) -> int:
    """An index into `_FAULTS`: why a record cannot be folded, 0 if it can. A wrong index of its would be a crash."""
    total = 0
    for e in range(examples):
        total += load_u16_at(row_len, 2 * e)
    if total != m:
        return 1
    largest = np.uint16(0)
    for i in range(m):
        largest = max(largest, load_u16_at(indices, 2 * i))
    if m > 0 and largest >= k:
        return 2
    before = -1
    for i in range(v):
        position = np.int64(load_u32_at(positions, 4 * i))
        if position <= before or position >= m:
            return 3
        before = position
    missing = 0
    for i in range(k):
        missing += load_i64_at(keys, 8 * i) == 0
    return 4 if missing > 0 else 0


@entry
def _make_predictions(loss: int, option: float, low: float, high: float, margins: int, count: int) -> None:
    """Turn margins f64[count] into predictions; low, high: the label range."""
    for i in range(count):
        margin = losses.margin_read(loss, option, load_f64(margins + 8 * i), low, high)
        store_f64(margins + 8 * i, losses.prediction(loss, margin))


class _Addresses(NamedTuple):
    """Addresses of the learner's own buffers."""

    scalars: int
    record: int
    rows: int
    local: int
    scratch: int


class Learner:
    """One model being learned. Not for several threads at once.

    `table` holds the rows, `progress` the progressive metrics. `examples` counts the examples folded, `refused` those
    that were not: with a number that is not finite, a label that the loss does not allow, a negative importance, or a
    step to a state that is not finite. A refused example changes nothing.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        loss: str | Loss = "logistic",
        slice_ms: int = 3_600_000,
        slices_kept: int = 48,
        max_rows: int | None = None,
    ) -> None:
        """loss: from `make_loss`, or its name. slice_ms, slices_kept: as `Progress` takes them. max_rows: the most rows
        that the table gets, as `row_bound` explains; None for no bound.

        Raises ValueError for an unknown loss, or one that the optimizer is not defined for.
        """
        self.optimizer = optimizer
        self.loss = loss if isinstance(loss, Loss) else make_loss(loss)
        check_loss(optimizer, self.loss)
        self._fold = fold_of(optimizer)
        self._resolver = self._fold.resolver()
        self.table = WeightTable(len(optimizer.columns))
        self.progress = Progress(self.loss.code, option=self.loss.option, slice_ms=slice_ms, slices_kept=slices_kept)
        self.row_bound = None if max_rows is None else RowBound(max_rows)
        self.field_rows: FieldRows | None = None
        """The rows of each field; None until a record has said how many each may have."""
        self.examples = 0
        self.refused = 0
        self.decided = 0
        """Digest of the operators' decisions that took effect (`core.gate.decisions`), u64; 0 for none."""
        self.nonzero = 0
        """How many rows have a weight that is not 0; where the optimizer `moves`, as of the last `count_nonzero`."""
        self._scalars = np.zeros(len(losses.LOSS_SCALARS) + len(optimizer.scalars))
        self._record = np.zeros(RECORD_FIELDS, np.int64)
        self._rows = np.empty(MAX_KEYS, np.int64)
        self._local = np.empty(MAX_KEYS * optimizer.local_bytes // 8)
        self._scratch = np.empty(optimizer.scratch_bytes // 8)
        self._margins = np.empty(0)
        fixed = (self._scalars, self._record, self._rows, self._local, self._scratch)
        self._at = _Addresses(*(address_of(buffer) for buffer in fixed))

    def bound_memory(self, cold: ColdRows, budget: MemoryBudget) -> BoundedWeightTable:
        """Keep no more rows in memory than a budget allows, the others in cold rows; returns the new table.

        Only before anything is folded or loaded. Rows that are cold already belong to the model once the table has
        adopted them (`BoundedWeightTable.adopt`).
        """
        if self.table.count:
            raise ValueError("the memory of a table that has rows cannot be bounded any more")
        ncols = len(self.optimizer.columns)
        self.table = BoundedWeightTable(ncols, cold, limit_bytes=budget.table_bytes, most_changed=budget.most_changed)
        return self.table

    def fold(
        self, record: ExampleRecord, tick: int, *, learned: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Learn from a record's examples in their order, as part of a tick (never less than the one before).

        Returns the margins f64[n] that the examples were predicted with before they were learned from, NaN for one that
        was refused: a view, good until the next call. With `learned` bool[n] only the examples it marks are learned
        from. The others are predicted, and may have no label; the caller measures then, and `progress` stays as it is.
        The keys of a record must not repeat. Raises ValueError, with nothing changed, for a record whose arrays do not
        agree, or a tick whose changes were already taken; and for `learned` together with a bound on the rows.
        """
        self.table.check_tick(tick)
        arrays = _columns(record)
        only = None if learned is None else np.ascontiguousarray(learned, np.bool_)
        if only is not None and len(only) != len(record):
            raise ValueError(f"learned marks {len(only)} examples, the record has {len(record)}")
        fields = _fields(arrays)
        bounded = self.row_bound is not None or self.field_rows is not None or record.bound is not None
        if bounded:
            if only is not None:
                raise ValueError("with a bound on the rows, all examples of a record are learned from")
            record = self._within_bounds(record)
            arrays = _columns(record)
            fields = _fields(arrays)
        fields.append(0 if only is None else address_of(only))
        n, k = fields[EXAMPLES], fields[FEATURES]
        if n > len(self._margins):
            self._margins = np.empty(2 * n)
        self._record[:] = fields
        at, margins, width = self._at, address_of(self._margins), self.optimizer.local_bytes
        nonzero_before = self._local_rows(fields[KEYS], k)
        code, option = self.loss.code, self.loss.option
        refused = self._fold.fold(at.record, at.local, at.scratch, code, option, at.scalars, margins)
        nonzero = self.table.write_back(at.rows, k, at.local, width, tick)
        if bounded:
            claim(record, self.table, at.rows, tick)
        if not self.optimizer.moves:
            self.nonzero += nonzero - nonzero_before
        self.examples += (n if only is None else int(np.count_nonzero(only))) - refused
        self.refused += refused
        if only is None:
            self.progress.observe(margins, fields[LABEL], fields[WEIGHT], fields[LOG_TIME], n)
        return self._margins[:n]

    def _local_rows(self, keys: int, count: int) -> int:
        """Find the rows of keys, and make their local rows. Returns how many weights are not 0."""
        at, width = self._at, self.optimizer.local_bytes
        if self._resolver is not None:
            return self.table.resolve_by(self._resolver, keys, count, at.rows, at.local)
        self.table.resolve(keys, count, at.rows, at.local, width)
        return self._fold.prepare(at.local, count, at.scalars)

    def _within_bounds(self, record: ExampleRecord) -> ExampleRecord:
        """The record without the features that get no row; the rows that the others get are counted."""
        if record.bound is not None:
            self.field_rows = self.field_rows or FieldRows()
            self.field_rows.most_rows = record.bound.most_rows
        return without_strangers(record, self.table, self.row_bound, self.field_rows)

    def predict(self, record: ExampleRecord) -> NDArray[np.float64]:
        """The predictions for a record's examples, f64[n], NaN for one without a prediction. Changes nothing.

        Rows are looked up for all keys of the record, and none is inserted. Raises ValueError for a record whose arrays
        do not agree.
        """
        arrays = _columns(record)
        fields = _fields(arrays)
        n = fields[EXAMPLES]
        keys = arrays[6]
        columns = self.table.rows_of(keys).columns
        local = np.zeros((max(1, len(keys)), self.optimizer.local_bytes // 8))
        local[: len(keys), 1 : 1 + columns.shape[1]] = columns
        # Copies: a label that is shown counts in the label range.
        scalars, learned, margins = self._scalars.copy(), np.zeros(n, np.bool_), np.empty(n)
        self._record[:] = [*fields, address_of(learned)]
        at, code, option = self._at, self.loss.code, self.loss.option
        self._fold.prepare(address_of(local), len(keys), address_of(scalars))
        self._fold.fold(
            at.record, address_of(local), at.scratch, code, option, address_of(scalars), address_of(margins)
        )
        low, high = float(self._scalars[losses.LABEL_LOW]), float(self._scalars[losses.LABEL_HIGH])
        _make_predictions(code, option, low, high, address_of(margins), n)
        return margins

    def end_pass(self) -> None:
        """Note the end of a pass over the data, for learning rates that depend on it."""
        self.optimizer.end_pass(self._scalars)

    def digest(self) -> int:
        """Digest of the model: all rows, the number of examples folded, the scalars, and `decided`."""
        return self._digest(self.table.rows_digest)

    def digest_full(self) -> int:
        """`digest`, computed again from all rows."""
        return self._digest(self.table.rows_digest_full())

    def _digest(self, rows: int) -> int:
        return digests.with_decisions(digests.model_digest(rows, self.examples, self._digested), self.decided)

    @property
    def _digested(self) -> NDArray[np.float64]:
        """The scalars that the digest covers: the label range, where predictions depend on it, and the optimizer's."""
        if self.optimizer.reads_label_range(self.loss.name):
            return self._scalars
        return self._scalars[len(losses.LOSS_SCALARS) :]

    def count_nonzero(self) -> int:
        """How many rows have a weight that is not 0. Where the optimizer `moves`, this looks at every row."""
        if self.optimizer.moves:
            self.nonzero = sum(int(np.count_nonzero(self.weights(rows.columns))) for rows in self.table.items())
        return self.nonzero

    def weights(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights f64[r] of rows with columns f64[r, ncols]."""
        return self._fold.weights(columns, self._scalars)

    def kind(self) -> dict[str, Any]:
        """The part that all states of one model have in common: `optimizer`, and `loss` unless it is logistic."""
        loss = {} if self.loss.code == losses.LOGISTIC else {"loss": self.loss.to_dict()}
        return {"optimizer": self.optimizer.to_dict(), **loss}

    def state_scalars(self) -> dict[str, Any]:
        """All state that is not in rows, exact, in JSON's types; `restore` takes it."""
        decided = {"decided": f"{self.decided:016x}"} if self.decided else {}
        return {
            **decided,
            "optimizer": self.optimizer.to_dict(),
            "loss": str(self.loss),
            "examples": self.examples,
            "refused": self.refused,
            "nonzero": None if self.optimizer.moves else self.nonzero,
            "scalars": [float(x).hex() for x in self._scalars],
            "digest": f"{self.digest():016x}",
            "rows_digest": f"{self.table.rows_digest:016x}",
            "progress": self.progress.state(),
            **self._bound_state(),
        }

    def _bound_state(self) -> dict[str, Any]:
        bound, fields = self.row_bound, self.field_rows
        state = {} if bound is None else {"max_rows": bound.max_rows, "held_back": bound.held_back}
        return state if fields is None else {**state, "fields": fields.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_scalars`, after all rows were loaded into `table`.

        Raises ValueError if the state is of another optimizer or loss, or its digest is not that of the rows loaded.
        The learner must not be used after that.
        """
        mine = {"optimizer": self.optimizer.to_dict(), "loss": str(self.loss)}
        for name, value in mine.items():
            if state[name] != value:
                raise ValueError(f"the state is of {name} {state[name]}, this learner has {value}")
        self.examples, self.refused = state["examples"], state["refused"]
        self.decided = int(state.get("decided", "0"), 16)
        self._scalars[:] = [float.fromhex(x) for x in state["scalars"]]
        self.nonzero = state["nonzero"] or 0
        self.count_nonzero()
        self.progress.restore(state["progress"])
        if self.row_bound is not None:
            self.row_bound.held_back = state.get("held_back", 0)
        self.field_rows = FieldRows.restored(state["fields"]) if "fields" in state else None
        if f"{self.digest():016x}" != state["digest"]:
            raise ValueError(f"the rows have digest {self.digest():016x}, the state says {state['digest']}")


def check_loss(optimizer: Optimizer, loss: Loss) -> None:
    """Raise ValueError for a loss that the optimizer is not defined for."""
    if optimizer.losses is not None and loss.name not in optimizer.losses:
        raise ValueError(f"{optimizer.name} is defined for the loss {', '.join(optimizer.losses)}, not for {loss}")


def _columns(record: ExampleRecord) -> tuple[NDArray[Any], ...]:
    """A record's columns as the kernels read them, in the order of `optimizers.record`.

    The caller keeps them while their addresses are in use.
    """
    return (
        np.ascontiguousarray(record.row_len, np.uint16),
        np.ascontiguousarray(record.indices, np.uint16),
        np.ascontiguousarray(record.positions, np.uint32),
        np.ascontiguousarray(record.values, np.float64),
        np.ascontiguousarray(record.label, np.float64),
        np.ascontiguousarray(record.weight, np.float64),
        np.ascontiguousarray(record.keys, np.uint64),
        np.ascontiguousarray(record.log_time_ms, np.int64),
    )


def _fields(columns: tuple[NDArray[Any], ...]) -> list[int]:
    """The fields of `optimizers.record` up to LEARNED. Raises ValueError for columns that do not agree."""
    n, m, v, values, labels, importances, k, log_times = (len(column) for column in columns)
    if not (n == labels == importances == log_times and v == values and k <= MAX_KEYS):
        raise ValueError("the record's columns differ in length, or its dictionary is too large")
    addresses = [address_of(column) for column in columns]
    row_len, indices, positions, _, _, _, keys, _ = addresses
    fault = _fault(n, row_len, m, indices, v, positions, k, keys)
    if fault:
        raise ValueError(f"the record cannot be folded: {_FAULTS[fault]}")
    return [n, v, k, *addresses]
